//! What leaves a core at the end of a turn: the log writes of all its regions as one job, and the
//! messages for each peer as one batch.
//!
//! Whatever happens in a turn (messages of peers, words of the writer, commands of clients), each
//! thing may give several regions something to write and to say. Handed over one by one they would
//! cost a wake-up of the log writer and of the peer thread each. So [`Core::drive`] only gathers,
//! and whoever ends the turn calls [`Core::end_turn`]. If nobody does, the composer's task does: it
//! was woken with the first thing that was gathered.
//!
//! **One job of entries at a time.** While a job with entries that this core proposed is on its way
//! to the disk, its regions gather commands for the next ([`Core::is_writing`]). A second job could
//! not be there sooner, for there is one writer; but each region would be in another one, with an
//! entry for a few commands, and its followers would have to write and to answer each alone.

use std::sync::atomic::Ordering;

use replica::LogWrite;

use super::Job;
use crate::cores::{Core, Message, RegionId};

/// Log writes on their way out of a core.
#[derive(Default)]
pub struct Leaving {
    places: Vec<RegionId>,
    writes: Vec<LogWrite>,
    /// Something among them was proposed here.
    is_ours: bool,
    /// Jobs of this kind that the writer has.
    jobs_of_ours: usize,
    /// The end of the turn was asked for.
    asked: bool,
}

impl Core {
    /// A region has something to write; it leaves with the end of the turn.
    pub(super) fn gather_write(&self, place: RegionId, write: LogWrite, is_ours: bool) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.is_ours |= is_ours;
        leaving.places.push(place);
        leaving.writes.push(write);
    }

    /// Something was gathered: should nobody end this turn, the composer will.
    pub(crate) fn ask_end_of_turn(&self) {
        if !std::mem::replace(&mut self.leaving.borrow_mut().asked, true)
            && let Some(waker) = &*self.composer.borrow()
        {
            waker.wake_by_ref();
        }
    }

    pub(super) fn is_end_of_turn_asked(&self) -> bool {
        self.leaving.borrow().asked
    }

    /// Sends what was gathered.
    pub(crate) fn end_turn(&self) {
        let (places, writes, is_ours) = {
            let mut leaving = self.leaving.borrow_mut();
            leaving.asked = false;
            let is_ours = std::mem::take(&mut leaving.is_ours);
            leaving.jobs_of_ours += usize::from(is_ours);
            let places = std::mem::take(&mut leaving.places);
            let writes = std::mem::take(&mut leaving.writes);
            (places, writes, is_ours)
        };
        if !writes.is_empty() {
            self.log(places, writes, None, is_ours);
        }
        self.flush_outbox();
    }

    /// A job with entries of this core is on its way.
    pub(super) fn is_writing(&self) -> bool {
        self.leaving.borrow().jobs_of_ours > 0
    }

    /// The writer has done with such a job.
    pub(crate) fn note_written(&self) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.jobs_of_ours = leaving.jobs_of_ours.saturating_sub(1);
    }

    /// Log writes of held regions; the ticket hears of it when they are on disk.
    pub(super) fn log_held(&self, places: Vec<RegionId>, writes: Vec<LogWrite>, ticket: usize) {
        self.log(places, writes, Some(ticket), false);
    }

    /// Sends log writes of the regions at `places` to the writer; the core hears of it when they are
    /// on disk.
    fn log(
        &self,
        places: Vec<RegionId>,
        writes: Vec<LogWrite>,
        ticket: Option<usize>,
        is_ours: bool,
    ) {
        let (home, core, heard) = (self.shared.clone(), self.id, self.unheard.take());
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let entries = writes.iter().flat_map(|write| &write.entries);
        let bytes: usize = entries.map(|entry| entry.data.len()).sum();
        durable
            .logged_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(mailbox) = home.mailboxes.get(core) {
            mailbox.await_log();
        }
        durable.writer.send(Job {
            writes,
            done: Box::new(move |writes, result| {
                if let (Err(error), Some(durable)) = (&result, &home.durable) {
                    durable.fail(error);
                }
                let numbers = places
                    .iter()
                    .zip(&writes)
                    .map(|(&place, write)| (place, write.number))
                    .collect();
                if let Some(mailbox) = home.mailboxes.get(core) {
                    mailbox.send(Message::Logged {
                        numbers,
                        ticket,
                        is_ours,
                        ok: result.is_ok(),
                    });
                }
            }),
            heard,
        });
    }
}

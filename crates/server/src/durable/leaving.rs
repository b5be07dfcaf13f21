//! What leaves a core at the end of a turn: the log writes of all its regions as one job, and the
//! messages for each peer as one batch.
//!
//! Whatever happens in a turn (messages of peers, words of the writer, commands of clients), each
//! thing may give several regions something to write and to say. Handed over one by one they would
//! cost a wake-up of the log writer and of the peer thread each. So [`Core::drive`] only gathers,
//! and whoever ends the turn calls [`Core::end_turn`]. If nobody does, the composer's task does: it
//! was woken with the first thing that was gathered.
//!
//! **On a cluster node: one job of entries at a time.** While a job with entries that this core proposed is on its way
//! to the disk, its regions gather commands for the next ([`Core::is_writing`]). A second job could
//! not be there sooner, for there is one writer; but each region would be in another one, with an
//! entry for a few commands, and its followers would have to write and to answer each alone.
//!
//! **On a node alone: as the turns end.** From the writer's word to the core's next job two threads have to be woken, and
//! the core may be busy: the disk would stand still meanwhile. So jobs leave while others are on their way, and
//! the writer takes all that waits for it as one, with one sync (decision 26).

use std::sync::atomic::Ordering;

use replica::LogWrite;

use super::Job;
use super::writer::size_bytes;
use crate::clients::Client;
use crate::cores::{Core, Message, RegionId};

/// Log writes on their way out of a core.
#[derive(Default)]
pub struct Leaving {
    places: Vec<RegionId>,
    writes: Vec<LogWrite>,
    /// Of their entries.
    bytes: usize,
    /// Something among them was proposed here.
    is_ours: bool,
    /// Jobs of this kind that the writer has.
    jobs_of_ours: usize,
    /// The end of the turn was asked for.
    asked: bool,
    /// Clients that wait for what leaves next.
    clients: u32,
    /// Jobs that have left.
    number: u64,
}

/// Jobs with entries of one core that may be on their way, on a node alone.
const MOST_JOBS: usize = 16;
/// A job is no larger, unless it is one write: it is one record of the log, and the log has a largest one.
const JOB_BYTES: usize = 16 << 20;

/// Whose writes a job takes.
enum Whose {
    /// All that was gathered in a turn: some of it was proposed here, so many clients wait for it.
    Turn { is_ours: bool, clients: u32 },
    /// A task that holds the regions.
    Held { ticket: usize },
}

impl Core {
    /// A region has something to write; it leaves with the end of the turn. What was gathered before it leaves
    /// now, if the two are too much for one job.
    pub(super) fn gather_write(&self, place: RegionId, write: LogWrite, is_ours: bool) {
        let bytes = size_bytes(&write);
        if self.leaving.borrow().bytes + bytes > JOB_BYTES {
            self.send_gathered();
        }
        let mut leaving = self.leaving.borrow_mut();
        leaving.is_ours |= is_ours;
        leaving.bytes += bytes;
        leaving.places.push(place);
        leaving.writes.push(write);
    }

    /// A client has something for the log, which most often leaves with the end of the turn.
    pub(super) fn note_writer(&self, client: &Client) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        if self.shared.cluster.is_some() {
            return;
        }
        let mut leaving = self.leaving.borrow_mut();
        // Each client once, however many of its batches leave together.
        let job = (self.id as u64) << 48 | leaving.number;
        if client.wrote_with.swap(job, Ordering::Relaxed) != job {
            leaving.clients += 1;
            durable.writer.writers().note(client, self.now_ms());
        }
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
        self.leaving.borrow_mut().asked = false;
        self.send_gathered();
        self.flush_outbox();
    }

    /// Sends the log writes that were gathered, as a job.
    fn send_gathered(&self) {
        let (places, writes, whose) = {
            let mut leaving = self.leaving.borrow_mut();
            if leaving.writes.is_empty() {
                return;
            }
            leaving.bytes = 0;
            leaving.number += 1;
            let is_ours = std::mem::take(&mut leaving.is_ours);
            leaving.jobs_of_ours += usize::from(is_ours);
            let clients = std::mem::take(&mut leaving.clients);
            let places = std::mem::take(&mut leaving.places);
            let writes = std::mem::take(&mut leaving.writes);
            (places, writes, Whose::Turn { is_ours, clients })
        };
        self.log(places, writes, whose);
    }

    /// As many entries of this core are on their way as may be.
    pub(super) fn is_writing(&self) -> bool {
        let leaving = self.leaving.borrow();
        leaving.jobs_of_ours >= self.most_jobs() || leaving.bytes >= JOB_BYTES
    }

    /// Jobs of this core, and so writes of one of its regions, that may be on their way.
    pub(super) fn most_jobs(&self) -> usize {
        match self.shared.cluster {
            Some(_) => 1,
            None => MOST_JOBS,
        }
    }

    /// The writer has done with such a job.
    pub(crate) fn note_written(&self) {
        let mut leaving = self.leaving.borrow_mut();
        leaving.jobs_of_ours = leaving.jobs_of_ours.saturating_sub(1);
    }

    /// Log writes of held regions; the ticket hears of it when they are on disk.
    pub(super) fn log_held(&self, places: Vec<RegionId>, writes: Vec<LogWrite>, ticket: usize) {
        self.log(places, writes, Whose::Held { ticket });
    }

    /// Sends log writes of the regions at `places` to the writer; the core hears of it when they are
    /// on disk.
    fn log(&self, places: Vec<RegionId>, writes: Vec<LogWrite>, whose: Whose) {
        let (ticket, is_ours, clients) = match whose {
            Whose::Turn { is_ours, clients } => (None, is_ours, clients),
            Whose::Held { ticket } => (Some(ticket), false, 1),
        };
        let (home, core, heard) = (self.shared.clone(), self.id, self.unheard.take());
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let bytes: usize = writes.iter().map(size_bytes).sum();
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
                let mailbox = home.mailboxes.get(core)?;
                mailbox.push(Message::Logged {
                    numbers,
                    ticket,
                    is_ours,
                    ok: result.is_ok(),
                });
                Some(mailbox.clone())
            }),
            heard,
            clients,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use replica::Entry;

    use super::*;
    use crate::durable::one_core::{Slow, core, run_alone};

    /// A region of its own for each, as on a follower that hears of several at once.
    fn write(region: u64, bytes: usize) -> LogWrite {
        let entry = Entry {
            index: 1,
            term: 1,
            data: vec![0; bytes].into(),
            ..Entry::default()
        };
        LogWrite {
            region,
            number: region,
            entries: vec![entry],
            ..LogWrite::default()
        }
    }

    /// The numbers of the writes of each job, as the core hears of them.
    fn jobs_of(sizes: &[usize]) -> Vec<Vec<u64>> {
        let mut jobs = Vec::new();
        run_alone(async {
            let core = core(Arc::new(Slow::default()));
            for (number, &bytes) in (100..).zip(sizes) {
                core.gather_write(0, write(number, bytes), true);
            }
            core.end_turn();
            let count = core.leaving.borrow().jobs_of_ours;
            while jobs.len() < count {
                match core.shared.mailboxes[core.id].receive() {
                    Some(Message::Logged { numbers, ok, .. }) => {
                        assert!(ok);
                        jobs.push(numbers.into_iter().map(|(_, number)| number).collect());
                    }
                    Some(_) => {}
                    None => tokio::task::yield_now().await,
                }
            }
        });
        jobs
    }

    #[test]
    fn a_job_is_one_write_or_not_large() {
        assert_eq!(jobs_of(&[100, 100, 100]), [vec![100, 101, 102]]);
        let half = JOB_BYTES / 2;
        assert_eq!(jobs_of(&[half, half, 1]), [vec![100, 101], vec![102]]);
        let huge = JOB_BYTES + 1;
        let alone = [vec![100], vec![101], vec![102], vec![103]];
        assert_eq!(jobs_of(&[1, huge, huge, 1]), alone);
        assert_eq!(jobs_of(&[]), Vec::<Vec<u64>>::new());
    }
}

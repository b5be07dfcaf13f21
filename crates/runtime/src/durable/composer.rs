//! The task that ends a core's turns: what reached its regions meanwhile becomes entries of their logs.
//!
//! It was woken by the first batch and stands behind all sessions that were ready then. When the disk has
//! an entry, sessions that are ready then have their turn, the next entry is sent, then the former is
//! applied.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use node::outgoing::size_bytes;
use node::{BatchBox, Unserved};
use replica::LogWrite;

use super::Job;
use crate::cores::{Core, Message, Place};

impl Core {
    /// A batch with writes has come: it becomes part of its region's next entry.
    pub(crate) fn enqueue(self: &Rc<Self>, batch: BatchBox) {
        let mut regions = self.regions.borrow_mut();
        if let (Some(durable), None) = (&self.shared.durable, &self.shared.cluster)
            && regions.outgoing.note_client(self.id, &batch.client)
        {
            durable.writer.writing().note(&batch.client, self.now_ms());
        }
        let refused = regions.enqueue(batch);
        drop(regions);
        match refused {
            Some(batch) => self.redirect_batch(batch, Unserved::Elsewhere),
            None => self.wake_composer(),
        }
    }

    pub(crate) fn wake_composer(&self) {
        self.compose_asked.set(true);
        self.wake_composer_to_flush();
    }

    /// Something was gathered: should nobody end this turn, the composer will.
    pub(crate) fn wake_composer_to_flush(&self) {
        if let Some(waker) = &*self.composer.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The task that ends turns.
    pub(crate) async fn run_composer(self: Rc<Self>) {
        while !self.is_stopping() {
            poll_fn(|cx| {
                *self.composer.borrow_mut() = Some(cx.waker().clone());
                let is_flush_asked = self.regions.borrow().outgoing.is_flush_asked;
                match self.compose_asked.get() || is_flush_asked || self.is_stopping() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            if !self.compose_asked.take() {
                self.end_turn();
                continue;
            }
            if self.regions.borrow().has_logged() {
                // What clients have sent meanwhile is read first: it shares the sync.
                tokio::task::yield_now().await;
            }
            self.begin_batch();
            self.on_regions(|regions, cx, out| {
                regions.run_groups(cx, out);
                regions.propose_queued(cx, out);
            });
            if self.is_eviction_asked() {
                self.evict_by_log();
            }
            if self.regions.borrow().has_logged() {
                // The disk and the peers have work while the former entries are applied.
                self.end_turn();
                self.on_regions(|regions, cx, out| regions.drive_logged(cx, out));
            }
            self.end_turn();
        }
    }

    /// Sends what was gathered: log writes, and messages for peers.
    pub(crate) fn end_turn(self: &Rc<Self>) {
        self.on_regions(|regions, _, out| regions.outgoing.flush(out));
        self.flush_outbox();
    }

    /// Sends log writes of the regions at `places` to the writer; the core is told when they are on disk.
    /// Of a turn: whether some of it was proposed here, and how many clients wait for it.
    pub(crate) fn log(
        &self,
        places: Vec<Place>,
        writes: Vec<LogWrite>,
        commit: Option<usize>,
        (is_ours, clients): (bool, u32),
    ) {
        let (shared, core) = (self.shared.clone(), self.id);
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let bytes: usize = writes.iter().map(size_bytes).sum();
        durable
            .logged_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(mailbox) = shared.mailboxes.get(core) {
            mailbox.await_log();
        }
        durable.writer.send(Job {
            writes,
            done: Box::new(move |writes, result| {
                if let (Err(error), Some(durable)) = (&result, &shared.durable) {
                    durable.fail(error);
                }
                let numbers = places
                    .iter()
                    .zip(&writes)
                    .map(|(&place, write)| (place, write.number))
                    .collect();
                let mailbox = shared.mailboxes.get(core)?;
                mailbox.push(Message::Logged {
                    numbers,
                    commit,
                    is_ours,
                    ok: result.is_ok(),
                });
                Some(mailbox.clone())
            }),
            clients,
        });
    }

    /// The writer has written writes of regions of this core, or has failed.
    pub(crate) fn on_logged(self: &Rc<Self>, numbers: &[(Place, u64)], ok: bool) {
        self.begin_batch();
        self.on_regions(|regions, cx, out| regions.on_logged(numbers, ok, cx, out));
    }

    /// Sends a reader thread for entries of the log that are not in memory any more.
    pub(crate) fn fetch_entries(&self, place: Place, fetch: replica::Fetch) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let (core, shared) = (self.id, self.shared.clone());
        let log = durable.stores.log.clone();
        durable.readers.send(Box::new(move |_| {
            let entries = log.entries(fetch.region, fetch.low, fetch.high, fetch.max_bytes);
            if let Some(mailbox) = shared.mailboxes.get(core) {
                mailbox.send(Message::Entries {
                    region: place,
                    entries: entries.map_err(|error| error.to_string()),
                });
            }
        }));
    }

    /// Entries of the log have been read.
    pub(crate) fn on_entries(
        self: &Rc<Self>,
        place: Place,
        entries: Result<Vec<replica::Entry>, String>,
    ) {
        self.begin_batch();
        self.on_regions(|regions, cx, out| regions.on_entries(place, entries, cx, out));
    }
}

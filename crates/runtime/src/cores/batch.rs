//! Running a batch of commands that a session of this or another core sent.
//!
//! The commands run in order. One that meets a lent region makes the rest of the batch wait for it in a
//! task of its own, so the inbox goes on.

use std::rc::Rc;

use base::{DbIndex, Refusal, milestone};
use node::{Absent, Batch, BatchBox, Ran, Route, Unserved, route};

use super::Core;
use super::mailbox::Message;
use super::prefetch::{AHEAD_KEYS, Coming};
use super::run::Call;
use super::tickets::{Answer, Ticket};
use crate::cluster::Cluster;

impl Core {
    /// A batch has come: run it, now if possible.
    pub(crate) fn on_batch(self: &Rc<Self>, mut batch: Box<Batch>) {
        self.begin_batch();
        if batch.writes && batch.waiter.is_none() {
            self.enqueue(batch);
            return;
        }
        if self.shared.durable.is_some() {
            return self.on_regions(|regions, cx, out| regions.read(batch, cx, out));
        }
        let Err(mut why) = self.run_batch(&mut batch) else {
            self.finish_batch(batch);
            return;
        };
        let core = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                match why {
                    Absent::Lent | Absent::Unconfirmed(_) => core.run_held(&mut batch).await,
                    Absent::Cold(cold) => core.load_cold(*cold).await,
                }
                core.begin_batch();
                match core.run_batch(&mut batch) {
                    Ok(()) => break,
                    Err(again) => why = again,
                }
            }
            core.finish_batch(batch);
        });
    }

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
            None => self.wake_to_propose(),
        }
    }

    /// Sends a batch to its core, once that has room for it; the ticket waits for it to come back.
    pub async fn send_batch(self: &Rc<Self>, mut batch: Box<Batch>) -> Ticket {
        let target = batch.target;
        if target != self.id {
            self.credit(target).await;
        }
        let ticket = Ticket::new(self);
        batch.ticket = ticket.number();
        if target == self.id {
            self.on_batch(batch);
        } else {
            self.stats().batches_sent.add(1);
            if let Some(mailbox) = self.shared.mailboxes.get(target) {
                match batch.writes {
                    true => mailbox.send_with_log(Message::Batch(batch)),
                    false => mailbox.send(Message::Batch(batch)),
                }
            }
        }
        ticket
    }

    pub(crate) fn finish_batch(&self, batch: Box<Batch>) {
        milestone("the core gave the batch back to the session");
        self.answered_bytes
            .set(self.answered_bytes.get() + batch.replies.len());
        if batch.from == self.id {
            let ticket = batch.ticket;
            let _ = self.tickets.deliver(ticket, Answer::Batch(batch));
        } else {
            self.send(batch.from, Message::Done(batch));
        }
    }

    /// Runs commands until the end, or until there are enough replies, or until one needs a region that is lent.
    fn run_batch(self: &Rc<Self>, batch: &mut Batch) -> Result<(), Absent> {
        let map = &self.shared.map;
        let mut regions = Vec::new();
        while batch.ends.len() < batch.heads.len() && !batch.has_enough() {
            let at = batch.ends.len();
            let (stat, db) = batch.heads[at];
            if at.is_multiple_of(AHEAD_KEYS) && self.is_worth_prefetching(db) {
                self.prefetch_batch(batch, at, db);
            }
            let spec = self.shared.commands.spec(stat as usize);
            let args = batch.commands.args(at);
            let call = Call {
                spec,
                stat: stat as usize,
                db,
                client: &batch.client,
                is_held: false,
            };
            let replies = &mut batch.replies;
            let before = replies.len();
            if let Err(refusal) = self.admit(&call) {
                self.refuse(&refusal, replies);
            } else {
                let route = route(map, spec, &args, &mut regions);
                let mut run = || self.run_here(route, &regions, &call, &args, replies);
                let ran = match spec.is_write() {
                    true => Ok(run()),
                    false => base::contained(run),
                };
                match ran {
                    Ok(Ok(_)) => {}
                    Ok(Err(absent)) => return Err(absent),
                    Err(_) => {
                        batch.replies.truncate(before);
                        self.stats().unexpected_errors.add(1);
                        batch.replies.refusal(&Refusal::new("ERR internal error"));
                    }
                }
            }
            batch.ends.push(batch.replies.len());
        }
        Ok(())
    }

    /// Answers the next command of a batch with where it should go (cluster).
    fn refuse_next(&self, batch: &mut Batch, why: Unserved) {
        let at = batch.ends.len();
        let Some(&(stat, _)) = batch.heads.get(at) else {
            return;
        };
        let spec = self.shared.commands.spec(stat as usize);
        let slot = Cluster::slot_of(spec, &batch.commands.args(at));
        let refusal = self.unserved(slot.ok().flatten().unwrap_or_default(), why);
        self.refuse(&refusal, &mut batch.replies);
        batch.ends.push(batch.replies.len());
    }

    pub(crate) fn refuse_rest(&self, batch: &mut Batch, why: Unserved) {
        while batch.ends.len() < batch.heads.len() {
            self.refuse_next(batch, why);
        }
    }

    /// Asks for the memory of the next commands' keys.
    fn prefetch_batch(&self, batch: &Batch, from: usize, db: DbIndex) {
        let mut coming = [Coming::default(); AHEAD_KEYS];
        let count = AHEAD_KEYS.min(batch.heads.len() - from);
        for (at, command) in (from..from + count).zip(&mut coming) {
            let args = batch.commands.args(at);
            *command = Coming::new(|argument| args.get(argument));
        }
        if count > 1 {
            self.prefetch(db, &coming[..count]);
        }
    }

    /// Runs the next command of the batch on regions it waits for.
    async fn run_held(self: &Rc<Self>, batch: &mut Batch) {
        let at = batch.ends.len();
        let Some(&(stat, db)) = batch.heads.get(at) else {
            return;
        };
        let spec = self.shared.commands.spec(stat as usize);
        let args = batch.commands.args(at);
        let call = Call {
            spec,
            stat: stat as usize,
            db,
            client: &batch.client,
            is_held: false,
        };
        let mut regions = Vec::new();
        match route(&self.shared.map, spec, &args, &mut regions) {
            Route::One(one) => regions = vec![one],
            Route::Anywhere => regions = vec![self.shared.map.any_of(self.id)],
            Route::Several | Route::All | Route::Cursor => {}
        }
        let mut held = self.hold(&regions).await;
        if !held.has(&regions) {
            drop(held);
            // Those behind it must not run before it does.
            return self.refuse_rest(batch, Unserved::Elsewhere);
        }
        held.load_named(spec, db, &args).await;
        let before = batch.replies.len();
        let replies = &mut batch.replies;
        let ran = match spec.is_write() {
            true => Ok(held.run(&call, &args, replies)),
            false => base::contained(|| held.run(&call, &args, replies)),
        };
        if !matches!(ran, Ok(Ran::Done | Ran::Refused)) {
            batch.replies.truncate(before);
            batch.replies.refusal(&Refusal::new("ERR internal error"));
        }
        drop(held);
        batch.ends.push(batch.replies.len());
    }
}

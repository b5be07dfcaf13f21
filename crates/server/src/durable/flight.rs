//! Running an entry that this node proposed: the commands of its batches, and the attempts for
//! blocked sessions between them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use base::Refusal;
use keyspace::{Keyspace, View};

use super::Flight;
use super::keep::try_again;
use super::member::seed_of;
use crate::cluster::Serving;
use crate::cores::{
    AHEAD_KEYS, BatchBox, Call, Coming, Core, Ran, Region, Waiter, only_key, prefetch_in,
};

impl Core {
    /// Runs the commands of an entry in its order; reads of the same sessions in their places.
    /// The replies of blocked sessions that were served on the way.
    pub(super) fn run_flight(
        self: &Rc<Self>,
        region: &mut Region,
        flight: &mut Flight,
    ) -> Vec<(Arc<Waiter>, Vec<u8>)> {
        let settings = self.settings().clone();
        let mut answers = Vec::new();
        let mut nth = flight.tables.len();
        region.space.continue_entry(flight.index);
        for entry in flight.tables.drain(..) {
            region.space.apply_table_entry(flight.stamp_ms, entry);
        }
        for (db, key, deadline_ms) in &flight.due {
            if region.space.expire_key(*db, key, *deadline_ms) {
                self.stats().expired_keys.add(1);
            }
        }
        for victim in &flight.victims {
            let (db, key) = (victim.db, &victim.key);
            let space = &mut region.space;
            if space.evict_key(db, key, victim.deadline_ms, flight.stamp_ms) {
                space.count_evicted();
                self.stats().evicted_keys.add(1);
            }
        }
        let mut looked_to = (0, 0);
        for nth_batch in 0..flight.batches.len() {
            prefetch_batches(&flight.batches, nth_batch);
            for at in 0..flight.batches[nth_batch].heads.len() {
                if (nth_batch, at) >= looked_to {
                    region.space.make_rows();
                    looked_to = look_ahead(&region.space, &flight.batches, nth_batch, at);
                }
                let batch = &mut flight.batches[nth_batch];
                let (stat, db) = batch.heads[at];
                let row = self.shared.commands.row(stat as usize);
                let args = batch.commands.args(at);
                let call = Call {
                    row,
                    stat: stat as usize,
                    db,
                    client: &batch.client,
                    is_held: batch.waiter.is_some(),
                };
                if let Some(refusal) = batch.refusal(at) {
                    self.refuse(&refusal.clone(), &mut batch.replies);
                    batch.ends.push(batch.replies.len());
                    continue;
                }
                let is_write = row.is_write();
                let seed = match is_write {
                    true => seed_of(flight.seed, nth),
                    false => self.next_seed(),
                };
                let before = batch.replies.len();
                let view = View::one(
                    &mut region.space,
                    db,
                    flight.stamp_ms,
                    seed,
                    &settings.tuning,
                );
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    self.invoke(&call, view, &args, &mut batch.replies)
                }));
                if let Ok(Ran::Empty) = ran {
                    self.wait_behind(region, batch);
                } else if ran.is_err() {
                    batch.replies.truncate(before);
                    self.stats().unexpected_errors.add(1);
                    batch.replies.refusal(&Refusal::new("ERR internal error"));
                }
                batch.ends.push(batch.replies.len());
                nth += usize::from(is_write);
                let is_last = at + 1 == batch.heads.len();
                let may_serve = if batch.together { is_last } else { is_write };
                if !may_serve {
                    continue;
                }
                let behind = nth;
                let mut in_vain = Vec::new();
                while flight
                    .serves
                    .front()
                    .is_some_and(|serve| serve.behind == behind)
                {
                    let Some(serve) = flight.serves.pop_front() else {
                        break;
                    };
                    let row = self.shared.commands.row(serve.waiter.stat);
                    let command = only_key(row, &serve.waiter.command.args(0), &serve.key);
                    let view = View::one(
                        &mut region.space,
                        serve.db,
                        flight.stamp_ms,
                        seed_of(flight.seed, nth),
                        &settings.tuning,
                    );
                    nth += 1;
                    match self.attempt_on(&serve.waiter, &command, view) {
                        Some(reply) => {
                            serve.waiter.claim.served();
                            answers.push((serve.waiter, reply));
                        }
                        None => in_vain.push(serve),
                    }
                }
                // The last goes back first: each to the head of the line, so the order stays.
                for serve in in_vain.into_iter().rev() {
                    self.put_back(region, serve.waiter, serve.db, &serve.key);
                }
            }
        }
        // What missed a row was answered so; there was none when it was proposed.
        if region.space.has_missing_rows() {
            region.space.take_missing_rows();
        }
        answers
    }

    /// A blocking command whose key existed when it was proposed has found nothing: its waiter is put in line.
    fn wait_behind(&self, region: &mut Region, batch: &mut BatchBox) {
        if region.serving() == Serving::No {
            // Those who wait were told already; this one goes to whoever leads now.
            return self.refuse(&try_again(), &mut batch.replies);
        }
        batch.put_in_line(self, region);
    }
}

/// Asks for the batches behind this one: they have come over some time, and most are not near any more.
fn prefetch_batches(batches: &[BatchBox], nth: usize) {
    if let Some(batch) = batches.get(nth + 3) {
        base::prefetch_whole(&**batch);
    }
    if let Some(batch) = batches.get(nth + 2) {
        batch.prefetch();
    }
}

/// Asks for the memory of the commands from here on, over all batches: when they were read is too
/// long ago. Where it has not looked any more.
fn look_ahead(
    space: &Keyspace,
    batches: &[BatchBox],
    nth_batch: usize,
    at: usize,
) -> (usize, usize) {
    let mut coming = [Coming::default(); AHEAD_KEYS];
    let mut count = 0;
    let mut next = (nth_batch, at);
    let mut db = None;
    while let (Some(batch), Some(command)) = (batches.get(next.0), coming.get_mut(count)) {
        let Some(&(_, of)) = batch.heads.get(next.1) else {
            next = (next.0 + 1, 0);
            continue;
        };
        if *db.get_or_insert(of) != of {
            break;
        }
        let args = batch.commands.args(next.1);
        // Nearly always the first argument is the key; if not, nothing is lost.
        *command = Coming::new(|n| (n < args.len()).then(|| args.at(n)));
        count += 1;
        next.1 += 1;
    }
    prefetch_in(space, db.unwrap_or(0), &coming[..count]);
    next
}

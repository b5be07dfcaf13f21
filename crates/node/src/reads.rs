//! Batches of reads on one region of a durable node: they run in place, once the read barrier lets them
//! and what they need is in memory.
//!
//! ```text
//!   batch ─► run ─► region lent            ─► waits for its return ─┐
//!             ▲     not confirmed          ─► read barrier ─────────┤
//!             │     keys or rows not here  ─► load ─────────────────┤
//!             │     SQL rows not cached    ─► write-back loads them ┤
//!             └──────────────────────────────────────────────────── again
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::Refusal;
use command::{Attempt, Traits};
use keyspace::View;
use resp::Reply;

use crate::effects::{Effects, Load};
use crate::run::{Absent, Access, Again, Cold, Ran};
use crate::write_back::Wanted;
use crate::{
    Barrier, Batch, BatchBox, Context, EffectRequest, Outcome, OwnedRegions, Place, TIMEOUT_MS,
    Unserved, row_needs,
};

/// Tickets of reads; those of the host's tasks are smaller.
pub const READS: usize = 1 << 40;

/// Reads that wait, by their tickets.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<usize, Reading>,
    last: usize,
    /// Regions that are not to be lent before a load is done, by the ticket of the read.
    holds: BTreeMap<usize, Place>,
}

/// A batch of reads; those before `batch.ends.len()` are answered.
pub(crate) struct Reading {
    batch: BatchBox,
    again: Again,
    /// The read barrier was passed for the next attempt.
    is_confirmed: bool,
    /// Why the SQL rows of the next command cannot be had.
    row_failure: Option<Refusal>,
    /// Since when it waits for the read barrier, or for the region to learn which tables there are, by
    /// the clock of leases: it gives up some time later.
    since_ms: Option<u64>,
    /// It waits for its region to come back, or for the region to learn which tables there are.
    looks_again: bool,
    /// The region was lent before what it needs was loaded: it is not lent again before that.
    was_lent: bool,
}

impl Reads {
    fn add(&mut self, reading: Reading) -> usize {
        self.last += 1;
        let ticket = READS + self.last;
        self.waiting.insert(ticket, reading);
        ticket
    }

    /// Whether a region must not be lent now.
    pub fn holds(&self, place: Place) -> bool {
        self.holds.values().any(|of| *of == place)
    }

    /// Takes reads out that are to be answered now.
    fn take(&mut self, is_it: impl Fn(&Reading) -> bool) -> Vec<BatchBox> {
        let taken = self.waiting.extract_if(.., |_, reading| is_it(reading));
        taken.map(|(_, reading)| reading.batch).collect()
    }
}

impl OwnedRegions {
    /// A batch of reads on one region has come, or a blocking command with its waiter ([`crate::blocking`]).
    pub fn read(&mut self, batch: BatchBox, cx: &Context<'_>, out: &mut Effects) {
        let reading = Reading {
            batch,
            again: Again::default(),
            is_confirmed: false,
            row_failure: None,
            since_ms: None,
            looks_again: false,
            was_lent: false,
        };
        self.go_on_reading(reading, cx, out);
    }

    /// What a read waited for has come: the barrier is passed or has to be asked again, what it needs is
    /// loaded.
    pub fn resume_read(
        &mut self,
        ticket: usize,
        is_confirmed: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let is_released = self.reads.holds.remove(&ticket).is_some();
        if let Some(mut reading) = self.reads.waiting.remove(&ticket) {
            reading.is_confirmed = is_confirmed;
            self.go_on_reading(reading, cx, out);
        }
        if is_released {
            self.grant_next(cx, out);
        }
    }

    /// SQL rows that a read waited for are cached, or cannot be had.
    pub fn resume_read_of_rows(
        &mut self,
        ticket: usize,
        failure: Option<Refusal>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some(mut reading) = self.reads.waiting.remove(&ticket) {
            reading.row_failure = failure;
            reading.is_confirmed = false;
            self.go_on_reading(reading, cx, out);
        }
    }

    /// Reads of a region that came back, or learned which tables there are, look again.
    pub fn look_again(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let waiting = self.reads.waiting.iter();
        let of_place = waiting.filter(|(_, it)| it.looks_again && it.batch.region == place);
        let tickets: Vec<usize> = of_place.map(|(&ticket, _)| ticket).collect();
        for ticket in tickets {
            self.resume_read(ticket, false, cx, out);
        }
    }

    /// Reads that have waited too long for a leader are told.
    pub(crate) fn give_up_reads(&mut self, cx: &Context<'_>, out: &mut Effects) {
        let over = self.reads.take(|reading| {
            let since_ms = reading.since_ms;
            since_ms.is_some_and(|since_ms| since_ms + TIMEOUT_MS < cx.clock_ms)
        });
        let outcome = Outcome::Unserved(Unserved::Down);
        out.finished
            .extend(over.into_iter().map(|batch| (batch, outcome.clone())));
    }

    /// Nothing that these reads wait for will come: the node has failed, or the region (all, if `None`)
    /// has left it. Those for whom rows are being read go on.
    pub(crate) fn refuse_reads(&mut self, place: Option<Place>, out: &mut Effects) {
        let refused = self.reads.take(|reading| match place {
            Some(place) => reading.batch.region == place,
            None => reading.since_ms.is_some() || reading.looks_again,
        });
        let outcome = Outcome::Unserved(Unserved::Elsewhere);
        out.finished
            .extend(refused.into_iter().map(|batch| (batch, outcome.clone())));
    }

    fn go_on_reading(&mut self, mut reading: Reading, cx: &Context<'_>, out: &mut Effects) {
        let place = reading.batch.region;
        let is_blocking = reading.batch.waiter.is_some();
        loop {
            let ran = match is_blocking {
                true => self.look(&mut reading.batch, reading.is_confirmed, cx, out),
                false => self.run_reads(&mut reading, cx, out).map(|()| Ran::Done),
            };
            let why = match ran {
                // There may be something for it: it goes through the log.
                Ok(Ran::Done) if is_blocking => return out.requeued.push(reading.batch),
                Ok(_) => {
                    let mut batch = reading.batch;
                    if is_blocking {
                        batch.ends.push(batch.replies.len());
                    }
                    return out.finished.push((batch, Outcome::Done));
                }
                Err(why) => why,
            };
            reading.looks_again = false;
            match why {
                // Nothing of the region is under way once it is held.
                Absent::Lent if is_blocking => {
                    let request = EffectRequest::new(vec![place], reading.batch, None);
                    self.submit(request);
                    return self.run_groups(cx, out);
                }
                Absent::Lent if self.is_used(place) => {
                    (reading.looks_again, reading.was_lent) = (true, true);
                    reading.since_ms = None;
                    self.reads.add(reading);
                    return;
                }
                Absent::Lent => {
                    let outcome = Outcome::Unserved(Unserved::Elsewhere);
                    return out.finished.push((reading.batch, outcome));
                }
                Absent::Unconfirmed(_) => {
                    let anywhere = reading.batch.readonly;
                    reading.since_ms.get_or_insert(cx.clock_ms);
                    let ticket = self.reads.add(reading);
                    let barrier = match cx.host.has_failed() {
                        true => Barrier::Unserved(Unserved::Elsewhere),
                        false => self.read_barrier(place, anywhere, ticket, cx, out),
                    };
                    if barrier == Barrier::Wait {
                        return;
                    }
                    let Some(waiting) = self.reads.waiting.remove(&ticket) else {
                        return; // answered already
                    };
                    reading = waiting;
                    if let Barrier::Unserved(why) = barrier {
                        let outcome = Outcome::Unserved(why);
                        return out.finished.push((reading.batch, outcome));
                    }
                    reading.is_confirmed = true;
                    reading.since_ms = None;
                }
                Absent::Cold(cold) => match self.load_cold(*cold, reading, cx, out) {
                    Some(again) => reading = again,
                    None => return,
                },
            }
        }
    }

    /// Asks for what a read needs; given back if it may look again at once.
    fn load_cold(
        &mut self,
        cold: Cold,
        mut reading: Reading,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<Reading> {
        let place = reading.batch.region;
        if cold.is_catalogue_old {
            self.advance(place, cx, out);
            let Some(region) = self.slots.region_mut(place) else {
                return Some(reading);
            };
            if region.is_catalogue_old(cx.catalogue.version) {
                reading.looks_again = true;
                reading.since_ms.get_or_insert(cx.clock_ms);
                self.reads.add(reading);
                return None;
            }
            if region.lacks_tables(cx.catalogue.version) && !region.learn_tables(cx.catalogue) {
                // A follower that does not have all tables yet would deny what the leader has.
                let outcome = Outcome::Unserved(Unserved::Elsewhere);
                out.finished.push((reading.batch, outcome));
                return None;
            }
            return Some(reading);
        }
        reading.since_ms = None;
        if !cold.table_rows.is_empty() {
            let ticket = self.reads.add(reading);
            let region = self.region_mut(place);
            let wanted = match region {
                Some(region) => region.want_rows(&cold.table_rows, ticket as u64, cx),
                None => Wanted::NotLeader,
            };
            match wanted {
                Wanted::Waits => self.advance(place, cx, out),
                Wanted::Cached => return self.reads.waiting.remove(&ticket),
                Wanted::Failed(failure) => {
                    let failure = Some(row_needs::refusal_of(failure));
                    let mut reading = self.reads.waiting.remove(&ticket)?;
                    reading.row_failure = failure;
                    return Some(reading);
                }
                Wanted::NotLeader => {
                    let reading = self.reads.waiting.remove(&ticket)?;
                    let outcome = Outcome::Unserved(Unserved::Elsewhere);
                    out.finished.push((reading.batch, outcome));
                }
            }
            return None;
        }
        reading.again = cold.again;
        let was_lent = reading.was_lent;
        let ticket = self.reads.add(reading);
        if was_lent {
            self.reads.holds.insert(ticket, place);
        }
        out.loads.push(Load {
            place,
            keys: cold.keys,
            rows: cold.rows,
            tries: cold.again.tries().saturating_sub(1),
            read: Some(ticket),
        });
        None
    }

    /// Runs what is left of a batch.
    fn run_reads(
        &mut self,
        reading: &mut Reading,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Result<(), Absent> {
        let Reading {
            batch,
            again,
            is_confirmed,
            row_failure,
            ..
        } = reading;
        let place = batch.region;
        let Some(region) = self.slots.region_mut(place) else {
            return Err(Absent::Lent);
        };
        let mut met = Vec::new();
        let mut absent = None;
        while let Some(&(stat, db)) = batch.heads.get(batch.ends.len()) {
            if batch.has_enough() {
                break;
            }
            let at = batch.ends.len();
            let spec = cx.specs.spec(stat as usize);
            let mut replies =
                std::mem::replace(&mut batch.replies, Reply::new(resp::Protocol::Resp2));
            let args = batch.commands.args(at);
            let tried = std::mem::take(again);
            let access = Access {
                spec,
                db,
                args: &args,
                now_ms: cx.now_ms,
                tuning: cx.tuning,
                again: tried,
                clock_ms: cx.is_cluster.then_some(cx.clock_ms),
                is_confirmed: *is_confirmed,
                catalogue_version: cx.catalogue.version,
            };
            let before = replies.len();
            let ran = region.run(&access, cx.seeds, &mut replies, |view, reply| {
                invoke(batch, spec, view, &args, reply, cx)
            });
            batch.replies = replies;
            match ran {
                Ok(ran) => {
                    let args = batch.commands.args(at);
                    let refused = ran == Ran::Refused;
                    cx.host.on_command(batch, stat as usize, &args, refused);
                }
                Err(Absent::Cold(cold)) if !cold.table_rows.is_empty() && row_failure.is_some() => {
                    if let Some(refusal) = row_failure.take() {
                        batch.replies.truncate(before);
                        cx.host.on_refusal(&refusal);
                        batch.replies.refusal(&refusal);
                    }
                    let args = batch.commands.args(at);
                    cx.host.on_command(batch, stat as usize, &args, true);
                }
                Err(why) => {
                    if let Absent::Unconfirmed(_) = why {
                        *again = tried; // for when the barrier is passed
                    }
                    absent = Some(why);
                    break;
                }
            }
            // It was about this command only.
            *row_failure = None;
            batch.ends.push(batch.replies.len());
            if region.space.has_met_due() {
                match cx.host.is_expiry_paused() {
                    true => region.space.forget_met(),
                    false => met.append(&mut region.space.take_met()),
                }
            }
        }
        out.has_changes |= region.space.has_key_changes();
        self.propose_due(place, &met, cx, out);
        absent.map_or(Ok(()), Err)
    }
}

/// Calls the command's function; its refusal is written.
pub(crate) fn invoke(
    batch: &Batch,
    spec: &command::CommandSpec,
    view: View<'_>,
    args: &resp::Args<'_>,
    reply: &mut Reply,
    cx: &Context<'_>,
) -> Ran {
    let before = reply.len();
    let is_untouching = batch.client.no_touch.load(Ordering::Relaxed);
    let view = match is_untouching && !spec.is(Traits::ALWAYS_TOUCHES) {
        true => view.without_touching(),
        false => view,
    };
    let ran = base::contained(|| command::call(spec, view, args, reply));
    let refusal = match ran {
        Ok(Ok(Attempt::Served)) => return Ran::Done,
        Ok(Ok(Attempt::Empty)) => return Ran::Empty,
        Ok(Err(refusal)) => refusal,
        Err(_) => {
            cx.host.on_panic();
            Refusal::new("ERR internal error")
        }
    };
    reply.truncate(before);
    cx.host.on_refusal(&refusal);
    reply.refusal(&refusal);
    Ran::Refused
}

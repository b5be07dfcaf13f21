//! Committed entries become state: their commands run, the rows they change go to the store with
//! the applied index in one write, then the replies leave.
//!
//! A core never waits here. Keys that are not in memory are fetched first ([`super::load`]), a
//! store that is behind is asked again a little later; the region's later entries wait meanwhile,
//! other regions and all reads go on.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::DbIndex;
use keyspace::Keyspace;
use keyspace::rows::{Changes, ColdRows, WriteError};
use replica::entry;

use super::keep::{Fate, try_again};
use super::member::Unwritten;
use super::payload::{Brought, cold_keys_of, run_payload};
use super::{Durable, Flight};
use crate::cores::{Core, Region, RegionId, Waiter};

/// Rows are handed to the store when there are this many bytes of them, or every 100 ms.
const SETTLE_BYTES: usize = 512 * 1024;
/// A store that is busy for longer than this is broken.
const BUSY_MOST_MS: u64 = 15_000;
/// Warmed rows may be gone when the entry is to run: after so many attempts it reads the disk itself.
const REHEARSALS: u8 = 8;
/// How soon a store that was busy is asked again.
const BUSY: Duration = Duration::from_millis(1);

/// What one step came to.
enum Step {
    /// An entry is applied; these wait for it.
    Applied(Option<Flight>, Vec<(Arc<Waiter>, Vec<u8>)>),
    /// Another leader's entry took the place of one that this node proposed.
    Overtaken(Flight),
    Nothing,
    /// Keys and rows are not in memory; how often such rows were met before. The entry is still the next one.
    Cold(Vec<(DbIndex, Box<[u8]>)>, Vec<ColdRows>, u8),
    /// The store takes no rows now. Nothing has happened to the entry: it is still the next one, and not
    /// applied to anybody who asks, nor overtaken for who waits for it.
    Busy,
    Failed(String),
}

impl Core {
    /// Applies what is committed, as far as that is possible now.
    pub(crate) fn apply(self: &Rc<Self>, id: RegionId) {
        let (mut effects, mut more_due) = (false, false);
        loop {
            match self.apply_next(id) {
                Step::Applied(flight, answers) => {
                    for (waiter, reply) in answers {
                        self.answer_waiter(&waiter, Some(reply));
                    }
                    let mut home = self.home.borrow_mut();
                    effects |= home
                        .region_mut(id)
                        .is_some_and(|region| region.space.has_effects());
                    drop(home);
                    if effects {
                        self.on_effects();
                    }
                    if let Some(flight) = flight {
                        more_due |= flight.due.len() == super::expire::KEYS;
                        for batch in flight.batches {
                            self.finish_batch(batch);
                        }
                        if let Some(kept) = flight.kept {
                            self.answer_kept(kept.from, kept.ticket, Fate::Kept);
                        }
                    }
                }
                Step::Overtaken(flight) => self.on_overtaken(id, flight),
                Step::Nothing => break,
                Step::Cold(keys, rows, tries) => {
                    let core = self.clone();
                    tokio::task::spawn_local(async move {
                        core.load_home(id, &keys).await;
                        core.warm(rows, tries).await;
                        core.go_on(id);
                    });
                    break;
                }
                Step::Busy => {
                    let core = self.clone();
                    tokio::task::spawn_local(async move {
                        tokio::time::sleep(BUSY).await;
                        core.go_on(id);
                    });
                    break;
                }
                Step::Failed(reason) => {
                    if let Some(durable) = &self.shared.durable {
                        durable.fail(&reason);
                    }
                    self.fail_region(id);
                    break;
                }
            }
        }
        let failed = {
            let mut home = self.home.borrow_mut();
            let member = home.region_mut(id).and_then(|r| r.member.as_deref());
            member.is_some_and(|member| member.failed && !member.flights.is_empty())
        };
        if failed {
            self.fail_region(id);
        }
        self.keep_in_bounds();
        self.tend(id);
        self.serve_waiting_reads(id);
        if more_due {
            self.expire_rows(id);
        }
        self.evict_behind(id);
        self.grant_next();
        self.wake_composer();
    }

    /// Applying may go on.
    fn go_on(self: &Rc<Self>, id: RegionId) {
        if let Some(member) = self
            .home
            .borrow_mut()
            .region_mut(id)
            .and_then(|region| region.member.as_deref_mut())
        {
            member.stalled = false;
        }
        self.begin_batch();
        self.apply(id);
    }

    fn apply_next(self: &Rc<Self>, id: RegionId) -> Step {
        let mut home = self.home.borrow_mut();
        let Some(region) = home.region_mut(id) else {
            return Step::Nothing;
        };
        let step = self.apply_front(region);
        if let Some(member) = region.member.as_deref_mut() {
            member.stalled |= matches!(step, Step::Cold(..) | Step::Busy | Step::Failed(_));
        }
        step
    }

    fn apply_front(self: &Rc<Self>, region: &mut Region) -> Step {
        let Some(member) = region.member.as_deref_mut() else {
            return Step::Nothing;
        };
        if member.stalled || member.failed {
            return Step::Nothing;
        }
        let Some(committed) = member.committed.front() else {
            return Step::Nothing;
        };
        let (index, term) = (committed.index, committed.term);
        let front = member.flights.front();
        let ours = match front.map(|flight| (flight.index, flight.term)) {
            Some((at, of)) if at < index || at == index && of != term => {
                return match member.flights.pop_front() {
                    Some(flight) => Step::Overtaken(flight),
                    None => Step::Nothing,
                };
            }
            Some((at, _)) => at == index,
            None => false,
        };
        match front {
            Some(flight) if ours && flight.kept.is_some() => self.apply_kept(region, index),
            Some(_) if ours => self.apply_ours(region, index),
            _ => self.apply_bytes(region),
        }
    }

    /// Applies an entry of commands that sessions of this node wait for.
    fn apply_ours(self: &Rc<Self>, region: &mut Region, index: u64) -> Step {
        let (Some(member), Some(durable)) = (region.member.as_deref_mut(), &self.shared.durable)
        else {
            return Step::Nothing;
        };
        let Some(flight) = member.flights.front() else {
            return Step::Nothing;
        };
        let cold = self.cold_keys(&region.space, flight);
        if !cold.is_empty() {
            return Step::Cold(cold, Vec::new(), 0);
        }
        let (last, tries) = member.rehearsed;
        let tries = if last == index { tries } else { 0 };
        if tries < REHEARSALS {
            let cold = self.cold_rows(&mut region.space, flight);
            if !cold.is_empty() {
                member.rehearsed = (index, tries + 1);
                return Step::Cold(Vec::new(), cold, tries);
            }
        }
        if member.unwritten.is_some() {
            // The store did not take the rows before: these would have to wait behind them.
            return match region.settle() {
                Ok(()) => self.apply_ours(region, index),
                Err(error) => self.on_write_error(region, error),
            };
        }
        let Some(mut flight) = member.flights.pop_front() else {
            return Step::Nothing;
        };
        if let Some(committed) = member.committed.pop_front() {
            member.note(region.space.home(), index, &committed.payload);
        }
        let answers = self.run_flight(region, &mut flight);
        region.space.note_term(flight.term);
        let Some(member) = region.member.as_deref_mut() else {
            return Step::Nothing;
        };
        member.open = Some((index, flight.stamp_ms));
        member.replica.on_applied(index);
        self.settle_if_much(durable, region);
        Step::Applied(Some(flight), answers)
    }

    /// Hands rows of applied entries to the store when there are enough of them.
    fn settle_if_much(&self, durable: &Durable, region: &mut Region) {
        let Some(member) = region.member.as_deref_mut() else {
            return;
        };
        if let Some(reason) = region.space.take_failure() {
            durable.fail(&reason);
            member.failed = true;
        } else if region.space.unsettled_bytes() + member.noted_bytes() > SETTLE_BYTES
            && let Err(WriteError::Failed(reason)) = region.settle()
        {
            // It is in the log, so it is kept, and those who wait may know.
            durable.fail(&reason);
            if let Some(member) = region.member.as_deref_mut() {
                member.failed = true;
            }
        }
    }

    /// Applies rows that a holder of the region has made. They are in memory already, unless that was
    /// undone since.
    fn apply_kept(self: &Rc<Self>, region: &mut Region, index: u64) -> Step {
        let Some(member) = region.member.as_deref_mut() else {
            return Step::Nothing;
        };
        if member.ahead != Some(index) {
            return match self.apply_bytes(region) {
                // Only now: as long as its entry is to be applied, those who wait for it do.
                Step::Applied(..) => {
                    let member = region.member.as_deref_mut();
                    let flight = member.and_then(|member| member.flights.pop_front());
                    Step::Applied(flight, Vec::new())
                }
                step => step,
            };
        }
        let is_settled = member.open.is_none() && member.unwritten.is_none();
        debug_assert!(is_settled, "it was settled when it was lent");
        let flight = member.flights.front_mut();
        let Some(kept) = flight.and_then(|flight| flight.kept.as_mut()) else {
            return Step::Nothing;
        };
        let mut changes = std::mem::take(&mut kept.changes);
        if let Some(committed) = member.committed.pop_front() {
            member.note(region.space.home(), index, &committed.payload);
        }
        member.take_feed(&mut changes);
        member.replica.on_applied(index);
        member.ahead = None;
        let flight = member.flights.pop_front();
        member.unwritten = Some(Unwritten { changes, index });
        match region.settle() {
            Err(WriteError::Failed(reason)) => Step::Failed(reason),
            // A store that is busy is asked again; the log has it.
            Ok(()) | Err(WriteError::Busy) => Step::Applied(flight, Vec::new()),
        }
    }

    /// Applies an entry that no one here waits for from its bytes: another node proposed it, or it
    /// begins a leader's term.
    fn apply_bytes(self: &Rc<Self>, region: &mut Region) -> Step {
        let (Some(member), Some(durable)) = (region.member.as_deref_mut(), &self.shared.durable)
        else {
            return Step::Nothing;
        };
        if member.brought.is_some() {
            return self.take_brought(region);
        }
        let Some(committed) = member.committed.front() else {
            return Step::Nothing;
        };
        if committed.change.is_some() {
            return self.apply_members(region);
        }
        let commands = &self.shared.commands;
        let cold = match cold_keys_of(&region.space, &committed.payload, commands) {
            Ok(cold) => cold,
            Err(error) => {
                let index = committed.index;
                let text = format!("entry {index} of the log cannot be read: {error}");
                return Step::Failed(text);
            }
        };
        if !cold.is_empty() {
            return Step::Cold(cold, Vec::new(), 0);
        }
        let is_rows = entry::is_rows(&committed.payload);
        if (is_rows || member.unwritten.is_some())
            && let Err(error) = region.settle()
        {
            return self.on_write_error(region, error);
        }
        let Some(member) = region.member.as_deref_mut() else {
            return Step::Nothing;
        };
        let Some(committed) = member.committed.front() else {
            return Step::Nothing;
        };
        let (index, term) = (committed.index, committed.term);
        let settings = self.settings().clone();
        let ran = run_payload(
            &mut region.space,
            &*durable.stores.rows,
            index,
            &committed.payload,
            commands,
            &settings.tuning,
            &mut |_| {},
        );
        let (stamp_ms, digest) = match ran {
            Err(reason) => return Step::Failed(reason),
            Ok(Brought::Rows { changes, stamp_ms }) => {
                member.last_stamp_ms = member.last_stamp_ms.max(stamp_ms);
                member.bring(region.space.home(), changes);
                return self.take_brought(region);
            }
            Ok(Brought::Commands { stamp_ms }) => {
                member.last_stamp_ms = member.last_stamp_ms.max(stamp_ms);
                (stamp_ms, None)
            }
            Ok(Brought::Digest { id, stamp_ms }) => (stamp_ms, Some(id)),
        };
        if let Some(committed) = member.committed.pop_front() {
            member.note(region.space.home(), index, &committed.payload);
        }
        region.space.note_term(term);
        member.open = Some((index, stamp_ms));
        member.replica.on_applied(index);
        match digest {
            Some(id) => self.take_digest(region, id, index),
            None => self.settle_if_much(durable, region),
        }
        Step::Applied(None, Vec::new())
    }

    /// Applies the entry whose rows the store is to take first.
    fn take_brought(&self, region: &mut Region) -> Step {
        match region.take_brought() {
            Ok(()) => Step::Applied(None, Vec::new()),
            Err(error) => self.on_write_error(region, error),
        }
    }

    /// Applies a change of members.
    fn apply_members(self: &Rc<Self>, region: &mut Region) -> Step {
        if let Err(error) = region.settle() {
            return self.on_write_error(region, error);
        }
        let member = region.member.as_deref_mut();
        let Some(committed) = member.and_then(|member| member.committed.pop_front()) else {
            return Step::Nothing;
        };
        let unwritten = self.apply_change(region, &committed);
        if let Some(member) = region.member.as_deref_mut() {
            member.unwritten = unwritten;
            member.replica.on_applied(committed.index);
        }
        match region.settle() {
            Err(WriteError::Failed(reason)) => Step::Failed(reason),
            // Memory has it, and so has the log: a store that is busy is asked again.
            Ok(()) | Err(WriteError::Busy) => Step::Applied(None, Vec::new()),
        }
    }

    /// What this node proposed at an index never was: another leader's entry is there.
    fn on_overtaken(self: &Rc<Self>, id: RegionId, flight: Flight) {
        self.refuse_flight(id, flight, &try_again());
    }

    /// The store did not take rows: it is asked again, or it is broken.
    fn on_write_error(&self, region: &mut Region, error: WriteError) -> Step {
        match error {
            WriteError::Busy
                if self
                    .shared
                    .durable
                    .as_ref()
                    .is_some_and(|it| !it.is_failed()) =>
            {
                Step::Busy
            }
            WriteError::Busy => {
                if let Some(member) = region.member.as_deref_mut() {
                    member.failed = true;
                }
                Step::Nothing
            }
            WriteError::Failed(reason) => Step::Failed(reason),
        }
    }

    /// Hands the rows of all regions that are home to the store; called now and then.
    pub(crate) fn settle_home(&self) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        for region in self.home.borrow_mut().present() {
            let settled = region.settle();
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let now_ms = self.now_ms();
            // What an entry brought is taken when that is applied, which tries again and again.
            match settled.and(
                member
                    .brought
                    .as_ref()
                    .map_or(Ok(()), |_| Err(WriteError::Busy)),
            ) {
                Ok(()) => member.busy_since_ms = 0,
                Err(WriteError::Busy) if member.busy_since_ms == 0 => member.busy_since_ms = now_ms,
                Err(WriteError::Busy) if now_ms - member.busy_since_ms < BUSY_MOST_MS => {}
                Err(WriteError::Busy) => {
                    durable.fail("the store has taken nothing for a long time; is the disk full?");
                    member.failed = true;
                }
                Err(WriteError::Failed(reason)) => {
                    durable.fail(&reason);
                    member.failed = true;
                }
            }
        }
    }

    /// Gives back memory that regions at rest have kept for rows to come; called now and then.
    pub(crate) fn give_back_rooms(&self) {
        for region in self.home.borrow_mut().present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            if member.open.is_none() && member.unwritten.is_none() {
                member.changes = Changes::new();
                region.space.give_back_room();
            }
        }
    }

    /// Keys of an entry's commands that are not in memory.
    fn cold_keys(&self, space: &Keyspace, flight: &Flight) -> Vec<(DbIndex, Box<[u8]>)> {
        let mut cold = Vec::new();
        if space.is_complete() {
            return cold;
        }
        let mut look = |db: DbIndex, key: &[u8]| {
            if !space.is_resident(db, key) {
                cold.push((db, key.into()));
            }
        };
        for batch in &flight.batches {
            for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                let row = self.shared.commands.row(stat as usize);
                let args = batch.commands.args(at);
                row.each_key(db, &args, &mut look);
            }
        }
        for (db, key, _) in &flight.due {
            look(*db, key);
        }
        for victim in &flight.victims {
            look(victim.db, &victim.key);
        }
        for serve in &flight.serves {
            let row = self.shared.commands.row(serve.waiter.stat);
            let args = serve.waiter.command.args(0);
            row.each_key(serve.waiter.db, &args, &mut look);
        }
        cold
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;

//! Committed entries become state: their commands run, the rows they change go to the store with
//! the applied index in one write, then the replies leave.
//!
//! A core never waits here. Keys that are not in memory are fetched first ([`super::load`]), a
//! store that is behind is asked again a little later; the region's later entries wait meanwhile,
//! other regions and all reads go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{DbIndex, Refusal};
use command::Attempt;
use keyspace::rows::{self, Changes, ColdRows, RowSource, Tier, WriteError};
use keyspace::{Keyspace, Tuning, View};
use replica::entry::{self, Body};
use resp::{Args, Protocol, Reply, Span};

use super::Flight;
use super::keys::each_key;
use super::member::{Unwritten, seed_of};
use crate::commands::Commands;
use crate::cores::{Core, Region, RegionId, Waiter, call_function};

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
    Nothing,
    /// Keys and rows are not in memory; how often such rows were met before.
    Cold(Vec<(DbIndex, Box<[u8]>)>, Vec<ColdRows>, u8),
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
                    }
                }
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
        if more_due {
            self.expire_rows(id);
        }
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
        let (Some(member), Some(durable)) = (region.member.as_deref_mut(), &self.shared.durable)
        else {
            return Step::Nothing;
        };
        if member.stalled || member.failed {
            return Step::Nothing;
        }
        let Some(index) = member.committed.front().map(|committed| committed.index) else {
            return Step::Nothing;
        };
        let ours = member.flights.front().filter(|f| f.index == index);
        if let Some(flight) = ours {
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
        }
        let flight = match ours.is_some() {
            true => member.flights.pop_front(),
            false => None,
        };
        let Some(mut flight) = flight else {
            return self.apply_bytes(region);
        };
        if member.unwritten.is_some() {
            // The store did not take the rows before: these would have to wait behind them.
            member.flights.push_front(flight);
            return match region.settle() {
                Ok(()) => self.apply_front(region),
                Err(error) => self.on_write_error(region, error),
            };
        }
        if let Some(committed) = member.committed.pop_front() {
            member.note(region.space.home(), index, &committed.payload);
        }
        let answers = self.run_flight(region, &mut flight);
        let Some(member) = region.member.as_deref_mut() else {
            return Step::Nothing;
        };
        member.open = Some((index, flight.stamp_ms));
        member.replica.on_applied(index);
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
        Step::Applied(Some(flight), answers)
    }

    /// Applies an entry that no one here waits for (the first of a leader's term) from its bytes.
    fn apply_bytes(self: &Rc<Self>, region: &mut Region) -> Step {
        if let Err(error) = region.settle() {
            return self.on_write_error(region, error);
        }
        let (Some(member), Some(durable)) = (region.member.as_deref_mut(), &self.shared.durable)
        else {
            return Step::Nothing;
        };
        let Some(committed) = member.committed.pop_front() else {
            return Step::Nothing;
        };
        let (index, settings) = (committed.index, self.settings().clone());
        let mut changes = std::mem::take(&mut member.changes);
        let applied = apply_payload(
            &mut region.space,
            &*durable.stores.rows,
            index,
            &committed.payload,
            &self.shared.commands,
            &settings.tuning,
            &mut changes,
        );
        let is_rows = match applied {
            Ok(is_rows) => is_rows,
            Err(reason) => return Step::Failed(reason),
        };
        member.replica.on_applied(index);
        member.note(region.space.home(), index, &committed.payload);
        member.take_feed(&mut changes);
        member.unwritten = Some(Unwritten {
            changes,
            index,
            is_rows,
        });
        match region.settle() {
            Ok(()) => Step::Applied(None, Vec::new()),
            Err(error) => self.on_write_error(region, error),
        }
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
            match settled {
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
                each_key(row, db, &args, &mut look);
            }
        }
        for (db, key, _) in &flight.due {
            look(*db, key);
        }
        for serve in &flight.serves {
            let row = self.shared.commands.row(serve.waiter.stat);
            let args = serve.waiter.command.args(0);
            each_key(row, serve.waiter.db, &args, &mut look);
        }
        cold
    }
}

/// Runs an entry from its bytes alone, as a replica or a restarted node does. Its rows are left in
/// `changes`; true if it brought them itself, so that memory has to follow once they are written.
pub fn apply_payload(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    index: u64,
    payload: &[u8],
    commands: &Commands,
    tuning: &Tuning,
    changes: &mut Changes,
) -> Result<bool, String> {
    changes.clear();
    if payload.is_empty() {
        // A leader began its term.
        space.begin_entry(index);
        space.end_entry(space.last_stamp_ms(), changes);
        return Ok(false);
    }
    let entry = entry::decode(payload)
        .map_err(|error| format!("entry {index} of the log cannot be read: {error}"))?;
    match entry.body {
        Body::Rows(bytes) => {
            *changes = Changes::decode(bytes)
                .ok_or_else(|| format!("entry {index} of the log has rows that cannot be read"))?;
            return Ok(true);
        }
        Body::Expire(keys) => {
            space.begin_entry(index);
            for expired in keys {
                fetch(space, rows, expired.db, expired.key)?;
                space.expire_key(expired.db, expired.key, expired.deadline_ms);
            }
        }
        Body::Commands(given) => {
            space.begin_entry(index);
            let mut spans: Vec<Span> = Vec::new();
            let mut reply = Reply::new(Protocol::Resp2);
            for (nth, command) in given.enumerate() {
                spans.clear();
                spans.extend(command.spans().map(|(start, len)| Span { start, len }));
                let args = Args::new(payload, &spans);
                let Ok((_, row)) = commands.table.resolve(&args) else {
                    return Err(format!(
                        "entry {index} of the log has a command this version does not know"
                    ));
                };
                let mut cold = Ok(());
                each_key(row, command.db, &args, &mut |db, key| {
                    if cold.is_ok() {
                        cold = fetch(space, rows, db, key);
                    }
                });
                cold?;
                reply.truncate(0);
                let seed = seed_of(entry.seed, nth);
                let view = View::one(space, command.db, entry.stamp_ms, seed, tuning);
                // What it answered, or that it was refused or broke, was told when it first ran.
                let _ = catch_unwind(AssertUnwindSafe(|| -> Result<Attempt, Refusal> {
                    call_function(row, view, &args, &mut reply)
                }));
            }
        }
    }
    space.end_entry(entry.stamp_ms, changes);
    Ok(false)
}

/// Makes a key resident, waiting for the disk.
fn fetch(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    db: DbIndex,
    key: &[u8],
) -> Result<(), String> {
    if space.is_resident(db, key) {
        return Ok(());
    }
    let request = space.load_request(db, key);
    match rows::load(rows, &request, Tier::All) {
        Ok(loaded) => space.insert_loaded(request, loaded),
        Err(error) => return Err(format!("rows cannot be read: {error:?}")),
    }
    space.take_failure().map_or(Ok(()), Err)
}

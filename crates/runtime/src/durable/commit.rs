//! Commands on held regions: run first, logged by what they changed, seen by nobody before that is
//! on disk.
//!
//! ```text
//!   hold    nothing of these regions is on its way, nobody else has them
//!   run     EXEC, MSET over several regions, SPOP, FLUSHALL …, on the native structures
//!   commit  the rows each region changed → one entry per region → ONE log batch → fsync
//!           → all rows in one write to the store → reply → regions go home
//! ```
//!
//! After a crash the log has all of the entries or none, and each carries rows, not commands: it
//! can be replayed on its region alone. More rows than the log takes: [`super::large`].

use std::rc::Rc;
use std::time::Duration;

use base::{DbIndex, Refusal};
use command::{Command, Keys};
use keyspace::rows::{Changes, ColdRows, WriteError};
use node::begin_entry;
use replica::entry::rows_payload;
use resp::{Args, Reply};

use super::large::Unkept;
use crate::cores::{Again, Answer, Call, Core, Held, Ran, Ticket};

const BUSY: Duration = Duration::from_millis(1);

impl Core {
    /// Why nothing may be written on held regions, if the log or the store has failed. On a cluster node others
    /// lead then, and each region decides by itself ([`super::quorum`]).
    pub(super) fn stopped(&self) -> Option<Refusal> {
        let durable = self.shared.durable.as_ref()?;
        match self.shared.cluster {
            None => durable.refusal(),
            Some(_) => None,
        }
    }
}

impl Held {
    /// Runs a data command over the held regions, first fetching what it needs.
    pub async fn run_loaded(&mut self, call: &Call<'_>, args: &Args<'_>, reply: &mut Reply) -> Ran {
        if self.core().shared.durable.is_none() {
            return self.run(call, args, reply);
        }
        let core = self.core().clone();
        if let Some(refusal) = self.lacks_room(call, args) {
            core.stats().on_rejected(Some(call.stat));
            core.refuse(&refusal, reply);
            return Ran::Refused;
        }
        self.load_named(call, args).await;
        let mut again = Again::chosen(core.next_seed());
        loop {
            match self.attempt(call, args, reply, again).await {
                Ok(ran) => return ran,
                Err(cold) => core.warm(cold, again.tries()).await,
            }
            again = again.next();
        }
    }

    /// Fetches what a command is known to need.
    pub async fn load_named(&mut self, call: &Call<'_>, args: &Args<'_>) {
        self.load_keys_of(call.row, call.db, args).await;
        if call.row.is_write() && call.row.keys == Keys::Everything {
            // Whether FLUSHALL or SWAPDB change a watched key depends on what is there.
            let watched: Vec<Box<[u8]>> = self
                .regions()
                .iter()
                .flat_map(|region| region.keys_of_interest())
                .map(Into::into)
                .collect();
            let dbs = 0..base::limits::DATABASES;
            let keys = dbs.flat_map(|db| watched.iter().map(move |key| (db, key.clone())));
            self.load_missing_of(keys.collect()).await;
        }
    }

    /// Runs a command once its keys are in memory, unless it needs rows that are not: then nothing has
    /// happened.
    pub async fn attempt(
        &mut self,
        call: &Call<'_>,
        args: &Args<'_>,
        reply: &mut Reply,
        again: Again,
    ) -> Result<Ran, Vec<ColdRows>> {
        let core = self.core().clone();
        let is_write = call.row.is_write();
        // What somebody else looked for in vain is not a reason to run this one twice.
        self.take_missing();
        self.take_cold();
        loop {
            if is_write && again.stops() {
                core.again.set(again);
                let cold = self.cold_rows(call, args);
                if !cold.is_empty() {
                    return Err(cold);
                }
            }
            if is_write && let Some(refusal) = core.stopped() {
                // It waited meanwhile. What it did could not be undone where memory has more than the store.
                core.stats().on_rejected(Some(call.stat));
                core.refuse(&refusal, reply);
                return Ok(Ran::Refused);
            }
            let before = reply.len();
            core.again.set(again);
            // A command that writes must see everything: it cannot be taken back.
            self.read_cached(again.stops() && !is_write);
            let ran = self.run(call, args, reply);
            self.read_cached(false);
            let cold = self.take_cold();
            let missing = self.take_missing();
            if missing.is_empty() && cold.is_empty() {
                return Ok(ran);
            }
            // It looked at keys its arguments do not name, or at cold rows, and changed nothing.
            reply.truncate(before);
            self.load(&missing).await;
            if !cold.is_empty() {
                return Err(cold);
            }
        }
    }

    /// The rows of big collections that a command needs and that are not in memory, as far as that can be
    /// told now.
    pub(super) fn cold_rows(&mut self, call: &Call<'_>, args: &Args<'_>) -> Vec<ColdRows> {
        let mut found = false;
        call.row.each_key(call.db, args, &mut |db, key| {
            let region = self.region_of(key);
            found = found || region.is_some_and(|region| region.space.is_on_rows(db, key));
        });
        if !found {
            return Vec::new();
        }
        self.read_cached(true);
        self.with_view_only(call.db, |view| node::ready::rehearse(call.row, view, args));
        self.read_cached(false);
        // Keys that are missing are found out about when the command runs.
        self.spaces().for_each(|space| {
            space.take_missing();
        });
        self.take_cold()
    }

    /// See [`keyspace::Keyspace::read_cached`].
    pub fn read_cached(&mut self, only: bool) {
        self.spaces().for_each(|space| space.read_cached(only));
    }

    pub fn take_cold(&mut self) -> Vec<ColdRows> {
        self.spaces().flat_map(|space| space.take_cold()).collect()
    }

    /// Fetches the keys that a command's arguments name.
    pub async fn load_keys_of(&mut self, row: &Command, db: DbIndex, args: &Args<'_>) {
        let mut keys = Vec::new();
        row.each_key(db, args, &mut |db, key| keys.push((db, key.into())));
        self.load_missing_of(keys).await;
    }

    /// Fetches those of `keys` that are not in memory.
    pub async fn load_missing_of(&mut self, mut keys: Vec<(DbIndex, Box<[u8]>)>) {
        if self.core().shared.durable.is_none() {
            return;
        }
        keys.retain(|(db, key)| {
            self.region_of(key)
                .is_some_and(|region| !region.space.is_resident(*db, key))
        });
        if !keys.is_empty() {
            self.load(&keys).await;
        }
    }

    /// Fetches what the last command looked for in vain; whether there was anything.
    pub async fn load_missing(&mut self) -> bool {
        let missing = self.take_missing();
        self.load(&missing).await;
        !missing.is_empty()
    }

    fn take_missing(&mut self) -> Vec<(DbIndex, Box<[u8]>)> {
        self.spaces()
            .flat_map(|space| space.take_missing())
            .collect()
    }

    /// Whether something was changed and is not kept yet.
    pub fn is_dirty(&self) -> bool {
        self.regions()
            .iter()
            .any(|region| region.member.is_some() && region.space.has_changes())
    }

    /// Keeps what was changed: returns when it is on disk and in the store. What is too large for the
    /// log is undone and refused; if something else is in the way, nothing can be kept any more.
    pub async fn commit(&mut self) -> Result<(), Refusal> {
        if self.core().shared.cluster.is_some() {
            return self.keep().await;
        }
        self.try_commit().await.map_err(Unkept::into_refusal)
    }

    /// As [`Held::commit`], on a node that is alone.
    pub(super) async fn try_commit(&mut self) -> Result<(), Unkept> {
        let core = self.core().clone();
        let Some(durable) = &core.shared.durable else {
            return Ok(());
        };
        let dirty = self.dirty();
        if dirty.is_empty() {
            return Ok(());
        }
        let kept = match durable.refusal() {
            Some(refusal) => Err(Unkept::Failed(refusal)),
            None => match self.take_changes(&dirty, durable.most_change_bytes) {
                Some(all) => self.log_changes(all).await.map_err(Unkept::Failed),
                None => Err(self.undo(&dirty)),
            },
        };
        if let Err(Unkept::Failed(_)) = kept {
            self.give_up(dirty);
        }
        kept
    }

    /// Nothing is kept any more. What was changed is undone, for reads go on and must not see what its
    /// client is refused: a region has been lent only when the store had all of it. Unless it had given up
    /// before: then memory has more than the store, and there is nothing to go back to; but nothing runs on
    /// such a region that could matter ([`Held::attempt`]).
    fn give_up(&mut self, mut dirty: Vec<usize>) {
        dirty.retain(|&at| {
            let member = self.regions().get(at).and_then(|it| it.member.as_deref());
            member.is_some_and(|member| !member.failed)
        });
        self.undo(&dirty);
        for region in self.regions_mut() {
            if let Some(member) = region.member.as_deref_mut() {
                member.failed = true;
                if region.space.has_changes() {
                    region.space.forget_changes();
                }
                begin_entry(region);
            }
        }
    }

    /// Where the regions are that were changed.
    fn dirty(&self) -> Vec<usize> {
        let regions = self.regions().iter().enumerate();
        regions
            .filter(|(_, region)| region.member.is_some() && region.space.has_changes())
            .map(|(at, _)| at)
            .collect()
    }

    /// The rows that regions have changed, with the stamps of their entries; `None` if they are more
    /// than so many bytes: then these regions are to be undone. All count together, for they are one
    /// record of the log; and before anything of them is proposed, which cannot be taken back.
    fn take_changes(
        &mut self,
        dirty: &[usize],
        most_bytes: usize,
    ) -> Option<Vec<(usize, u64, Changes)>> {
        let now_ms = self.core().now_ms();
        let mut all = Vec::with_capacity(dirty.len());
        let mut left_bytes = most_bytes;
        for &at in dirty {
            let region = self.regions_mut().get_mut(at)?;
            let stamp_ms = region.member.as_deref_mut()?.next_stamp(now_ms);
            let mut changes = Changes::new();
            let space = &mut region.space;
            if !space.end_entry_within(stamp_ms, left_bytes, &mut changes) {
                return None;
            }
            left_bytes -= changes.size_bytes();
            all.push((at, stamp_ms, changes));
        }
        Some(all)
    }

    /// Brings rows to the log, then to the store.
    async fn log_changes(&mut self, taken: Vec<(usize, u64, Changes)>) -> Result<(), Refusal> {
        let core = self.core().clone();
        let Some(durable) = &core.shared.durable else {
            return Ok(());
        };
        let (mut places, mut writes) = (Vec::new(), Vec::new());
        let mut all: Vec<(usize, u64, Changes)> = Vec::with_capacity(taken.len());
        for (at, stamp_ms, mut changes) in taken {
            let Some(region) = self.regions_mut().get_mut(at) else {
                continue;
            };
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let mut rows = Vec::with_capacity(changes.size_bytes());
            changes.encode(&mut rows);
            let entry = rows_payload(stamp_ms, 0, &rows);
            drop(rows);
            member.note(region.space.home(), member.replica.last_index() + 1, &entry);
            member.take_feed(&mut changes);
            if let Err(refused) = member.replica.propose(entry) {
                durable.fail(&format!("the log does not take a change: {refused}"));
            }
            let index = member.replica.last_index();
            member.replica.ready(&mut member.ready);
            if let Some(write) = member.ready.write.take() {
                places.push(region.id);
                writes.push(write);
            }
            all.push((at, index, changes));
        }
        if let Some(refusal) = durable.refusal() {
            return Err(refusal);
        }
        let ticket = Ticket::new(&core);
        let numbers: Vec<u64> = writes.iter().map(|write| write.number).collect();
        core.log_held(places, writes, ticket.number());
        let Answer::Logged(ok) = ticket.await else {
            return Err(Refusal::new("ERR internal error"));
        };
        if let (false, Some(refusal)) = (ok, durable.refusal()) {
            return Err(refusal);
        }
        let written = self.write_rows(&core, &all).await;
        for ((at, index, _), number) in all.iter().zip(numbers) {
            let Some(region) = self.regions_mut().get_mut(*at) else {
                continue;
            };
            if let Some(member) = region.member.as_deref_mut() {
                member.replica.on_persisted(number);
                member.replica.ready(&mut member.ready);
                debug_assert!(member.ready.write.is_none());
                debug_assert_eq!(member.ready.committed.last().map(|c| c.index), Some(*index));
                member.ready.committed.clear();
                member.replica.on_applied(*index);
            }
            if written {
                durable.progress.note_applied(region.id, *index);
            } else if let Some(member) = region.member.as_deref_mut() {
                // Only the log has it: that must not be cut behind it, and collections on rows must
                // not look for it in the store.
                member.failed = true;
            }
            region.tell_weight(&core.shared.data_set);
            // The holder may go on; that is another entry then.
            begin_entry(region);
        }
        Ok(())
    }

    /// Hands rows that are in the log to the store; whether it took them.
    async fn write_rows(&mut self, core: &Rc<Core>, all: &[(usize, u64, Changes)]) -> bool {
        let Some(durable) = &core.shared.durable else {
            return false;
        };
        let changes: Vec<&Changes> = all.iter().map(|(_, _, changes)| changes).collect();
        loop {
            match durable.stores.rows.write(&changes) {
                Ok(()) => return true,
                // It is in the log: it is kept, whatever becomes of the store.
                Err(WriteError::Busy) if durable.is_failed() => return false,
                Err(WriteError::Busy) => tokio::time::sleep(BUSY).await,
                Err(WriteError::Failed(reason)) => {
                    durable.fail(&reason);
                    return false;
                }
            }
        }
    }
}

//! What a holder of a region asks of its keyspace, besides running commands on it.

use base::DbIndex;

use super::{Changes, State, VOID};
use crate::{Garbage, Keyspace};

impl State {
    /// The (home, index id) pairs whose rows are alive.
    pub fn alive(&self, home: u64) -> impl Iterator<Item = (u64, u64)> {
        self.dbs.iter().map(move |db| (home, db.index_id))
    }
}

impl Keyspace {
    /// Whether the running entry has changed anything.
    pub fn has_changes(&self) -> bool {
        let durable = self.durable.as_ref();
        durable.is_some_and(|it| it.has_changes() || self.has_unsaved_rows())
    }

    /// Begins applying a log entry, or goes on with the next one: its rows join those of the entries
    /// before it, as one batch. Until that is taken and written nothing may be uncached.
    pub fn continue_entry(&mut self, index: u64) {
        match &mut self.durable {
            Some(durable) if durable.entry.is_some() => {
                durable.entry = Some(index);
                durable.shared.read_cached(false);
            }
            _ => self.begin_entry(index),
        }
    }

    /// The term of the running entry, for the state row.
    pub fn note_term(&mut self, term: u64) {
        if let Some(durable) = &mut self.durable {
            durable.entry_term = Some(term);
        }
    }

    /// The running entry changes who and what belongs to the region: goes into the state row with it.
    pub fn set_descriptor(&mut self, descriptor: &[u8]) {
        if let Some(durable) = &mut self.durable {
            durable.descriptor = descriptor.into();
            durable.state_changed = true;
        }
    }

    /// What was last given to [`Keyspace::set_descriptor`]; nothing: never.
    pub fn descriptor(&self) -> &[u8] {
        self.durable.as_ref().map_or(&[], |it| &it.descriptor)
    }

    /// The rows that [`Keyspace::end_entry`] gave are in the store. Collections on rows read them there
    /// from now on: a copy no longer what it was copied from, which may have changed in the same write.
    pub fn rows_written(&mut self) {
        if let Some(durable) = &self.durable {
            durable.shared.next_epoch();
        }
    }

    /// Roughly the bytes of rows that [`Keyspace::end_entry`] would give, values of strings left out.
    pub fn unsettled_bytes(&self) -> usize {
        let durable = self.durable.as_ref();
        durable.map_or(0, |it| it.unsettled_bytes() + self.unsaved_row_bytes())
    }

    /// Gives back the memory that was kept for the rows of entries to come; nothing while an entry runs.
    pub fn give_back_room(&mut self) {
        if let Some(durable) = self.durable.as_mut().filter(|it| it.entry.is_none()) {
            durable.give_back_room();
        }
    }

    /// Ends an entry that has changed nothing, without a trace.
    pub fn abandon_entry(&mut self) {
        debug_assert!(!self.has_changes(), "changes would be lost");
        if let Some(durable) = &mut self.durable {
            durable.entry = None;
            durable.entry_term = None;
        }
        self.forget_void();
    }

    /// Ends an entry that could neither be kept nor undone. What is in memory is ahead of the log then: only
    /// for a node that writes no more.
    pub fn forget_changes(&mut self) {
        self.end_entry(0, &mut Changes::new());
        self.stop_writing();
    }

    /// Back to before the running entry: opened again from the store, which has all former entries and
    /// nothing of this one. `seed` must be another than before, `state` is the region's state row. What is
    /// no part of the state stays: who watches, effects of former entries, counters. What was in memory is
    /// given back, to be freed.
    pub fn undo_entry(&mut self, seed: u64, state: Option<&[u8]>) -> Result<Garbage, String> {
        let Some(durable) = &self.durable else {
            return Err("a region without rows cannot be opened again".into());
        };
        let (source, tuning) = (durable.source.clone(), durable.tuning.clone());
        let key_changes_before = durable.key_changes_before;
        let mut space = Keyspace::durable(seed, durable.home, state, source)?;
        space.set_load_tuning(tuning);
        space.succeed(self, key_changes_before);
        Ok(Garbage::new(std::mem::replace(self, space), 0))
    }

    /// No rows are written any more: what collections on rows have changed last is not in the store and
    /// stays in memory.
    pub fn stop_writing(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.shared.stop();
        }
    }

    /// Whether all there is is in memory.
    pub fn is_complete(&self) -> bool {
        self.dbs.iter().all(|db| db.cold_keys == 0)
    }

    /// Whether there may be something at `key`: in memory, or in rows that nobody has looked at.
    pub fn may_have(&self, db: DbIndex, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let there = |db: &crate::memory::db::Db| db.table.find(hash, key).is_some();
        self.dbs.get(db as usize).is_some_and(there) || !self.is_resident(db, key)
    }

    /// Drops all of the cache: everything comes back from its rows.
    pub fn uncache_all(&mut self) {
        if self.durable.is_none() {
            return;
        }
        for db in 0..VOID {
            let keys: Vec<Box<[u8]>> = self.dbs[db]
                .table
                .iter()
                .map(|entry| entry.key().into())
                .collect();
            for key in keys {
                self.uncache(db as DbIndex, &key);
            }
        }
    }
}

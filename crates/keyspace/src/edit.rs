//! A value being changed. Reads go through `Deref`; each changing method is defined on an `Edit` of
//! its kind (`kind/*/edit.rs`), and counts what it changed. When the edit ends (drop), a changed key is reported to whoever watches it and an
//! empty collection disappears with its key.
//!
//! Invariant: while an edit lives nothing is inserted in or removed from the table, so its
//! position stays good.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::kind::Collection;
use crate::memory::table::Position;
use crate::rows::Recorder;
use crate::{Keyspace, Tuning};

pub struct Edit<'a, T> {
    pub(crate) at: At<'a>,
    value: PhantomData<&'a mut T>,
}

/// Where the value is, and what was done to it.
pub(crate) struct At<'a> {
    pub space: &'a mut Keyspace,
    pub db: usize,
    pub position: Position,
    pub hash: u64,
    pub tuning: &'a Tuning,
    /// The key was made for this edit: without a change it goes again.
    pub fresh: bool,
    pub changes: usize,
    /// What it counted before the edit (see `weight.rs`).
    pub weight: i64,
}

impl<'a, T> Edit<'a, T> {
    pub(crate) fn new(at: At<'a>) -> Self {
        Edit {
            at,
            value: PhantomData,
        }
    }

    /// Notes `n` changes made to the value; 0 notes none.
    #[inline]
    pub(crate) fn mark(&mut self, n: usize) {
        self.at.changes += n;
    }
}

impl<T> Edit<'_, T> {
    /// Tells those who watch the key, as if the value had changed.
    pub fn tell(&mut self) {
        self.at.space.note_at(self.at.db, self.at.position, 0);
    }

    /// Whether the value has rows that have to follow its changes.
    #[inline]
    pub(crate) fn has_rows(&self) -> bool {
        self.at.space.is_recorded(self.at.db)
    }

    /// What notes changes of the value's rows, and the value; `None` if it has no rows.
    #[inline]
    pub(crate) fn recorder(&mut self) -> Option<(Recorder<'_>, &T)>
    where
        T: Collection,
    {
        if !self.at.space.is_recorded(self.at.db) {
            return None;
        }
        let Keyspace { dbs, durable, .. } = &mut *self.at.space;
        let db = dbs.get(self.at.db)?;
        let entry = db.table.at(self.at.position)?;
        let value: &T = entry.collection()?;
        let durable = durable.as_mut()?;
        let recorder = durable.recorder(db.index_id, entry.key(), value.generation());
        Some((recorder, value))
    }

    /// As [`Edit::recorder`] with the value to be changed, rows or not.
    pub(crate) fn recorder_mut(&mut self) -> Option<(Option<Recorder<'_>>, &mut T)>
    where
        T: Collection,
    {
        let is_recorded = self.at.space.is_recorded(self.at.db);
        let Keyspace { dbs, durable, .. } = &mut *self.at.space;
        let db = dbs.get_mut(self.at.db)?;
        let mut recorder = None;
        if is_recorded {
            let entry = db.table.at(self.at.position)?;
            let value: &T = entry.collection()?;
            let generation = value.generation();
            let durable = durable.as_mut()?;
            recorder = Some(durable.recorder(db.index_id, entry.key(), generation));
        }
        let value = db.entry_mut(self.at.position)?.collection()?;
        Some((recorder, value))
    }

    /// The value and the settings that shape it, for the methods that change it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut T, &Tuning)
    where
        T: Collection,
    {
        let tuning = self.at.tuning;
        let entry = self.at.space.dbs[self.at.db].entry_mut(self.at.position);
        match entry.and_then(|entry| entry.collection()) {
            Some(value) => (value, tuning),
            None => unreachable!("an edit's position outlived its entry"),
        }
    }
}

impl<T: Collection> Deref for Edit<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let entry = self.at.space.dbs[self.at.db].table.at(self.at.position);
        match entry.and_then(|entry| entry.collection()) {
            Some(value) => value,
            None => unreachable!("an edit's position outlived its entry"),
        }
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.space.dbs[self.db].table.at(self.position) else {
            return;
        };
        let gone = match entry.elements() {
            Some(n) => n == 0,
            None => self.fresh && self.changes == 0,
        };
        let db = &mut self.space.dbs[self.db];
        db.bytes += db.weight_at(self.position) - self.weight;
        if self.changes > 0 {
            self.space.mark(self.db, self.position);
            self.space.note_at(self.db, self.position, self.changes);
        }
        if gone {
            self.space.discard(self.db, self.position, self.hash);
        }
    }
}

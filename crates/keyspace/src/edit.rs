//! A value being changed. Reads go through `Deref`; each changing method is defined on
//! `Edit<'_, Hash>`, `Edit<'_, List>` … beside the collection it changes, and counts what it
//! changed. When the edit ends (drop), a changed key is reported to whoever watches it and an
//! empty collection disappears with its key.
//!
//! Invariant: while an edit lives nothing is inserted in or removed from the table, so its
//! position stays good.

use std::marker::PhantomData;
use std::ops::Deref;

use base::Atom;

use crate::memory::entry::{Collection, Entry};
use crate::memory::table::Position;
use crate::rows::Recorder;
use crate::txn::StringSlot;
use crate::{Keyspace, Tuning};

/// Spare room is doubled up to this many bytes, then added in steps of it.
const GROWTH_MOST: usize = 1024 * 1024;

pub struct Edit<'a, T> {
    at: At<'a>,
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

impl<T: Collection> Edit<'_, T> {
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
    pub(crate) fn recorder(&mut self) -> Option<(Recorder<'_>, &T)> {
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
    pub(crate) fn recorder_mut(&mut self) -> Option<(Option<Recorder<'_>>, &mut T)> {
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
    pub(crate) fn parts(&mut self) -> (&mut T, &Tuning) {
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

impl Edit<'_, StringSlot> {
    #[inline]
    pub fn atom(&self) -> Atom<'_> {
        let entry = self.at.space.dbs[self.at.db].table.at(self.at.position);
        match entry.and_then(|entry| entry.atom()) {
            Some(atom) => atom,
            None => unreachable!("an edit's position outlived its entry"),
        }
    }

    pub fn len(&self) -> usize {
        self.atom().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the whole string, deadline kept.
    pub fn replace(&mut self, bytes: &[u8]) {
        self.mark(1);
        let At { db, position, .. } = self.at;
        let entry = self.at.space.dbs[db].entry_mut(position);
        if entry.is_some_and(|mut entry| entry.set_string(bytes)) {
            return;
        }
        self.rebuild(|key, birth| Entry::string(key, bytes, birth));
    }

    /// Replaces the whole string by an integer, deadline kept (`INCR`).
    #[inline]
    pub fn replace_int(&mut self, value: i64) {
        self.mark(1);
        let At { db, position, .. } = self.at;
        let entry = self.at.space.dbs[db].entry_mut(position);
        if entry.is_some_and(|mut entry| entry.set_int(value)) {
            return;
        }
        self.rebuild(|key, birth| Entry::int(key, value, birth));
    }

    pub fn append(&mut self, bytes: &[u8]) {
        if self.at.fresh && self.at.changes == 0 {
            // A new key takes the form SET would give it.
            return self.replace(bytes);
        }
        let len = self.len() + bytes.len();
        self.raw(len).extend_from_slice(bytes);
        self.mark(1);
    }

    /// The string as bytes to be written in place (`SETRANGE`), first grown with zeros to at least
    /// `min_len`. Counts as a change.
    pub fn bytes_mut(&mut self, min_len: usize) -> &mut [u8] {
        self.mark(1);
        let len = self.len().max(min_len);
        let bytes = self.raw(len);
        bytes.resize(len, 0);
        bytes
    }

    /// As [`Edit::bytes_mut`] for a `write` that may leave things as they are (`SETBIT`,
    /// `BITFIELD`): it is told whether the string has grown and returns how many changes it made.
    pub fn write_bits(&mut self, min_len: usize, write: impl FnOnce(&mut [u8], bool) -> usize) {
        let (changes, former_len) = (self.at.changes, self.len());
        let grown = former_len < min_len;
        let bytes = self.bytes_mut(min_len);
        let made = write(bytes, grown);
        self.at.changes = changes + made.max(grown.into());
    }

    /// The string as a vector with room for `len` bytes, converted to that form if need be.
    fn raw(&mut self, len: usize) -> &mut Vec<u8> {
        let At { db, position, .. } = self.at;
        let is_raw = {
            let entry = self.at.space.dbs[db].entry_mut(position);
            entry.and_then(|entry| entry.raw()).is_some()
        };
        if !is_raw {
            let mut bytes = Vec::with_capacity(with_spare(len, self.is_empty()));
            self.atom().append_to(&mut bytes);
            self.rebuild(|key, birth| Entry::raw(key, bytes, birth));
        }
        let entry = self.at.space.dbs[db].entry_mut(position);
        let Some(bytes) = entry.and_then(|entry| entry.raw()) else {
            unreachable!("the string was just made raw")
        };
        if bytes.capacity() < len {
            bytes.reserve_exact(with_spare(len, false) - bytes.len());
        }
        bytes
    }

    /// Puts another entry of the same key, deadline and clock in place.
    fn rebuild(&mut self, make: impl FnOnce(&[u8], crate::memory::entry::Birth) -> Entry) {
        let At {
            db, position, hash, ..
        } = self.at;
        let Some(entry) = self.at.space.dbs[db].table.at(position) else {
            return;
        };
        let new = make(entry.key(), entry.birth());
        self.at.space.swap_entry(db, position, hash, new);
    }
}

/// Room to take for a string of `len` bytes: exactly that for a new one, else as Redis grows.
fn with_spare(len: usize, new: bool) -> usize {
    if new { len } else { len + len.min(GROWTH_MOST) }
}

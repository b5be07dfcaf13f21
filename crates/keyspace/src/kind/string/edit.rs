//! What commands see of a string, and its changes.
//!
//! A string is overwritten in its entry where it fits; otherwise the key gets another entry.

use base::{Atom, Refusal};

use super::StringSlot;
use crate::edit::At;
use crate::memory::entry::{Birth, Entry};
use crate::{Edit, Expire, Kind, Txn, View};

/// Spare room is doubled up to this many bytes, then added in steps of it.
const GROWTH_MOST: usize = 1024 * 1024;

impl View<'_> {
    /// The string at `key`; `None` if there is no such key; WRONGTYPE for another type.
    /// This and its siblings count as an access (LRU/LFU clock, hit and miss counters).
    #[inline]
    pub fn string(&self, key: &[u8]) -> Result<Option<Atom<'_>>, Refusal> {
        match self.access(key) {
            None => Ok(None),
            Some(entry) => entry.atom().map(Some).ok_or(Refusal::WrongType),
        }
    }
}

impl Txn<'_> {
    /// Replaces whatever is at `key` by a string (`SET`).
    pub fn put_string(&mut self, key: &[u8], bytes: &[u8], expire: Expire) {
        let mut target = self.target(key);
        if target.overwrite(expire, |mut entry| entry.set_string(bytes)) {
            target.space.changed(target.db, key, 1);
            return;
        }
        target.put(key, expire, |birth| Entry::string(key, bytes, birth));
    }

    /// Replaces whatever is at `key` by an integer, kept as a number.
    pub fn put_int(&mut self, key: &[u8], value: i64, expire: Expire) {
        let mut target = self.target(key);
        if target.overwrite(expire, |mut entry| entry.set_int(value)) {
            target.space.changed(target.db, key, 1);
            return;
        }
        target.put(key, expire, |birth| Entry::int(key, value, birth));
    }

    /// The string at `key` to be changed in place, its deadline kept; `None` if there is none.
    /// Its methods are in `edit.rs`.
    pub fn string_mut(&mut self, key: &[u8]) -> Result<Option<Edit<'_, StringSlot>>, Refusal> {
        Ok(self.target(key).open(Kind::String)?.map(Edit::new))
    }

    /// As [`Txn::string_mut`], an empty string being made if there is none.
    pub fn string_or_new(&mut self, key: &[u8]) -> Result<Edit<'_, StringSlot>, Refusal> {
        let target = self.target(key);
        let at = target.open_or(Kind::String, |birth| Entry::string(key, b"", birth))?;
        Ok(Edit::new(at))
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
    fn rebuild(&mut self, make: impl FnOnce(&[u8], Birth) -> Entry) {
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

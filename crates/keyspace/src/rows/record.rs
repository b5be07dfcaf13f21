//! Rows of one collection as they change.
//!
//! Made by `Edit` for each change of a durable keyspace; the part of the row key that all elements
//! share is written once and each element's own part behind it.

use super::{Changes, Family};

/// Writes element rows of one collection.
pub struct Recorder<'a> {
    changes: &'a mut Changes,
    key: &'a mut Vec<u8>,
    base: usize,
}

impl<'a> Recorder<'a> {
    /// `key` is what all rows of the collection begin with.
    pub(crate) fn new(changes: &'a mut Changes, key: &'a mut Vec<u8>) -> Self {
        let base = key.len();
        Recorder { changes, key, base }
    }

    #[inline]
    fn row(&mut self, parts: [&[u8]; 2]) {
        self.key.truncate(self.base);
        self.key.extend_from_slice(parts[0]);
        self.key.extend_from_slice(parts[1]);
    }

    /// The row of an element.
    #[inline]
    pub fn put(&mut self, sub: &[u8], value: &[u8]) {
        self.row([sub, b""]);
        self.changes.put(Family::Data, self.key, value);
    }

    #[inline]
    pub fn delete(&mut self, sub: &[u8]) {
        self.row([sub, b""]);
        self.changes.delete(Family::Data, self.key);
    }

    /// A row in another family, where there was none.
    #[inline]
    pub(crate) fn put_new_in(&mut self, family: Family, sub: [&[u8]; 2], value: &[u8]) {
        self.row(sub);
        self.changes.put_new(family, self.key, value);
    }

    #[inline]
    pub(crate) fn delete_in(&mut self, family: Family, sub: [&[u8]; 2]) {
        self.row(sub);
        self.changes.delete(family, self.key);
    }
}

//! Rows of one collection as they change.
//!
//! Made by `Edit` for each change of a durable keyspace; the part of the row key that all elements
//! share is written once and each element's own part behind it.

use super::layout::{i64_bytes, score8, sign};
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

    /// A hash field or a set member (with no value).
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

    #[inline]
    pub fn put_at(&mut self, position: i64, element: &[u8]) {
        self.put(&i64_bytes(position), element);
    }

    #[inline]
    pub fn delete_at(&mut self, position: i64) {
        self.delete(&i64_bytes(position));
    }

    /// A member's score, and the row in the order of scores, where it is new; that of the former score
    /// goes.
    pub fn put_score(&mut self, member: &[u8], former: Option<f64>, score: f64) {
        if let Some(former) = former {
            self.row([&score8(former), member]);
            self.changes.delete(Family::Score, self.key);
        }
        self.put(member, &score.to_bits().to_be_bytes());
        self.row([&score8(score), member]);
        self.changes.put_new(Family::Score, self.key, sign(score));
    }

    pub fn delete_score(&mut self, member: &[u8], former: f64) {
        self.delete(member);
        self.row([&score8(former), member]);
        self.changes.delete(Family::Score, self.key);
    }
}

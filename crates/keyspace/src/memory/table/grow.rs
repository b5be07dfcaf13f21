//! How a table grows and shrinks: one segment at a time, so that no single write pays for all of it.
//!
//! ```text
//!   lone segment   small shape ─► bigger shape ─► … ─► full shape
//!   full shape     full ─► two, by the next bit of the prefix      (the directory doubles if it must)
//!   half empty     two siblings ─► one                             (the directory halves, later)
//! ```
//!
//! Invariant: a segment that is not in the directory any more is freed, once; its words have moved to
//! others, which own the elements now.

use super::{MOST_DEPTH, Table, Thin, home, prefetch};
use crate::memory::segment::{Segment, Shape, address_of};

/// Siblings merge when they hold together no more than this (of 504 places).
pub(super) const MERGED_LEN: usize = 200;

impl<P: Thin> Table<P> {
    /// Gives a full segment more room: a bigger shape, or a sibling.
    pub(super) fn make_room(&mut self, index: usize) {
        let segment = self.directory[index];
        match segment.shape().bigger() {
            Some(shape) => self.reshape(segment, shape),
            None => self.split(index),
        }
    }

    /// Moves the only segment's words into one of a bigger shape.
    fn reshape(&mut self, old: Segment, mut shape: Shape) {
        'shape: loop {
            let mut new = Segment::new(shape, 0);
            for at in 0..old.shape().words() {
                let word = old.word(at);
                if word == 0 {
                    continue;
                }
                let hash = self.hash(P::key(self.look(address_of(word))));
                if new.place(home(hash, shape.homes), word).is_none()
                    && let Some(bigger) = shape.bigger()
                {
                    // SAFETY: nobody has seen `new` yet.
                    unsafe { new.free() };
                    shape = bigger;
                    continue 'shape;
                }
            }
            debug_assert_eq!(new.len(), old.len());
            self.directory[0] = new;
            self.homes = shape.homes;
            // SAFETY: the directory was the only holder.
            unsafe { old.free() };
            return;
        }
    }

    /// Splits a segment by the next bit of the prefix.
    fn split(&mut self, index: usize) {
        let mut old = self.directory[index];
        let depth = old.depth() + 1;
        assert!(depth <= MOST_DEPTH, "the hash does not spread the keys");
        let mut index = index;
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|&s| [s, s]).collect();
            self.depth += 1;
            self.deepest = 0;
            index *= 2;
        }
        if depth == self.depth {
            self.deepest += 2;
        }
        let mut new = Segment::new(old.shape(), depth);
        // The elements are about to be read for their keys: ask for all of them at once.
        for at in 0..old.shape().words() {
            prefetch(address_of(old.word(at)));
        }
        old.divide(&mut new, |address| {
            let hash = self.hash(P::key(self.look(address)));
            hash >> (64 - depth) & 1 == 1
        });
        let first = self.first_index(index);
        old.set_depth(depth);
        let places = 1 << (self.depth - depth);
        self.directory[first + places..first + 2 * places].fill(new);
    }

    /// After removals: merges a segment with its sibling, gives up an empty table's memory.
    pub(super) fn shrink(&mut self, index: usize) {
        if self.len == 0 && self.homes > Shape::SMALLEST.homes {
            let empty = self.empty();
            *self = empty;
            return;
        }
        // A merged segment may merge again with its own sibling.
        while self.merge(index) {}
        self.halve_directory();
    }

    /// Merges a segment with its sibling if both together are small; whether it did.
    fn merge(&mut self, index: usize) -> bool {
        let (old, depth) = (self.directory[index], self.directory[index].depth());
        if depth == 0 {
            return false;
        }
        let places = 1 << (self.depth - depth);
        let first = self.first_index(index);
        let sibling_first = first ^ places;
        let sibling = self.directory[sibling_first];
        if sibling.depth() != depth || old.len() + sibling.len() > MERGED_LEN {
            return false;
        }
        let mut merged = Segment::new(Shape::FULL, depth - 1);
        for segment in [old, sibling] {
            for at in 0..segment.shape().words() {
                let word = segment.word(at);
                if word != 0 && merged.place(segment.home(at), word).is_none() {
                    // Too uneven to fit: stay apart.
                    // SAFETY: nobody has seen `merged` yet.
                    unsafe { merged.free() };
                    return false;
                }
            }
        }
        let first = first.min(sibling_first);
        self.directory[first..first + 2 * places].fill(merged);
        if depth == self.depth {
            self.deepest -= 2;
        }
        // SAFETY: all places that held the two now hold the merged one.
        unsafe {
            old.free();
            sibling.free();
        }
        true
    }

    /// Halves the directory, whose last bit no segment needs, as often as it can. Not at once: a
    /// table that shrinks a little often grows again.
    fn halve_directory(&mut self) {
        while self.depth > 0
            && self.deepest == 0
            && self.len < self.directory.len() * (MERGED_LEN / 2)
        {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.depth -= 1;
            self.deepest = self
                .segments()
                .filter(|&index| self.directory[index].depth() == self.depth)
                .count();
        }
    }
}

//! The chunks of a big list: where an element is, and how chunks fill, split and join.
//!
//! Headers lie in one array, each with its count: an index is found by walking them from the nearer
//! end. That is linear, in a header per 8 KiB of elements: a list of a million small ones has about two
//! thousand, and walking one chunk takes as long.
//!
//! Invariants: no chunk is empty; `len` and `used` are the sums of the chunks'. Chunks keep the limit they were filled
//! under when the setting changes.

use std::collections::VecDeque;

use super::chunk::{self, Chunk};
use crate::Tuning;
use crate::collection::element::Form;

#[derive(Clone)]
pub(super) struct Chunks {
    pub(super) deque: VecDeque<Chunk>,
    pub(super) len: usize,
    /// Bytes of all elements.
    pub(super) used: usize,
}

/// Bytes a chunk may have when the setting counts elements (as Redis' `SIZE_SAFETY_LIMIT`).
const COUNTED_MAX_BYTES: usize = 8 << 10;
/// Neighbours that shrink below this together become one chunk.
const MERGE_BYTES: usize = 2 << 10;

/// How full a chunk may get.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    bytes: usize,
    count: usize,
}

impl Limit {
    #[inline]
    pub(super) fn of(tuning: &Tuning) -> Self {
        match tuning.list_max_packed_size {
            count @ 1.. => Limit {
                bytes: COUNTED_MAX_BYTES,
                count: count.min(i64::from(u16::MAX)) as usize,
            },
            0 => Limit {
                bytes: COUNTED_MAX_BYTES,
                count: 1,
            },
            class => Limit {
                bytes: (4 << 10) << ((-class).min(5) - 1),
                count: usize::MAX,
            },
        }
    }

    #[inline]
    pub(super) fn fits(self, used: usize, count: usize) -> bool {
        used <= self.bytes && count <= self.count
    }

    /// Whether `chunk` may take `size` bytes in one more element.
    #[inline]
    pub(super) fn takes(self, chunk: &Chunk, size: usize) -> bool {
        chunk.len() == 0 || self.fits(chunk.used() + size, chunk.len() + 1)
    }
}

impl Chunks {
    /// The chunk that has element `index` (which exists), and the element's index in it.
    pub(super) fn locate(&self, index: usize) -> (usize, usize) {
        if index <= self.len / 2 {
            let mut rest = index;
            for (at, chunk) in self.deque.iter().enumerate() {
                if rest < chunk.len() {
                    return (at, rest);
                }
                rest -= chunk.len();
            }
        } else {
            let mut before = self.len;
            for (at, chunk) in self.deque.iter().enumerate().rev() {
                before -= chunk.len();
                if before <= index {
                    return (at, index - before);
                }
            }
        }
        unreachable!("element {index} of {}", self.len)
    }

    pub(super) fn push(&mut self, form: &Form<'_>, limit: Limit, in_front: bool) {
        let size = chunk::record_size(form);
        let end = if in_front {
            self.deque.front()
        } else {
            self.deque.back()
        };
        if !end.is_some_and(|chunk| limit.takes(chunk, size)) {
            // A list this long will fill the chunk; one that counts elements may not.
            let room = if limit.count == usize::MAX {
                size.max(limit.bytes)
            } else {
                size
            };
            let chunk = Chunk::with_room(room, in_front);
            match in_front {
                true => self.deque.push_front(chunk),
                false => self.deque.push_back(chunk),
            }
        }
        if in_front {
            if let Some(chunk) = self.deque.front_mut() {
                chunk.push_front(form);
            }
        } else if let Some(chunk) = self.deque.back_mut() {
            chunk.push_back(form);
        }
        self.len += 1;
        self.used += size;
    }

    pub(super) fn drop_front(&mut self) {
        if let Some(chunk) = self.deque.front_mut() {
            let before = chunk.used();
            chunk.drop_front();
            self.len -= 1;
            self.used -= before - chunk.used();
            if chunk.len() == 0 {
                self.deque.pop_front();
            } else if self.deque.len() == 1 {
                self.deque[0].trim_quarter();
            }
        }
    }

    pub(super) fn drop_back(&mut self) {
        if let Some(chunk) = self.deque.back_mut() {
            let before = chunk.used();
            chunk.drop_back();
            self.len -= 1;
            self.used -= before - chunk.used();
            if chunk.len() == 0 {
                self.deque.pop_back();
            } else if self.deque.len() == 1 {
                self.deque[0].trim_quarter();
            }
        }
    }

    /// Inserts before element `inside` of chunk `at`.
    pub(super) fn insert(&mut self, at: usize, inside: usize, form: &Form<'_>, limit: Limit) {
        let size = chunk::record_size(form);
        self.len += 1;
        self.used += size;
        if limit.takes(&self.deque[at], size) {
            return self.deque[at].insert(inside, form);
        }
        if inside == 0 && at > 0 && limit.takes(&self.deque[at - 1], size) {
            return self.deque[at - 1].push_back(form);
        }
        let mut next = at;
        if inside > 0 {
            let tail = self.deque[at].split_off(inside);
            next = at + 1;
            self.deque.insert(next, tail);
            if limit.takes(&self.deque[at], size) {
                return self.deque[at].push_back(form);
            }
            if limit.takes(&self.deque[next], size) {
                return self.deque[next].push_front(form);
            }
        }
        let mut alone = Chunk::new();
        alone.push_back(form);
        self.deque.insert(next, alone);
    }

    /// Replaces element `inside` of chunk `at`, which has no others or room for the new one.
    pub(super) fn set(&mut self, at: usize, inside: usize, form: &Form<'_>) {
        let chunk = &mut self.deque[at];
        let before = chunk.used();
        chunk.set(inside, form);
        self.used = self.used - before + chunk.used();
    }

    /// Replaces element `inside` of chunk `at`, which has others too and no room for the new one.
    pub(super) fn set_split(&mut self, at: usize, inside: usize, form: &Form<'_>, limit: Limit) {
        let before = self.deque[at].used();
        self.deque[at].remove(inside, 1);
        self.len -= 1;
        self.used -= before - self.deque[at].used();
        if inside == self.deque[at].len() && at + 1 < self.deque.len() {
            self.insert(at + 1, 0, form, limit);
        } else if inside == self.deque[at].len() {
            self.push(form, limit, false);
        } else {
            self.insert(at, inside, form, limit);
        }
    }

    pub(super) fn remove_range(&mut self, start: usize, count: usize) {
        let (mut at, inside) = self.locate(start);
        let first = at;
        let mut left = count;
        if inside > 0 {
            let here = left.min(self.deque[at].len() - inside);
            let before = self.deque[at].used();
            self.deque[at].remove(inside, here);
            self.used -= before - self.deque[at].used();
            left -= here;
            at += 1;
        }
        let mut whole = at;
        while whole < self.deque.len() && left >= self.deque[whole].len() && left > 0 {
            left -= self.deque[whole].len();
            self.used -= self.deque[whole].used();
            whole += 1;
        }
        self.deque.drain(at..whole);
        if left > 0 {
            let before = self.deque[at].used();
            self.deque[at].remove(0, left);
            self.used -= before - self.deque[at].used();
        }
        self.len -= count;
        self.merge_around(first);
        self.trim();
    }

    pub(super) fn remove_equal(&mut self, form: &Form<'_>, limit: usize, from_tail: bool) -> usize {
        let mut left = limit;
        let mut visit = |chunk: &mut Chunk| {
            left -= remove_equal_in(chunk, form, left, from_tail);
            left > 0
        };
        if from_tail {
            let _ = self.deque.iter_mut().rev().all(&mut visit);
        } else {
            let _ = self.deque.iter_mut().all(&mut visit);
        }
        if left < limit {
            self.len -= limit - left;
            self.used -= (limit - left) * chunk::record_size(form);
            self.merge_all();
        }
        limit - left
    }

    /// Drops empty chunks and joins sparse neighbours, in one sweep: elements went from many places.
    fn merge_all(&mut self) {
        let mut kept = 0usize;
        for at in 0..self.deque.len() {
            let chunk = std::mem::replace(&mut self.deque[at], Chunk::new());
            if chunk.len() == 0 {
                continue;
            }
            match kept.checked_sub(1).map(|last| &mut self.deque[last]) {
                Some(last) if last.used() + chunk.used() <= MERGE_BYTES => last.append(&chunk),
                _ => {
                    self.deque[kept] = chunk;
                    kept += 1;
                }
            }
        }
        self.deque.truncate(kept);
        self.trim();
    }

    /// Joins what removing left of the chunks beside `at`, so that few elements are few chunks.
    fn merge_around(&mut self, at: usize) {
        for left in [at, at.wrapping_sub(1)] {
            let (Some(a), Some(b)) = (self.deque.get(left), self.deque.get(left.wrapping_add(1)))
            else {
                continue;
            };
            if a.used() + b.used() <= MERGE_BYTES
                && let Some(next) = self.deque.remove(left + 1)
            {
                self.deque[left].append(&next);
            }
        }
    }

    /// Gives back the deque's own memory after many chunks went.
    fn trim(&mut self) {
        if self.deque.capacity() > 4 * self.deque.len() + 8 {
            self.deque.shrink_to(self.deque.len() * 2);
        }
    }
}

pub(super) fn remove_equal_in(
    chunk: &mut Chunk,
    form: &Form<'_>,
    limit: usize,
    from_tail: bool,
) -> usize {
    let found = chunk.count_equal(form);
    let take = found.min(limit);
    if take > 0 {
        chunk.remove_equal(form, if from_tail { found - take } else { 0 }, take);
    }
    take
}

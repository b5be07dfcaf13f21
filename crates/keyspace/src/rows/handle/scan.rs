//! HSCAN, SSCAN and ZSCAN over rows: a cursor stands for the last key it has come to.
//!
//! ```text
//!   cursor   [ 1 ][ life of the handle: 20 bits ][ number of the step: 32 bits ]
//! ```
//!
//! The handle remembers the keys its latest cursors stand for. A cursor it does not know (forgotten,
//! or of a life before the collection was uncached) begins from the first key again: elements may
//! come twice, but none is left out. The first bit tells these cursors from those of a table: a collection
//! that has come into memory since also begins again. Keys do not move, so one that stays is met wherever a scan is.

use std::collections::VecDeque;

use super::Handle;
use crate::rows::Family;

/// Cursors a collection remembers.
const CURSORS_MOST: usize = 4096;
const STEP_BITS: u32 = 32;
const LIFE_MASK: u64 = (1 << 20) - 1;
/// No table has a cursor as great, and every language a number for it.
const ROWS_BIT: u64 = 1 << 52;

/// What a cursor means to a collection in memory.
pub(crate) fn cursor_in_memory(cursor: u64) -> u64 {
    match cursor & ROWS_BIT {
        0 => cursor,
        _ => 0,
    }
}

pub(super) struct Cursors {
    life: u64,
    /// Number of the first key kept; never 0.
    first: u64,
    keys: VecDeque<Box<[u8]>>,
}

impl Cursors {
    /// For the handle number `life` of a keyspace on the rows that begin with `base`.
    pub fn new(base: &[u8], life: u64) -> Self {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(life).build_hasher();
        hasher.write(base);
        let hash = hasher.finish();
        Cursors {
            life: hash & LIFE_MASK,
            // Somewhere else in each life, with room to count up.
            first: 1 + (hash >> 40),
            keys: VecDeque::new(),
        }
    }

    fn key(&self, cursor: u64) -> Option<&[u8]> {
        let step = cursor & ((1 << STEP_BITS) - 1);
        let at = step.checked_sub(self.first)?;
        let is_mine = cursor >> STEP_BITS == (ROWS_BIT >> STEP_BITS | self.life);
        let key = self.keys.get(usize::try_from(at).ok()?)?;
        is_mine.then_some(key)
    }

    fn keep(&mut self, key: &[u8]) -> u64 {
        if self.keys.len() >= CURSORS_MOST {
            self.keys.pop_front();
            self.first += 1;
        }
        let step = self.first + self.keys.len() as u64;
        if step >> STEP_BITS != 0 {
            self.keys.clear();
            self.first = 1;
            return self.keep(key);
        }
        self.keys.push_back(key.into());
        ROWS_BIT | self.life << STEP_BITS | step
    }

    pub fn memory_usage(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| key.len()).sum();
        keys + self.keys.capacity() * size_of::<Box<[u8]>>()
    }
}

impl Handle {
    /// One step: `count` elements to `each`, the next cursor (0: done).
    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> u64 {
        let key = self.cursors.borrow().key(cursor).map(<[u8]>::to_vec);
        let from = key.map_or(Vec::new(), |key| [&key[..], &[0]].concat());
        let (mut seen, mut last) = (0, None);
        self.between(Family::Data, (&from, None), false, &mut |sub, value| {
            each(sub, value);
            seen += 1;
            if seen >= count.max(1) {
                last = Some(sub.to_vec());
            }
            last.is_none()
        });
        match last {
            Some(last) => self.cursors.borrow_mut().keep(&last),
            None => 0,
        }
    }
}

//! The slots a session has written to, for WAIT and WAITAOF on a cluster node.
//!
//! One bit per slot, made with the first write. A write that was refused counts too: WAIT then asks about a region more,
//! which costs a message.

use std::cell::{Cell, OnceCell};
use std::ops::RangeInclusive;

use base::{SLOT_COUNT, Slot};

const WORDS: usize = SLOT_COUNT as usize / 64;

#[derive(Default)]
pub struct Wrote(OnceCell<Box<[Cell<u64>]>>);

impl Wrote {
    #[inline]
    pub fn note(&self, slot: Slot) {
        let words = self
            .0
            .get_or_init(|| (0..WORDS).map(|_| Cell::new(0)).collect());
        if let Some(word) = words.get(usize::from(slot) / 64) {
            word.set(word.get() | 1 << (slot % 64));
        }
    }

    /// Nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Whether a slot of the range was written to.
    pub fn is_in(&self, slots: &RangeInclusive<Slot>) -> bool {
        let Some(words) = self.0.get() else {
            return false;
        };
        slots.clone().any(|slot| {
            let word = words.get(usize::from(slot) / 64).map_or(0, Cell::get);
            word >> (slot % 64) & 1 == 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_slots_are_found_in_their_ranges_only() {
        let wrote = Wrote::default();
        assert!(wrote.is_empty() && !wrote.is_in(&(0..=SLOT_COUNT - 1)));
        wrote.note(64);
        wrote.note(SLOT_COUNT - 1);
        assert!(!wrote.is_empty());
        assert!(wrote.is_in(&(0..=64)) && wrote.is_in(&(64..=70)));
        assert!(!wrote.is_in(&(0..=63)) && !wrote.is_in(&(65..=SLOT_COUNT - 2)));
        assert!(wrote.is_in(&(SLOT_COUNT - 1..=SLOT_COUNT - 1)));
    }
}

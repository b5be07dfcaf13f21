//! Keys known not to exist, of a database that is not whole in memory.
//!
//! Two generations of full keys: when the young one is full it becomes the old one and the former
//! old one goes. That happens only between commands ([`Absent::tidy`]), never while the keys of one
//! command are being looked up one by one, or a command with many missing keys would never run.

use std::collections::HashSet;

use foldhash::quality::FixedState;

/// Keys of the young generation from which on it becomes the old one.
const YOUNG_MOST: usize = 8 * 1024;

#[derive(Default)]
pub(crate) struct Absent(Option<Box<Generations>>);

struct Generations {
    young: HashSet<Box<[u8]>, FixedState>,
    old: HashSet<Box<[u8]>, FixedState>,
}

impl Absent {
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0
            .as_ref()
            .is_some_and(|sets| sets.young.contains(key) || sets.old.contains(key))
    }

    pub fn insert(&mut self, key: &[u8]) {
        let sets = self.0.get_or_insert_with(|| {
            let empty = || HashSet::with_hasher(FixedState::with_seed(0));
            Box::new(Generations {
                young: empty(),
                old: empty(),
            })
        });
        sets.young.insert(key.into());
    }

    pub fn remove(&mut self, key: &[u8]) {
        if let Some(sets) = &mut self.0 {
            sets.young.remove(key);
            sets.old.remove(key);
        }
    }

    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Keeps the bound.
    pub fn tidy(&mut self) {
        if let Some(sets) = &mut self.0
            && sets.young.len() > YOUNG_MOST
        {
            sets.old = std::mem::replace(
                &mut sets.young,
                HashSet::with_hasher(FixedState::with_seed(0)),
            );
        }
    }
}

//! Rows of one write, or of many folded into one, and how to find them.
//!
//! Most rows of a write are never looked for: their indices are made by the first who does. Those of
//! many are in order, so the index is made with them.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use keyspace::rows::{Changes, Family};

use crate::order::for_each_in_order;

pub(super) struct Batch {
    changes: Changes,
    since: Instant,
    /// How many writes are in it.
    writes: u64,
    hasher: RandomState,
    /// By family and key: the place of the last change of it.
    places: OnceLock<HashTable<usize>>,
    /// Places by family and key, of each key that of its last change.
    sorted: OnceLock<Vec<usize>>,
}

impl Batch {
    /// Takes these changes into `room`.
    pub fn new(room: Changes, parts: &[&Changes]) -> Self {
        let mut changes = room;
        changes.clear();
        parts.iter().for_each(|part| changes.extend(part));
        Batch {
            changes,
            since: Instant::now(),
            writes: 1,
            hasher: RandomState::default(),
            places: OnceLock::new(),
            sorted: OnceLock::new(),
        }
    }

    /// All of these as one, the oldest first: of each row its last change. Into `room`, which is empty.
    pub fn fold(room: Changes, parts: &[Arc<Batch>]) -> Self {
        let all: Vec<&Changes> = parts.iter().map(|part| part.changes()).collect();
        let mut changes = room;
        let mut sorted = Vec::with_capacity(all.iter().map(|part| part.len()).sum());
        for_each_in_order(&all, |change| {
            sorted.push(changes.size_bytes());
            changes.push(change);
        });
        all.iter().for_each(|part| changes.add_orphans(part));
        let since = parts.iter().map(|part| part.since).min();
        Batch {
            changes,
            since: since.unwrap_or_else(Instant::now),
            writes: parts.iter().map(|part| part.writes).sum(),
            hasher: RandomState::default(),
            places: OnceLock::new(),
            sorted: OnceLock::from(sorted),
        }
    }

    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    pub fn into_changes(self) -> Changes {
        self.changes
    }

    pub fn since(&self) -> Instant {
        self.since
    }

    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Never zero, so that what waits counts.
    pub fn size_bytes(&self) -> usize {
        self.changes.size_bytes() + 1
    }

    /// Family and key of the change at a place.
    fn row(&self, place: usize) -> Option<(Family, &[u8])> {
        self.changes.at(place).map(|change| change.row())
    }

    /// What the batch says of a row, if it does: its value, or that it goes.
    pub fn get(&self, family: Family, key: &[u8]) -> Option<Option<&[u8]>> {
        let wanted = Some((family, key));
        if let Some(sorted) = self.sorted.get() {
            let found = sorted.binary_search_by(|&at| self.row(at).cmp(&wanted));
            let change = self.changes.at(*sorted.get(found.ok()?)?)?;
            return Some(change.value);
        }
        let hash = |row: Option<(Family, &[u8])>| self.hasher.hash_one(row);
        let places = self.places.get_or_init(|| {
            let mut places = HashTable::with_capacity(self.changes.len());
            for place in self.changes.places() {
                let row = self.row(place);
                let entry = places.entry(
                    hash(row),
                    |&at| self.row(at) == row,
                    |&at| hash(self.row(at)),
                );
                entry.and_modify(|at| *at = place).or_insert(place);
            }
            places
        });
        let place = places.find(hash(wanted), |&at| self.row(at) == wanted)?;
        Some(self.changes.at(*place)?.value)
    }

    fn sorted(&self) -> &[usize] {
        self.sorted.get_or_init(|| {
            let places = self.changes.places();
            let mut rows: Vec<_> = places.map(|place| (self.row(place), place)).collect();
            rows.sort_unstable();
            // Of equal rows the last counts.
            rows.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    kept.1 = later.1;
                }
                same
            });
            rows.into_iter().map(|(_, place)| place).collect()
        })
    }

    /// The places of the rows `from <= key < to` of a family, ascending.
    pub fn range(&self, family: Family, from: &[u8], to: &[u8]) -> &[usize] {
        let sorted = self.sorted();
        let before = |key| sorted.partition_point(|&at| self.row(at) < Some((family, key)));
        sorted.get(before(from)..before(to)).unwrap_or_default()
    }
}

//! One database: its table of entries and the index of their deadlines.
//!
//! Invariant: `(deadline, hash of key)` is in the index exactly for the entries that have a
//! deadline. Two keys of equal 64-bit hash and equal deadline share one place in it; the later of
//! them to be removed then only disappears when it is looked for.

use std::collections::{BTreeSet, HashMap};

use base::DbIndex;

use super::entry::{Birth, Entry, EntryMut, EntryRef};
use super::table::{Position, Table};
use crate::rows::Absent;
use crate::weighing::Left;
use crate::weight::Counted;

pub(crate) struct Db {
    pub table: Table<Entry>,
    deadlines: BTreeSet<(u64, u64)>,
    deadline_sum: u128,
    /// Its number when the running snapshot began (SWAPDB may have moved it since).
    pub origin: DbIndex,
    seed: u64,
    /// Of a durable keyspace: what its rows begin with, and how many keys (and of these, with a
    /// deadline) are in rows only.
    pub index_id: u64,
    pub cold_keys: u64,
    pub cold_volatile: u64,
    pub absent: Absent,
    /// What its keys weigh, in memory or not; only if it is counted (see `weight.rs`). Of one that was opened,
    /// what has come since, until its rows were read: it may be below zero.
    pub bytes: i64,
    pub is_counted: bool,
    /// What is counted for collections that are in rows only: for big ones, and where it was guessed.
    pub counted: HashMap<Box<[u8]>, Counted>,
    /// While all rows are read.
    pub left: Option<Box<Left>>,
}

impl Db {
    pub fn new(seed: u64, origin: DbIndex) -> Self {
        Db {
            table: Table::new(seed),
            deadlines: BTreeSet::new(),
            deadline_sum: 0,
            origin,
            seed,
            index_id: 1 + u64::from(origin),
            cold_keys: 0,
            cold_volatile: 0,
            absent: Absent::default(),
            bytes: 0,
            is_counted: false,
            counted: HashMap::new(),
            left: None,
        }
    }

    /// Number of keys, whether in memory or not.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len() + self.cold_keys as usize
    }

    /// Leaves an empty database; the former table.
    pub fn take(&mut self) -> (Table<Entry>, BTreeSet<(u64, u64)>) {
        let empty = Db {
            index_id: self.index_id,
            is_counted: self.is_counted,
            ..Db::new(self.seed, self.origin)
        };
        let old = std::mem::replace(self, empty);
        (old.table, old.deadlines)
    }

    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], now_ms: u64) -> Option<EntryRef<'_>> {
        self.table.get(hash, key).filter(|e| !e.is_due(now_ms))
    }

    /// The entry at a position, to be changed in place. Its deadline must stay.
    #[inline]
    pub fn entry_mut(&mut self, position: Position) -> Option<EntryMut<'_>> {
        // SAFETY: the table owns the entry and is borrowed mutably.
        self.table
            .raw(position)
            .map(|raw| unsafe { EntryMut::from_raw(raw) })
    }

    pub fn insert(&mut self, hash: u64, entry: Entry) -> Position {
        self.index(None, entry.borrow().deadline_ms(), hash);
        self.table.insert(hash, entry)
    }

    /// Puts another entry of the same key; the former.
    pub fn replace(&mut self, position: Position, hash: u64, entry: Entry) -> Option<Entry> {
        let deadline_ms = entry.borrow().deadline_ms();
        self.note_left(position);
        let former = self.table.replace(position, entry)?;
        self.index(former.borrow().deadline_ms(), deadline_ms, hash);
        Some(former)
    }

    pub fn remove(&mut self, position: Position, hash: u64) -> Option<Entry> {
        self.note_left(position);
        let former = self.table.remove(position)?;
        self.index(former.borrow().deadline_ms(), None, hash);
        Some(former)
    }

    pub fn set_deadline(&mut self, position: Position, hash: u64, to_ms: Option<u64>) {
        let Some(entry) = self.table.at(position) else {
            return;
        };
        let from_ms = entry.deadline_ms();
        if from_ms == to_ms {
            return;
        }
        match (from_ms, to_ms) {
            (Some(_), Some(to_ms)) => {
                if let Some(mut entry) = self.entry_mut(position) {
                    entry.set_deadline(to_ms);
                }
            }
            // The deadline takes room: the entry is made anew around its value.
            _ => self.rebuild(position, to_ms),
        }
        self.index(from_ms, to_ms, hash);
    }

    fn rebuild(&mut self, position: Position, deadline_ms: Option<u64>) {
        let Some(entry) = self.table.at(position) else {
            return;
        };
        let birth = Birth {
            deadline_ms,
            ..entry.birth()
        };
        // A stand-in keeps the place while the entry is made anew.
        let stand_in = Entry::int(entry.key(), 0, birth);
        if let Some(entry) = self.table.replace(position, stand_in) {
            self.table.replace(position, entry.reborn(birth));
        }
    }

    #[inline]
    fn index(&mut self, from_ms: Option<u64>, to_ms: Option<u64>, hash: u64) {
        if from_ms == to_ms {
            return;
        }
        if let Some(at_ms) = from_ms {
            self.deadlines.remove(&(at_ms, hash));
            self.deadline_sum -= u128::from(at_ms);
        }
        if let Some(at_ms) = to_ms {
            self.deadlines.insert((at_ms, hash));
            self.deadline_sum += u128::from(at_ms);
        }
    }

    /// Number of keys that have a deadline, whether in memory or not.
    pub fn with_deadline(&self) -> usize {
        self.deadlines.len() + self.cold_volatile as usize
    }

    /// Number of keys in memory that have a deadline.
    pub fn resident_with_deadline(&self) -> usize {
        self.deadlines.len()
    }

    pub fn mean_deadline_ms(&self) -> u64 {
        match self.deadlines.len() as u128 {
            0 => 0,
            n => (self.deadline_sum / n) as u64,
        }
    }

    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at_ms, _)| at_ms)
    }

    /// Where a key with the earliest deadline is, and its hash.
    pub fn earliest(&mut self) -> Option<(Position, u64)> {
        loop {
            let &(at_ms, hash) = self.deadlines.first()?;
            if let Some(position) = self.with(at_ms, hash) {
                return Some((position, hash));
            }
            // Nothing has it (two keys shared the place and one is gone): forget it.
            self.deadlines.pop_first();
        }
    }

    /// The keys in memory that have a deadline, the earliest first.
    pub fn by_deadline(&self) -> impl Iterator<Item = (EntryRef<'_>, u64)> {
        let entry = |&(at_ms, hash): &(u64, u64)| {
            let entry = self.table.at(self.with(at_ms, hash)?)?;
            Some((entry, at_ms))
        };
        self.deadlines.iter().filter_map(entry)
    }

    /// A key that has a deadline, chosen roughly at random.
    pub fn random_with_deadline(&self, rng: &mut fastrand::Rng) -> Option<(EntryRef<'_>, u64)> {
        let (first, last) = (self.deadlines.first()?, self.deadlines.last()?);
        if self.deadlines.len() * 8 > self.table.len() {
            for _ in 0..32 {
                let entry = self.table.random(rng)?;
                if entry.deadline_ms().is_some() {
                    return Some((entry, self.table.hash(entry.key())));
                }
            }
        }
        let from = (rng.u64(first.0..=last.0), rng.u64(..));
        let mut behind = self.deadlines.range(from..).chain(&self.deadlines);
        behind.find_map(|&(at_ms, hash)| {
            let entry = self.table.at(self.with(at_ms, hash)?)?;
            Some((entry, hash))
        })
    }

    fn with(&self, at_ms: u64, hash: u64) -> Option<Position> {
        self.table.find_by(hash, |entry| {
            entry.deadline_ms() == Some(at_ms) && self.table.hash(entry.key()) == hash
        })
    }
}

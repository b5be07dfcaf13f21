//! Sums over regions, for INFO and DBSIZE.

use base::limits::DATABASES;
use keyspace::Keyspace;

/// Sums over regions.
#[derive(Debug, Default)]
pub struct Totals {
    pub hits: u64,
    pub misses: u64,
    pub expired: u64,
    pub evicted: u64,
    pub changes: u64,
    databases: [Sums; DATABASES as usize],
}

/// Sums of one database.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sums {
    pub keys: usize,
    /// Keys with a deadline.
    pub expires: usize,
    /// Of their times to live.
    lives_ms: u128,
    /// Bytes of the tables, entries not counted.
    pub table_bytes: usize,
}

impl Sums {
    /// The mean time to live of those with a deadline.
    pub fn mean_ms(&self) -> u64 {
        let mean = self.lives_ms.checked_div(self.expires as u128);
        mean.unwrap_or_default() as u64
    }
}

impl Totals {
    pub fn of<'a>(spaces: impl Iterator<Item = &'a mut Keyspace>) -> Self {
        let mut totals = Totals::default();
        spaces.for_each(|space| totals.add(space));
        totals
    }

    pub fn add(&mut self, space: &Keyspace) {
        self.hits += space.hits();
        self.misses += space.misses();
        self.expired += space.expired();
        self.evicted += space.evicted();
        self.changes += space.changes();
        for (db, sums) in self.databases.iter_mut().enumerate() {
            let (keys, expires, mean_ms) = space.db_stats(db as u8);
            sums.keys += keys;
            sums.expires += expires;
            sums.lives_ms += u128::from(mean_ms) * expires as u128;
            sums.table_bytes += space.table_bytes(db as u8);
        }
    }

    /// Those of other regions.
    pub fn merge(&mut self, other: &Totals) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.changes += other.changes;
        for (sums, other) in self.databases.iter_mut().zip(&other.databases) {
            sums.keys += other.keys;
            sums.expires += other.expires;
            sums.lives_ms += other.lives_ms;
            sums.table_bytes += other.table_bytes;
        }
    }

    /// By number.
    pub fn databases(&self) -> impl Iterator<Item = (usize, &Sums)> {
        self.databases.iter().enumerate()
    }

    pub fn keys(&self) -> usize {
        self.databases.iter().map(|sums| sums.keys).sum()
    }
}

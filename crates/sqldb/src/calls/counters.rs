//! What is counted of a backend, for `INFO`, `/metrics` and `neokv table backends`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use table::leader::Fault;

/// Upper bounds of the buckets of a [`Histogram`], in microseconds; a last one has none.
pub const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// How long calls took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Calls of each bucket, not summed up; the last one is above all bounds.
    pub fn buckets(&self) -> [u64; BOUNDS_US.len() + 1] {
        let mut counts = [0; BOUNDS_US.len() + 1];
        for (count, bucket) in counts.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        counts
    }

    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }

    /// The bound below which this part of the calls lies; 0 if there were none.
    pub fn percentile_us(&self, part: f64) -> u64 {
        let counts = self.buckets();
        let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (at, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                let last = BOUNDS_US.last().copied().unwrap_or(0);
                return BOUNDS_US.get(at).copied().unwrap_or(last);
            }
        }
        0
    }
}

/// The last thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Last {
    pub at_ms: u64,
    pub why: Box<str>,
}

/// What was asked for one table, since the node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OfTable {
    pub loads: u64,
    pub loaded_rows: u64,
    pub flushes: u64,
    pub flushed_rows: u64,
    pub refused_rows: u64,
    pub conflicting_rows: u64,
    pub faults: u64,
}

/// Since the node started. Calls, except where it says rows.
#[derive(Debug, Default)]
pub struct Counters {
    pub loads: Histogram,
    pub loaded_rows: AtomicU64,
    pub flushes: Histogram,
    /// Rows that were written, or found written.
    pub flushed_rows: AtomicU64,
    pub refused_rows: AtomicU64,
    pub conflicting_rows: AtomicU64,
    pub unreadable_rows: AtomicU64,
    pub scans: AtomicU64,
    pub shapes: AtomicU64,
    pub transient_faults: AtomicU64,
    pub unfit_faults: AtomicU64,
    /// Under way or waiting now.
    pub open: AtomicU64,
    last: Mutex<Option<Last>>,
    /// By id; of dropped ones too, which are few.
    tables: Mutex<BTreeMap<u32, OfTable>>,
}

impl Counters {
    pub(super) fn note_fault(&self, fault: &Fault, now_ms: u64) {
        let (counter, why) = match fault {
            Fault::Transient(why) => (&self.transient_faults, why),
            Fault::Unfit(why) => (&self.unfit_faults, why),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let why = why.clone();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Last { at_ms: now_ms, why });
    }

    /// Counts for one table.
    pub(super) fn note(&self, table: u32, change: impl FnOnce(&mut OfTable)) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        change(tables.entry(table).or_default());
    }

    pub fn of_table(&self, table: u32) -> OfTable {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(&table).copied().unwrap_or_default()
    }

    pub fn last_fault(&self) -> Option<Last> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    pub fn faults(&self) -> u64 {
        self.transient_faults.load(Ordering::Relaxed) + self.unfit_faults.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_bounds() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile_us(0.99), 0);
        for us in [1, 100, 101, 400, 99_000_000] {
            histogram.note(Duration::from_micros(us));
        }
        assert_eq!(histogram.buckets()[..3], [2, 1, 1]);
        assert_eq!((histogram.count(), histogram.sum_us()), (5, 99_000_602));
        assert_eq!(histogram.percentile_us(0.5), 250);
        assert_eq!(histogram.percentile_us(1.0), 10_000_000);
    }
}

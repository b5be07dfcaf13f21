//! Counters. Each core writes its own with relaxed atomics (a single writer: load, add, store, no
//! locked instruction); `INFO` adds them up.
//!
//! `CONFIG RESETSTAT` does not write what a core writes: it notes the value to count from, so no
//! count is lost or brought back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use base::Refusal;
use base::limits::DATABASES;
use table::rows::Counts;

/// A counter with one writing thread.
#[derive(Default)]
pub struct Counter {
    value: AtomicU64,
    /// What it was when statistics were last reset.
    base: AtomicU64,
}

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        let value = self.value.load(Ordering::Relaxed);
        self.value.store(value.wrapping_add(n), Ordering::Relaxed);
    }

    #[inline]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// For gauges.
    #[inline]
    pub fn set(&self, n: u64) {
        self.value.store(n, Ordering::Relaxed);
    }

    /// Counted since the last reset.
    #[inline]
    pub fn get(&self) -> u64 {
        let base = self.base.load(Ordering::Relaxed);
        self.value.load(Ordering::Relaxed).wrapping_sub(base)
    }

    pub fn reset(&self) {
        self.base
            .store(self.value.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Buckets per power of two.
const FINE: usize = 8;

/// How long a command took, in clock ticks: eight buckets per power of two, so that a percentile
/// is exact to an eighth.
pub struct Histogram(Box<[Counter]>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram((0..64 * FINE).map(|_| Counter::default()).collect())
    }
}

impl Histogram {
    #[inline]
    pub fn record(&self, ticks: u64) {
        if let Some(bucket) = self.0.get(bucket_of(ticks)) {
            bucket.add(1);
        }
    }

    /// Upper end in ticks and count of each bucket that is not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter()
            .enumerate()
            .map(|(at, bucket)| (bucket_end(at), bucket.get()))
            .filter(|(_, count)| *count > 0)
    }

    fn reset(&self) {
        self.0.iter().for_each(Counter::reset);
    }
}

#[inline]
fn bucket_of(ticks: u64) -> usize {
    if ticks < FINE as u64 {
        return ticks as usize;
    }
    let power = 63 - ticks.leading_zeros() as usize; // ≥ 3
    let fine = (ticks >> (power - 3)) as usize & (FINE - 1);
    (power - 2) * FINE + fine
}

/// The largest number of ticks in a bucket.
fn bucket_end(at: usize) -> u64 {
    if at < FINE {
        return at as u64;
    }
    let (power, fine) = (at / FINE + 2, (at % FINE) as u64);
    if power > 63 {
        return u64::MAX;
    }
    let width = 1u64 << (power - 3);
    (FINE as u64 + fine) * width + (width - 1)
}

/// What `INFO commandstats` tells about one command.
#[derive(Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub ticks: Counter,
    pub rejected: Counter,
    pub failed: Counter,
    /// Made with the first call.
    histogram: OnceLock<Histogram>,
}

impl CommandStats {
    pub fn histogram(&self) -> Option<&Histogram> {
        self.histogram.get()
    }
}

/// What the regions of a core have counted, as of the last second.
pub struct RegionStats {
    pub hits: Counter,
    pub misses: Counter,
    pub expired: Counter,
    pub evicted: Counter,
    pub changes: Counter,
    /// Gauges, the last two by database.
    pub count: Counter,
    pub led: Counter,
    /// Whose replica here sleeps.
    pub quiet: Counter,
    pub keys: Box<[Counter]>,
    pub expires: Box<[Counter]>,
    pub tables: TableGauges,
}

/// Rows of tables in the regions a core leads.
#[derive(Default)]
pub struct TableGauges {
    pub rows: Counter,
    pub bytes: Counter,
    pub dirty: Counter,
    pub flying: Counter,
    pub dead: Counter,
    pub waiting: Counter,
    /// The largest.
    pub lag_ms: Counter,
    /// By table id. Written now and then, and read by whoever scrapes.
    pub by_table: Mutex<BTreeMap<u32, Counts>>,
}

impl RegionStats {
    fn new() -> Self {
        let gauges = || (0..DATABASES).map(|_| Counter::default()).collect();
        RegionStats {
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            changes: Counter::default(),
            count: Counter::default(),
            led: Counter::default(),
            quiet: Counter::default(),
            keys: gauges(),
            expires: gauges(),
            tables: TableGauges::default(),
        }
    }

    /// Those that grow.
    pub fn counters(&self) -> [&Counter; 5] {
        [
            &self.hits,
            &self.misses,
            &self.expired,
            &self.evicted,
            &self.changes,
        ]
    }
}

/// The counters of one core.
pub struct CoreStats {
    /// By `node::Specs::stat_number`.
    pub commands: Box<[CommandStats]>,
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub net_input_bytes: Counter,
    pub net_output_bytes: Counter,
    pub expired_keys: Counter,
    pub evicted_keys: Counter,
    pub batches_sent: Counter,
    /// Messages of peers that made no sense.
    pub unfit_messages: Counter,
    pub holds: Counter,
    /// Clients blocked now: a gauge.
    pub blocked_clients: Counter,
    pub unexpected_errors: Counter,
    pub regions: RegionStats,
    /// `latency-tracking`.
    tracking: AtomicBool,
    /// Error replies by their first word.
    errors: Mutex<BTreeMap<String, u64>>,
}

impl CoreStats {
    pub fn new(commands: usize) -> Self {
        CoreStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            connections: Counter::default(),
            rejected_connections: Counter::default(),
            net_input_bytes: Counter::default(),
            net_output_bytes: Counter::default(),
            expired_keys: Counter::default(),
            evicted_keys: Counter::default(),
            batches_sent: Counter::default(),
            unfit_messages: Counter::default(),
            holds: Counter::default(),
            blocked_clients: Counter::default(),
            unexpected_errors: Counter::default(),
            regions: RegionStats::new(),
            tracking: AtomicBool::new(true),
            errors: Mutex::default(),
        }
    }

    /// One command ran: which, how many clock ticks ([`quanta::Clock::raw`]), whether refused.
    #[inline]
    pub fn on_command(&self, number: usize, ticks: u64, failed: bool) {
        if let Some(stats) = self.commands.get(number) {
            stats.calls.add(1);
            stats.ticks.add(ticks);
            if failed {
                stats.failed.add(1);
            }
            if self.tracking.load(Ordering::Relaxed) {
                stats
                    .histogram
                    .get_or_init(Histogram::default)
                    .record(ticks);
            }
        }
    }

    /// One command was turned away before it ran (arity, OOM, NOAUTH …).
    pub fn on_rejected(&self, number: Option<usize>) {
        if let Some(stats) = number.and_then(|number| self.commands.get(number)) {
            stats.rejected.add(1);
        }
    }

    /// An error was answered, whether the command ran or not.
    #[cold]
    pub fn on_error(&self, refusal: &Refusal) {
        self.on_error_code(refusal.code());
    }

    #[cold]
    pub fn on_error_code(&self, code: &str) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < 128 {
            // Codes are ours, but a bound costs nothing.
            errors.insert(code.into(), 1);
        }
    }

    pub fn track_latency(&self, on: bool) {
        self.tracking.store(on, Ordering::Relaxed);
    }

    /// Error replies by their first word.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// `CONFIG RESETSTAT`.
    pub fn reset(&self) {
        for stats in &self.commands {
            for counter in [&stats.calls, &stats.ticks, &stats.rejected, &stats.failed] {
                counter.reset();
            }
            if let Some(histogram) = stats.histogram() {
                histogram.reset();
            }
        }
        for counter in [
            &self.connections,
            &self.rejected_connections,
            &self.net_input_bytes,
            &self.net_output_bytes,
            &self.expired_keys,
            &self.evicted_keys,
            &self.batches_sent,
            &self.unfit_messages,
            &self.holds,
            &self.unexpected_errors,
        ] {
            counter.reset();
        }
        self.regions.counters().into_iter().for_each(Counter::reset);
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Forgets the histograms of one command.
    pub fn reset_histogram(&self, number: usize) {
        if let Some(histogram) = self.commands.get(number).and_then(CommandStats::histogram) {
            histogram.reset();
        }
    }
}

/// What has happened per second lately: differences of totals, averaged over the last samples.
#[derive(Default)]
pub struct Rates(Mutex<RateState>);

/// Samples averaged over.
const SAMPLES: usize = 16;
/// Least time between two, with some room for timers that come early.
const SAMPLE_MS: u64 = 95;

#[derive(Default)]
struct RateState {
    at_ms: u64,
    totals: [u64; 3],
    samples: [[u64; 3]; SAMPLES],
    next: usize,
}

impl Rates {
    /// Takes a sample, unless the last is younger than 100 ms; called by one core.
    /// `totals` says how many commands, bytes in and bytes out there have been.
    pub fn sample(&self, now_ms: u64, totals: impl FnOnce() -> [u64; 3]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed_ms = now_ms.saturating_sub(state.at_ms);
        if elapsed_ms < SAMPLE_MS {
            return;
        }
        let totals = totals();
        if state.at_ms != 0 {
            let before = state.totals;
            let at = state.next % SAMPLES;
            if let Some(sample) = state.samples.get_mut(at) {
                for ((rate, total), before) in sample.iter_mut().zip(totals).zip(before) {
                    *rate = total.saturating_sub(before) * 1000 / elapsed_ms;
                }
            }
            state.next += 1;
        }
        state.at_ms = now_ms;
        state.totals = totals;
    }

    /// Commands, bytes in, bytes out per second.
    pub fn per_second(&self) -> [u64; 3] {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = [0; 3];
        for sample in &state.samples {
            for (sum, rate) in sums.iter_mut().zip(sample) {
                *sum += rate;
            }
        }
        sums.map(|sum| sum / SAMPLES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_put_in() {
        for ticks in (0..5000).chain([1 << 40, (1 << 40) + 12345, u64::MAX]) {
            let end = bucket_end(bucket_of(ticks));
            assert!(end >= ticks, "{ticks} {end}");
            assert!(end - ticks <= ticks / 8, "{ticks} {end}");
        }
    }

    #[test]
    fn a_reset_starts_from_zero() {
        let stats = CoreStats::new(1);
        stats.on_command(0, 100, true);
        stats.on_error_code("ERR");
        stats.reset();
        assert_eq!(stats.commands[0].calls.get(), 0);
        assert!(stats.errors().is_empty());
        stats.on_command(0, 100, false);
        assert_eq!(stats.commands[0].calls.get(), 1);
        let buckets: Vec<_> = stats.commands[0].histogram().unwrap().buckets().collect();
        assert_eq!(buckets.len(), 1);
    }
}

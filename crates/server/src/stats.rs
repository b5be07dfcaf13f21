//! Counters. Each core writes its own with relaxed atomics (a single writer: load, add, store, no
//! locked instruction); `INFO` adds them up.
//! (The `admin` owner extends this file; [`CoreStats::on_command`] is the hook of the hot path.)

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What `INFO commandstats` tells about one command.
#[derive(Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub ticks: Counter,
    pub rejected: Counter,
    pub failed: Counter,
}

/// The counters of one core.
pub struct CoreStats {
    /// By [`crate::Commands::stat_number`].
    pub commands: Box<[CommandStats]>,
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub net_input_bytes: Counter,
    pub net_output_bytes: Counter,
    pub expired_keys: Counter,
    pub evicted_keys: Counter,
    pub batches_sent: Counter,
    pub holds: Counter,
    pub blocked_clients: Counter,
    pub unexpected_errors: Counter,
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
            holds: Counter::default(),
            blocked_clients: Counter::default(),
            unexpected_errors: Counter::default(),
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
        }
    }

    /// One command was turned away before it ran (arity, OOM, NOAUTH …).
    pub fn on_rejected(&self, number: Option<usize>) {
        if let Some(stats) = number.and_then(|number| self.commands.get(number)) {
            stats.rejected.add(1);
        }
    }
}

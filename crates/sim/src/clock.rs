//! The clocks of a node, none of which is right.
//!
//! There is one true time, microseconds since the beginning of the run; only the simulator and its
//! checkers know it. A node has a *monotonic* clock, which runs a little too fast or too slow and
//! begins anywhere whenever the node starts, and a *wall* clock, which may also be minutes off and
//! jump. Leases are measured with the first, entries are stamped with the second as `base::clock` corrects it.

use base::clock::{self, Timekeeper};

/// The wall clock of a run begins here: 2026-01-01.
const EPOCH_MS: i64 = 1_767_225_600_000;

#[derive(Debug, Clone)]
pub struct Clock {
    /// Microseconds gained in a true second.
    rate_ppm: i64,
    /// The monotonic clock showed `.1` at the true time `.0`.
    anchor: (u64, u64),
    wall_offset_ms: i64,
    keeper: Timekeeper,
}

impl Clock {
    pub fn new() -> Clock {
        Clock {
            rate_ppm: 0,
            anchor: (0, 0),
            wall_offset_ms: 0,
            keeper: Timekeeper::new(EPOCH_MS as u64, 0),
        }
    }

    /// The process begins: its monotonic clock shows `local_us`.
    pub fn start(&mut self, true_us: u64, local_us: u64) {
        self.anchor = (true_us, local_us);
        self.keeper = Timekeeper::new(self.wall_ms(true_us), self.now_ms(true_us));
    }

    pub fn set_rate(&mut self, true_us: u64, rate_ppm: i64) {
        self.anchor = (true_us, self.local_us(true_us));
        self.rate_ppm = rate_ppm;
    }

    pub fn set_wall_offset(&mut self, offset_ms: i64) {
        self.wall_offset_ms = offset_ms;
    }

    fn local_us(&self, true_us: u64) -> u64 {
        let passed = true_us.saturating_sub(self.anchor.0) as i64;
        self.anchor.1 + (passed + passed * self.rate_ppm / 1_000_000) as u64
    }

    /// What the monotonic clock shows.
    pub fn now_ms(&self, true_us: u64) -> u64 {
        self.local_us(true_us) / 1000
    }

    /// What the wall clock shows.
    fn wall_ms(&self, true_us: u64) -> u64 {
        (EPOCH_MS + (true_us / 1000) as i64 + self.wall_offset_ms) as u64
    }

    /// Both clocks are compared.
    pub fn check(&mut self, true_us: u64) {
        let _notice = self
            .keeper
            .on_read(self.wall_ms(true_us), self.now_ms(true_us));
    }

    /// Meta told the time of the cluster.
    pub fn on_cluster_time(&mut self, low_ms: i64, high_ms: i64) {
        self.keeper.on_cluster(low_ms, high_ms);
    }

    /// The time the node goes by.
    pub fn time_ms(&self, true_us: u64) -> u64 {
        clock::at(self.keeper.offset_ms(), self.now_ms(true_us))
    }

    /// The same by its own wall clock alone.
    pub fn own_ms(&self, true_us: u64) -> u64 {
        clock::at(self.keeper.own_ms(), self.now_ms(true_us))
    }

    /// How long a timer of this node runs in truth.
    pub fn true_us(&self, local_us: u64) -> u64 {
        let local = local_us as i64;
        (local - local * self.rate_ppm / 1_000_000).max(1) as u64
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_gains_and_never_goes_back() {
        let mut clock = Clock::new();
        clock.start(1_000_000, 500_000);
        clock.set_rate(1_000_000, 1000);
        assert_eq!(clock.now_ms(1_000_000), 500);
        assert_eq!(clock.now_ms(11_000_000), 10_510);
        clock.set_rate(11_000_000, -1000);
        assert_eq!(clock.now_ms(11_000_000), 10_510);
        assert_eq!(clock.now_ms(21_000_000), 20_500);
    }
}

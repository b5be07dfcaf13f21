//! Judges the disk of a log by how long its writes take: a disk that hangs says no error.
//!
//! ```text
//!           a write takes limit_ms, or writes keep being slow
//!   well ───────────────────────────────────────────────────► stalled
//!     ▲                                                          │
//!     └──── for hold_ms no write was slow; twice as long ◄───────┘
//!           each time it stalls again soon
//! ```
//!
//! The owner looks a few times a second and says which write is under way. Time in which nobody looked counts as one
//! look: the process was stopped, not the disk.
//!
//! *Slow*: under way for a quarter of the limit. Each moment of it counts up, other time counts down a quarter as
//! fast; at four limits the disk is as good as hanging. So it is a disk whose syncs all take long, not one that
//! had a bad moment.

/// More time between two looks was a pause of the process.
const PAUSE_MS: u64 = 500;
/// What a pause counts.
const LOOK_MS: u64 = 100;
/// How long all must be well again after a stall; doubled while stalls follow each other.
const HOLD_MS: u64 = 3_000;
const MOST_HOLD_MS: u64 = 60_000;

#[derive(Debug, Clone, Default)]
pub struct LogWatch {
    looked_ms: Option<u64>,
    /// The write under way, and how long it was seen to be.
    under_way: Option<(u64, u64)>,
    /// Time of slow writes, less what was drained meanwhile.
    slow_ms: u64,
    is_stalled: bool,
    /// How long nothing was slow.
    well_ms: u64,
    hold_ms: u64,
}

impl LogWatch {
    /// Looks: `write` is the number of the write under way, `limit_ms` how long one may take (0: for ever), `now_ms` a
    /// clock that never goes back.
    pub fn look(&mut self, write: Option<u64>, limit_ms: u64, now_ms: u64) {
        let passed_ms = match now_ms.saturating_sub(self.looked_ms.unwrap_or(now_ms)) {
            pause if pause > PAUSE_MS => LOOK_MS,
            passed => passed,
        };
        self.looked_ms = Some(now_ms);
        self.under_way = write.map(|number| match self.under_way {
            Some((before, took_ms)) if before == number => (number, took_ms + passed_ms),
            _ => (number, 0),
        });
        if limit_ms == 0 {
            (self.is_stalled, self.slow_ms) = (false, 0);
            return;
        }
        let is_slow = self.waited_ms() >= (limit_ms / 4).max(1);
        match is_slow {
            // No more than counts: it is not slower to come back the longer it hung.
            true => {
                self.slow_ms = (self.slow_ms + passed_ms).min(4 * limit_ms);
                self.well_ms = 0;
            }
            false => {
                self.slow_ms = self.slow_ms.saturating_sub(passed_ms / 4);
                self.well_ms += passed_ms;
            }
        }
        if self.waited_ms() >= limit_ms || self.slow_ms >= 4 * limit_ms {
            self.on_stall();
        } else if self.is_stalled && self.well_ms >= self.hold_ms {
            (self.is_stalled, self.slow_ms) = (false, 0);
        } else if !self.is_stalled && self.well_ms >= MOST_HOLD_MS {
            self.hold_ms = 0;
        }
    }

    fn on_stall(&mut self) {
        if !std::mem::replace(&mut self.is_stalled, true) {
            self.hold_ms = (2 * self.hold_ms).clamp(HOLD_MS, MOST_HOLD_MS);
        }
    }

    /// The log cannot be relied on now.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// How long the write under way was seen to be.
    pub fn waited_ms(&self) -> u64 {
        self.under_way.map_or(0, |(_, took_ms)| took_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000;

    /// A disk whose writes take so long, one after the other, looked at for a while.
    struct Looks {
        watch: LogWatch,
        now_ms: u64,
        number: u64,
    }

    impl Looks {
        fn new() -> Looks {
            Looks {
                watch: LogWatch::default(),
                now_ms: 10_000,
                number: 0,
            }
        }

        /// Until it is stalled, or not, as wanted; how long that took.
        fn until(&mut self, stalled: bool, write_ms: Option<u64>, most_ms: u64) -> Option<u64> {
            let begin = self.now_ms;
            let mut ends = self.now_ms;
            while self.now_ms - begin < most_ms {
                self.now_ms += 100;
                if let Some(write_ms) = write_ms
                    && self.now_ms >= ends
                {
                    self.number += 1;
                    ends = self.now_ms.saturating_add(write_ms);
                }
                let write = write_ms.map(|_| self.number);
                self.watch.look(write, LIMIT, self.now_ms);
                if self.watch.is_stalled() == stalled {
                    return Some(self.now_ms - begin);
                }
            }
            None
        }
    }

    #[test]
    fn a_disk_that_hangs_is_found_and_comes_back() {
        let mut looks = Looks::new();
        assert_eq!(looks.until(true, Some(10), 60_000), None, "it is well");
        let took = looks.until(true, Some(u64::MAX), 60_000).unwrap();
        assert!((LIMIT..LIMIT + 300).contains(&took), "{took}");
        let took = looks.until(false, Some(10), 60_000).unwrap();
        assert!((HOLD_MS..HOLD_MS + 300).contains(&took), "{took}");
        // Soon again: it has to be well for longer.
        looks.until(true, Some(u64::MAX), 60_000).unwrap();
        let took = looks.until(false, None, 60_000).unwrap();
        assert!((2 * HOLD_MS..2 * HOLD_MS + 300).contains(&took), "{took}");
        assert_eq!(looks.until(true, Some(10), 2 * MOST_HOLD_MS), None);
        looks.until(true, Some(u64::MAX), 60_000).unwrap();
        let took = looks.until(false, None, 60_000).unwrap();
        assert!((HOLD_MS..HOLD_MS + 300).contains(&took), "{took}");
    }

    #[test]
    fn a_disk_that_hung_for_hours_comes_back_as_soon() {
        let mut looks = Looks::new();
        looks.until(true, Some(u64::MAX), 60_000).unwrap();
        assert_eq!(looks.until(false, Some(u64::MAX), 3 * 3_600_000), None);
        let took = looks.until(false, Some(10), 60_000).unwrap();
        assert!((HOLD_MS..HOLD_MS + 300).contains(&took), "{took}");
    }

    #[test]
    fn a_disk_that_is_always_slow_is_found() {
        let mut looks = Looks::new();
        let took = looks.until(true, Some(LIMIT * 3 / 4), 60_000).unwrap();
        assert!(took < 20_000, "{took}");
        assert_eq!(looks.until(false, Some(LIMIT * 3 / 4), 60_000), None);
        assert!(looks.until(false, Some(100), 60_000).is_some());
        assert_eq!(looks.until(true, Some(100), 60_000), None);
    }

    #[test]
    fn a_process_that_was_stopped_blames_nobody() {
        let mut watch = LogWatch::default();
        watch.look(Some(1), LIMIT, 1_000);
        watch.look(Some(1), LIMIT, 1_100);
        watch.look(Some(1), LIMIT, 60_000);
        assert!(!watch.is_stalled());
        assert_eq!(watch.waited_ms(), 200);
    }

    #[test]
    fn without_a_limit_nothing_stalls() {
        let mut watch = LogWatch::default();
        for at in 0..1_000 {
            watch.look(Some(1), 0, at * 100);
            assert!(!watch.is_stalled());
        }
    }
}

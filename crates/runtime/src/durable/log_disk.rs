//! What the disk of the log does: how long its last writes took, which one is under way, and whether it hangs.
//!
//! The log writer notes when a write begins and ends. A core looks a few times a second ([`LogDisk::look`]) and judges
//! ([`LogWatch`]); everybody may ask.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use replica::LogWatch;

/// Writes whose time is remembered.
const LAST: usize = 1024;

#[derive(Default)]
pub struct LogDisk {
    /// Writes begun and ended so far.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Microseconds of the last ones, in a ring.
    took_us: Last,
    watch: Mutex<LogWatch>,
    /// By the clock of whoever looks; 0: it is not stalled.
    stalled_since_ms: AtomicU64,
    looked_ms: AtomicU64,
    waited_ms: AtomicU64,
}

struct Last(Box<[AtomicU32]>);

impl Default for Last {
    fn default() -> Last {
        Last((0..LAST).map(|_| AtomicU32::new(0)).collect())
    }
}

/// What a look has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Stalled,
    Well,
}

impl LogDisk {
    /// Runs a write, or a sync. Called by the log writer only.
    pub(super) fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Release);
        let begin = Instant::now();
        let done = write();
        let took_us = u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX);
        if let Some(place) = self.took_us.0.get(number as usize % LAST) {
            place.store(took_us, Ordering::Relaxed);
        }
        self.ended.store(number, Ordering::Release);
        done
    }

    /// Judges the disk; called a few times a second, by one core. Says if it is another thing than before.
    pub fn look(&self, limit_ms: u64, now_ms: u64) -> Option<Turn> {
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let was_stalled = watch.is_stalled();
        watch.look((begun > ended).then_some(begun), limit_ms, now_ms);
        self.looked_ms.store(now_ms, Ordering::Relaxed);
        self.waited_ms.store(watch.waited_ms(), Ordering::Relaxed);
        match (was_stalled, watch.is_stalled()) {
            (false, true) => {
                // The limit has passed by now.
                self.stalled_since_ms
                    .store(now_ms.max(1), Ordering::Release);
                Some(Turn::Stalled)
            }
            (true, false) => {
                self.stalled_since_ms.store(0, Ordering::Release);
                Some(Turn::Well)
            }
            _ => None,
        }
    }

    /// For how long it has been stalled, if it is.
    pub fn stalled_ms(&self) -> Option<u64> {
        let since_ms = self.stalled_since_ms.load(Ordering::Acquire);
        (since_ms > 0).then(|| {
            let looked_ms = self.looked_ms.load(Ordering::Relaxed);
            looked_ms.saturating_sub(since_ms)
        })
    }

    /// How long the write under way has been so; zero if there is none.
    pub fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms.load(Ordering::Relaxed))
    }

    /// Of the last writes, the time that so many percent did not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let count = self.ended.load(Ordering::Acquire).min(LAST as u64) as usize;
        // The ring is filled from its second place on.
        let last = self.took_us.0.iter().cycle().skip(1).take(count);
        let mut took: Vec<u32> = last.map(|it| it.load(Ordering::Relaxed)).collect();
        took.sort_unstable();
        let at = (count * percent).div_ceil(100).saturating_sub(1);
        Duration::from_micros(took.get(at).copied().unwrap_or(0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_writes() {
        let disk = LogDisk::default();
        assert_eq!(disk.percentile(99), Duration::ZERO);
        disk.during(|| std::thread::sleep(Duration::from_millis(5)));
        assert!(disk.percentile(99) >= Duration::from_millis(5));
        (0..LAST).for_each(|_| disk.during(|| {}));
        let (median, most) = (disk.percentile(50), disk.percentile(100));
        assert!(
            median <= most && median < Duration::from_millis(5),
            "{median:?}"
        );
    }

    #[test]
    fn a_write_under_way_stalls_it_until_it_ends() {
        let disk = LogDisk::default();
        let look = |at| disk.look(1_000, at);
        disk.during(|| {
            assert!((0..10).all(|n| look(n * 100).is_none()));
            assert_eq!(look(1_000), Some(Turn::Stalled));
            assert_eq!(look(1_100), None);
            assert_eq!(disk.stalled_ms(), Some(100));
            assert!(disk.waited() >= Duration::from_secs(1));
        });
        let turned = (12..).map(|n| look(n * 100)).find_map(|turn| turn);
        assert_eq!(turned, Some(Turn::Well));
        assert_eq!((disk.stalled_ms(), disk.waited()), (None, Duration::ZERO));
    }
}

//! The 24-bit access clock of an entry: seconds of the last access (LRU), or minutes and a
//! logarithmic counter (LFU), as the policy in force reads it. Redis' arithmetic.
//!
//! ```text
//!   LRU   [ Unix seconds mod 2^24 ]
//!   LFU   [ Unix minutes mod 2^16 ][ counter: 8 ]
//! ```

use crate::Tuning;

const CLOCK: u64 = (1 << 24) - 1;
/// Counter of a new key, so that it is not given up before it had a chance.
const LFU_INIT: u64 = 5;
/// How long a loaded key seems not to have been used.
const STALE_MS: u64 = 60 * 60 * 1000;

/// The clock of a new entry.
#[inline]
pub(crate) fn born(tuning: &Tuning, now_ms: u64) -> u32 {
    if tuning.policy.is_lfu() {
        lfu(now_ms, LFU_INIT)
    } else {
        lru(now_ms)
    }
}

/// The clock of a loaded entry: used again, or among the first to go.
pub(crate) fn stale(tuning: &Tuning, now_ms: u64) -> u32 {
    if tuning.policy.is_lfu() {
        lfu(now_ms, 0)
    } else {
        lru(now_ms.saturating_sub(STALE_MS))
    }
}

/// The clock after an access. `random` is asked only if the policy counts.
#[inline]
pub(crate) fn touched(
    clock: u32,
    tuning: &Tuning,
    now_ms: u64,
    random: impl FnOnce() -> f64,
) -> u32 {
    if !tuning.policy.is_lfu() {
        return lru(now_ms);
    }
    let mut counter = u64::from(frequency(clock, now_ms, tuning));
    if counter < 255 {
        let base = counter.saturating_sub(LFU_INIT) as f64;
        if random() < 1.0 / (base * f64::from(tuning.lfu_log_factor) + 1.0) {
            counter += 1;
        }
    }
    lfu(now_ms, counter)
}

/// Milliseconds since the access an LRU clock tells of.
pub(crate) fn idle_ms(clock: u32, now_ms: u64) -> u64 {
    ((now_ms / 1000).wrapping_sub(u64::from(clock)) & CLOCK) * 1000
}

/// The counter of an LFU clock, less what it lost by time.
pub(crate) fn frequency(clock: u32, now_ms: u64, tuning: &Tuning) -> u8 {
    let counter = clock as u8;
    if tuning.lfu_decay_minutes == 0 {
        return counter;
    }
    let minutes = (now_ms / 60_000).wrapping_sub(u64::from(clock >> 8)) & 0xffff;
    let periods = minutes / u64::from(tuning.lfu_decay_minutes);
    counter.saturating_sub(periods.min(255) as u8)
}

/// The LRU clock that tells of an access `idle_ms` ago (a value read from a file).
pub(crate) fn lru(now_ms: u64) -> u32 {
    ((now_ms / 1000) & CLOCK) as u32
}

fn lfu(now_ms: u64, counter: u64) -> u32 {
    (((now_ms / 60_000) & 0xffff) << 8 | counter) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EvictionPolicy;

    #[test]
    fn lru_wraps() {
        let now_ms = (1 << 24) * 1000 - 2000;
        assert_eq!(idle_ms(lru(now_ms), now_ms + 5000), 5000);
    }

    #[test]
    fn lfu_counts_and_decays() {
        let tuning = Tuning {
            policy: EvictionPolicy::AllKeysLfu,
            ..Tuning::default()
        };
        let clock = born(&tuning, 0);
        assert_eq!(frequency(clock, 0, &tuning), 5);
        let clock = touched(clock, &tuning, 0, || 0.5);
        assert_eq!(frequency(clock, 0, &tuning), 6);
        let same = touched(clock, &tuning, 0, || 0.5);
        assert_eq!(frequency(same, 0, &tuning), 6);
        assert_eq!(frequency(clock, 4 * 60_000, &tuning), 2);
        assert_eq!(frequency(clock, 400 * 60_000, &tuning), 0);
    }
}

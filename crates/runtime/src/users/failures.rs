//! Failed logins by source address: who has failed too often has to wait, so that passwords cannot be tried by the thousand.
//!
//! Every address has a bucket of so many failures per minute, which fills again with time. Memory is bounded: of too many addresses,
//! those are forgotten first whose bucket is fullest, and a full one is not kept at all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Addresses remembered at a time.
const ADDRESSES: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct AuthFailures {
    by_host: Mutex<HashMap<Box<str>, Bucket>>,
}

/// Failures that count at a moment; they become fewer with time.
#[derive(Clone, Copy)]
struct Bucket {
    failures: f64,
    at: Instant,
}

impl Bucket {
    fn failures_at(&self, now: Instant, per_minute: u32) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let healed = passed / MINUTE.as_secs_f64() * f64::from(per_minute);
        (self.failures - healed).max(0.0)
    }
}

impl AuthFailures {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Bucket>> {
        self.by_host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a login from this host is looked at; `per_minute` 0: always.
    pub fn may_try(&self, host: &str, per_minute: u32, now: Instant) -> bool {
        if per_minute == 0 {
            return true;
        }
        let by_host = self.lock();
        by_host
            .get(host)
            .is_none_or(|bucket| bucket.failures_at(now, per_minute) + 1.0 <= f64::from(per_minute))
    }

    /// A login from this host failed.
    pub fn note(&self, host: &str, per_minute: u32, now: Instant) {
        if per_minute == 0 {
            return;
        }
        let mut by_host = self.lock();
        if by_host.len() >= ADDRESSES && !by_host.contains_key(host) {
            by_host.retain(|_, bucket| bucket.failures_at(now, per_minute) > 0.0);
        }
        if by_host.len() >= ADDRESSES && !by_host.contains_key(host) {
            // Still too many: those who failed least are forgotten.
            let mut counts: Vec<f64> = by_host
                .values()
                .map(|bucket| bucket.failures_at(now, per_minute))
                .collect();
            counts.sort_unstable_by(f64::total_cmp);
            let middle = counts.get(ADDRESSES / 2).copied().unwrap_or(0.0);
            let is_worse = |count: &&f64| **count > middle;
            let mut room = (ADDRESSES / 2).saturating_sub(counts.iter().filter(is_worse).count());
            by_host.retain(|_, bucket| {
                let failures = bucket.failures_at(now, per_minute);
                if failures > middle {
                    return true;
                }
                let stays = failures >= middle && room > 0;
                room -= usize::from(stays);
                stays
            });
        }
        let bucket = by_host.entry(host.into()).or_insert(Bucket {
            failures: 0.0,
            at: now,
        });
        bucket.failures = bucket.failures_at(now, per_minute) + 1.0;
        bucket.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_failures_have_to_wait() {
        let failures = AuthFailures::default();
        let start = Instant::now();
        for _ in 0..30 {
            assert!(failures.may_try("a", 30, start));
            failures.note("a", 30, start);
        }
        assert!(!failures.may_try("a", 30, start));
        assert!(failures.may_try("b", 30, start), "others are not meant");
        assert!(failures.may_try("a", 0, start), "it is turned off");
        assert!(!failures.may_try("a", 30, start + Duration::from_secs(1)));
        assert!(failures.may_try("a", 30, start + Duration::from_secs(2)));
    }

    #[test]
    fn memory_is_bounded() {
        let failures = AuthFailures::default();
        let start = Instant::now();
        (0..10).for_each(|_| failures.note("worst", 10, start));
        for host in 0..3 * ADDRESSES {
            failures.note(&host.to_string(), 10, start);
        }
        assert!(failures.lock().len() <= ADDRESSES);
        assert!(!failures.may_try("worst", 10, start), "it is remembered");
    }
}

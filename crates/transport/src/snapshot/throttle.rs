//! A token bucket: so many bytes per second, all transfers of a direction together.
//!
//! Whoever finds tokens may take more than there are; the debt is waited off by the next. So a
//! chunk is never cut to fit, and the rate holds on average. The rate is read at every step, so a
//! change holds within a few milliseconds, also for those who wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(20);

pub struct Bucket {
    rate: Arc<AtomicU64>,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub fn new(rate: Arc<AtomicU64>) -> Bucket {
        let level = Level {
            tokens: 0.0,
            at: Instant::now(),
        };
        Bucket {
            rate,
            level: Mutex::new(level),
        }
    }

    /// Bytes per second; 0: no limit.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    pub async fn take(&self, bytes: usize) {
        while let Some(pause) = self.try_take(bytes, Instant::now()) {
            tokio::time::sleep(pause.min(STEP)).await;
        }
    }

    /// How long to wait before asking again; none if it was granted.
    fn try_take(&self, bytes: usize, now: Instant) -> Option<Duration> {
        let rate = self.rate();
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(level.at).as_secs_f64();
        level.at = now;
        if rate == 0 {
            level.tokens = 0.0;
            return None;
        }
        let rate = rate as f64;
        // What was not used is kept for a twentieth of a second only.
        level.tokens = (level.tokens + passed * rate).min(rate / 20.0);
        if level.tokens < 0.0 {
            let pause = Duration::from_secs_f64((-level.tokens / rate).min(1.0));
            return Some(pause.max(Duration::from_millis(1)));
        }
        level.tokens -= bytes as f64;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate_whatever_the_chunks() {
        let bucket = Bucket::new(Arc::new(AtomicU64::new(1000)));
        let start = Instant::now();
        let (mut now, mut taken, mut at) = (start, 0, 0);
        while now < start + Duration::from_secs(100) {
            let chunk = [1, 700, 30, 2500][at % 4];
            match bucket.try_take(chunk, now) {
                Some(pause) => now += pause.min(STEP),
                None => {
                    taken += chunk;
                    at += 1;
                }
            }
        }
        assert!((98_000..=103_000).contains(&taken), "{taken}");
    }
}

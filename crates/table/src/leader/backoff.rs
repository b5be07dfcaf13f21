//! Leaving a database alone for a while after a fault, longer each time; then one try, and only its success opens the door.

use super::Limits;

#[derive(Debug, Default)]
pub(super) struct Backoff {
    faults: u32,
    until: u64,
}

impl Backoff {
    /// Being left alone now: what needs it fails at once.
    pub(super) fn is_down(&self, now: u64) -> bool {
        self.faults > 0 && now < self.until
    }

    /// Whether one more may be sent. `flying`: how many are under way.
    pub(super) fn may_send(&self, now: u64, flying: usize) -> bool {
        self.faults == 0 || (now >= self.until && flying == 0)
    }

    pub(super) fn failed(&mut self, limits: &Limits, now: u64) {
        let doubled = limits.backoff_min.saturating_mul(1 << self.faults.min(16));
        self.until = now.saturating_add(doubled.min(limits.backoff_max));
        self.faults = self.faults.saturating_add(1);
    }

    pub(super) fn succeeded(&mut self) {
        self.faults = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_each_time_then_one_probe() {
        let limits = Limits::default();
        let mut backoff = Backoff::default();
        assert!(!backoff.is_down(0) && backoff.may_send(0, 3));
        for (now, pause) in [(0, 100), (100, 200), (300, 400)] {
            backoff.failed(&limits, now);
            assert!(backoff.is_down(now + pause - 1) && !backoff.may_send(now + pause - 1, 0));
            assert!(!backoff.is_down(now + pause) && backoff.may_send(now + pause, 0));
            assert!(!backoff.may_send(now + pause, 1), "one probe");
        }
        (0..40).for_each(|_| backoff.failed(&limits, 1000));
        assert!(!backoff.is_down(1000 + limits.backoff_max));
        backoff.succeeded();
        assert!(backoff.may_send(0, 3));
    }
}

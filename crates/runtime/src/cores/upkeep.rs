//! What a core does beside commands: expires keys, ends idle sessions, hands garbage away, drops
//! dead interest.
//!
//! `hz` times a second, in slices of about a millisecond with turns for sessions between them.
//! When much is due (a million keys in the same second) the slices follow each other until it is
//! gone: they take at most half of the core's time, so replies stay prompt.

use std::rc::Rc;
use std::time::{Duration, Instant};

use stats::memory;
use stats::reaper;

use super::{Core, Place};
use crate::clock;

/// Keys expired between two looks at the clock.
const STEP: usize = 32;
/// Between two slices; with the timer's grain it becomes a millisecond and a half.
const PAUSE: Duration = Duration::from_millis(1);

/// A client that has to authenticate does so within this time.
const AUTHENTICATE_WITHIN_MS: u64 = 60_000;

/// Time for one slice of expiry: with [`PAUSE`] a quarter of the core's time at
/// `active-expire-effort` 1, and two hundredths more for every further step, as in Redis.
fn slice(effort: u32) -> Duration {
    Duration::from_micros(500 + 70 * u64::from(effort.saturating_sub(1)))
}

impl Core {
    pub(super) async fn run_upkeep(self: Rc<Self>) {
        let mut round = 0u32;
        let mut next = tokio::time::Instant::now();
        while !self.is_stopping() {
            tokio::time::sleep_until(next).await;
            round = round.wrapping_add(1);
            if self.id == 0 {
                clock::check();
            }
            self.begin_batch();
            let hz = self.settings().hz.max(1);
            next = tokio::time::Instant::now() + Duration::from_secs(1) / hz;
            // Rare work (idle sessions, sweeping all interest) is done once a second.
            let rare = round.is_multiple_of(hz);
            self.with_regions(|regions, cx, _| regions.settle_all(cx));
            self.read_wholes();
            self.grant_next();
            self.expire().await;
            self.tidy(rare);
            self.weigh_owned();
            self.give_up_stalled();
            if self.id == 0 {
                self.shared.sample_rates(self.now_ms());
            }
            memory::publish();
            if rare {
                self.count_regions();
                self.regions.borrow_mut().give_back_room();
                self.end_idle_sessions();
            }
            self.poke_inbox();
        }
    }

    /// Removes due keys, slice by slice, until none is left.
    async fn expire(self: &Rc<Self>) {
        if self.shared.durable.is_some() {
            return self.expire_by_log();
        }
        let mut places = self.regions.borrow().places().peekable();
        while places.peek().is_some()
            && self.settings().active_expire
            && !self.shared.is_expiry_paused(self.now_ms())
        {
            let slice = slice(self.settings().active_expire_effort);
            let started = Instant::now();
            while let Some(&place) = places.peek()
                && started.elapsed() < slice
            {
                if self.expire_step(place) < STEP {
                    places.next();
                }
            }
            self.serve_key_changes();
            if places.peek().is_some() {
                self.poke_inbox();
                tokio::task::yield_now().await;
                tokio::time::sleep(PAUSE).await;
                self.begin_batch();
            }
        }
    }

    /// On a durable node entries of the log remove due keys; what is left when they are applied
    /// follows them.
    fn expire_by_log(self: &Rc<Self>) {
        if !self.settings().active_expire || self.shared.is_expiry_paused(self.now_ms()) {
            return;
        }
        let places = self.regions.borrow().places();
        for place in places {
            self.on_regions(|regions, cx, out| regions.expire(place, cx, out));
        }
    }

    fn expire_step(&self, id: Place) -> usize {
        let mut owned = self.regions.borrow_mut();
        let Some(region) = owned.region_mut(id) else {
            return 0;
        };
        let now_ms = self.now_ms();
        if region.space.next_deadline_ms().is_none_or(|at| at > now_ms) {
            return 0;
        }
        let expired = region.space.expire_due(now_ms, STEP);
        self.stats().expired_keys.add(expired as u64);
        expired
    }

    fn tidy(&self, all: bool) {
        let mut owned = self.regions.borrow_mut();
        for region in owned.present() {
            if region.space.has_garbage() {
                reaper::send(region.space.take_garbage());
            }
            region.sweep(all);
            let status = &self.shared.saving;
            status.note_changes(region.id, region.space.changes());
        }
    }

    /// `timeout`: ends sessions that have sent nothing for too long (blocked ones wait), and those that do not authenticate.
    fn end_idle_sessions(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let now_ms = self.now_ms();
        if self.shared.clients.strangers() > 0 {
            for client in self.clients.borrow().values() {
                let since_ms = client.stranger_since_ms();
                if since_ms != 0 && now_ms.saturating_sub(since_ms) > AUTHENTICATE_WITHIN_MS {
                    client.kill();
                }
            }
        }
        let timeout_ms = self.settings().timeout_seconds * 1000;
        if timeout_ms == 0 {
            return;
        }
        for client in self.clients.borrow().values() {
            let idle = self
                .now_ms()
                .saturating_sub(client.last_active_ms.load(Relaxed));
            let waits = client.blocked.load(Relaxed) || client.monitor.load(Relaxed);
            if idle > timeout_ms && !waits && !client.is_internal {
                client.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_is_a_share_of_time() {
        let share = |effort| {
            let slice = slice(effort).as_secs_f64();
            slice / (slice + 0.0015)
        };
        assert!((share(1) - 0.25).abs() < 0.01);
        assert!((share(10) - 0.43).abs() < 0.01);
    }
}

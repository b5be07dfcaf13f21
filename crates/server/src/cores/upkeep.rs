//! What a core does beside commands: expires keys, ends idle sessions, hands garbage away, drops
//! dead interest.
//!
//! Every 100 ms, in slices of at most a millisecond with turns for sessions between them. When
//! much is due (a million keys in the same second) the slices follow each other until it is gone:
//! they take at most half of the core's time, so replies stay prompt.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Core;
use crate::{memory, reaper};

const PERIOD: Duration = Duration::from_millis(100);
const SLICE: Duration = Duration::from_micros(500);
/// Keys expired between two looks at the clock.
const STEP: usize = 32;
/// Periods between rare work (idle sessions, sweeping all interest).
const RARE: u32 = 10;

impl Core {
    pub(super) async fn run_upkeep(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = 0u32;
        while !self.is_stopping() {
            ticks.tick().await;
            round = round.wrapping_add(1);
            self.begin_batch();
            self.expire().await;
            self.tidy(round.is_multiple_of(RARE));
            if self.id == 0 {
                self.shared.rates.sample(&self.shared, self.now_ms());
            }
            memory::publish();
            if round.is_multiple_of(RARE) {
                self.end_idle_sessions();
            }
            self.poke_inbox();
        }
    }

    /// Removes due keys, slice by slice, until none is left.
    async fn expire(self: &Rc<Self>) {
        let count = self.home.borrow().count();
        let mut at = 0;
        while at < count
            && self.settings().active_expire
            && !self.shared.is_expiry_paused(self.now_ms())
        {
            let started = Instant::now();
            while at < count && started.elapsed() < SLICE {
                if self.expire_step(at) < STEP {
                    at += 1;
                }
            }
            self.on_effects();
            if at < count {
                self.poke_inbox();
                // As long a pause as the slice: at most half of the core's time.
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.begin_batch();
            }
        }
    }

    fn expire_step(&self, at: usize) -> usize {
        let mut home = self.home.borrow_mut();
        let id = home.first() + at;
        let Some(region) = home.region_mut(id) else {
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
        let mut home = self.home.borrow_mut();
        for region in home.present() {
            if region.space.has_garbage() {
                reaper::send(region.space.take_garbage());
            }
            region.sweep(all);
            let status = &self.shared.saving;
            status.note_changes(region.id, region.space.changes());
        }
    }

    /// `timeout`: ends sessions that have sent nothing for too long (blocked ones wait).
    fn end_idle_sessions(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let timeout_ms = self.settings().timeout_seconds * 1000;
        if timeout_ms == 0 {
            return;
        }
        for client in self.clients.borrow().values() {
            let idle = self
                .now_ms()
                .saturating_sub(client.last_active_ms.load(Relaxed));
            if idle > timeout_ms && !client.blocked.load(Relaxed) && !client.monitor.load(Relaxed) {
                client.kill();
            }
        }
    }
}

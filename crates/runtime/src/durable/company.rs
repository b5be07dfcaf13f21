//! Who writes, and for how many of them a sync is worth waiting for.
//!
//! A sync costs CPU whoever it is for: two writes of the device to wait for, a core to be woken. With a fast disk and
//! many clients that send one command at a time, a writer that syncs whatever is there serves a handful with
//! each, and the syncs take the CPU that those very clients need to come again. So it waits until half of those who write are here:
//!
//! ```text
//!   at once    sync ▒▒ sync ▒▒▒ sync ▒ sync ▒▒ …    of fifty clients six wait for each
//!   in halves  ▒▒▒▒▒▒▒▒ sync ▒▒▒▒▒▒▒▒ sync …        one half is on disk while the other is served
//! ```
//!
//! It is worth it only where clients come so fast that the next are here long before a sync would be done ([`CROWD`]); clients that
//! think before they write again are not kept waiting. And who waits for others in vain stops waiting, for
//! twice as many syncs each time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use node::Requester;

/// Whoever had something for the log in this time is one who writes.
const WINDOW_MS: u64 = 4;
/// Nobody waits where fewer clients than this come in the time of a sync.
const CROWD: f32 = 4.0;
/// Of what the last syncs tell, this part is the last one's.
const NEWS: f32 = 0.125;
/// Among so many a sync costs nobody much.
const ENOUGH: u32 = 32;
/// The wait for them is at most so many times what the last sync took.
const SYNCS_LONG: u32 = 3;
/// A wait is not worth less than this (a timer is no more exact), and never takes more.
const WAIT: std::ops::Range<Duration> = Duration::from_micros(100)..Duration::from_micros(500);
/// So often at most the number of syncs without a wait doubles.
const MOST_DOUBLED: u32 = 8;

/// How many clients write, on all cores.
#[derive(Default)]
pub struct Writers {
    window: AtomicU64,
    now: AtomicU32,
    before: AtomicU32,
}

impl Writers {
    /// A client has something for the log. Costs a load, and once per window a count.
    pub fn note(&self, client: &Requester, now_ms: u64) {
        let window = now_ms / WINDOW_MS;
        if client.wrote_in.load(Ordering::Relaxed) == window {
            return;
        }
        client.wrote_in.store(window, Ordering::Relaxed);
        let last = self.window.fetch_max(window, Ordering::Relaxed);
        if last < window {
            let counted = self.now.swap(0, Ordering::Relaxed);
            let is_next = last + 1 == window;
            self.before
                .store(if is_next { counted } else { 0 }, Ordering::Relaxed);
        }
        self.now.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there are; none if all have been silent for a while.
    pub fn count(&self, now_ms: u64) -> u32 {
        let window = self.window.load(Ordering::Relaxed);
        if window + 1 < now_ms / WINDOW_MS {
            return 0;
        }
        let now = self.now.load(Ordering::Relaxed);
        now.max(self.before.load(Ordering::Relaxed))
    }
}

/// What the writer has learned from its syncs and waits.
#[derive(Default)]
pub struct Company {
    /// Of the last syncs, on average: clients that waited for one, from one to the next, and a sync itself, in seconds.
    clients: f32,
    period: f32,
    sync: f32,
    /// Syncs before the next wait.
    skip: u32,
    doubled: u32,
}

impl Company {
    /// A sync for so many clients is done; how long behind the one before, and how long it took.
    pub fn note(&mut self, clients: u32, period: Duration, took: Duration) {
        let mix = |old: &mut f32, new: f32| *old += (new - *old) * NEWS;
        mix(&mut self.clients, clients as f32);
        mix(&mut self.period, period.as_secs_f32());
        mix(&mut self.sync, took.as_secs_f32());
    }

    /// So many come while a sync takes its time that they are worth waiting for.
    fn is_crowded(&self) -> bool {
        self.clients * self.sync > CROWD * self.period
    }

    /// How many clients to wait for, of so many that write, and how long, after a sync that took so long; `None`: for nobody.
    pub fn wanted(&mut self, writers: u32, took: Duration) -> Option<(u32, Duration)> {
        let wait = took * SYNCS_LONG;
        let wanted = (writers / 2).min(ENOUGH);
        if wanted < 2 || wait < WAIT.start || !self.is_crowded() {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some((wanted, wait.min(WAIT.end)))
    }

    /// All who were waited for have come, or not.
    pub fn learn(&mut self, came: bool) {
        match came {
            true => (self.skip, self.doubled) = (0, 0),
            false => {
                self.doubled = (self.doubled + 1).min(MOST_DOUBLED);
                self.skip = 1 << self.doubled;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: u64) -> Requester {
        Requester::new(id)
    }

    #[test]
    fn who_writes_is_counted_once_and_forgotten_when_silent() {
        let (writers, a, b) = (Writers::default(), client(1), client(2));
        let at = |window: u64| 1000 + window * WINDOW_MS;
        assert_eq!(writers.count(at(0)), 0);
        for client in [&a, &b, &a, &b] {
            writers.note(client, at(0));
        }
        assert_eq!(writers.count(at(0)), 2);
        // A new window has begun: the one before still tells.
        writers.note(&a, at(1));
        assert_eq!(writers.count(at(1)), 2);
        writers.note(&a, at(2));
        assert_eq!(writers.count(at(2)), 1);
        assert_eq!(writers.count(at(4)), 0);
        writers.note(&b, at(9));
        assert_eq!(writers.count(at(9)), 1);
    }

    /// After many syncs for so many clients, of 100 µs each.
    fn after(clients: u32, period: Duration) -> Company {
        let mut company = Company::default();
        for _ in 0..100 {
            company.note(clients, period, Duration::from_micros(100));
        }
        company
    }

    #[test]
    fn nobody_waits_where_few_come() {
        let us = Duration::from_micros;
        let waits = |mut company: Company| company.wanted(50, us(100)).is_some();
        assert!(waits(after(6, us(110))), "one after the other, six each");
        assert!(waits(after(25, us(330))), "in halves");
        assert!(!waits(after(3, us(110))));
        assert!(!waits(after(20, us(1000))));
        assert!(!waits(Company::default()));
    }

    #[test]
    fn it_waits_for_half_of_many_and_for_nobody_alone() {
        let us = Duration::from_micros;
        let mut company = after(10, us(100));
        assert_eq!(company.wanted(50, us(100)), Some((25, us(300))));
        assert_eq!(company.wanted(1000, us(1000)), Some((ENOUGH, WAIT.end)));
        assert_eq!(company.wanted(3, us(100)), None);
        assert_eq!(
            company.wanted(50, us(20)),
            None,
            "a sync that costs nothing"
        );
    }

    #[test]
    fn waiting_in_vain_becomes_rare() {
        let mut company = after(10, Duration::from_micros(100));
        let mut waits = 0;
        for _ in 0..2000 {
            if company.wanted(50, Duration::from_micros(100)).is_some() {
                waits += 1;
                company.learn(false);
            }
        }
        assert!(waits < 20, "{waits}");
        while company.wanted(50, Duration::from_micros(100)).is_none() {}
        company.learn(true);
        assert!(company.wanted(50, Duration::from_micros(100)).is_some());
    }
}

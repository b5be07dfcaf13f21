//! What the log writer waits for although there are jobs already, and how long.

use std::time::{Duration, Instant};

/// How long a group may wait for those who were told last: this part of the time the last write took.
const PART: u32 = 4;
/// Such a wait is not worth less than this (a timer is no more exact), and never takes more.
const UNTIL_HEARD: std::ops::Range<Duration> =
    Duration::from_micros(50)..Duration::from_micros(500);

/// How long to wait for the cores that were told, after a write that took so long; `None`: not at all.
pub fn to_be_heard(took: Duration) -> Option<Duration> {
    let wait = took / PART;
    (wait >= UNTIL_HEARD.start).then(|| wait.min(UNTIL_HEARD.end))
}

/// What is worth waiting for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// That all have heard who were told last.
    pub heard: bool,
    /// That so many clients wait for the jobs.
    pub clients: u32,
}

/// What a group waits for, and until when.
#[derive(Debug, Default)]
pub struct Patience {
    pub awaited: Awaited,
    heard_until: Option<Instant>,
    clients_until: Option<Instant>,
    /// Jobs were held up for clients that did not come.
    in_vain: bool,
}

impl Patience {
    /// For the cores that were told.
    pub fn wait_until_heard(&mut self, wait: Duration) {
        self.awaited.heard = true;
        self.heard_until = Instant::now().checked_add(wait);
    }

    pub fn wait_for_clients(&mut self, clients: u32, wait: Duration) {
        self.awaited.clients = clients;
        self.clients_until = Instant::now().checked_add(wait);
    }

    /// Gives up what has been waited for long enough. When the next of it will be given up; `None` if nothing is left to wait for.
    pub fn end(&mut self, now: Instant, has_jobs: bool) -> Option<Instant> {
        if self.heard_until.is_none_or(|at| at <= now) {
            self.awaited.heard = false;
        }
        if self.awaited.clients > 0 && self.clients_until.is_none_or(|at| at <= now) {
            self.awaited.clients = 0;
            self.in_vain = has_jobs;
        }
        let heard = self.heard_until.filter(|_| self.awaited.heard);
        let clients = self.clients_until.filter(|_| self.awaited.clients > 0);
        [heard, clients].into_iter().flatten().min()
    }

    /// Whether the clients came; `None` if nobody waited for any.
    pub fn came(&self) -> Option<bool> {
        self.clients_until.map(|_| !self.in_vain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_to_be_heard_is_a_part_of_a_sync() {
        let us = Duration::from_micros;
        assert_eq!(to_be_heard(us(30)), None);
        assert_eq!(to_be_heard(us(800)), Some(us(200)));
        assert_eq!(to_be_heard(us(50_000)), Some(us(500)));
    }

    #[test]
    fn both_are_waited_for_and_each_is_given_up_in_time() {
        let mut patience = Patience::default();
        let began = Instant::now();
        patience.wait_until_heard(Duration::from_micros(200));
        patience.wait_for_clients(3, Duration::from_millis(5));
        let heard_until = patience.end(began, true).unwrap();
        let end = patience.end(heard_until, true).unwrap();
        assert!(heard_until < end && end >= began + Duration::from_millis(5));
        let left = Awaited {
            heard: false,
            clients: 3,
        };
        assert_eq!(patience.awaited, left);
        assert_eq!(patience.came(), Some(true));
        assert_eq!(patience.end(end, true), None);
        assert_eq!(patience.came(), Some(false));
    }

    #[test]
    fn nobody_was_held_up_when_there_was_nothing_to_write() {
        let mut patience = Patience::default();
        patience.wait_for_clients(3, Duration::ZERO);
        assert_eq!(patience.end(Instant::now(), false), None);
        assert_eq!(patience.came(), Some(true));
    }
}

//! Group commit: for how many clients the log writer waits before it syncs, and how long.
//!
//! A sync costs the same CPU for one client as for fifty, and takes it from the clients. So after a sync that
//! served at least [`SIBLINGS`] clients the log writer waits until half of the writing clients have something in
//! its queue, at most `group-commit-delay` microseconds. Where clients pause between their writes the wait times out, and
//! the next [`SYNCS_WITHOUT_WAIT`] syncs do not wait.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use node::Requester;

/// Clients that a sync must have served for the next to wait (PostgreSQL's `commit_siblings`).
const SIBLINGS: u32 = 6;
/// Syncs after a wait that timed out.
const SYNCS_WITHOUT_WAIT: u32 = 16;
/// A client is writing if it had something for the log in this span of time or in the one before.
const WINDOW_MS: u64 = 4;

/// How many clients are writing, on all cores.
#[derive(Default)]
pub struct WritingClients {
    window: AtomicU64,
    in_window: AtomicU32,
    in_last_window: AtomicU32,
}

impl WritingClients {
    /// A client has something for the log. Costs a load, and once per window a count.
    pub fn note(&self, client: &Requester, now_ms: u64) {
        let window = now_ms / WINDOW_MS;
        if client.wrote_in.load(Ordering::Relaxed) == window {
            return;
        }
        client.wrote_in.store(window, Ordering::Relaxed);
        let last = self.window.fetch_max(window, Ordering::Relaxed);
        if last < window {
            let counted = self.in_window.swap(0, Ordering::Relaxed);
            let is_next = last + 1 == window;
            self.in_last_window
                .store(if is_next { counted } else { 0 }, Ordering::Relaxed);
        }
        self.in_window.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count(&self, now_ms: u64) -> u32 {
        let window = self.window.load(Ordering::Relaxed);
        if window + 1 < now_ms / WINDOW_MS {
            return 0;
        }
        let in_window = self.in_window.load(Ordering::Relaxed);
        in_window.max(self.in_last_window.load(Ordering::Relaxed))
    }
}

/// The log writer waits until so many clients have something in its queue, or until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub clients: u32,
    pub until: Instant,
}

/// What the log writer remembers of its waits.
#[derive(Debug, Default)]
pub struct GroupCommit {
    /// Syncs before the next wait.
    syncs_without_wait: u32,
}

impl GroupCommit {
    /// A wait timed out although there was something to write.
    pub fn note_timeout(&mut self) {
        self.syncs_without_wait = SYNCS_WITHOUT_WAIT;
    }

    /// What to wait for after a sync that served so many clients, of so many that are writing.
    pub fn after_sync(&mut self, served: u32, writing: u32, delay: Duration) -> Option<Wait> {
        if self.syncs_without_wait > 0 {
            self.syncs_without_wait -= 1;
            return None;
        }
        if served < SIBLINGS || delay.is_zero() {
            return None;
        }
        let (clients, until) = (writing / 2, Instant::now().checked_add(delay)?);
        Some(Wait { clients, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writing_client_is_counted_once_and_forgotten_when_silent() {
        let writing = WritingClients::default();
        let (a, b) = (Requester::new(1), Requester::new(2));
        let at = |window: u64| 1000 + window * WINDOW_MS;
        assert_eq!(writing.count(at(0)), 0);
        for client in [&a, &b, &a, &b] {
            writing.note(client, at(0));
        }
        assert_eq!(writing.count(at(0)), 2);
        // A new window has begun: the one before still counts.
        writing.note(&a, at(1));
        assert_eq!(writing.count(at(1)), 2);
        writing.note(&a, at(2));
        assert_eq!(writing.count(at(2)), 1);
        assert_eq!(writing.count(at(4)), 0);
        writing.note(&b, at(9));
        assert_eq!(writing.count(at(9)), 1);
    }

    const DELAY: Duration = Duration::from_micros(400);

    fn wanted(rule: &mut GroupCommit, served: u32, writing: u32, delay: Duration) -> Option<u32> {
        let wait = rule.after_sync(served, writing, delay)?;
        Some(wait.clients)
    }

    #[test]
    fn the_writer_waits_for_half_of_the_writing_clients() {
        let mut rule = GroupCommit::default();
        assert_eq!(wanted(&mut rule, 6, 50, DELAY), Some(25));
        assert_eq!(wanted(&mut rule, SIBLINGS, 12, DELAY), Some(6));
        assert_eq!(wanted(&mut rule, SIBLINGS - 1, 50, DELAY), None);
        assert_eq!(wanted(&mut rule, 6, 50, Duration::ZERO), None, "turned off");
    }

    #[test]
    fn after_a_timeout_some_syncs_do_not_wait() {
        let mut rule = GroupCommit::default();
        rule.note_timeout();
        for _ in 0..SYNCS_WITHOUT_WAIT {
            assert_eq!(wanted(&mut rule, 10, 20, DELAY), None);
        }
        assert_eq!(wanted(&mut rule, 10, 20, DELAY), Some(10));
    }
}

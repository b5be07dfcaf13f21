//! Group commit: for how many clients the log writer waits before it syncs, and how long.
//!
//! A sync costs the same CPU for one client as for fifty, and takes it from the clients. So if clients come
//! so fast that at least [`SIBLINGS`] of them write in the time of one sync, the log writer waits until as many
//! clients as the last sync served have a write in its queue, at most `group-commit-delay` microseconds.
//! After a wait that timed out the next sync does not wait.

use std::time::{Duration, Instant};

/// With fewer clients per sync than this nobody waits (PostgreSQL's `commit_siblings`).
const SIBLINGS: u32 = 4;

/// The log writer waits until so many clients have a write in its queue, or until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub clients: u32,
    pub until: Instant,
}

/// What the log writer remembers of its last wait.
#[derive(Debug, Default)]
pub struct GroupCommit {
    has_timed_out: bool,
}

impl GroupCommit {
    /// A wait has ended: because its time was over, or because the clients came.
    pub fn note_wait(&mut self, has_timed_out: bool) {
        self.has_timed_out = has_timed_out;
    }

    /// What to wait for after a sync that served `clients` and took `took`, of the `period` since the sync before it.
    pub fn after_sync(
        &mut self,
        clients: u32,
        took: Duration,
        period: Duration,
        delay: Duration,
    ) -> Option<Wait> {
        let is_fast = took * clients >= period * SIBLINGS;
        if std::mem::take(&mut self.has_timed_out) || !is_fast || delay.is_zero() {
            return None;
        }
        let until = Instant::now().checked_add(delay)?;
        Some(Wait { clients, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_micros(400);

    /// How many clients are waited for after a sync of 100 µs.
    fn wanted(rule: &mut GroupCommit, clients: u32, period_us: u64, delay: Duration) -> u32 {
        let us = Duration::from_micros;
        let wait = rule.after_sync(clients, us(100), us(period_us), delay);
        wait.map_or(0, |wait| wait.clients)
    }

    #[test]
    fn the_writer_waits_for_as_many_as_the_last_sync_served() {
        let mut rule = GroupCommit::default();
        assert_eq!(wanted(&mut rule, 6, 110, DELAY), 6);
        assert_eq!(wanted(&mut rule, 50, 500, DELAY), 50);
        assert_eq!(wanted(&mut rule, 6, 110, Duration::ZERO), 0, "turned off");
    }

    #[test]
    fn it_does_not_wait_for_few_or_for_clients_that_think() {
        let mut rule = GroupCommit::default();
        assert_eq!(wanted(&mut rule, 0, 100, DELAY), 0);
        assert_eq!(wanted(&mut rule, 3, 100, DELAY), 0);
        assert_eq!(wanted(&mut rule, 20, 1000, DELAY), 0);
    }

    #[test]
    fn after_a_wait_that_timed_out_one_sync_does_not_wait() {
        let mut rule = GroupCommit::default();
        rule.note_wait(true);
        assert_eq!(wanted(&mut rule, 10, 100, DELAY), 0);
        assert_eq!(wanted(&mut rule, 10, 100, DELAY), 10);
        rule.note_wait(false);
        assert_eq!(wanted(&mut rule, 10, 100, DELAY), 10);
    }
}

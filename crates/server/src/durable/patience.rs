//! For how many clients the log writer waits although there are jobs already, and how long.

use std::time::{Duration, Instant};

/// What a group waits for, and until when.
#[derive(Debug, Default)]
pub struct Patience {
    pub clients: u32,
    clients_until: Option<Instant>,
    /// Jobs were held up for clients that did not come.
    in_vain: bool,
}

impl Patience {
    pub fn wait_for_clients(&mut self, clients: u32, wait: Duration) {
        self.clients = clients;
        self.clients_until = Instant::now().checked_add(wait);
    }

    /// Gives up what has been waited for long enough. When the next of it will be given up; `None` if nothing is left to wait for.
    pub fn end(&mut self, now: Instant, has_jobs: bool) -> Option<Instant> {
        if self.clients > 0 && self.clients_until.is_none_or(|at| at <= now) {
            self.clients = 0;
            self.in_vain = has_jobs;
        }
        self.clients_until.filter(|_| self.clients > 0)
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
    fn clients_are_given_up_in_time() {
        let mut patience = Patience::default();
        let began = Instant::now();
        patience.wait_for_clients(3, Duration::from_millis(5));
        let end = patience.end(began, true).unwrap();
        assert!(end >= began + Duration::from_millis(5));
        assert_eq!(patience.clients, 3);
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

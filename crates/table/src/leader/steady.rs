//! The owner's clock, made steady: it may be set back by hours, and nothing here waits that long for it.
//!
//! Leases, back-off and lingering are spans of time of one office. A clock that goes back would make all of them longer by as much, and a
//! leader would hold its office and write nothing.

#[derive(Debug, Default)]
pub(super) struct Steady {
    last: u64,
    /// How far the owner's clock was set back, all in all.
    ahead: u64,
}

impl Steady {
    pub(super) fn new(clock: u64) -> Steady {
        Steady {
            last: clock,
            ahead: 0,
        }
    }

    /// What time it is.
    pub(super) fn read(&mut self, clock: u64) -> u64 {
        let now = self.at(clock);
        self.ahead = self.ahead.saturating_add(self.last.saturating_sub(now));
        self.last = self.last.max(now);
        self.last
    }

    /// A moment of the owner's clock, as it runs now.
    pub(super) fn at(&self, clock: u64) -> u64 {
        clock.saturating_add(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_back_it_stands_still_and_then_goes_on() {
        let mut steady = Steady::new(1000);
        assert_eq!(steady.read(1010), 1010);
        assert_eq!(steady.read(400), 1010);
        assert_eq!(steady.read(450), 1060);
        assert_eq!(steady.at(500), 1110);
        assert_eq!(steady.read(5000), 5610);
        assert_eq!(steady.at(u64::MAX), u64::MAX);
    }
}

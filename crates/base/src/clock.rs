//! The time a node goes by: that of the wall clock, without its jumps.
//!
//! A wall clock may be set by hand, by a broken time server, by a hypervisor. A clock that is a year ahead for one
//! second would expire every key, so the wall clock is never used as it is. A node counts on from its start by a clock
//! that does not jump, and corrects itself:
//!
//! ```text
//!   time = clock that never jumps + offset
//!
//!   offset ◄── the wall clock, while it moves by steps of at most STEP_MS
//!          ◄── the wall clock, after a jump that lasted for HOLD_MS: somebody has set it right
//!          ◄── bounded: at most APART_MS from the median of the clocks of the cluster
//! ```
//!
//! Entries are stamped with this time. A stamp does not go back within what clocks may differ; one that is further ahead
//! was made by a clock that was wrong, and is not followed ([`next_stamp`]).

/// A correction of the wall clock up to this is taken over at once.
const STEP_MS: u64 = 500;
/// A jump that lasts so long is taken over.
const HOLD_MS: u64 = 60_000;
/// How far a node may be from the time of its cluster.
pub const APART_MS: i64 = 1_000;
/// Stamps of two leaders differ by this at most, if their clocks are as they should be.
const STAMP_AHEAD_MS: u64 = 2 * APART_MS as u64 + STEP_MS;

/// The stamp of the next entry: the time, and not before the last stamp, unless that is further ahead than any clock of the
/// cluster may be. Then time goes back, for all replicas at the same entry: a key that had expired by the wrong clock and
/// was not removed is there again, and one that is set now lives as long as it should.
pub fn next_stamp(last_ms: u64, now_ms: u64) -> u64 {
    match last_ms > now_ms.saturating_add(STAMP_AHEAD_MS) {
        true => now_ms,
        false => last_ms.max(now_ms),
    }
}

/// Offsets between the wall clock and the clock that never jumps become the time a node goes by.
#[derive(Debug, Clone)]
pub struct Timekeeper {
    /// Of this node's wall clock, without jumps.
    own_ms: i64,
    /// As last read.
    read_ms: i64,
    jump: Option<Jump>,
    /// Between these is the offset of the cluster's time.
    cluster: Option<(i64, i64)>,
    jumps: u64,
}

#[derive(Debug, Clone, Copy)]
struct Jump {
    offset_ms: i64,
    since_ms: u64,
}

/// What the log of a node says of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockNotice {
    /// It jumped by so much, and is not followed.
    Jumped { by_ms: i64 },
    /// It is as before.
    Returned,
    /// It stayed there: the node goes by it, within the bounds of the cluster.
    Followed { by_ms: i64 },
}

impl Timekeeper {
    pub fn new(wall_ms: u64, clock_ms: u64) -> Timekeeper {
        let offset_ms = offset(wall_ms, clock_ms);
        Timekeeper {
            own_ms: offset_ms,
            read_ms: offset_ms,
            jump: None,
            cluster: None,
            jumps: 0,
        }
    }

    /// Both clocks were read, several times a second.
    pub fn on_read(&mut self, wall_ms: u64, clock_ms: u64) -> Option<ClockNotice> {
        let read_ms = offset(wall_ms, clock_ms);
        self.read_ms = read_ms;
        let by_ms = read_ms.saturating_sub(self.own_ms);
        if by_ms.unsigned_abs() <= STEP_MS {
            self.own_ms = read_ms;
            return self.jump.take().map(|_| ClockNotice::Returned);
        }
        match self.jump {
            Some(jump) if jump.offset_ms.abs_diff(read_ms) <= STEP_MS => {
                if clock_ms.saturating_sub(jump.since_ms) < HOLD_MS {
                    let offset_ms = read_ms;
                    self.jump = Some(Jump { offset_ms, ..jump });
                    return None;
                }
                self.own_ms = read_ms;
                self.jump = None;
                Some(ClockNotice::Followed { by_ms })
            }
            _ => {
                self.jumps += 1;
                self.jump = Some(Jump {
                    offset_ms: read_ms,
                    since_ms: clock_ms,
                });
                Some(ClockNotice::Jumped { by_ms })
            }
        }
    }

    /// The offset of the cluster's time is between these.
    pub fn on_cluster(&mut self, low_ms: i64, high_ms: i64) {
        self.cluster = (low_ms <= high_ms).then_some((low_ms, high_ms));
    }

    /// What is added to the clock that never jumps.
    pub fn offset_ms(&self) -> i64 {
        match self.cluster {
            Some((low, high)) => {
                let (low, high) = (low.saturating_sub(APART_MS), high.saturating_add(APART_MS));
                self.own_ms.clamp(low, high)
            }
            None => self.own_ms,
        }
    }

    /// The same by the own wall clock alone: what this node says to the cluster.
    pub fn own_ms(&self) -> i64 {
        self.own_ms
    }

    /// How far the wall clock is ahead of the time the node goes by.
    pub fn ahead_ms(&self) -> i64 {
        self.read_ms.saturating_sub(self.offset_ms())
    }

    /// Jumps seen since the start.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }
}

/// `wall_ms` by the clock that never jumps.
pub fn offset(wall_ms: u64, clock_ms: u64) -> i64 {
    (wall_ms as i64).saturating_sub(clock_ms as i64)
}

/// The time at `clock_ms`.
#[inline]
pub fn at(offset_ms: i64, clock_ms: u64) -> u64 {
    clock_ms.saturating_add_signed(offset_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_MS: u64 = 365 * 86_400_000;

    #[test]
    fn a_jump_for_a_moment_is_not_followed_and_small_steps_are() {
        let mut keeper = Timekeeper::new(1_000_000, 1_000);
        assert_eq!(keeper.on_read(1_000_100, 1_100), None);
        assert_eq!(at(keeper.offset_ms(), 1_100), 1_000_100);
        let jumped = keeper.on_read(1_000_200 + YEAR_MS, 1_200);
        let by_ms = YEAR_MS as i64;
        assert_eq!(jumped, Some(ClockNotice::Jumped { by_ms }));
        assert_eq!(keeper.ahead_ms(), by_ms);
        assert_eq!(keeper.on_read(1_001_000 + YEAR_MS, 2_000), None);
        assert_eq!(at(keeper.offset_ms(), 2_000), 1_001_000);
        assert_eq!(
            keeper.on_read(1_001_100, 2_100),
            Some(ClockNotice::Returned)
        );
        assert_eq!((keeper.ahead_ms(), keeper.jumps()), (0, 1));
        assert_eq!(keeper.on_read(1_001_600, 2_200), None);
        assert_eq!(at(keeper.offset_ms(), 2_200), 1_001_600);
    }

    #[test]
    fn a_clock_that_was_set_is_followed_after_a_while_in_both_directions() {
        for by_ms in [-3_600_000_i64, 3_600_000] {
            let mut keeper = Timekeeper::new(10_000_000, 1_000);
            let wall = |clock_ms: u64| (9_999_000 + clock_ms).saturating_add_signed(by_ms);
            let mut notices = Vec::new();
            for clock_ms in (1_100..=1_100 + HOLD_MS).step_by(100) {
                notices.extend(keeper.on_read(wall(clock_ms), clock_ms));
            }
            let expected = [
                ClockNotice::Jumped { by_ms },
                ClockNotice::Followed { by_ms },
            ];
            assert_eq!(notices, expected);
            assert_eq!(
                (keeper.offset_ms(), keeper.ahead_ms()),
                (9_999_000 + by_ms, 0)
            );
        }
    }

    #[test]
    fn a_cluster_bounds_its_nodes() {
        let mut keeper = Timekeeper::new(YEAR_MS, 0);
        keeper.on_cluster(5_000, 5_200);
        assert_eq!(keeper.offset_ms(), 5_200 + APART_MS);
        assert_eq!(keeper.own_ms(), YEAR_MS as i64);
        let mut keeper = Timekeeper::new(5_600, 0);
        keeper.on_cluster(5_000, 5_200);
        assert_eq!(keeper.offset_ms(), 5_600, "within what clocks may differ");
    }

    #[test]
    fn a_stamp_goes_back_only_from_where_no_clock_should_be() {
        assert_eq!(next_stamp(1_000, 900), 1_000);
        assert_eq!(next_stamp(900, 1_000), 1_000);
        assert_eq!(next_stamp(900 + STAMP_AHEAD_MS, 900), 900 + STAMP_AHEAD_MS);
        assert_eq!(next_stamp(901 + STAMP_AHEAD_MS, 900), 900);
        assert_eq!(next_stamp(u64::MAX, 900), 900);
    }
}

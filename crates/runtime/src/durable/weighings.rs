//! When the rows of a region are read to find out what they weigh: if nobody knows, or if too much was guessed
//! (decision 30).

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cores::{Core, Place, Region};

/// What is in doubt about the weight of a region before its rows are read again: this part, and no less than so many bytes.
const DOUBT_PART: u64 = 8;
const DOUBT_BYTES: u64 = 1 << 20;
/// After a reading of all rows, doubt alone leads to the next only after so many times what it took.
const PAUSE_FACTOR: u32 = 3;
/// After so many failures the pause does not grow any more.
const FAILURES_MOST: u32 = 6;
/// A reader of all rows waits so long after each 64 KiB: others need the disk, too.
const PACE: Duration = Duration::from_micros(200);

/// When regions of a core are weighed.
#[derive(Default)]
pub struct Weighings {
    /// The region that was weighed last.
    last: Place,
    begun: Option<Instant>,
    /// Not before this, if it is only doubtful what a region weighs, or if rows could not be read.
    pause_until: Option<Instant>,
    failures: u32,
}

impl Weighings {
    fn begin(&mut self, id: Place, now: Instant) {
        self.last = id;
        self.begun = Some(now);
    }

    fn end(&mut self, was_read: bool, now: Instant) {
        let pause = match was_read {
            true => {
                self.failures = 0;
                self.begun.map_or(Duration::ZERO, |begun| now - begun) * PAUSE_FACTOR
            }
            false => {
                self.failures = (self.failures + 1).min(FAILURES_MOST);
                Duration::from_secs(1 << self.failures)
            }
        };
        self.pause_until = Some(now + pause);
    }

    fn may_begin(&self, is_known: bool, now: Instant) -> bool {
        let is_over = self.pause_until.is_none_or(|until| now >= until);
        is_over || !is_known && self.failures == 0
    }
}

impl Core {
    /// Says what the regions of this core weigh, and sees to those of which it is not known. Called now and
    /// then.
    pub(crate) fn weigh_owned(self: &Rc<Self>) {
        if self.shared.durable.is_none() {
            return;
        }
        let evicts = self.most_data_bytes().is_some();
        {
            let mut owned = self.regions.borrow_mut();
            let mut weighings = self.weighings.borrow_mut();
            let mut is_weighing = false;
            for region in owned.present() {
                if let Some(was_read) = region.space.take_weighed() {
                    weighings.end(was_read, Instant::now());
                }
                region.tell_weight(&self.shared.data_set);
                is_weighing |= region.space.is_weighing();
            }
            if evicts && !is_weighing {
                let (now, last) = (Instant::now(), weighings.last);
                let doubtful = owned.present().filter(|region| {
                    let is_known = region.space.doubtful_bytes().is_some();
                    weighings.may_begin(is_known, now) && may_be_weighed(region)
                });
                // In turns, so that one that is doubtful again and again does not keep others waiting.
                let next = doubtful.min_by_key(|region| (region.id <= last, region.id));
                if let Some(region) = next {
                    weighings.begin(region.id, now);
                    self.weigh(region);
                }
            }
        }
        if evicts {
            self.evict_by_log();
        }
    }

    /// Sends a thread to read all rows of a region.
    fn weigh(&self, region: &mut Region) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        if region.settle().is_err() {
            return; // the store is busy; later
        }
        let (weighing, moment) = (
            region.space.begin_weighing(),
            durable.stores.rows.snapshot(),
        );
        let shared = self.shared.clone();
        let spawned = std::thread::Builder::new()
            .name("weigh".into())
            .spawn(move || {
                weighing.run(&*moment, &mut |_| {
                    std::thread::sleep(PACE);
                    !shared.shutdown.is_asked()
                });
            });
        // If there is no thread it is tried again.
        drop(spawned);
    }
}

/// Whether what a region weighs has to be found out, and can be.
fn may_be_weighed(region: &Region) -> bool {
    // Memory that is ahead of the log is ahead of the rows.
    let is_ahead = region
        .member
        .as_deref()
        .is_some_and(|it| it.uncommitted.is_some());
    let bytes = region.space.data_bytes();
    let doubtful = region.space.doubtful_bytes();
    !is_ahead && doubtful.is_none_or(|it| it > DOUBT_BYTES.max(bytes / DOUBT_PART))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighing_pauses_behind_failures_and_in_doubt() {
        let mut weighings = Weighings::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(weighings.may_begin(true, start) && weighings.may_begin(false, start));
        weighings.begin(1, start);
        weighings.end(true, after(10));
        assert!(
            weighings.may_begin(false, after(10)),
            "nothing is known of it"
        );
        assert!(!weighings.may_begin(true, after(39)));
        assert!(weighings.may_begin(true, after(40)));
        weighings.end(false, after(40));
        assert!(!weighings.may_begin(false, after(41)));
        assert!(weighings.may_begin(false, after(42)));
        weighings.end(false, after(42));
        assert!(!weighings.may_begin(false, after(45)));
        assert!(weighings.may_begin(false, after(46)));
    }
}

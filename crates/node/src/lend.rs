//! Lending regions: how a command that needs regions of several cores is atomic, isolated and free of
//! locks.
//!
//! A region is a box. To run over regions of several cores, a session's core collects the boxes: it asks
//! the owners one after the other, in ascending order of cores, runs the command over all of them with
//! the very function that runs on one, and gives them back.
//!
//! ```text
//!   core 0 (session)            core 1                 core 2
//!     own regions, now
//!     Lend ───────────────────────►  home? move boxes
//!     ◄────────────────────── Lent
//!     Lend ─────────────────────────────────────────────►  lent: wait in line
//!     ◄──────────────────────────────────────────── Lent     (when they return)
//!     run
//!     Return ─────────────────────►  changes, next in line
//!     Return ───────────────────────────────────────────►
//! ```
//!
//! Invariants:
//! - Whoever has the box is the only one to touch the region. No thread ever blocks.
//! - A core grants all of a request or nothing, in the order requests came where they overlap
//!   (one line per core), so nobody starves.
//! - Owners are asked in ascending order, and a request that waits holds only regions of lower
//!   cores: the highest core's borrowers always finish, so there is no deadlock.
//! - The owner handles a region's changes (watches, blocked sessions) when it returns and before it
//!   is lent again.

use std::collections::VecDeque;

use crate::effects::{Effects, Grant};
use crate::{Context, CoreId, OwnedRegions, Place, RegionBox, Serving};

/// Those who wait to borrow regions.
#[derive(Default)]
pub(crate) struct Line {
    waiting: VecDeque<Wanted>,
    /// Changes of regions that came back are being handled: nothing is granted meanwhile.
    is_held: bool,
}

/// A request that could not be granted yet: regions of this core, ascending.
struct Wanted {
    regions: Vec<Place>,
    core: CoreId,
    ticket: usize,
}

impl OwnedRegions {
    /// Whether somebody waits to borrow a region.
    pub fn is_wanted(&self, place: Place) -> bool {
        self.wants_any(&[place])
    }

    /// Whether somebody in line wants any of these.
    fn wants_any(&self, regions: &[Place]) -> bool {
        let mut line = self.line.waiting.iter();
        line.any(|wanted| overlap(&wanted.regions, regions))
    }

    /// Whether somebody waits to borrow any region.
    pub fn has_line(&self) -> bool {
        !self.line.waiting.is_empty()
    }

    /// Takes regions out of their places now, if all are here and nobody waits for one of them.
    pub fn borrow_now(&mut self, regions: &[Place], clock_ms: u64) -> Option<Vec<RegionBox>> {
        match self.wants_any(regions) {
            true => None,
            false => self.take_handled(regions, clock_ms),
        }
    }

    /// As [`OwnedRegions::borrow_now`], before all who wait: for who gives them back before anything
    /// else happens.
    pub fn borrow_for_a_moment(
        &mut self,
        regions: &[Place],
        clock_ms: u64,
    ) -> Option<Vec<RegionBox>> {
        self.take(regions, clock_ms)
    }

    /// Puts a request in line. It is granted by an effect.
    pub fn borrow_later(&mut self, regions: Vec<Place>, core: CoreId, ticket: usize) {
        self.line.waiting.push_back(Wanted {
            regions,
            core,
            ticket,
        });
    }

    /// A region comes back.
    pub fn put(&mut self, region: RegionBox) {
        if let Some(slot) = self.slots.slot_mut(region.id) {
            debug_assert!(slot.region.is_none(), "two boxes of one region");
            slot.region = Some(region);
        } else {
            debug_assert!(false, "a region that is not ours");
        }
    }

    /// Nothing is granted until [`OwnedRegions::release_line`].
    pub fn hold_line(&mut self) {
        self.line.is_held = true;
    }

    pub fn release_line(&mut self, cx: &Context<'_>, out: &mut Effects) {
        self.line.is_held = false;
        self.grant_next(cx, out);
    }

    /// Grants what can be granted. Needed whenever a region has come back, or nothing of it is on its way
    /// any more.
    pub fn grant_next(&mut self, cx: &Context<'_>, out: &mut Effects) {
        if self.line.is_held {
            return;
        }
        while !self.line.waiting.is_empty() {
            let Some(grant) = self.next_grant(cx) else {
                return;
            };
            out.grants.push(grant);
        }
    }

    /// The first request in line that can be granted and overlaps no earlier one.
    fn next_grant(&mut self, cx: &Context<'_>) -> Option<Grant> {
        for at in 0..self.line.waiting.len() {
            let regions = std::mem::take(&mut self.line.waiting[at].regions);
            let mut earlier = self.line.waiting.iter().take(at);
            let free = !earlier.any(|wanted| overlap(&wanted.regions, &regions));
            let taken = match free {
                true => self.take_handled(&regions, cx.clock_ms),
                false => None,
            };
            self.line.waiting[at].regions = regions;
            if let Some(regions) = taken {
                let Wanted { core, ticket, .. } = self.line.waiting.remove(at)?;
                return Some(Grant {
                    core,
                    ticket,
                    regions,
                });
            }
        }
        None
    }

    /// As [`OwnedRegions::take`], unless changes of one of them have not been handled yet (those who watch
    /// or wait are told before anybody else has the region), or a read was held up by a borrower already
    /// and waits for rows of it.
    fn take_handled(&mut self, regions: &[Place], clock_ms: u64) -> Option<Vec<RegionBox>> {
        let is_kept = |&place: &Place| {
            let region = self.slots.region_mut(place);
            region.is_some_and(|region| region.space.has_key_changes()) || self.reads.holds(place)
        };
        match regions.iter().any(is_kept) {
            true => None,
            false => self.take(regions, clock_ms),
        }
    }

    /// Moves regions out, in order, if all are here; those that are led elsewhere stay.
    fn take(&mut self, regions: &[Place], clock_ms: u64) -> Option<Vec<RegionBox>> {
        if !self.has_all(regions, clock_ms) {
            return None;
        }
        let take = |&place: &Place| {
            let is_led = |region: &mut RegionBox| region.serving(clock_ms) != Serving::No;
            self.slots.slot_mut(place)?.region.take_if(is_led)
        };
        Some(regions.iter().filter_map(take).collect())
    }

    /// Whether these are here and may be lent: nothing of them is on its way, and their rows are in the
    /// store. A place that is empty, or a region that is led elsewhere, is no reason to wait.
    fn has_all(&mut self, regions: &[Place], clock_ms: u64) -> bool {
        regions
            .iter()
            .all(|&place| match self.slots.used_mut(place) {
                Some(slot) => match slot.region.as_mut() {
                    Some(region) => match region.serving(clock_ms) {
                        Serving::Now => region.is_quiet() && region.settle().is_ok(),
                        Serving::Later => false,
                        Serving::No => true,
                    },
                    None => false,
                },
                None => true,
            })
    }
}

/// Whether two ascending lists have something in common.
fn overlap(one: &[Place], other: &[Place]) -> bool {
    match (one, other) {
        ([one], [other]) => one == other,
        ([one], many) | (many, [one]) => many.binary_search(one).is_ok(),
        (one, other) => one.iter().any(|place| other.binary_search(place).is_ok()),
    }
}

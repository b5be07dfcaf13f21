//! Which region a key belongs to, and which core owns a region.
//!
//! A region's number on this node is its *place*. With one place no slot is computed at all.
//!
//! - **memory**: sixteen regions per core (one, if there is one core), made anew at every start;
//!   contiguous, equal ranges of slots, a core owns neighbours.
//! - **durable, alone**: as many as there were cores when the data directory was made. Another
//!   number of cores later shares them out anew; a core without a region serves sessions only.
//! - **cluster**: regions come and go ([`Places`]); place `p` is core `p % cores`'s, and a slot of
//!   which this node has no replica has no place.
//!
//! **Invariant**: the number of cores, and whose a place is, never change while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use base::slot::{SLOT_COUNT, slot_of};

/// Several regions per core, so that holding one for a multi-key command leaves the rest of the
/// core's keys free.
pub const REGIONS_PER_CORE: usize = 16;

pub type CoreId = usize;
/// A region's number on this node, over all cores.
pub type Place = usize;

/// Of a node that is alone: more would be of no use to its cores.
pub const MOST_REGIONS: usize = 64;

/// The place of a slot that has none here.
pub const NOWHERE: Place = u16::MAX as Place;

/// Where the slots of a cluster node's regions are.
pub struct Places {
    by_slot: Box<[AtomicU16]>,
    /// One more than the highest place ever used.
    count: AtomicUsize,
}

impl Default for Places {
    fn default() -> Self {
        Places {
            by_slot: (0..SLOT_COUNT)
                .map(|_| AtomicU16::new(NOWHERE as u16))
                .collect(),
            count: AtomicUsize::new(0),
        }
    }
}

impl Places {
    /// Slots `first..=last` are at `place` from now on.
    pub fn set(&self, first: u16, last: u16, place: Place) {
        if place != NOWHERE {
            self.count.fetch_max(place + 1, Ordering::AcqRel);
        }
        let slots = self.by_slot.get(usize::from(first)..=usize::from(last));
        for slot in slots.unwrap_or_default() {
            slot.store(place as u16, Ordering::Release);
        }
    }

    #[inline]
    pub fn of_slot(&self, slot: u16) -> Place {
        self.by_slot
            .get(usize::from(slot))
            .map_or(NOWHERE, |place| place.load(Ordering::Acquire) as Place)
    }
}

#[derive(Clone)]
pub struct Map {
    cores: usize,
    regions: usize,
    places: Option<Arc<Places>>,
}

impl Map {
    /// The map of a memory node.
    pub fn new(cores: usize) -> Self {
        let regions = if cores == 1 {
            1
        } else {
            cores * REGIONS_PER_CORE
        };
        Map::of_regions(regions, cores)
    }

    /// The map of a durable node whose data is in `regions` regions.
    pub fn of_regions(regions: usize, cores: usize) -> Self {
        Map {
            cores,
            regions,
            places: None,
        }
    }

    /// The map of a cluster node.
    pub fn of_cluster(cores: usize, places: Arc<Places>) -> Self {
        Map {
            cores,
            regions: 0,
            places: Some(places),
        }
    }

    pub fn cores(&self) -> usize {
        self.cores
    }

    /// How many places there are; on a cluster node some may be empty.
    #[inline]
    pub fn regions(&self) -> usize {
        match &self.places {
            None => self.regions,
            Some(places) => places.count.load(Ordering::Acquire),
        }
    }

    #[inline]
    pub fn region_of(&self, key: &[u8]) -> Place {
        if self.regions == 1 {
            return 0;
        }
        self.region_of_slot(slot_of(key))
    }

    #[inline]
    pub fn region_of_slot(&self, slot: u16) -> Place {
        match &self.places {
            None => slot as usize * self.regions / SLOT_COUNT as usize,
            Some(places) => places.of_slot(slot),
        }
    }

    /// Whether a command always finds its keys in the one region there is.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.regions == 1
    }

    #[inline]
    pub fn core_of(&self, region: Place) -> CoreId {
        if self.cores == 1 {
            0
        } else if self.places.is_some() {
            region % self.cores
        } else if self.regions == self.cores * REGIONS_PER_CORE {
            region / REGIONS_PER_CORE
        } else if self.regions >= self.cores {
            // The core whose range, as `first_of` cuts it, has the region.
            ((region + 1) * self.cores - 1) / self.regions
        } else {
            region
        }
    }

    /// The first place of a core, and how far it is to its next.
    pub fn first_of(&self, core: CoreId) -> (Place, usize) {
        if self.places.is_some() {
            (core, self.cores)
        } else if self.regions >= self.cores {
            (core * self.regions / self.cores, 1)
        } else {
            (core.min(self.regions), 1)
        }
    }

    /// The places of one core; none, if there are fewer regions than cores and this is one of
    /// the last.
    pub fn regions_of(&self, core: CoreId) -> impl Iterator<Item = Place> + Clone + use<> {
        let (first, step) = self.first_of(core);
        let end = match self.places {
            Some(_) => self.regions(),
            None => self.first_of(core + 1).0,
        };
        (first..end).step_by(step)
    }

    /// The places that one step of SCAN goes through, given one of them: all of a core, whose
    /// cursors are counted together. On a cluster node each is a step of its own.
    pub fn scanned_with(&self, region: Place) -> std::ops::Range<Place> {
        if self.places.is_some() {
            return region..region + 1;
        }
        let owner = self.core_of(region.min(self.regions.saturating_sub(1)));
        self.first_of(owner).0..self.first_of(owner + 1).0
    }

    /// A region for a command that names no key: of this core, if it has one.
    pub fn any_of(&self, core: CoreId) -> Place {
        self.regions_of(core).next().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_an_owner() {
        let memory = [1, 2, 3, 4, 7, 64].map(Map::new);
        let durable = [(1, 1), (2, 2), (2, 1), (4, 3), (3, 7), (64, 5), (7, 64)];
        let durable = durable.map(|(regions, cores)| Map::of_regions(regions, cores));
        let places = Arc::new(Places::default());
        for (place, first) in (0..SLOT_COUNT).step_by(2048).enumerate() {
            places.set(first, first + 2047, place);
        }
        let cluster = [1, 2, 3].map(|cores| Map::of_cluster(cores, places.clone()));
        for map in memory.into_iter().chain(durable).chain(cluster) {
            let mut seen = vec![0usize; map.regions()];
            for i in 0..20_000 {
                let region = map.region_of(format!("key:{i}").as_bytes());
                let owner = map.core_of(region);
                assert!(map.regions_of(owner).any(|id| id == region));
                seen[region] += 1;
            }
            assert!(seen.iter().all(|&n| n > 0));
            let mut all: Vec<_> = (0..map.cores())
                .flat_map(|core| map.regions_of(core))
                .collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..map.regions()));
        }
    }

    #[test]
    fn a_slot_without_a_replica_is_nowhere() {
        let places = Arc::new(Places::default());
        let map = Map::of_cluster(2, places.clone());
        assert_eq!((map.regions(), map.region_of(b"a")), (0, NOWHERE));
        places.set(0, SLOT_COUNT - 1, 3);
        assert_eq!((map.regions(), map.region_of(b"a")), (4, 3));
        places.set(0, SLOT_COUNT - 1, NOWHERE);
        assert_eq!((map.regions(), map.region_of(b"a")), (4, NOWHERE));
    }
}

//! Which region a key belongs to, and which core owns a region.
//!
//! Regions are contiguous, equal ranges of slots, and a core owns neighbours. With one region no
//! slot is computed at all.
//!
//! - **memory**: sixteen regions per core (one, if there is one core), made anew at every start.
//! - **durable**: as many as there were cores when the data directory was made. Another number of
//!   cores later shares them out anew; a core without a region serves sessions only.
//!
//! **Invariant**: the map never changes while the server runs.

use base::slot::{SLOT_COUNT, slot_of};

/// Several regions per core, so that holding one for a multi-key command leaves the rest of the
/// core's keys free.
pub const REGIONS_PER_CORE: usize = 16;

pub type CoreId = usize;
/// A region's number, over all cores.
pub type RegionId = usize;

/// A node has at most this many: a core's regions are named by the bits of a mask.
pub const MOST_REGIONS: usize = 64;

#[derive(Debug, Clone, Copy)]
pub struct Map {
    cores: usize,
    regions: usize,
}

impl Map {
    /// The map of a memory node.
    pub fn new(cores: usize) -> Self {
        let regions = if cores == 1 {
            1
        } else {
            cores * REGIONS_PER_CORE
        };
        Map { cores, regions }
    }

    /// The map of a durable node whose data is in `regions` regions.
    pub fn of_regions(regions: usize, cores: usize) -> Self {
        Map { cores, regions }
    }

    pub fn cores(&self) -> usize {
        self.cores
    }

    pub fn regions(&self) -> usize {
        self.regions
    }

    #[inline]
    pub fn region_of(&self, key: &[u8]) -> RegionId {
        if self.regions == 1 {
            return 0;
        }
        slot_of(key) as usize * self.regions / SLOT_COUNT as usize
    }

    #[inline]
    pub fn core_of(&self, region: RegionId) -> CoreId {
        if self.cores == 1 {
            0
        } else if self.regions == self.cores * REGIONS_PER_CORE {
            region / REGIONS_PER_CORE
        } else if self.regions >= self.cores {
            // The core whose range, as `regions_of` cuts it, has the region.
            ((region + 1) * self.cores - 1) / self.regions
        } else {
            region
        }
    }

    /// The regions of one core; none, if there are fewer regions than cores and this is one of
    /// the last.
    pub fn regions_of(&self, core: CoreId) -> std::ops::Range<RegionId> {
        if self.regions >= self.cores {
            core * self.regions / self.cores..(core + 1) * self.regions / self.cores
        } else {
            core.min(self.regions)..(core + 1).min(self.regions)
        }
    }

    /// A region for a command that names no key: of this core, if it has one.
    pub fn any_of(&self, core: CoreId) -> RegionId {
        let own = self.regions_of(core);
        if own.is_empty() { 0 } else { own.start }
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
        for map in memory.into_iter().chain(durable) {
            let mut seen = vec![0usize; map.regions()];
            for i in 0..20_000 {
                let region = map.region_of(format!("key:{i}").as_bytes());
                assert!(map.regions_of(map.core_of(region)).contains(&region));
                seen[region] += 1;
            }
            assert!(seen.iter().all(|&n| n > 0));
            let all: Vec<_> = (0..map.cores())
                .flat_map(|core| map.regions_of(core))
                .collect();
            assert!(all.into_iter().eq(0..map.regions()));
        }
    }
}

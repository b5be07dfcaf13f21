//! Which region a key belongs to, and which core owns a region.
//!
//! Regions are contiguous, equal ranges of slots; region `r` of `n` belongs to core
//! `r / REGIONS_PER_CORE`. With one core there is one region and no slot is computed at all.
//!
//! **Invariant**: the map never changes while the server runs.

use base::slot::{SLOT_COUNT, slot_of};

/// Several regions per core, so that holding one for a multi-key command leaves the rest of the
/// core's keys free.
pub const REGIONS_PER_CORE: usize = 16;

pub type CoreId = usize;
/// A region's number, over all cores.
pub type RegionId = usize;

#[derive(Debug, Clone, Copy)]
pub struct Map {
    cores: usize,
    regions: usize,
}

impl Map {
    pub fn new(cores: usize) -> Self {
        let regions = if cores == 1 {
            1
        } else {
            cores * REGIONS_PER_CORE
        };
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
        } else {
            region / REGIONS_PER_CORE
        }
    }

    /// The regions of one core.
    pub fn regions_of(&self, core: CoreId) -> std::ops::Range<RegionId> {
        if self.cores == 1 {
            0..1
        } else {
            core * REGIONS_PER_CORE..(core + 1) * REGIONS_PER_CORE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_an_owner_and_every_core_has_slots() {
        for cores in [1, 2, 3, 4, 7, 64] {
            let map = Map::new(cores);
            let mut seen = vec![0usize; map.regions()];
            for i in 0..20_000 {
                let region = map.region_of(format!("key:{i}").as_bytes());
                assert!(map.regions_of(map.core_of(region)).contains(&region));
                seen[region] += 1;
            }
            assert!(seen.iter().all(|&n| n > 0));
        }
    }
}

//! How far each region of the node is: written by its core, read by the thread that cuts the log.
//!
//! By place. A place whose log id is zero has no region.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Place;

#[derive(Default)]
struct Region {
    log: AtomicU64,
    /// The last entry whose rows are in the store.
    applied: AtomicU64,
    /// The log may be cut before this entry: nobody needs what is there. Only of a region with
    /// peers; alone, what is applied is all there is to know.
    unneeded: AtomicU64,
}

pub struct Progress(Box<[Region]>);

impl Progress {
    /// Of a node with so many places.
    pub fn new(places: usize) -> Progress {
        Progress((0..places).map(|_| Region::default()).collect())
    }

    /// A region is at this place from now on; log id 0: none any more.
    pub fn set_region(&self, place: Place, log: u64, applied: u64) {
        if let Some(region) = self.0.get(place) {
            region.unneeded.store(0, Ordering::Release);
            region.applied.store(applied, Ordering::Release);
            region.log.store(log, Ordering::Release);
        }
    }

    pub fn note_applied(&self, place: Place, index: u64) {
        if let Some(region) = self.0.get(place) {
            region.applied.store(index, Ordering::Release);
        }
    }

    pub fn note_unneeded(&self, place: Place, index: u64) {
        if let Some(region) = self.0.get(place) {
            region.unneeded.store(index, Ordering::Release);
        }
    }

    pub fn unneeded(&self, place: Place) -> u64 {
        let region = self.0.get(place);
        region.map_or(0, |region| region.unneeded.load(Ordering::Acquire))
    }

    /// Place, log id and applied index of every region there is.
    pub fn regions(&self) -> impl Iterator<Item = (Place, u64, u64)> {
        self.0.iter().enumerate().filter_map(|(place, region)| {
            let log = region.log.load(Ordering::Acquire);
            (log != 0).then(|| (place, log, region.applied.load(Ordering::Acquire)))
        })
    }
}

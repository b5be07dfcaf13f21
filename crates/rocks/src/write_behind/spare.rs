//! Room of batches that are done, for batches to come: fresh memory of this size costs more than
//! what is written to it.

use std::sync::Arc;

use keyspace::rows::Changes;

use super::batch::Batch;

/// Rooms for fresh batches, and how large they may be.
const SMALL: usize = 16;
const SMALL_BYTES: usize = 2 << 20;

#[derive(Default)]
pub(super) struct Spare {
    pub small: Vec<Changes>,
    /// For runs.
    large: Vec<Changes>,
}

impl Spare {
    /// Keeps the room of batches that nobody reads any more; of large ones `most_bytes` in all.
    pub fn keep(&mut self, batches: Vec<Arc<Batch>>, most_bytes: usize) {
        for batch in batches.into_iter().filter_map(Arc::into_inner) {
            let room = batch.into_changes().into_room();
            let kept: usize = self.large.iter().map(Changes::capacity).sum();
            if room.capacity() <= SMALL_BYTES {
                if self.small.len() < SMALL {
                    self.small.push(room);
                }
            } else if kept + room.capacity() <= most_bytes {
                self.large.push(room);
            }
        }
    }

    /// The smallest large room that has so many bytes.
    pub fn take(&mut self, bytes: usize) -> Option<Changes> {
        let fits = self.large.iter().enumerate();
        let fits = fits.filter(|(_, room)| room.capacity() >= bytes);
        let (at, _) = fits.min_by_key(|(_, room)| room.capacity())?;
        Some(self.large.swap_remove(at))
    }
}

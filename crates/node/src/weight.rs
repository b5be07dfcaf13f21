//! How much the regions of a node hold, as was last reported of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::Region;

/// What all regions of a node weigh.
#[derive(Default)]
pub struct DataSet(AtomicI64);

impl DataSet {
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(0) as u64
    }

    fn add(&self, difference: i64) {
        self.0.fetch_add(difference, Ordering::Relaxed);
    }
}

/// What was reported of one region; nothing once that is gone.
#[derive(Default)]
pub struct Weight {
    data_set: Arc<DataSet>,
    bytes: u64,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.data_set.add(-(self.bytes as i64));
    }
}

impl Region {
    /// Reports what it weighs now. Whoever has the region may do so.
    pub fn tell_weight(&mut self, data_set: &Arc<DataSet>) {
        let bytes = self.space.data_bytes();
        if bytes == self.weight.bytes {
            return;
        }
        if !Arc::ptr_eq(data_set, &self.weight.data_set) {
            self.weight = Weight {
                data_set: data_set.clone(),
                bytes: 0,
            };
        }
        data_set.add(bytes as i64 - self.weight.bytes as i64);
        self.weight.bytes = bytes;
    }
}

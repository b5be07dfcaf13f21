//! The rows of one moment: those that waited then, and those that were below.

use std::sync::Arc;

use keyspace::rows::{Family, RowError, RowSource, Tier};

use super::batch::Batch;
use super::merge;

pub(super) struct Moment {
    pub batches: Vec<Arc<Batch>>,
    pub below: Arc<dyn RowSource>,
}

impl RowSource for Moment {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        merge::get(&self.batches, &*self.below, family, key, tier, found)
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
        tier: Tier,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), RowError> {
        merge::scan(
            &self.batches,
            &*self.below,
            family,
            (from, to),
            descending,
            tier,
            each,
        )
    }
}

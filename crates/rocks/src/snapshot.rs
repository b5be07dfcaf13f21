//! The rows of one moment, for saving.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use keyspace::rows::{Family, RowError, RowSource, Tier};
use rust_rocksdb::{DB, ReadOptions, ReadTier, Snapshot};

use crate::store::{self, Open};

/// Who asks for a moment walks over much of it, in order: a read of the disk for every block would be slow.
const AHEAD_BYTES: usize = 1 << 20;

/// While one lives, compactions drop no garbage (`filter.rs`).
///
/// Fields drop in this order: the snapshot is given back before the database may close.
pub(crate) struct Moment {
    snapshot: Option<Snapshot<'static>>,
    open: Arc<Open>,
}

impl Moment {
    pub fn new(open: Arc<Open>) -> Moment {
        open.garbage.held.fetch_add(1, Ordering::SeqCst);
        let db: *const DB = &raw const **open.db;
        // SAFETY: the database lives on the heap behind `open`, which this value owns as long as
        // the snapshot, and releases after it.
        let snapshot = unsafe { (*db).snapshot() };
        Moment {
            snapshot: Some(snapshot),
            open,
        }
    }

    fn reads(&self, tier: Tier) -> ReadOptions {
        let mut reads = ReadOptions::default();
        // Saving reads everything once: it must not push out what clients use.
        reads.fill_cache(false);
        reads.set_readahead_size(AHEAD_BYTES);
        if let Some(snapshot) = &self.snapshot {
            reads.set_snapshot(snapshot);
        }
        if tier == Tier::Cache {
            reads.set_read_tier(ReadTier::BlockCache);
        }
        reads
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.snapshot = None;
        self.open.garbage.held.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RowSource for Moment {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        store::get(&self.open.db, family, key, &self.reads(tier), found)
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
        let reads = self.reads(tier);
        store::scan(
            &self.open.db,
            family,
            from,
            to,
            descending,
            tier,
            reads,
            each,
        )
    }
}

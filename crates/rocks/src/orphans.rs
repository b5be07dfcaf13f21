//! Space of rows that belong to nobody: what is left of deleted collections is compacted away.
//!
//! DEL of a collection deletes one row, whatever its size; its elements stay until a compaction meets
//! them and the filter drops them. Compactions go where writes are, so without this module they might
//! stay for days:
//!
//! - a big collection that is gone has its own range compacted;
//! - of small ones only the number is known: all is compacted when they are a good part of it.
//!
//! The filter believes only what is flushed, so what is left is *fresh* until a checkpoint has come.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use keyspace::rows::{Changes, Family, Orphans};
use rust_rocksdb::{BottommostLevelCompaction, CompactOptions, properties};

use crate::Store;

/// All rows are compacted when this part of them is orphaned …
const PART: u64 = 4;
/// … but not for less than this.
const LEAST: u64 = 100_000;
/// Where element rows are.
const ELEMENTS: [Family; 2] = [Family::Data, Family::Score];

/// What deleted collections have left since the last time.
#[derive(Default)]
pub(crate) struct Left {
    fresh: Orphans,
    /// Behind a checkpoint: the filter drops these.
    flushed: Orphans,
}

impl Store {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what written changes left behind.
    pub(crate) fn note_orphans(&self, changes: &[&Changes]) {
        for changes in changes {
            let orphans = changes.orphans();
            if orphans.count > 0 || !orphans.big.is_empty() {
                self.left().fresh.append(&mut orphans.clone());
            }
        }
    }

    /// Before a flush: what it will make droppable.
    pub(crate) fn take_orphans(&self) -> Orphans {
        std::mem::take(&mut self.left().fresh)
    }

    /// After that flush.
    pub(crate) fn may_drop(&self, mut orphans: Orphans) {
        self.left().flushed.append(&mut orphans);
    }

    pub(crate) fn drop_orphans(&self, everything: bool) {
        if !everything && self.open.garbage.held.load(Ordering::SeqCst) > 0 {
            return; // nothing is dropped while a snapshot is held; the next time
        }
        let (big, many) = {
            let mut left = self.left();
            let big = std::mem::take(&mut left.flushed.big);
            let count = left.flushed.count;
            let many = everything || count >= LEAST.max(self.element_rows() / PART);
            if many {
                left.flushed.count = 0;
            }
            (big, many)
        };
        if everything {
            self.compact();
        } else if many {
            for family in ELEMENTS {
                self.compact_range(family, None, None);
            }
        } else {
            big.iter()
                .for_each(|metadata_key| self.reclaim(metadata_key));
        }
    }

    fn element_rows(&self) -> u64 {
        let db = &self.open.db;
        let rows = ELEMENTS.map(|family| {
            let rows = db.property_int_value_cf(&db.family(family), properties::ESTIMATE_NUM_KEYS);
            rows.ok().flatten().unwrap_or(0)
        });
        rows.iter().sum()
    }

    /// Compacts all rows now, dropping what filters may drop. Takes as long as it takes.
    pub fn compact(&self) {
        // The feed is never rewritten: its oldest files go as they are.
        for family in Family::ALL.into_iter().filter(|it| *it != Family::Feed) {
            self.compact_range(family, None, None);
        }
    }

    /// Gives back the space of a large key that was deleted: its elements are dropped if the
    /// deletion is behind a checkpoint. Blocking, not for cores.
    pub fn reclaim(&self, metadata_key: &[u8]) {
        let mut behind = metadata_key.to_vec();
        behind.extend_from_slice(&[0xff; 9]);
        for family in ELEMENTS {
            self.compact_range(family, Some(metadata_key), Some(&behind));
        }
    }

    pub(crate) fn compact_range(&self, family: Family, from: Option<&[u8]>, to: Option<&[u8]>) {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        options.set_exclusive_manual_compaction(false);
        let db = &self.open.db;
        db.compact_range_cf_opt(&db.family(family), from, to, &options);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keyspace::rows::{RowSource, RowStore, Tier};
    use keyspace::{Keyspace, Tuning, Txn, View};

    use super::*;
    use crate::StoreSettings;

    fn entry(space: &mut Keyspace, store: &Store, index: u64, run: impl FnOnce(&mut Txn<'_>)) {
        let tuning = Tuning::default();
        space.begin_entry(index);
        run(&mut Txn::new(View::one(space, 0, 1, 1, &tuning)));
        let mut changes = Changes::new();
        space.end_entry(1, &mut changes);
        store.write(&[&changes]).unwrap();
    }

    fn rows(store: &Store) -> usize {
        let mut rows = 0;
        let mut each = |_: &[u8], _: &[u8]| {
            rows += 1;
            true
        };
        store
            .scan(Family::Data, &[], &[0xff], false, Tier::All, &mut each)
            .unwrap();
        rows
    }

    fn fill(txn: &mut Txn<'_>, key: &str, fields: u32) {
        let mut hash = txn.hash_or_new(key.as_bytes()).unwrap();
        for n in 0..fields {
            hash.insert(&n.to_be_bytes(), b"value");
        }
    }

    #[test]
    fn what_deleted_collections_leave_is_dropped_behind_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), &StoreSettings::default()).unwrap();
        let source: Arc<dyn RowSource> = store.clone();
        let mut space = Keyspace::durable(1, 1, None, source).unwrap();
        store.start_compaction();
        store.set_alive(&space.alive());

        entry(&mut space, &store, 1, |txn| {
            fill(txn, "big", 5000);
            fill(txn, "overwritten", 5000);
            fill(txn, "stays", 10);
        });
        store.checkpoint().unwrap();
        entry(&mut space, &store, 2, |txn| {
            txn.remove(b"big");
            txn.put_string(b"overwritten", b"", keyspace::Expire::Clear);
        });
        store.tidy(false);
        assert_eq!(rows(&store), 10_010, "the deletion is not on disk yet");
        store.checkpoint().unwrap();
        store.tidy(false);
        assert_eq!(rows(&store), 10, "big ones go by name");

        let many = LEAST as u32 / 100;
        entry(&mut space, &store, 3, |txn| {
            (0..many).for_each(|n| fill(txn, &n.to_string(), 100));
        });
        entry(&mut space, &store, 4, |txn| {
            (1..many).for_each(|n| assert!(txn.remove(n.to_string().as_bytes())));
        });
        store.checkpoint().unwrap();
        store.tidy(false);
        assert!(rows(&store) > 1000, "not enough of them yet");
        entry(&mut space, &store, 5, |txn| assert!(txn.remove(b"0")));
        store.checkpoint().unwrap();
        store.tidy(false);
        assert_eq!(rows(&store), 10, "small ones go when they are many");
    }
}

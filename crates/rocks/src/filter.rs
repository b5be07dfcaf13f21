//! What compactions may drop: rows of databases that are gone, and elements of keys that are gone.
//!
//! `DEL` of a key with a million elements deletes one metadata row; `FLUSHDB` changes one number in
//! the region's state. What they leave behind is dropped here, when a compaction passes by.
//!
//! ```text
//!   row of (home, index id)      dropped if that pair is dead
//!   sub row of key, generation   dropped if the key's metadata row is absent, is a string, or is of a later generation
//! ```
//!
//! **The persisted tier.** "Absent" and "later" are asked of what is *flushed*, not of what is in
//! memtables. After a crash the memtables are gone and the log is applied again from the flushed
//! state: an entry before the `DEL` may read, or move, the very rows the `DEL` orphaned. They must
//! still be there. What the flushed state itself orphans, no replay can reach.
//!
//! The metadata row is read later than the sub row was flushed, and flushes are atomic over
//! families, as is a large write that comes as files (`files/`), so the metadata row seen is never older than the
//! sub row.
//!
//! **New pairs.** [`Alive`] is told now and then; databases get new index ids in between, and their
//! rows may be compacted before the next telling. Index ids of a home only ever grow, so an id
//! above all those told is new, not dead. A *home* must be told before its first row is written.
//!
//! **Regions that come and go.** A home nobody has told of is dead. One whose rows are being replaced
//! (`regions/install.rs`) is *guarded*: nothing of it is dropped, for its heads and elements arrive one
//! after the other, and with index ids that may be lower than those it had. A compaction that began
//! before has none of the new rows among its inputs.
//!
//! **Snapshots.** RocksDB does not protect a snapshot from filters. While one is held nothing is
//! dropped; the check comes after the decision, so that a snapshot taken in between is either seen
//! or newer than what the decision rests on.
//!
//! **Who is called when.** Compaction threads; one filter per compaction, used by one thread. No
//! lock on the way: the alive set is an atomic pointer read once per compaction. A filter holds the
//! database open for its compaction only, and [`crate::Store`] waits for compactions before it lets
//! go, so the last owner is never a compaction thread (which would wait for itself).

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use keyspace::rows::Family;
use keyspace::rows::layout::{self, Metadata, PREFIX_LEN};
use rust_rocksdb::compaction_filter::CompactionFilter;
use rust_rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rust_rocksdb::{CompactionDecision, ReadOptions, ReadTier};

use crate::db::Db;

/// The (home, index id) pairs that are in use, as prefixes, sorted.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    prefixes: Vec<[u8; PREFIX_LEN]>,
    /// Homes of which nothing is dropped, sorted.
    guarded: Vec<[u8; 8]>,
}

/// What becomes of the rows of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Dropped,
    /// Those whose key is gone are dropped.
    Sifted,
    Kept,
}

impl Alive {
    pub fn new(
        pairs: impl Iterator<Item = (u64, u64)>,
        guarded: impl Iterator<Item = u64>,
    ) -> Self {
        let mut prefixes: Vec<_> = pairs.map(|(home, id)| prefix(home, id)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut guarded: Vec<_> = guarded.map(|home| layout::i64_bytes(home as i64)).collect();
        guarded.sort_unstable();
        Alive { prefixes, guarded }
    }

    fn fate(&self, asked: &[u8; PREFIX_LEN]) -> Fate {
        match self.is_guarded(asked) {
            true => Fate::Kept,
            false if self.is_dead(asked) => Fate::Dropped,
            false => Fate::Sifted,
        }
    }

    fn is_guarded(&self, asked: &[u8; PREFIX_LEN]) -> bool {
        let home = asked.first_chunk::<8>();
        home.is_some_and(|home| self.guarded.binary_search(home).is_ok())
    }

    pub fn is_dead(&self, asked: &[u8; PREFIX_LEN]) -> bool {
        match self.prefixes.binary_search(asked) {
            Ok(_) => false,
            // Dead if the home has a later id, or is not told of at all.
            Err(place) => {
                let same_home =
                    |other: Option<&[u8; PREFIX_LEN]>| other.is_some_and(|p| p[..8] == asked[..8]);
                let later = same_home(self.prefixes.get(place));
                let earlier = place
                    .checked_sub(1)
                    .is_some_and(|before| same_home(self.prefixes.get(before)));
                later || !earlier
            }
        }
    }

    /// Pairs of `before` that are dead now.
    pub fn gone_since<'a>(
        &'a self,
        before: &'a Alive,
    ) -> impl Iterator<Item = &'a [u8; PREFIX_LEN]> {
        let gone = |prefix: &&[u8; PREFIX_LEN]| self.fate(prefix) == Fate::Dropped;
        before.prefixes.iter().filter(gone)
    }
}

fn prefix(home: u64, index_id: u64) -> [u8; PREFIX_LEN] {
    let mut bytes = [0; PREFIX_LEN];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&layout::i64_bytes(home as i64));
    second.copy_from_slice(&layout::i64_bytes(index_id as i64));
    bytes
}

/// What all filters of a store share.
#[derive(Default)]
pub(crate) struct Garbage {
    /// `None` until told: nothing is dropped.
    pub alive: ArcSwapOption<Alive>,
    /// Snapshots held.
    pub held: AtomicUsize,
    /// Set once the database is open; compactions before that drop nothing.
    pub db: OnceLock<Weak<Db>>,
}

pub(crate) struct GarbageFactory {
    garbage: Arc<Garbage>,
    family: Family,
}

impl GarbageFactory {
    pub fn new(garbage: &Arc<Garbage>, family: Family) -> Self {
        GarbageFactory {
            garbage: garbage.clone(),
            family,
        }
    }
}

impl CompactionFilterFactory for GarbageFactory {
    type Filter = GarbageFilter;

    fn create(&mut self, _context: CompactionFilterContext) -> GarbageFilter {
        let mut reads = ReadOptions::default();
        reads.set_read_tier(ReadTier::Persisted);
        reads.fill_cache(false);
        GarbageFilter {
            alive: self.garbage.alive.load_full(),
            db: self.garbage.db.get().and_then(Weak::upgrade),
            garbage: self.garbage.clone(),
            has_owner: matches!(self.family, Family::Data | Family::Score),
            reads,
            prefix: [0; PREFIX_LEN],
            fate: None,
            owner_key: Vec::new(),
            owner: Owner::Unknown,
        }
    }

    fn name(&self) -> &CStr {
        c"neokv.garbage"
    }
}

/// What the flushed state says about the key a sub row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// No key, or a string: it has no elements.
    Nothing,
    Collection(u64),
    /// Could not be read: keep.
    Unknown,
}

pub(crate) struct GarbageFilter {
    garbage: Arc<Garbage>,
    alive: Option<Arc<Alive>>,
    db: Option<Arc<Db>>,
    /// Whether rows are parts of a key that has a metadata row.
    has_owner: bool,
    reads: ReadOptions,
    /// Rows of a database, and of a key, lie side by side: the last answers are remembered.
    prefix: [u8; PREFIX_LEN],
    fate: Option<Fate>,
    owner_key: Vec<u8>,
    owner: Owner,
}

impl CompactionFilter for GarbageFilter {
    fn filter(&mut self, _level: u32, key: &[u8], _value: &[u8]) -> CompactionDecision {
        if self.is_garbage(key) && self.garbage.held.load(Ordering::SeqCst) == 0 {
            CompactionDecision::Remove
        } else {
            CompactionDecision::Keep
        }
    }

    fn name(&self) -> &CStr {
        c"neokv.garbage"
    }
}

impl GarbageFilter {
    fn is_garbage(&mut self, key: &[u8]) -> bool {
        let Some(alive) = &self.alive else {
            return false;
        };
        let Some(prefix) = key.first_chunk::<PREFIX_LEN>() else {
            return false;
        };
        let fate = match self.fate {
            Some(fate) if self.prefix == *prefix => fate,
            _ => alive.fate(prefix),
        };
        (self.prefix, self.fate) = (*prefix, Some(fate));
        match fate {
            Fate::Dropped => true,
            Fate::Sifted => self.has_owner && self.is_orphan(key),
            Fate::Kept => false,
        }
    }

    fn is_orphan(&mut self, key: &[u8]) -> bool {
        let Some((owner_key, generation, _)) = layout::split_sub_key(key) else {
            return false;
        };
        if self.owner_key != owner_key {
            self.owner_key.clear();
            self.owner_key.extend_from_slice(owner_key);
            self.owner = self.look_up(owner_key);
        }
        match self.owner {
            Owner::Nothing => true,
            Owner::Collection(now) => generation < now,
            Owner::Unknown => false,
        }
    }

    fn look_up(&self, owner_key: &[u8]) -> Owner {
        let Some(db) = &self.db else {
            return Owner::Unknown;
        };
        match db.get_pinned_cf_opt(&db.family(Family::Metadata), owner_key, &self.reads) {
            Ok(None) => Owner::Nothing,
            Ok(Some(value)) => match Metadata::parse(&value) {
                Some(metadata) => metadata
                    .generation()
                    .map_or(Owner::Nothing, Owner::Collection),
                None => Owner::Unknown,
            },
            Err(_) => Owner::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_above_those_told_are_new_and_unknown_homes_dead() {
        let told = |pairs: &[(u64, u64)], guarded: Option<u64>| {
            Alive::new(pairs.iter().copied(), guarded.into_iter())
        };
        let alive = told(&[(1, 2), (1, 17), (3, 1)], None);
        let dead = |home, id| alive.is_dead(&prefix(home, id));
        assert!(!dead(1, 2) && !dead(1, 17) && !dead(3, 1));
        assert!(dead(1, 1) && dead(1, 16), "flushed databases");
        assert!(!dead(1, 18) && !dead(3, 2), "made since");
        assert!(
            dead(2, 1) && dead(0, 9) && dead(4, 1),
            "no such region here"
        );
        let later = told(&[(1, 18), (1, 17)], None);
        let gone: Vec<_> = later.gone_since(&alive).copied().collect();
        assert_eq!(gone, [prefix(1, 2), prefix(3, 1)]);
        let later = told(&[(1, 18), (1, 17)], Some(1));
        let gone: Vec<_> = later.gone_since(&alive).copied().collect();
        assert_eq!(gone, [prefix(3, 1)], "guarded");
        assert_eq!(later.fate(&prefix(1, 1)), Fate::Kept);
    }
}

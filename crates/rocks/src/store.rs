//! The rows of all regions of a node, in one RocksDB.
//!
//! Who calls what: cores `write` (one batch per applied entry) and `get`/`scan` with
//! [`Tier::Cache`]; reader threads the same with [`Tier::All`]; one housekeeping thread
//! `checkpoint`, `set_alive` and the statistics. Nothing here blocks a core: a write that RocksDB
//! would delay is [`WriteError::Busy`].

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::cluster::{RegionId, Segment};
use keyspace::rows::layout;
use keyspace::rows::{
    Changes, Family, Installing, Manifest, Pace, Redone, RegionError, RowError, RowSource,
    RowStore, State, StoreStats, Tier, WriteError,
};
use rust_rocksdb::{
    Cache, Error, ErrorKind, FlushOptions, Range, ReadOptions, ReadTier, SizeApproximationFlags,
    WriteBatch, WriteOptions,
};

use crate::background::{Listener, Work};
use crate::db::Db;
use crate::families;
use crate::files;
use crate::filter::Garbage;
use crate::order::for_each_in_order;
use crate::orphans::Left;
use crate::regions;
use crate::snapshot::Moment;
use crate::told::Told;
use crate::{OpenError, StoreSettings};

/// Families whose rows begin with home and index id.
pub(crate) const ROWS: [Family; 5] = [
    Family::Metadata,
    Family::Data,
    Family::Score,
    Family::Expiry,
    Family::Tables,
];

thread_local! {
    static BATCH: RefCell<WriteBatch> = RefCell::new(WriteBatch::default());
}

/// The store of a node.
pub struct Store {
    pub(crate) open: Arc<Open>,
    pub(crate) settings: StoreSettings,
    pub(crate) cache: Cache,
    cached_reads: ReadOptions,
    all_reads: ReadOptions,
    writes: WriteOptions,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) work: Arc<Work>,
    /// What is alive; one at a time tells.
    telling: Mutex<Told>,
    pub(crate) left: Mutex<Left>,
    /// Held while a write becomes files: one at a time, their names are those of the families.
    pub(crate) coming_in: Mutex<()>,
}

/// The open database; closed when the store and all its snapshots are gone.
pub(crate) struct Open {
    pub db: Arc<Db>,
    pub garbage: Arc<Garbage>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Filters of running compactions own the database too. After this none is running, so
        // ours is the last owner, and it is not a compaction thread that closes.
        self.db.cancel_all_background_work(true);
    }
}

impl Store {
    /// Opens the rows in `path` ([`crate::DataDir::rows`]) at their last checkpoint or flush.
    pub fn open(path: &Path, settings: &StoreSettings) -> Result<Arc<Store>, OpenError> {
        refuse_holes(path)?;
        files::remove_leftovers(path)?;
        let cache = Cache::new_hyper_clock_cache(settings.block_cache_bytes, 0);
        let garbage = Arc::new(Garbage::default());
        let work = Arc::new(Work::default());
        let mut options = families::database(settings);
        options.add_event_listener(Listener(work.clone()));
        let families = families::descriptors(settings, &cache, &garbage);
        let opened = Db::open(&options, path, families);
        let db = opened.map_err(|error| refused(path, &error))?;
        let db = Arc::new(db);
        // Set once, here: nobody else has this `garbage` yet.
        let _ = garbage.db.set(Arc::downgrade(&db));

        let mut cached_reads = ReadOptions::default();
        cached_reads.set_read_tier(ReadTier::BlockCache);
        let mut writes = WriteOptions::default();
        writes.disable_wal(true);
        writes.set_no_slowdown(true);
        let store = Store {
            open: Arc::new(Open { db, garbage }),
            settings: settings.clone(),
            cache,
            cached_reads,
            all_reads: ReadOptions::default(),
            writes,
            written_bytes: AtomicU64::new(0),
            work,
            telling: Mutex::default(),
            left: Mutex::default(),
            coming_in: Mutex::default(),
        };
        store.make_tiers_differ(path)?;
        Ok(Arc::new(store))
    }

    /// The persisted tier skips memtables only once something was written without a write-ahead
    /// log; so this is done before a filter can ask.
    fn make_tiers_differ(&self, path: &Path) -> Result<(), OpenError> {
        let mut batch = WriteBatch::default();
        batch.delete_cf(&self.open.db.family(Family::Info), []);
        self.open
            .db
            .write_opt(&batch, &self.writes)
            .map_err(|error| refused(path, &error))
    }

    /// Size at which a memtable is flushed.
    pub fn memtable_bytes(&self) -> usize {
        self.settings.memtable_bytes
    }

    /// Sum of a numeric RocksDB property over all families.
    fn property(&self, name: &str) -> u64 {
        let db = &self.open.db;
        db.all_families()
            .iter()
            .filter_map(|family| db.property_int_value_cf(family, name).ok().flatten())
            .sum()
    }

    pub(crate) fn telling(&self) -> MutexGuard<'_, Told> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Filters go by what is told now; files that hold nothing but rows of dead databases go at once.
    pub(crate) fn publish(&self, told: &Told) {
        let garbage = &self.open.garbage;
        let Some(now) = told.alive() else {
            return; // nobody has told yet: nothing is dropped
        };
        let now = Arc::new(now);
        let before = garbage.alive.swap(Some(now.clone()));
        if let Some(before) = before {
            for prefix in now.gone_since(&before) {
                let behind = layout::behind(prefix);
                for family in ROWS {
                    self.drop_files(told, family, prefix, &behind);
                }
            }
        }
    }

    /// Files of which every row is in a range go at once, unless a snapshot is held: it would lose them,
    /// and none can be taken while `_told` is locked.
    pub(crate) fn drop_files(&self, _told: &Told, family: Family, from: &[u8], to: &[u8]) {
        if self.open.garbage.held.load(Ordering::SeqCst) == 0 {
            let db = &self.open.db;
            // Best effort: what stays is left to the filter.
            let _ = db.delete_file_in_range_cf(&db.family(family), from, to);
        }
    }

    fn write_to_memtables(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        let db = &self.open.db;
        BATCH.with_borrow_mut(|batch| {
            batch.clear();
            for_each_in_order(changes, |change| {
                let family = db.family(change.family);
                match change.value {
                    Some(value) => batch.put_cf(&family, change.key, value),
                    None => batch.delete_cf(&family, change.key),
                }
            });
            let size = batch.size_in_bytes();
            let written = db.write_opt(batch, &self.writes);
            // Room for what fills a memtable is used again: to have it zeroed each time is dear.
            if size > self.settings.memtable_bytes * 3 / 2 {
                *batch = WriteBatch::default();
            }
            match written {
                Ok(()) => {
                    self.written_bytes.fetch_add(size as u64, Ordering::Relaxed);
                    self.work.lacks_room.store(false, Ordering::Relaxed);
                    self.note_orphans(changes);
                    Ok(())
                }
                // What `no_slowdown` says instead of waiting.
                Err(error) if error.kind() == ErrorKind::Incomplete => Err(self.busy()),
                Err(error) if is_no_room(&error) => {
                    self.work.lacks_room.store(true, Ordering::Relaxed);
                    Err(WriteError::Busy)
                }
                Err(error) => Err(WriteError::Failed(error.into_string())),
            }
        })
    }

    /// RocksDB would make a writer wait: is it behind with its work, or unable to do it at all (a full disk)?
    pub(crate) fn busy(&self) -> WriteError {
        let is_so = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if is_so(&self.work.lacks_room) {
            return WriteError::Busy;
        }
        match is_so(&self.work.cannot_flush) || is_so(&self.work.cannot_compact) {
            true => WriteError::Failed("the store cannot flush to disk; is the disk full?".into()),
            false => WriteError::Busy,
        }
    }

    /// Whether a flush would have anything to do.
    pub(crate) fn has_rows_in_memory(&self) -> bool {
        let of_memtables = [
            "rocksdb.num-entries-active-mem-table",
            "rocksdb.num-entries-imm-mem-tables",
        ];
        of_memtables.iter().any(|name| self.property(name) > 0)
    }

    fn set_auto_compaction(&self, is_on: bool) {
        let value = match is_on {
            true => "false",
            false => "true",
        };
        let db = &self.open.db;
        for family in Family::ALL {
            // It can fail only for a name or value RocksDB does not know; a test sees it work.
            let _ = db.set_options_cf(&db.family(family), &[("disable_auto_compactions", value)]);
        }
    }

    /// Returns when everything written before is on disk.
    pub(crate) fn flush(&self) -> Result<(), RowError> {
        if self.work.is_damaged.load(Ordering::Relaxed) {
            self.set_auto_compaction(false);
        }
        let mut options = FlushOptions::default();
        options.set_wait(true);
        let db = &self.open.db;
        let families = db.all_families();
        let families: Vec<_> = families.iter().collect();
        db.flush_cfs_opt(&families, &options).map_err(row_error)
    }
}

impl RowSource for Store {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        let reads = match tier {
            Tier::Cache => &self.cached_reads,
            Tier::All => &self.all_reads,
        };
        get(&self.open.db, family, key, reads, found)
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
        let reads = ReadOptions::default();
        scan(
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

    fn moment(&self) -> Option<Arc<dyn RowSource>> {
        Some(self.snapshot())
    }
}

impl RowStore for Store {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        let bytes: usize = changes.iter().map(|part| part.size_bytes()).sum();
        match bytes >= self.settings.direct_bytes {
            true => files::write(self, changes),
            false => self.write_to_memtables(changes),
        }
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        self.telling().checkpoint_begins();
        let left = self.take_orphans();
        self.flush()?;
        self.may_drop(left);
        Ok(())
    }

    fn keep(&self) -> Result<(), RowError> {
        self.flush()
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        // Files are dropped under this lock only when no snapshot is held; and the count is raised
        // before the snapshot is taken, as `filter.rs` needs it.
        let _telling = self.telling();
        Arc::new(Moment::new(self.open.clone()))
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        let mut told = self.telling();
        told.replace(alive);
        self.publish(&told);
    }

    fn start_compaction(&self) {
        self.set_auto_compaction(true);
    }

    fn tidy(&self, everything: bool) {
        self.drop_orphans(everything);
    }

    fn stop_tidying(&self) {
        self.open.db.disable_manual_compaction();
    }

    fn lacks_room(&self) -> bool {
        self.work.lacks_room.load(Ordering::Relaxed)
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            disk_bytes: self.property("rocksdb.total-sst-files-size"),
            waiting_bytes: 0,
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            flushed_bytes: self.work.flushed_bytes.load(Ordering::Relaxed),
            compacted_bytes: self.work.compacted_bytes.load(Ordering::Relaxed),
            block_cache_bytes: self.cache.get_usage() as u64,
            memtable_bytes: self.property("rocksdb.cur-size-all-mem-tables"),
        }
    }

    fn sizes(&self, homes: &[u64]) -> Vec<u64> {
        let bound = |home: u64| layout::i64_bytes(home as i64);
        let bounds: Vec<_> = homes
            .iter()
            .map(|&home| (bound(home), bound(home.wrapping_add(1))))
            .collect();
        let ranges: Vec<_> = bounds
            .iter()
            .map(|(from, to)| Range::new(from, to))
            .collect();
        let mut sums = vec![0; homes.len()];
        let all = SizeApproximationFlags::INCLUDE_FILES | SizeApproximationFlags::INCLUDE_MEMTABLE;
        for family in ROWS {
            let (db, of) = (&self.open.db, self.open.db.family(family));
            // Figures for the reader: without them it is as if there were no rows.
            let sizes = db.get_approximate_sizes_cf_with_flags(&of, all, &ranges);
            for (sum, size) in sums.iter_mut().zip(sizes.unwrap_or_default()) {
                *sum += size;
            }
        }
        sums
    }

    fn create_regions(&self, regions: &[(RegionId, State)]) -> Result<(), RegionError> {
        regions::create(self, regions)
    }

    fn export(
        &self,
        moment: &dyn RowSource,
        region: RegionId,
        segments: &[Segment],
        dir: &Path,
        pace: &mut Pace<'_>,
    ) -> Result<Manifest, RegionError> {
        regions::export(self, moment, region, segments, dir, pace)
    }

    fn verify(&self, manifest: &Manifest, dir: &Path) -> Result<(), RegionError> {
        regions::verify(manifest, dir)
    }

    fn install(
        &self,
        region: RegionId,
        segments: &[Segment],
        manifest: &Manifest,
        dir: &Path,
    ) -> Result<(), RegionError> {
        regions::install(self, region, segments, manifest, dir)
    }

    fn unfinished_installs(&self) -> Result<Vec<Installing>, RegionError> {
        regions::unfinished(self)
    }

    fn redo_install(&self, installing: &Installing) -> Result<Redone, RegionError> {
        regions::redo(self, installing)
    }

    fn remove_region(&self, region: RegionId, segments: &[Segment]) -> Result<(), RegionError> {
        regions::remove(self, region, segments)
    }
}

pub(crate) fn get(
    db: &Db,
    family: Family,
    key: &[u8],
    reads: &ReadOptions,
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool, RowError> {
    match db.get_pinned_cf_opt(&db.family(family), key, reads) {
        Ok(None) => Ok(false),
        Ok(Some(value)) => {
            found(&value);
            Ok(true)
        }
        Err(error) => Err(row_error(error)),
    }
}

/// `reads` comes with the snapshot, if any. Seeks are in total order: a range may span databases,
/// and the prefix bloom (home, index id) would hardly ever rule a file out that the partitioner has
/// not already.
#[allow(clippy::too_many_arguments)]
pub(crate) fn scan(
    db: &Db,
    family: Family,
    from: &[u8],
    to: &[u8],
    descending: bool,
    tier: Tier,
    mut reads: ReadOptions,
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), RowError> {
    if from >= to {
        return Ok(());
    }
    reads.set_total_order_seek(true);
    reads.set_iterate_lower_bound(from);
    reads.set_iterate_upper_bound(to);
    if tier == Tier::Cache {
        reads.set_read_tier(ReadTier::BlockCache);
    }
    let mut rows = db.raw_iterator_cf_opt(&db.family(family), reads);
    if descending {
        rows.seek_to_last();
    } else {
        rows.seek_to_first();
    }
    while let Some((key, value)) = rows.item() {
        if !each(key, value) {
            return Ok(());
        }
        if descending {
            rows.prev();
        } else {
            rows.next();
        }
    }
    rows.status().map_err(row_error)
}

/// The disk is full: the same may be tried again.
pub(crate) fn is_no_room(error: &Error) -> bool {
    lacks_room(error.as_ref())
}

/// By the text, which is that of the system: RocksDB's own code for it does not get here.
pub(crate) fn lacks_room(text: &str) -> bool {
    text.contains("No space left on device") || text.contains("Disk quota exceeded")
}

fn row_error(error: Error) -> RowError {
    match error.kind() {
        ErrorKind::Incomplete => RowError::Cold,
        _ => RowError::Failed(error.into_string()),
    }
}

/// Files of a database without the one that names them would be taken for an empty directory. Without
/// any rows they are what a power cut in the middle of making it leaves: CURRENT is synced before the
/// first file of rows is written, and a node writes one before it serves anybody.
fn refuse_holes(path: &Path) -> Result<(), OpenError> {
    if path.join("CURRENT").exists() {
        return Ok(());
    }
    let Ok(files) = std::fs::read_dir(path) else {
        return Ok(());
    };
    for file in files.flatten() {
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sst") {
            return Err(OpenError::damaged(path, "its file CURRENT is missing"));
        }
    }
    Ok(())
}

fn refused(path: &Path, error: &Error) -> OpenError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::NotFound => OpenError::damaged(path, text),
        ErrorKind::IOError if text.contains("lock") => OpenError::InUse(path.into()),
        ErrorKind::IOError if text.contains("No such file") => OpenError::damaged(path, text),
        _ => OpenError::failed(path, text),
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

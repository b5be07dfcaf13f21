//! What a durable keyspace asks of the store below it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::cluster::{RegionId, Segment};

use super::{Changes, Installing, Manifest, State};

/// The column families rows are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// One row per key: strings whole, of collections the head (`redis_metadata`).
    Metadata,
    /// Fields, members, list elements (`data`).
    Data,
    /// Members of sorted sets in the order of their scores (`redis_zset_score`).
    Score,
    /// Keys in the order of their deadlines (`redis_expiry`).
    Expiry,
    /// State of regions: applied index, databases, counts (`metainfo`).
    Info,
    /// What was done, entry by entry; the oldest goes (`bin_log`).
    Feed,
    /// Rows of SQL tables, their schemas and what else belongs to them (`table_rows`).
    Tables,
}

impl Family {
    pub const ALL: [Family; 7] = [
        Family::Metadata,
        Family::Data,
        Family::Score,
        Family::Expiry,
        Family::Info,
        Family::Feed,
        Family::Tables,
    ];

    /// The name of its column family.
    pub fn name(self) -> &'static str {
        match self {
            Family::Metadata => "redis_metadata",
            Family::Data => "data",
            Family::Score => "redis_zset_score",
            Family::Expiry => "redis_expiry",
            Family::Info => "metainfo",
            Family::Feed => "bin_log",
            Family::Tables => "table_rows",
        }
    }
}

/// How far a read may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Memory only; what may be on disk is [`RowError::Cold`].
    Cache,
    All,
}

/// Why rows could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowError {
    /// Not in memory, and [`Tier::Cache`] was asked for.
    Cold,
    /// The store is broken: the region stops (DESIGN §13).
    Failed(String),
}

/// Why rows could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The store is behind with its flushes; nothing was written, try again soon.
    Busy,
    Failed(String),
}

/// Why something about a whole region was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegionError {
    /// The caller no longer wanted it.
    Cancelled,
    /// The files, or what was asked, are not right. Nothing was changed.
    Refused(String),
    /// The store or the disk is broken.
    Failed(String),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Cancelled => f.write_str("cancelled"),
            RegionError::Refused(what) => write!(f, "refused: {what}"),
            RegionError::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

impl std::error::Error for RegionError {}

impl From<RowError> for RegionError {
    fn from(error: RowError) -> Self {
        RegionError::Failed(match error {
            RowError::Cold => "a row is not in memory".into(),
            RowError::Failed(what) => what,
        })
    }
}

/// What became of an install that was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redone {
    /// The region is as its manifest says.
    Installed,
    /// Its files are not there or not whole, for this reason: the region has nothing but its descriptor,
    /// its applied index is 0, and another snapshot is needed.
    WantsSnapshot(String),
}

/// Told how many bytes were worked on since the last time; may wait (that is how work is slowed down);
/// false: no more.
pub type Pace<'a> = dyn FnMut(u64) -> bool + 'a;

/// Bytes between two calls of a [`Pace`].
const PACE_BYTES: u64 = 64 << 10;

/// Counts bytes and tells a [`Pace`] now and then.
pub struct Gauge<'a, 'p> {
    pace: &'a mut Pace<'p>,
    bytes: u64,
}

impl<'a, 'p> Gauge<'a, 'p> {
    pub fn new(pace: &'a mut Pace<'p>) -> Self {
        Gauge { pace, bytes: 0 }
    }

    /// Whether to go on.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes as u64;
        self.bytes < PACE_BYTES || (self.pace)(std::mem::take(&mut self.bytes))
    }
}

/// Rows that can be read: the store, or one moment of it.
pub trait RowSource: Send + Sync {
    /// Calls `found` with the value of a row; whether there is one.
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError>;

    /// Calls `each` with the rows `from <= key < to`, ascending or descending, until it says false.
    #[allow(clippy::too_many_arguments)]
    fn scan(
        &self,
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
        tier: Tier,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), RowError>;

    /// The rows of this moment, as long as it is held; `None` if this is one.
    fn moment(&self) -> Option<Arc<dyn RowSource>> {
        None
    }
}

/// Figures of a store, for `INFO` and the benchmarks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    pub disk_bytes: u64,
    /// Bytes of rows on their way to it.
    pub waiting_bytes: u64,
    /// Bytes given to [`RowStore::write`].
    pub written_bytes: u64,
    /// Bytes written to files: of rows as they came, and by compactions.
    pub flushed_bytes: u64,
    pub compacted_bytes: u64,
    pub block_cache_bytes: u64,
    pub memtable_bytes: u64,
}

/// The store of a node: all regions' rows.
pub trait RowStore: RowSource {
    /// Writes all of it or nothing. Durable only after [`RowStore::checkpoint`]; the log is what
    /// keeps it until then.
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError>;

    /// Returns when everything written before is on disk. Slow: never called on a core.
    fn checkpoint(&self) -> Result<(), RowError>;

    /// As [`RowStore::checkpoint`], for those who want their own rows on disk and say nothing of which
    /// regions are alive.
    fn keep(&self) -> Result<(), RowError> {
        self.checkpoint()
    }

    /// The rows of this moment, as long as it is held.
    fn snapshot(&self) -> Arc<dyn RowSource>;

    /// Which (home, index id) are alive; rows of others are dropped when the store tidies up. To
    /// be told only what is already on disk. Ids of a home above all those told are new, not dead;
    /// a home must be told before its first row is written. Regions that were made, replaced or removed
    /// since the checkpoint before the last are known better here than to the caller, who may have asked
    /// before that: of these nothing is taken over.
    fn set_alive(&self, alive: &[(u64, u64)]);

    /// The regions are known: tidying up may begin (before, filters would run blind).
    fn start_compaction(&self);

    /// Gives back the space of [`super::Orphans`] that were left before the last checkpoint: that of
    /// big collections, and of all if they are many; `everything`: whatever there is to give back.
    /// Takes long: never called on a core.
    fn tidy(&self, everything: bool);

    /// Ends [`RowStore::tidy`] soon, for good.
    fn stop_tidying(&self);

    /// Whether rows are not taken because the disk is full. It passes; meanwhile a write is [`WriteError::Busy`].
    fn lacks_room(&self) -> bool {
        false
    }

    fn stats(&self) -> StoreStats;

    /// Roughly how many bytes the rows of each of these homes take, on disk and waiting for it. Not for
    /// cores.
    fn sizes(&self, homes: &[u64]) -> Vec<u64> {
        vec![0; homes.len()]
    }

    /// Makes regions that have nothing but their states, durably; one that is there stays as it is.
    /// Nothing below is for cores: all of it waits for disks.
    fn create_regions(&self, _regions: &[(RegionId, State)]) -> Result<(), RegionError> {
        Err(unable())
    }

    /// Writes what can be reached of a region at a moment to files in `dir`, which is made. Nobody is
    /// held up by it. A `dir` that was there is emptied first; if this fails, or `pace` says so, it is
    /// removed.
    fn export(
        &self,
        _moment: &dyn RowSource,
        _region: RegionId,
        _segments: &[Segment],
        _dir: &Path,
        _pace: &mut Pace<'_>,
    ) -> Result<Manifest, RegionError> {
        Err(unable())
    }

    /// Whether `dir` has all the files of a manifest, byte for byte.
    fn verify(&self, _manifest: &Manifest, _dir: &Path) -> Result<(), RegionError> {
        Err(unable())
    }

    /// Replaces all rows of a region by those in `dir`, durably. Nothing of the region may be written
    /// while this runs, nor may a keyspace be open on it; other regions go on. What fails for the files
    /// is [`RegionError::Refused`], before anything has changed. The files stay.
    fn install(
        &self,
        _region: RegionId,
        _segments: &[Segment],
        _manifest: &Manifest,
        _dir: &Path,
    ) -> Result<(), RegionError> {
        Err(unable())
    }

    /// Installs that a crash has interrupted. Each is to be given to [`RowStore::redo_install`] before
    /// the region is opened.
    fn unfinished_installs(&self) -> Result<Vec<Installing>, RegionError> {
        Ok(Vec::new())
    }

    /// Ends an interrupted install, one way or the other.
    fn redo_install(&self, _installing: &Installing) -> Result<Redone, RegionError> {
        Err(unable())
    }

    /// Removes a region and all its rows, durably; nothing if it is not there. Nothing of it may be
    /// written while this runs.
    fn remove_region(&self, _region: RegionId, _segments: &[Segment]) -> Result<(), RegionError> {
        Err(unable())
    }
}

fn unable() -> RegionError {
    RegionError::Failed("this store has no files".into())
}

//! What a durable keyspace asks of the store below it.

use std::sync::Arc;

use super::Changes;

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
}

impl Family {
    pub const ALL: [Family; 6] = [
        Family::Metadata,
        Family::Data,
        Family::Score,
        Family::Expiry,
        Family::Info,
        Family::Feed,
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
    /// Bytes given to [`RowStore::write`].
    pub written_bytes: u64,
    /// Bytes written to files by flushes and compactions.
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

    /// The rows of this moment, as long as it is held.
    fn snapshot(&self) -> Arc<dyn RowSource>;

    /// Which (home, index id) are alive; rows of others are dropped when the store tidies up. To
    /// be told only what is already on disk. Ids of a home above all those told are new, not dead;
    /// a home must be told before its first row is written.
    fn set_alive(&self, alive: &[(u64, u64)]);

    /// The regions are known: tidying up may begin (before, filters would run blind).
    fn start_compaction(&self);

    /// Gives back the space of [`super::Orphans`] that were left before the last checkpoint: that of
    /// big collections, and of all if they are many; `everything`: whatever there is to give back.
    /// Takes long: never called on a core.
    fn tidy(&self, everything: bool);

    /// Ends [`RowStore::tidy`] soon, for good.
    fn stop_tidying(&self);

    fn stats(&self) -> StoreStats;
}

//! What a replica asks of the store of its log. One store keeps the logs of all regions of a node.

use raft::eraftpb::{Entry, HardState};

/// What must be on disk before anything that follows from it is said. Made by one region.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogWrite {
    pub region: u64,
    /// Which replica of the region: one that was destroyed and made again is another, with numbers of its own.
    pub replica: u64,
    /// Given back to the replica when this, and all before it, is on disk.
    pub number: u64,
    /// First of all: forget the whole log. It begins anew behind this index, where a snapshot was
    /// installed. In one with the rest, and on disk like it.
    pub reset: Option<u64>,
    /// Appended; entries already there from the first of these indices on are replaced.
    pub entries: Vec<Entry>,
    pub hard_state: Option<HardState>,
}

/// A log that cannot be trusted any more: the regions concerned stop (DESIGN §13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogError {
    /// Read back, it is not what was written.
    Corrupt(String),
    /// The disk refused; after a failed write or sync nothing is known about what is on disk.
    Failed(String),
    /// There is no room on the disk: nothing was written, and what was written before is as it was. The same may be tried
    /// again.
    Full(String),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::Corrupt(text) => write!(f, "log corrupt: {text}"),
            LogError::Failed(text) => write!(f, "log failed: {text}"),
            LogError::Full(text) => write!(f, "no room for the log: {text}"),
        }
    }
}

/// The store of all logs of a node. Calls block: they are made on writer threads, and at start.
pub trait LogStore: Send + Sync {
    /// All of it or nothing, even over several regions. With `sync`, on disk when it returns.
    fn write(&self, writes: &[LogWrite], sync: bool) -> Result<(), LogError>;

    /// Everything written before is on disk when it returns.
    fn sync(&self) -> Result<(), LogError>;

    /// Regions that have a log.
    fn regions(&self) -> Vec<u64>;

    fn hard_state(&self, region: u64) -> Result<Option<HardState>, LogError>;

    /// First and last index of a region's log; `None` if it has no entries.
    fn span(&self, region: u64) -> Option<(u64, u64)>;

    /// Entries `low <= index < high`, at least one if there is one, then up to `max_bytes`. If that at `low` is
    /// forgotten, perhaps while this is asked, it is no error: whoever had it forgotten knows.
    fn entries(
        &self,
        region: u64,
        low: u64,
        high: u64,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, LogError>;

    /// Gives the space of forgotten entries back. Takes a while.
    fn tidy(&self) -> Result<(), LogError>;

    /// Forgets the entries before `index`; their space comes back with [`LogStore::tidy`].
    fn truncate(&self, region: u64, index: u64) -> Result<(), LogError>;

    /// Bytes on disk.
    fn size_bytes(&self) -> u64;
}

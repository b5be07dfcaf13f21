//! The durable engine: what is acknowledged is in the log, on disk.
//!
//! ```text
//!   session ─► batch ─► queue of a region ─► entry ─► log writer (fsync) ─► committed ─► applied ─► replies
//!                            (node)        (replica)     (writer)                       (node)
//!
//!   EXEC, several regions, SPOP …: regions held ─► run ─► rows ─► one log batch ─► store ─► reply   (node)
//!
//!   a key that is not in memory ─► block cache, or a reader thread ─► run again                      (load)
//!   start ─► rows of the last checkpoint ─► the log behind it, run again                             (recover)
//!   log grows ─► store flushed ─► log cut                                                            (checkpoint)
//!   disk nearly full ─► writes refused ─► room again ─► writes taken                                 (room)
//! ```
//!
//! The native structures of a region are a cache of its rows: commands run on them at memory
//! speed, the keyspace notes which rows they change, and one write batch per entry carries these
//! and the applied index to the store. The log is what survives a crash; the store is where it is
//! replayed from.
//!
//! *Invariants*: nothing is applied before it is on disk, except on regions that are held, which
//! nobody sees; rows and applied index are written together; the log is cut only behind what the
//! store has on disk; a failed write of the log is final.

#[cfg(test)]
mod blocking_tests;
mod checkpoint;
mod evict;
mod group_commit;
mod held;
mod load;
mod log_disk;
#[cfg(test)]
mod one_core;
mod readers;
mod recover;
mod room;
mod weighings;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use base::{DbIndex, Refusal};
use keyspace::rows::{Family, RowError, RowSource, RowStore, Tier, layout};
use keyspace::{Keyspace, ValueRef};
use replica::LogStore;
use settings::LogSync;

pub use checkpoint::Checkpoints;
pub use log_disk::{LogDisk, Turn};
pub use recover::{RecoverError, recover, region_count, region_count_of};
pub(crate) use room::disk;
pub use room::make_room;
pub use weighings::Weighings;
pub use writer::{Job, LogWriter};

use crate::cores::Place;
use node::Progress;
use readers::Readers;

/// Where a durable node keeps its data, given by whoever starts it.
#[derive(Clone)]
pub struct Stores {
    pub rows: Arc<dyn RowStore>,
    pub log: Arc<dyn LogStore>,
    /// Whether entries are kept in the feed, too (`--binlog`).
    pub feed: bool,
}

/// What the cores of a durable node share.
pub struct Durable {
    pub stores: Stores,
    pub writer: LogWriter,
    pub readers: Readers,
    pub progress: Arc<Progress>,
    /// Why writes are refused for good: the log or the store failed.
    failed: OnceLock<String>,
    /// The disk is full, for now; and why that is said.
    is_full: AtomicBool,
    full: Mutex<Option<String>>,
    /// Rows that what ran on held regions may make; see [`held`].
    pub(crate) most_change_bytes: usize,
    /// Bytes given to the log since it was last cut.
    pub logged_bytes: AtomicU64,
    pub entries: AtomicU64,
    pub commands_logged: AtomicU64,
    pub loads: AtomicU64,
    pub warmed: AtomicU64,
    /// Big collections that were read whole, and whether one is being read.
    pub wholes: AtomicU64,
    pub is_reading_whole: AtomicBool,
    pub checkpoints: AtomicU64,
    /// Compactions of everything that were asked for, and how many of these are done.
    compactions: AtomicU64,
    compacted: AtomicU64,
}

impl Durable {
    /// The rows of a key are being read.
    pub(crate) fn note_load(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn start(
        stores: Stores,
        sync: LogSync,
        progress: Arc<Progress>,
    ) -> std::io::Result<Durable> {
        let readers = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
        Ok(Durable {
            writer: LogWriter::start(stores.log.clone(), sync)?,
            readers: Readers::start(stores.rows.clone(), readers)?,
            progress,
            failed: OnceLock::new(),
            is_full: AtomicBool::new(false),
            full: Mutex::default(),
            most_change_bytes: held::most_change_bytes(),
            logged_bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            commands_logged: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            warmed: AtomicU64::new(0),
            wholes: AtomicU64::new(0),
            is_reading_whole: AtomicBool::new(false),
            checkpoints: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            stores,
        })
    }

    /// All regions are open: the store may tidy up.
    pub fn regions_known<'a>(&self, spaces: impl Iterator<Item = &'a Keyspace>) {
        let mut alive = Vec::new();
        spaces.for_each(|space| alive.extend(space.alive()));
        self.stores.rows.set_alive(&alive);
        self.stores.rows.start_compaction();
    }

    /// Notes that nothing more can be kept: the first reason counts, and is told once, loudly.
    pub fn fail(&self, reason: &str) {
        if self.failed.set(reason.into()).is_ok() {
            tracing::error!(
                "writes stopped: {reason}. Nothing acknowledged is lost; find out why the \
                 disk failed, then start the server again"
            );
        }
    }

    /// Asks for a checkpoint and a compaction of everything behind it; returns a number for
    /// [`Durable::is_compacted`].
    pub fn compact(&self) -> u64 {
        self.compactions.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub fn is_compacted(&self, number: u64) -> bool {
        self.compacted.load(Ordering::Acquire) >= number
    }

    /// Why writes can never be taken again by this process, if that is so.
    pub fn failure(&self) -> Option<Refusal> {
        self.is_failed().then(|| self.refusal()).flatten()
    }

    /// Why writes are refused, if they are: for good, or while the disk is full.
    #[inline]
    pub fn refusal(&self) -> Option<Refusal> {
        let Some(reason) = self.failed.get() else {
            return self.full_refusal();
        };
        Some(Refusal::text_of(format!(
            "MISCONF writes are stopped because the log could not be written: {reason}. Restart \
             the server once the disk is well"
        )))
    }

    pub fn is_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Why this node cannot write, for good or just now: the same words as long as it lasts.
    pub fn trouble(&self) -> Option<&str> {
        let failed = self.failed.get().map(String::as_str);
        let stalled = self.writer.disk().stalled_ms();
        failed.or_else(|| stalled.map(|_| "the disk of the log does not answer"))
    }
}

/// The log's name of a region of a node that is alone: they count from one, zero is the meta
/// service's.
pub fn log_id(region: Place) -> u64 {
    region as u64 + 1
}

/// Given database, key, value and deadline.
pub type EachValue<'a> = dyn FnMut(DbIndex, &[u8], ValueRef<'_>, Option<u64>) + 'a;

/// Every value of a region at the moment of `rows`.
pub fn for_each_value(
    rows: &dyn RowSource,
    home: u64,
    each: &mut EachValue<'_>,
) -> Result<(), RowError> {
    let mut state: Option<Vec<u8>> = None;
    let key = layout::state_key(home);
    rows.get(Family::Info, &key, Tier::All, &mut |row| {
        state = Some(row.into())
    })?;
    match state {
        Some(state) => keyspace::rows::for_each_value(rows, home, &state, each),
        None => Ok(()),
    }
}

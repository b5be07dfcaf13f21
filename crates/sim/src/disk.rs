//! The disk of a node: the log and the rows, and what a crash leaves of them.
//!
//! ```text
//!   log    seen ──sync──► on disk          a crash keeps what was synced, and of the rest a beginning
//!   rows   seen ──flush─► on disk          a crash brings back the last flush (there is no WAL)
//! ```
//!
//! A record of the log that was torn is found by its checksum when the log is opened, and dropped
//! with all that follows: so a torn tail is a tail that ends earlier.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use keyspace::rows::Changes;
use replica::{LogError, LogStore, LogWrite, MapLog};

use crate::bugs::Bug;
use crate::state::Files;
use crate::store::Rows;

/// A write of the log: region, replica and number.
pub type Written = (u64, u64, u64);

/// Which one a write is.
pub fn written(write: &LogWrite) -> Written {
    (write.region, write.replica, write.number)
}

pub struct Disk {
    pub log: Arc<MapLog>,
    pub rows: Arc<Rows>,
    /// Of snapshots, by name; a crash keeps them or not.
    pub files: BTreeMap<u64, Rc<Files>>,
    bug: Bug,
    /// Written, and nobody is told yet.
    waiting: Vec<Written>,
    /// The sync under way is for these.
    syncing: Vec<Written>,
    /// The next sync fails.
    pub is_failing: bool,
    pub syncs: u64,
}

impl Disk {
    pub fn new(bug: Bug) -> Disk {
        Disk {
            log: Arc::new(MapLog::new()),
            rows: Arc::default(),
            files: BTreeMap::new(),
            bug,
            waiting: Vec::new(),
            syncing: Vec::new(),
            is_failing: false,
            syncs: 0,
        }
    }

    /// Writes one record: all of it is there after a crash, or nothing.
    pub fn write_log(&mut self, writes: Vec<LogWrite>) -> Result<(), LogError> {
        self.waiting.extend(writes.iter().map(written));
        self.log.write(&writes, false)
    }

    /// Whether a sync is to be begun; it then is for all that waits.
    pub fn begin_sync(&mut self) -> bool {
        if self.waiting.is_empty() || !self.syncing.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.waiting, &mut self.syncing);
        true
    }

    /// The number of the sync under way, if there is one.
    pub fn under_way(&self) -> Option<u64> {
        (!self.syncing.is_empty()).then_some(self.syncs + 1)
    }

    /// The sync has ended: who is to be told. An error is final.
    pub fn end_sync(&mut self) -> Result<Vec<Written>, LogError> {
        if self.is_failing {
            return Err(LogError::Failed("the disk is gone".into()));
        }
        self.syncs += 1;
        if self.bug != Bug::SkipFsync {
            self.log.sync()?;
        }
        Ok(std::mem::take(&mut self.syncing))
    }

    pub fn truncate_log(&mut self, region: u64, index: u64) -> Result<(), LogError> {
        self.log.truncate(region, index)
    }

    pub fn remove_rows(&mut self, home: u64) {
        let mut changes = Changes::new();
        for (family, key, _) in self.rows.region_rows(home) {
            changes.delete(family, &key);
        }
        self.rows.put(&changes);
    }

    /// Files of a snapshot have come; old ones go some time.
    pub fn keep_files(&mut self, files: Rc<Files>) {
        if self.files.len() > 8 {
            self.files.clear();
        }
        self.files.insert(files.name, files);
    }

    /// A region that was here is gone: its rows and its log.
    pub fn remove_region(&mut self, region: u64) {
        self.remove_rows(region);
        self.flush();
        let write = LogWrite {
            region,
            reset: Some(0),
            ..LogWrite::default()
        };
        // What was written before must not come back.
        let _ = self.log.write(&[write], true);
    }

    /// Everything in the rows is on disk.
    pub fn flush(&mut self) {
        self.rows.flush();
    }

    /// The power fails, or the process dies: what is left is what a start finds.
    pub fn crash(&mut self, rng: &mut fastrand::Rng) {
        self.log.crash_keeping(rng.usize(..=self.log.unsynced()));
        self.rows = Arc::new(Rows::of(self.rows.flushed()));
        if rng.bool() {
            self.files.clear();
        }
        self.waiting.clear();
        self.syncing.clear();
        self.is_failing = false;
    }
}

/// A log whose reader forgets votes, for [`Bug::ForgetVote`].
pub struct Voteless(pub Arc<MapLog>);

impl LogStore for Voteless {
    fn hard_state(&self, region: u64) -> Result<Option<replica::HardState>, LogError> {
        let state = self.0.hard_state(region)?;
        Ok(state.map(|mut state| {
            state.vote = 0;
            state
        }))
    }

    fn write(&self, writes: &[LogWrite], sync: bool) -> Result<(), LogError> {
        self.0.write(writes, sync)
    }

    fn sync(&self) -> Result<(), LogError> {
        self.0.sync()
    }

    fn regions(&self) -> Vec<u64> {
        self.0.regions()
    }

    fn span(&self, region: u64) -> Option<(u64, u64)> {
        self.0.span(region)
    }

    fn entries(
        &self,
        region: u64,
        low: u64,
        high: u64,
        max_bytes: usize,
    ) -> Result<Vec<replica::Entry>, LogError> {
        self.0.entries(region, low, high, max_bytes)
    }

    fn tidy(&self) -> Result<(), LogError> {
        self.0.tidy()
    }

    fn truncate(&self, region: u64, index: u64) -> Result<(), LogError> {
        self.0.truncate(region, index)
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

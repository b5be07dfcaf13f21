//! A store that takes rows at once and writes them to the store below a little later, on a thread
//! of its own.
//!
//! ```text
//!   core ─ write ─► batches that wait ─── folded; a memtable full, or seconds old ───► store below
//!            get, scan ─► the batches, newest first, then the store below
//! ```
//!
//! Sorting rows is most of the work of a write; here it is no core's work. The more rows are written
//! together, the less each of them costs, and a row that is written again while it
//! waits is written below once: so the thread lets batches gather, and folds them meanwhile
//! ([`line`]). That is safe because nothing here is what keeps a write: the log has it, and is cut
//! only behind a [`RowStore::checkpoint`], which first writes all that waits.
//!
//! *Invariants*: what is below is always what some number of the first batches made; a row that was
//! written is seen by every later read; what waits is bounded, beyond that a write is [`WriteError::Busy`];
//! when the store below has failed, so has this one, for good.

mod batch;
mod limits;
mod line;
mod merge;
mod moment;
mod spare;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::cluster::{RegionId, Segment};
use keyspace::rows::{
    Changes, Family, Installing, Manifest, Pace, Redone, RegionError, RowError, RowSource,
    RowStore, State, StoreStats, Tier, WriteError,
};

use crate::order::give_back_room;
use batch::Batch;
pub use limits::Limits;
use line::{Line, Work};
use moment::Moment;

/// How soon a store that was busy is asked again: not at once, the rows are sorted each time.
const BUSY: Duration = Duration::from_millis(20);

/// Rows on their way to a store.
pub struct WriteBehind {
    below: Arc<dyn RowStore>,
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBehind {
    /// Puts a thread in front of `below`.
    pub fn start(below: Arc<dyn RowStore>, limits: Limits) -> std::io::Result<Arc<WriteBehind>> {
        let line = Arc::new(Line::new(limits));
        let (store, shared) = (below.clone(), line.clone());
        let thread = std::thread::Builder::new()
            .name("row-writer".into())
            .spawn(move || run(&*store, &shared))?;
        Ok(Arc::new(WriteBehind {
            below,
            line,
            thread: Some(thread),
        }))
    }
}

impl Drop for WriteBehind {
    /// Writes what waits.
    fn drop(&mut self) {
        self.line.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells those who wait that nobody will write any more, should the thread break.
struct Broken<'a>(&'a Line);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let broke = "the thread that writes rows broke";
            self.0.written(Vec::new(), Err(broke.into()));
        }
    }
}

fn run(below: &dyn RowStore, line: &Line) {
    let _broken = Broken(line);
    while let Some(work) = line.work() {
        match work {
            Work::Fold(which, parts) => {
                let run = Batch::fold(line.room_for(&parts), &parts);
                line.folded(which, parts, run);
            }
            Work::Write(batches) => {
                let result = write(below, line, &batches);
                if line.written(batches, result) {
                    give_back_room();
                }
            }
        }
    }
}

fn write(below: &dyn RowStore, line: &Line, batches: &[Arc<Batch>]) -> Result<(), String> {
    let changes: Vec<&Changes> = batches.iter().map(|batch| batch.changes()).collect();
    loop {
        match below.write(&changes) {
            Ok(()) => return Ok(()),
            // It is in the log: nothing is lost if the node ends before it is taken.
            Err(WriteError::Busy) if line.is_stopping() => {
                return Err("the store was busy when the node stopped".into());
            }
            Err(WriteError::Busy) => {
                line.set_blocked(below.lacks_room());
                std::thread::sleep(BUSY);
            }
            Err(WriteError::Failed(reason)) => return Err(reason),
        }
    }
}

impl RowSource for WriteBehind {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        merge::get(&self.line.batches(), &*self.below, family, key, tier, found)
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
        let batches = self.line.batches();
        merge::scan(
            &batches,
            &*self.below,
            family,
            (from, to),
            descending,
            tier,
            each,
        )
    }

    fn moment(&self) -> Option<Arc<dyn RowSource>> {
        Some(self.snapshot())
    }
}

impl RowStore for WriteBehind {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        self.line.take(changes)
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        self.line.drain().map_err(RowError::Failed)?;
        self.below.checkpoint()
    }

    fn keep(&self) -> Result<(), RowError> {
        self.line.drain().map_err(RowError::Failed)?;
        self.below.keep()
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        // No later batch can get below meanwhile: every row is in one of these or there.
        let (batches, below) = self.line.batches_and(|| self.below.snapshot());
        Arc::new(Moment { batches, below })
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        self.below.set_alive(alive);
    }

    fn start_compaction(&self) {
        self.below.start_compaction();
    }

    fn tidy(&self, everything: bool) {
        self.below.tidy(everything);
    }

    fn stop_tidying(&self) {
        self.below.stop_tidying();
    }

    fn lacks_room(&self) -> bool {
        self.below.lacks_room()
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            waiting_bytes: self.line.waiting_bytes() as u64,
            ..self.below.stats()
        }
    }

    fn sizes(&self, homes: &[u64]) -> Vec<u64> {
        self.below.sizes(homes)
    }

    // What changes a region as a whole comes behind all its rows that wait; there are none to come.

    fn create_regions(&self, regions: &[(RegionId, State)]) -> Result<(), RegionError> {
        self.line.drain().map_err(RegionError::Failed)?;
        self.below.create_regions(regions)
    }

    fn export(
        &self,
        moment: &dyn RowSource,
        region: RegionId,
        segments: &[Segment],
        dir: &Path,
        pace: &mut Pace<'_>,
    ) -> Result<Manifest, RegionError> {
        self.below.export(moment, region, segments, dir, pace)
    }

    fn verify(&self, manifest: &Manifest, dir: &Path) -> Result<(), RegionError> {
        self.below.verify(manifest, dir)
    }

    fn install(
        &self,
        region: RegionId,
        segments: &[Segment],
        manifest: &Manifest,
        dir: &Path,
    ) -> Result<(), RegionError> {
        self.line.drain().map_err(RegionError::Failed)?;
        self.below.install(region, segments, manifest, dir)
    }

    fn unfinished_installs(&self) -> Result<Vec<Installing>, RegionError> {
        self.below.unfinished_installs()
    }

    fn redo_install(&self, installing: &Installing) -> Result<Redone, RegionError> {
        self.line.drain().map_err(RegionError::Failed)?;
        self.below.redo_install(installing)
    }

    fn remove_region(&self, region: RegionId, segments: &[Segment]) -> Result<(), RegionError> {
        self.line.drain().map_err(RegionError::Failed)?;
        self.below.remove_region(region, segments)
    }
}

#[cfg(test)]
mod tests;

//! A store that takes rows at once and writes them to the store below a little later, on a thread
//! of its own.
//!
//! ```text
//!   core ─ write ─► batches that wait ─── gathered, a few MB or a moment ───► store below
//!            get, scan ─► the batches, newest first, then the store below
//! ```
//!
//! Sorting rows into a memtable is most of the work of a write; here it is no core's work. And the
//! more rows are sorted in together, the less each of them costs: so the thread lets batches gather.
//! That is safe because nothing here is what keeps a write: the log has it, and is cut only behind a
//! [`RowStore::checkpoint`], which first writes all that waits.
//!
//! *Invariants*: batches reach the store below whole and in their order; a row that was written is
//! seen by every later read; what waits is bounded, beyond that a write is [`WriteError::Busy`];
//! when the store below has failed, so has this one, for good.

mod batch;
mod merge;
mod moment;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::cluster::{RegionId, Segment};
use keyspace::rows::{
    Changes, Family, Installing, Manifest, Pace, Redone, RegionError, RowError, RowSource,
    RowStore, State, StoreStats, Tier, WriteError,
};

use batch::Batch;
use moment::Moment;

/// Rows go to the store below when there are this many bytes of them,
const GATHER_BYTES: usize = 4 << 20;
/// or this long after the first of them came.
const GATHER: Duration = Duration::from_millis(300);
/// When this much waits nothing more is taken. What is taken may be of any size: a large write that had
/// to wait for room of its size would never get it from many small ones.
const MOST_BYTES: usize = 32 << 20;
/// Buffers kept for batches to come, and how large they may be.
const SPARE: usize = 16;
const SPARE_BYTES: usize = 2 << 20;
/// How soon a store that was busy is asked again: not at once, the rows are sorted each time.
const BUSY: Duration = Duration::from_millis(10);

/// Rows on their way to a store.
pub struct Behind {
    below: Arc<dyn RowStore>,
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

struct Line {
    waiting: Mutex<Waiting>,
    /// Something came, or is wanted below now.
    filled: Condvar,
    /// Something is below, or never will be.
    emptied: Condvar,
    /// As many as there are in `waiting`, to be seen without the lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    /// The oldest first; those being written are still here.
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    /// When the oldest came.
    since: Option<Instant>,
    /// Batches that were taken, and that are below, since the start.
    taken: u64,
    written: u64,
    /// Somebody waits until this many are below.
    wanted: u64,
    stopping: bool,
    failed: Option<String>,
    /// Room used again: fresh memory of this size costs more than what is written to it.
    spare: Vec<Changes>,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what was written before is below.
    fn drain(&self) -> Result<(), String> {
        let mut waiting = self.lock();
        let until = waiting.taken;
        if waiting.written < until {
            waiting.wanted = waiting.wanted.max(until);
            self.filled.notify_one();
        }
        while waiting.written < until && waiting.failed.is_none() {
            let waited = self.emptied.wait(waiting);
            waiting = waited.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.failed.clone().map_or(Ok(()), Err)
    }

    /// The batches that wait now, the oldest first.
    fn batches(&self) -> Vec<Arc<Batch>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.lock().batches.iter().cloned().collect()
    }

    /// The batches to be written together; waits until there are enough. `None` when it is over.
    fn gather(&self) -> Option<Vec<Arc<Batch>>> {
        let mut waiting = self.lock();
        loop {
            if waiting.failed.is_some() {
                return None;
            }
            let age = waiting.since.map(|since| since.elapsed());
            let due = waiting.stopping
                || waiting.wanted > waiting.written
                || waiting.bytes >= GATHER_BYTES
                || age.is_some_and(|age| age >= GATHER);
            if due && !waiting.batches.is_empty() {
                return Some(waiting.batches.iter().cloned().collect());
            }
            if waiting.stopping {
                return None;
            }
            waiting = match age {
                None => {
                    let waited = self.filled.wait(waiting);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(age) => {
                    let left = GATHER.saturating_sub(age);
                    let waited = self.filled.wait_timeout(waiting, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// These, the oldest, are below, or never will be.
    fn done(&self, batches: Vec<Arc<Batch>>, result: Result<(), String>) {
        let mut waiting = self.lock();
        match result {
            Ok(()) => {
                waiting.batches.drain(..batches.len());
                waiting.written += batches.len() as u64;
                waiting.bytes -= batches.iter().map(|it| it.size_bytes()).sum::<usize>();
                for batch in batches.into_iter().filter_map(Arc::into_inner) {
                    if waiting.spare.len() < SPARE && batch.size_bytes() <= SPARE_BYTES {
                        waiting.spare.push(batch.into_changes());
                    }
                }
                waiting.since = waiting.batches.front().map(|batch| batch.since());
                self.count.store(waiting.batches.len(), Ordering::Release);
            }
            Err(reason) => waiting.failed = Some(reason),
        }
        drop(waiting);
        self.emptied.notify_all();
    }
}

impl Behind {
    /// Puts a thread in front of `below`.
    pub fn start(below: Arc<dyn RowStore>) -> std::io::Result<Arc<Behind>> {
        let line = Arc::new(Line {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            count: AtomicUsize::new(0),
        });
        let (store, shared) = (below.clone(), line.clone());
        let thread = std::thread::Builder::new()
            .name("row-writer".into())
            .spawn(move || run(&*store, &shared))?;
        Ok(Arc::new(Behind {
            below,
            line,
            thread: Some(thread),
        }))
    }
}

impl Drop for Behind {
    /// Writes what waits.
    fn drop(&mut self) {
        self.line.lock().stopping = true;
        self.line.filled.notify_one();
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
            self.0
                .done(Vec::new(), Err("the thread that writes rows broke".into()));
        }
    }
}

fn run(below: &dyn RowStore, line: &Line) {
    let _broken = Broken(line);
    while let Some(batches) = line.gather() {
        let changes: Vec<&Changes> = batches.iter().map(|batch| batch.changes()).collect();
        let result = loop {
            match below.write(&changes) {
                Ok(()) => break Ok(()),
                // It is in the log: nothing is lost if the node ends before it is taken.
                Err(WriteError::Busy) if line.lock().stopping => {
                    break Err("the store was busy when the node stopped".into());
                }
                Err(WriteError::Busy) => std::thread::sleep(BUSY),
                Err(WriteError::Failed(reason)) => break Err(reason),
            }
        };
        line.done(batches, result);
    }
}

impl RowSource for Behind {
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

impl RowStore for Behind {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        let mut waiting = self.line.lock();
        if let Some(reason) = &waiting.failed {
            return Err(WriteError::Failed(reason.clone()));
        }
        if waiting.bytes >= MOST_BYTES {
            return Err(WriteError::Busy);
        }
        let room = waiting.spare.pop().unwrap_or_default();
        let batch = Batch::new(room, changes);
        waiting.bytes += batch.size_bytes();
        waiting.since.get_or_insert(batch.since());
        waiting.batches.push_back(Arc::new(batch));
        waiting.taken += 1;
        self.line
            .count
            .store(waiting.batches.len(), Ordering::Release);
        // The first starts the clock, many end the wait; those between need nobody.
        let tell = waiting.batches.len() == 1 || waiting.bytes >= GATHER_BYTES;
        drop(waiting);
        if tell {
            self.line.filled.notify_one();
        }
        Ok(())
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
        // Under the lock no later batch can get below: every row is in one of these or there.
        let waiting = self.line.lock();
        Arc::new(Moment {
            batches: waiting.batches.iter().cloned().collect(),
            below: self.below.snapshot(),
        })
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

    fn stats(&self) -> StoreStats {
        self.below.stats()
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

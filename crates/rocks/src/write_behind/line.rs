//! The batches that wait, from the cores that bring them to the thread that takes them.
//!
//! ```text
//!   oldest                                                     newest
//!   run 16 MB   run 4 MB   run 1 MB   run 1 MB │ fresh  fresh  fresh  ◄─ cores
//!                                     └─ folded into one when four are alike
//! ```
//!
//! Fresh batches are folded into a *run*: of each row the last change, in order. A row that is
//! written often is so written below once. Four runs of about one size are folded again, so there are
//! never many to look into, and a row is folded few times.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use keyspace::rows::{Changes, WriteError};

use super::Limits;
use super::batch::Batch;
use super::spare::Spare;

/// Runs of about one size that become one.
const ALIKE: usize = 4;
/// Runs up to this size are alike, then those up to four times as much, and so on.
const SMALLEST_RUN: usize = 1 << 20;

/// As the system says it: it passes.
const NO_ROOM: &str = "No space left on device";

pub(super) struct Line {
    limits: Limits,
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
    /// The first so many are runs.
    runs: usize,
    bytes: usize,
    /// Of those that are no runs.
    fresh_bytes: usize,
    /// When the last one came.
    newest: Option<Instant>,
    /// Writes that were taken, and that are below, since the start.
    taken: u64,
    written: u64,
    /// Somebody waits until this many are below.
    wanted: u64,
    stopping: bool,
    /// The store below has no room: nobody waits for it.
    is_blocked: bool,
    failed: Option<String>,
    spare: Spare,
}

/// What the thread does next.
pub(super) enum Work {
    /// These become one run.
    Fold(Range<usize>, Vec<Arc<Batch>>),
    /// All that waits goes below.
    Write(Vec<Arc<Batch>>),
}

impl Waiting {
    /// Whether all of it goes below now; otherwise when, should nothing happen before.
    fn write_due(&self, limits: &Limits) -> Due {
        let Some(oldest) = self.batches.front() else {
            return Due::Never;
        };
        match self.stopping || self.wanted > self.written || self.bytes >= limits.write_bytes {
            true => Due::Now,
            false => {
                let newest = self.newest.unwrap_or_else(|| oldest.since());
                let at = oldest.since() + limits.write_after;
                Due::at(at.min(newest + limits.quiet_after))
            }
        }
    }

    fn fold_due(&self, limits: &Limits) -> Due {
        // One alone gains nothing.
        if self.batches.len() < self.runs + 2 {
            return Due::Never;
        }
        match self.batches.get(self.runs) {
            Some(_) if self.fresh_bytes >= limits.fold_bytes => Due::Now,
            Some(first) => Due::at(first.since() + limits.fold_after),
            None => Due::Never,
        }
    }

    /// The last runs that are of one size, if they are enough.
    fn alike(&self) -> Option<Range<usize>> {
        let runs = self.batches.iter().take(self.runs);
        let sizes: Vec<_> = runs.map(|run| size_class(run.size_bytes())).collect();
        let last = *sizes.last()?;
        let alike = sizes.iter().rev().take_while(|&&size| size <= last).count();
        (alike >= ALIKE).then(|| self.runs - alike..self.runs)
    }

    fn fold(&self, which: Range<usize>) -> Work {
        Work::Fold(which.clone(), self.batches.range(which).cloned().collect())
    }
}

enum Due {
    Now,
    At(Instant),
    Never,
}

impl Due {
    fn at(when: Instant) -> Due {
        match when <= Instant::now() {
            true => Due::Now,
            false => Due::At(when),
        }
    }

    fn when(&self) -> Option<Instant> {
        match self {
            Due::At(when) => Some(*when),
            Due::Now | Due::Never => None,
        }
    }
}

/// Each class is four times the one before.
fn size_class(bytes: usize) -> u32 {
    let mut class = 0;
    let mut most = SMALLEST_RUN;
    while bytes > most {
        most = most.saturating_mul(4);
        class += 1;
    }
    class
}

impl Line {
    pub fn new(limits: Limits) -> Self {
        Line {
            limits,
            waiting: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            count: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes rows, unless too many wait. They are copied outside the lock: others read and write meanwhile.
    pub fn take(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        let mut waiting = self.lock();
        if let Some(reason) = &waiting.failed {
            return Err(WriteError::Failed(reason.clone()));
        }
        if waiting.bytes >= self.limits.most_bytes {
            return Err(WriteError::Busy);
        }
        let room = waiting.spare.small.pop().unwrap_or_default();
        drop(waiting);
        let batch = Batch::new(room, changes);
        let mut waiting = self.lock();
        waiting.bytes += batch.size_bytes();
        waiting.fresh_bytes += batch.size_bytes();
        waiting.newest = Some(batch.since());
        waiting.batches.push_back(Arc::new(batch));
        waiting.taken += 1;
        self.count.store(waiting.batches.len(), Ordering::Release);
        // The first starts the clock of all, the second that of folding, many end the wait; those
        // between need nobody.
        let fresh = waiting.batches.len() - waiting.runs;
        let tell = waiting.batches.len() == 1
            || fresh == 2
            || waiting.fresh_bytes >= self.limits.fold_bytes
            || waiting.bytes >= self.limits.write_bytes;
        drop(waiting);
        if tell {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until what was taken before is below.
    pub fn drain(&self) -> Result<(), String> {
        let mut waiting = self.lock();
        let until = waiting.taken;
        if waiting.written < until {
            waiting.wanted = waiting.wanted.max(until);
            self.filled.notify_one();
        }
        while waiting.written < until && waiting.failed.is_none() {
            if waiting.is_blocked {
                return Err(NO_ROOM.into());
            }
            let waited = self.emptied.wait(waiting);
            waiting = waited.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.failed.clone().map_or(Ok(()), Err)
    }

    /// The batches that wait now, the oldest first.
    pub fn batches(&self) -> Vec<Arc<Batch>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.lock().batches.iter().cloned().collect()
    }

    /// The batches that wait, and what `below` gives at a moment when no other can get below.
    pub fn batches_and<T>(&self, below: impl FnOnce() -> T) -> (Vec<Arc<Batch>>, T) {
        let waiting = self.lock();
        (waiting.batches.iter().cloned().collect(), below())
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// What is left is written, then it is over.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.filled.notify_one();
    }

    /// Whether the store below has no room; those who wait for it are told.
    pub fn set_blocked(&self, is_blocked: bool) {
        let mut waiting = self.lock();
        if waiting.is_blocked != is_blocked {
            waiting.is_blocked = is_blocked;
            drop(waiting);
            self.emptied.notify_all();
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// What is to be done; waits until there is something. `None` when it is over.
    pub fn work(&self) -> Option<Work> {
        let mut waiting = self.lock();
        loop {
            if waiting.failed.is_some() {
                return None;
            }
            let write = waiting.write_due(&self.limits);
            if matches!(write, Due::Now) {
                return Some(Work::Write(waiting.batches.iter().cloned().collect()));
            }
            if let Some(alike) = waiting.alike() {
                return Some(waiting.fold(alike));
            }
            let fold = waiting.fold_due(&self.limits);
            if matches!(fold, Due::Now) {
                return Some(waiting.fold(waiting.runs..waiting.batches.len()));
            }
            if waiting.stopping {
                return None;
            }
            let next = [write.when(), fold.when()].into_iter().flatten().min();
            waiting = match next {
                None => {
                    let waited = self.filled.wait(waiting);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(next) => {
                    let left = next.saturating_duration_since(Instant::now());
                    let waited = self.filled.wait_timeout(waiting, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Room for a run of these.
    pub fn room_for(&self, parts: &[Arc<Batch>]) -> Changes {
        let bytes = parts.iter().map(|part| part.size_bytes()).sum();
        let room = self.lock().spare.take(bytes);
        room.unwrap_or_else(|| Changes::with_capacity(bytes))
    }

    /// These have become one run. Nobody else takes batches out, so they are still where they were.
    pub fn folded(&self, which: Range<usize>, parts: Vec<Arc<Batch>>, run: Batch) {
        let bytes: usize = parts.iter().map(|part| part.size_bytes()).sum();
        let mut waiting = self.lock();
        let fresh = which.end > waiting.runs;
        waiting.bytes = waiting.bytes - bytes + run.size_bytes();
        if fresh {
            waiting.fresh_bytes -= bytes;
            waiting.runs = which.start + 1;
        } else {
            waiting.runs -= which.len() - 1;
        }
        waiting.batches.drain(which.start + 1..which.end);
        if let Some(place) = waiting.batches.get_mut(which.start) {
            *place = Arc::new(run);
        }
        self.count.store(waiting.batches.len(), Ordering::Release);
        waiting.spare.keep(parts, self.limits.write_bytes);
    }

    /// These, all that waited then, are below, or never will be. Whether little comes: room for it is soon found, and none is
    /// kept.
    pub fn written(&self, batches: Vec<Arc<Batch>>, result: Result<(), String>) -> bool {
        let mut waiting = self.lock();
        let mut is_quiet = false;
        waiting.is_blocked = false;
        match result {
            Ok(()) => {
                let bytes = batches.iter().map(|it| it.size_bytes()).sum::<usize>();
                waiting.batches.drain(..batches.len());
                waiting.runs = 0;
                waiting.written += batches.iter().map(|it| it.writes()).sum::<u64>();
                waiting.bytes -= bytes;
                waiting.fresh_bytes = waiting.bytes;
                self.count.store(waiting.batches.len(), Ordering::Release);
                is_quiet = waiting.batches.is_empty() && bytes < self.limits.write_bytes;
                match is_quiet {
                    true => waiting.spare = Spare::default(),
                    false => waiting.spare.keep(batches, self.limits.write_bytes),
                }
            }
            Err(reason) => waiting.failed = Some(reason),
        }
        drop(waiting);
        self.emptied.notify_all();
        is_quiet
    }
}

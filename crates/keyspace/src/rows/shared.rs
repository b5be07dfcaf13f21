//! What a durable keyspace and its handles on big collections both know.
//!
//! A handle reads rows while its keyspace is only borrowed, so it cannot reach into it. Both hold
//! this instead: failures go one way, the count of log entries the other.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cold::{ColdRange, ColdRows};
use super::{Family, RowError, Tier};

/// Collections that are asked for at one time; the others ask again.
const WANTED_MOST: usize = 64;

pub(crate) struct Shared {
    /// Log entries begun and written: what a handle has noted under an earlier number is in the store.
    epoch: AtomicU64,
    is_stopped: AtomicBool,
    /// Handles made, so that each has a number of its own.
    lives: AtomicU64,
    /// Which handles hold copies of rows for the running command, by what their rows begin with.
    lent: Mutex<Vec<Box<[u8]>>>,
    is_lent: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Reads stop where memory ends; see `cold.rs`.
    only_cached: AtomicBool,
    cold: Mutex<Vec<ColdRows>>,
    is_cold: AtomicBool,
    /// Handles there are.
    handles: AtomicUsize,
    /// Collections that are used a lot, by what their rows begin with; see `whole.rs`.
    wanted_whole: Mutex<Vec<Box<[u8]>>>,
    is_whole: AtomicBool,
    /// About what time it is.
    seconds: AtomicU64,
    /// See [`crate::Keyspace::doubtful_bytes`].
    doubtful_bytes: AtomicU64,
}

/// That a handle is there; echoes do not count.
pub(super) struct Presence(Arc<Shared>);

impl Presence {
    pub fn new(shared: &Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Ordering::Relaxed);
        Presence(shared.clone())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// `seed` makes the numbers of its handles others than those of an earlier start.
    pub fn new(seed: u64) -> Self {
        Shared {
            epoch: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            lives: AtomicU64::new(seed),
            lent: Mutex::default(),
            is_lent: AtomicBool::new(false),
            failure: Mutex::default(),
            only_cached: AtomicBool::new(false),
            cold: Mutex::default(),
            is_cold: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
            wanted_whole: Mutex::default(),
            is_whole: AtomicBool::new(false),
            seconds: AtomicU64::new(0),
            doubtful_bytes: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub fn next_epoch(&self) {
        if !self.is_stopped.load(Ordering::Relaxed) {
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nothing noted from now on reaches the store.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether there is a handle.
    #[inline]
    pub fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0
    }

    pub fn doubtful_bytes(&self) -> u64 {
        self.doubtful_bytes.load(Ordering::Relaxed)
    }

    /// So many bytes may be wrong in what is counted.
    pub fn doubt(&self, bytes: u64) {
        self.doubtful_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn forget_doubt(&self, bytes: u64) {
        self.doubtful_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub fn seconds(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    pub fn set_seconds(&self, now: u64) {
        self.seconds.store(now, Ordering::Relaxed);
    }

    #[cold]
    pub fn want_whole(&self, base: &[u8]) {
        let mut wanted = lock(&self.wanted_whole);
        if wanted.len() < WANTED_MOST && !wanted.iter().any(|it| **it == *base) {
            wanted.push(base.into());
        }
    }

    pub fn wanted_whole(&self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut lock(&self.wanted_whole))
    }

    /// A collection is whole, or will not be.
    pub fn note_whole(&self) {
        self.is_whole.store(true, Ordering::Release);
    }

    #[inline]
    pub fn has_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    pub fn take_whole(&self) -> bool {
        self.has_whole() && self.is_whole.swap(false, Ordering::Acquire)
    }

    pub fn next_life(&self) -> u64 {
        self.lives.fetch_add(1, Ordering::Relaxed)
    }

    /// A read failed. What the running command sees is not all there is, so its reply is void.
    pub fn fail(&self, what: String) {
        lock(&self.failure).get_or_insert(what);
        self.is_cold.store(true, Ordering::Relaxed);
    }

    pub fn take_failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }

    /// The result of a read; what failed is noted, or which rows are cold.
    pub fn check<T>(
        &self,
        read: Result<T, RowError>,
        family: Family,
        range: impl FnOnce() -> ColdRange,
    ) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(RowError::Failed(what)) => {
                self.fail(what);
                None
            }
            Err(RowError::Cold) => {
                let range = range();
                lock(&self.cold).push(ColdRows { family, range });
                self.is_cold.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// The index of a collection whose rows begin with `base` is wanted.
    pub fn note_wanted_index(&self, family: Family, base: &[u8]) {
        let range = ColdRange::NoIndex(base.into());
        lock(&self.cold).push(ColdRows { family, range });
        self.is_cold.store(true, Ordering::Relaxed);
    }

    pub fn read_cached(&self, only: bool) {
        self.only_cached.store(only, Ordering::Relaxed);
    }

    /// How far reads may go.
    #[inline]
    pub fn tier(&self) -> Tier {
        match self.only_cached.load(Ordering::Relaxed) {
            true => Tier::Cache,
            false => Tier::All,
        }
    }

    /// Whether the running command has missed rows: what it sees is not all there is.
    #[inline]
    pub fn is_cold(&self) -> bool {
        self.is_cold.load(Ordering::Relaxed)
    }

    pub fn take_cold(&self) -> Vec<ColdRows> {
        self.is_cold.store(false, Ordering::Relaxed);
        let mut cold = std::mem::take(&mut *lock(&self.cold));
        // The same row is often asked for twice in a row.
        cold.dedup();
        cold
    }

    pub fn lend(&self, base: &[u8]) {
        lock(&self.lent).push(base.into());
        self.is_lent.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_lent(&self) -> bool {
        self.is_lent.load(Ordering::Relaxed)
    }

    pub fn take_lent(&self) -> Vec<Box<[u8]>> {
        self.is_lent.store(false, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.lent))
    }
}

//! What a durable keyspace and its handles on big collections both know.
//!
//! A handle reads rows while its keyspace is only borrowed, so it cannot reach into it. Both hold
//! this instead: failures go one way, the count of log entries the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::RowError;

pub(crate) struct Shared {
    /// Log entries begun: what a handle has noted under an earlier number is in the store.
    epoch: AtomicU64,
    is_stopped: AtomicBool,
    /// Handles made, so that each has a number of its own.
    lives: AtomicU64,
    /// Which handles hold copies of rows for the running command, by what their rows begin with.
    lent: Mutex<Vec<Box<[u8]>>>,
    is_lent: AtomicBool,
    failure: Mutex<Option<String>>,
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

    pub fn next_life(&self) -> u64 {
        self.lives.fetch_add(1, Ordering::Relaxed)
    }

    pub fn fail(&self, what: String) {
        lock(&self.failure).get_or_insert(what);
    }

    pub fn take_failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }

    /// The result of a read that may touch the disk; what failed is noted.
    pub fn check<T>(&self, read: Result<T, RowError>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(RowError::Failed(what)) => {
                self.fail(what);
                None
            }
            Err(RowError::Cold) => {
                self.fail("a read from all of the store was refused".into());
                None
            }
        }
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

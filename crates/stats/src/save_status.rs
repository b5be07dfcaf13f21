//! What `INFO persistence` and LASTSAVE tell about saving, and who may save. Written by whoever
//! saves, a few times per save.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Of the whole node.
pub struct SaveStatus {
    /// Unix seconds of the last save that succeeded, or of the start.
    pub last_save_seconds: AtomicU64,
    /// Unix seconds at which a save last began.
    pub last_try_seconds: AtomicU64,
    /// Whether the last background save succeeded.
    pub last_bgsave_ok: AtomicBool,
    /// How long the last background save took; −1: none yet.
    pub last_bgsave_seconds: AtomicI64,
    /// Unix milliseconds at which the running save began; 0: none runs. Whoever moves it from 0
    /// is the one to save.
    pub running_since_ms: AtomicU64,
    /// The running save is a background save.
    pub in_background: AtomicBool,
    /// The running save is to be given up.
    pub give_up: AtomicBool,
    /// A background save is to begin as soon as it can.
    pub scheduled: AtomicBool,
    /// Keys of the running save, and how many of them are encoded.
    pub keys_total: AtomicU64,
    pub keys_done: AtomicU64,
    /// Saves that succeeded since start.
    pub saves: AtomicU64,
    /// Sum over all regions of `Keyspace::changes` at the moment the last save was taken.
    pub changes_at_last_save: AtomicU64,
    /// By region: `Keyspace::changes` as of the last 100 ms, for the save points.
    pub changes: Box<[AtomicU64]>,
    pub loading: AtomicBool,
    pub loaded_keys: AtomicU64,
    /// Keys whose time had passed when the file was loaded.
    pub loaded_expired: AtomicU64,
}

impl SaveStatus {
    pub fn new(now_ms: u64, regions: usize) -> Self {
        SaveStatus {
            last_save_seconds: AtomicU64::new(now_ms / 1000),
            last_try_seconds: AtomicU64::new(0),
            last_bgsave_ok: AtomicBool::new(true),
            last_bgsave_seconds: AtomicI64::new(-1),
            running_since_ms: AtomicU64::new(0),
            in_background: AtomicBool::new(false),
            give_up: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
            keys_total: AtomicU64::new(0),
            keys_done: AtomicU64::new(0),
            saves: AtomicU64::new(0),
            changes_at_last_save: AtomicU64::new(0),
            changes: (0..regions).map(|_| AtomicU64::new(0)).collect(),
            loading: AtomicBool::new(false),
            loaded_keys: AtomicU64::new(0),
            loaded_expired: AtomicU64::new(0),
        }
    }

    pub fn is_running(&self) -> bool {
        self.running_since_ms.load(Ordering::Acquire) != 0
    }

    /// The changes of a region so far.
    pub fn note_changes(&self, region: usize, changes: u64) {
        if let Some(place) = self.changes.get(region) {
            place.store(changes, Ordering::Relaxed);
        }
    }

    /// Changes since the last save, as of the last 100 ms.
    pub fn changes_since(&self) -> u64 {
        let now: u64 = self.changes.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        now.saturating_sub(self.changes_at_last_save.load(Ordering::Relaxed))
    }
}

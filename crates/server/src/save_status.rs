//! What `INFO persistence` and LASTSAVE tell about saving. Written by whoever saves, a few times
//! per save.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Of the whole node.
pub struct SaveStatus {
    /// Unix seconds of the last save that succeeded, or of the start.
    pub last_save_seconds: AtomicU64,
    /// Whether the last background save succeeded.
    pub last_bgsave_ok: AtomicBool,
    /// How long the last background save took; −1: none yet.
    pub last_bgsave_seconds: AtomicI64,
    /// Unix milliseconds at which the running background save began; 0: none runs.
    pub running_since_ms: AtomicU64,
    /// Saves that succeeded since start.
    pub saves: AtomicU64,
    /// Sum over all regions of `Keyspace::changes` at the moment the last save was taken.
    pub changes_at_last_save: AtomicU64,
    pub loading: AtomicBool,
    pub loaded_keys: AtomicU64,
    /// Keys whose time had passed when the file was loaded.
    pub loaded_expired: AtomicU64,
}

impl SaveStatus {
    pub fn new(now_ms: u64) -> Self {
        SaveStatus {
            last_save_seconds: AtomicU64::new(now_ms / 1000),
            last_bgsave_ok: AtomicBool::new(true),
            last_bgsave_seconds: AtomicI64::new(-1),
            running_since_ms: AtomicU64::new(0),
            saves: AtomicU64::new(0),
            changes_at_last_save: AtomicU64::new(0),
            loading: AtomicBool::new(false),
            loaded_keys: AtomicU64::new(0),
            loaded_expired: AtomicU64::new(0),
        }
    }

    pub fn is_running(&self) -> bool {
        self.running_since_ms.load(Ordering::Acquire) != 0
    }
}

//! What a user may configure, with Redis' names in comments, and how changes reach the cores.
//!
//! [`Settings`] is plain data. [`Settings Cell`](SettingsCell) holds the current version behind a
//! lock; every core keeps an `Arc` of it and looks only at a version number once per batch
//! ([`crate::Core::refresh_settings`]), so commands read settings without any atomics.
//! (The `admin` owner extends this file.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use keyspace::Tuning;

/// Limits on what waits to be read by one class of clients (`client-output-buffer-limit`).
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputLimit {
    /// Closed at once above this; 0 for no limit.
    pub hard_bytes: usize,
    /// Closed when above this for `soft_seconds`; 0 for no limit.
    pub soft_bytes: usize,
    pub soft_seconds: u64,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Addresses listened on (`bind`); a leading `-` makes a failure to bind harmless.
    pub bind: Vec<String>,
    /// 0 lets the system choose.
    pub redis_port: u16,
    pub num_shards: usize,
    pub dir: std::path::PathBuf,
    pub requirepass: Vec<u8>,
    pub maxclients: usize,
    /// Seconds without a command after which a session is closed; 0 for never.
    pub timeout_seconds: u64,
    /// Seconds between keepalive probes; 0 for none.
    pub tcp_keepalive_seconds: u64,
    /// Bytes; 0 for no limit.
    pub maxmemory: usize,
    /// Microseconds; negative for off.
    pub slowlog_slower_than_us: i64,
    pub slowlog_max_len: usize,
    pub proto_max_bulk_bytes: usize,
    pub output_limit_normal: OutputLimit,
    /// `DEBUG SET-ACTIVE-EXPIRE`.
    pub active_expire: bool,
    pub tuning: Tuning,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            bind: vec!["127.0.0.1".into(), "-::1".into()],
            redis_port: 6379,
            num_shards: std::thread::available_parallelism().map_or(1, |n| n.get()),
            dir: ".".into(),
            requirepass: Vec::new(),
            maxclients: 10_000,
            timeout_seconds: 0,
            tcp_keepalive_seconds: 300,
            maxmemory: 0,
            slowlog_slower_than_us: 10_000,
            slowlog_max_len: 128,
            proto_max_bulk_bytes: base::limits::MAX_BULK_BYTES,
            output_limit_normal: OutputLimit::default(),
            active_expire: true,
            tuning: Tuning::default(),
        }
    }
}

/// The current settings, and a number that changes with them.
pub struct SettingsCell {
    version: AtomicU64,
    current: RwLock<Arc<Settings>>,
}

impl SettingsCell {
    pub fn new(settings: Settings) -> Self {
        SettingsCell {
            version: AtomicU64::new(1),
            current: RwLock::new(Arc::new(settings)),
        }
    }

    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn current(&self) -> Arc<Settings> {
        self.current
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// Changes settings; all cores see it with their next batch, the calling session at once.
    pub fn change<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        let mut current = self
            .current
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut next = Settings::clone(&current);
        let result = change(&mut next);
        *current = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
        result
    }
}

//! What RocksDB does on its own threads, as it reports it: flushes, compactions, and their errors.
//!
//! The store reads it here; nothing here waits or calls RocksDB.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, EventListener,
    FlushJobInfo, MutableStatus,
};
use rust_rocksdb::{Error, ErrorKind};

use crate::store::is_no_room;

/// Bytes that went to files: of rows as they came, and of files made of files.
#[derive(Default)]
pub(crate) struct Work {
    pub flushed_bytes: AtomicU64,
    pub compacted_bytes: AtomicU64,
    /// The last that was heard of flushes, or of compactions, is that one failed. (RocksDB's own count of errors only
    /// grows: it does not tell whether they are over.)
    pub cannot_flush: AtomicBool,
    pub cannot_compact: AtomicBool,
    /// A compaction has met a damaged block.
    pub is_damaged: AtomicBool,
    /// Rows are not taken because the disk is full. RocksDB goes on by itself when there is room.
    pub lacks_room: AtomicBool,
}

impl Work {
    /// The database works again.
    fn recovered(&self) {
        self.cannot_flush.store(false, Ordering::Relaxed);
        self.cannot_compact.store(false, Ordering::Relaxed);
        self.lacks_room.store(false, Ordering::Relaxed);
    }
}

pub(crate) struct Listener(pub Arc<Work>);

impl EventListener for Listener {
    fn on_flush_completed(&self, info: &FlushJobInfo) {
        let table = info.table_properties();
        let bytes = table.data_size() + table.index_size() + table.filter_size();
        self.0.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.0.cannot_flush.store(false, Ordering::Relaxed);
        self.0.lacks_room.store(false, Ordering::Relaxed);
    }

    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        let bytes = info.total_output_bytes();
        self.0.compacted_bytes.fetch_add(bytes, Ordering::Relaxed);
        if info.status().is_ok() {
            self.0.cannot_compact.store(false, Ordering::Relaxed);
        }
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        let is_damage = |error: &Error| matches!(error.kind(), ErrorKind::Corruption);
        if matches!(reason, DBBackgroundErrorReason::KCompaction)
            && status.result().as_ref().is_err_and(is_damage)
        {
            // The inputs of the compaction stay as they are, and whoever reads the block is told. To take no
            // writes any more, as RocksDB would, helps nobody.
            status.reset();
            if !self.0.is_damaged.swap(true, Ordering::Relaxed) {
                let why = status.result().as_ref().err().map(ToString::to_string);
                tracing::error!(
                    "a compaction met a damaged block: {}. What is in it cannot be read; all else is served. Nothing \
                     is compacted any more: replace the data of this node, from its peers or from a backup",
                    why.unwrap_or_default()
                );
            }
            return;
        }
        if status.result().as_ref().is_err_and(is_no_room) {
            self.0.lacks_room.store(true, Ordering::Relaxed);
        }
        let cannot = match reason {
            DBBackgroundErrorReason::KCompaction => &self.0.cannot_compact,
            _ => &self.0.cannot_flush,
        };
        cannot.store(true, Ordering::Relaxed);
    }

    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        if info.new_bg_error().result().is_ok() {
            self.0.recovered();
        }
    }
}

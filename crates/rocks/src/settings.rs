//! What an operator may tune, with defaults that fit the machine.

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// How the rows are kept. [`StoreSettings::for_machine`] is where to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreSettings {
    /// Blocks of rows kept in memory, uncompressed, for all families together.
    pub block_cache_bytes: usize,
    /// Size at which a family's memtable is flushed, and with it those of all others.
    pub memtable_bytes: usize,
    /// Memtables a family may have before writers are told to slow down.
    pub memtables: i32,
    /// A write of so many bytes becomes files at once, past the memtables. Smaller ones would make many small files.
    pub direct_bytes: usize,
    /// Threads that flush and compact.
    pub background_jobs: i32,
    /// Threads that may share one compaction.
    pub subcompactions: u32,
    pub block_bytes: usize,
    /// Bloom filter bits per row (and per prefix).
    pub bloom_bits: f64,
    /// Size a file of rows is cut at.
    pub file_bytes: u64,
    /// Size of the first level behind level 0.
    pub level_base_bytes: u64,
    /// ZSTD instead of LZ4 in the last level: a third less disk for more CPU in compactions.
    pub zstd_bottom: bool,
    /// The change feed drops its oldest files beyond this.
    pub binlog_bytes: u64,
}

impl StoreSettings {
    /// For a machine with this much memory, of which a quarter may hold blocks of rows: the cache
    /// of whole values above takes most of the rest and serves better (one hash lookup).
    pub fn for_machine(memory_bytes: usize, cpus: usize) -> Self {
        let small = memory_bytes < 8 * GIB;
        StoreSettings {
            block_cache_bytes: (memory_bytes / 4).clamp(32 * MIB, 64 * GIB),
            memtable_bytes: if small { 32 * MIB } else { 64 * MIB },
            memtables: 4,
            direct_bytes: if small { 16 * MIB } else { 32 * MIB },
            background_jobs: (cpus / 2).clamp(2, 8) as i32,
            subcompactions: (cpus / 4).clamp(1, 4) as u32,
            block_bytes: 8 << 10,
            bloom_bits: 10.0,
            file_bytes: (if small { 32 * MIB } else { 64 * MIB }) as u64,
            level_base_bytes: (if small { 128 * MIB } else { 256 * MIB }) as u64,
            zstd_bottom: false,
            binlog_bytes: GIB as u64,
        }
    }
}

impl Default for StoreSettings {
    /// Small: for tests and for callers that do not know the machine.
    fn default() -> Self {
        StoreSettings::for_machine(GIB, 2)
    }
}

/// How the Raft log is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// Size a file of the log is ended at.
    pub file_bytes: u64,
    /// Size the log may have before space of truncated entries is given back.
    pub keep_bytes: u64,
    /// Records with more bytes of entries are compressed (LZ4); 0: none is.
    pub compress_bytes: u64,
    /// Threads that read the log at start.
    pub recovery_threads: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            file_bytes: 64 * MIB as u64,
            keep_bytes: 512 * MIB as u64,
            compress_bytes: 0,
            recovery_threads: 2,
        }
    }
}

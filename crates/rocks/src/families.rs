//! Options of the database and of each column family (ACCEPTANCE row 54).
//!
//! ```text
//!                    filter  partitioner  whole-key bloom  blocks    compaction
//!   redis_metadata     x          x             x          8 KiB     level
//!   data               x          x             x          8 KiB     level
//!   redis_zset_score   x          x             -          8 KiB     level   (only ranges are read)
//!   redis_expiry       x          x             -          8 KiB     level   (only ranges are read)
//!   table_rows         x          x             -          8 KiB     level   (only ranges are read)
//!   metainfo           -          -             -          4 KiB     level   (few rows)
//!   bin_log            -          -             -          8 KiB     FIFO, size-capped
//! ```
//!
//! Every family has the 16-byte prefix (home, index id) as its bloom and memtable-bloom prefix.

use std::sync::Arc;

use keyspace::rows::Family;
use keyspace::rows::layout::PREFIX_LEN;
use rust_rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompactionPri, DBCompactionStyle,
    DBCompressionType, DataBlockIndexType, FifoCompactOptions, LogLevel, Options, SliceTransform,
    SstPartitionerFactory,
};

use crate::StoreSettings;
use crate::filter::{Garbage, GarbageFactory};

/// A file nobody has compacted for so long is compacted: rows orphaned in the last level go.
const PERIODIC_SECS: u64 = 7 * 24 * 3600;

pub(crate) fn database(settings: &StoreSettings) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // All families at one moment; without a write-ahead log this is what makes a crash harmless.
    options.set_atomic_flush(true);
    // A close must not flush: what is lost is in the log, and what is kept must be a checkpoint.
    options.set_avoid_flush_during_shutdown(true);
    // Table readers stay open: only then can a read of the cache tier find its block.
    options.set_max_open_files(-1);
    options.set_skip_stats_update_on_db_open(true);
    options.set_max_background_jobs(settings.background_jobs);
    options.set_max_subcompactions(settings.subcompactions);
    options.set_db_write_buffer_size(settings.memtable_bytes * settings.memtables.max(2) as usize);
    options.set_bytes_per_sync(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(16 << 20);
    options.set_log_level(LogLevel::Warn);
    // Writers that wait for another's batch sleep instead of spinning: there are as many cores as
    // CPUs, a spinning one keeps the one it waits for from running.
    options.set_enable_write_thread_adaptive_yield(false);
    options
}

pub(crate) fn descriptors(
    settings: &StoreSettings,
    cache: &Cache,
    garbage: &Arc<Garbage>,
) -> Vec<ColumnFamilyDescriptor> {
    let partitioner = SstPartitionerFactory::fixed_prefix(PREFIX_LEN);
    let mut all: Vec<_> = Family::ALL
        .into_iter()
        .map(|family| {
            let mut options = of_files(settings, cache, family);
            if !matches!(family, Family::Info | Family::Feed) {
                options.set_sst_partitioner_factory(&partitioner);
                options.set_compaction_filter_factory(GarbageFactory::new(garbage, family));
                options.set_periodic_compaction_seconds(PERIODIC_SECS);
                // Until `start_compaction`: before the regions are known, filters would run blind.
                options.set_disable_auto_compactions(true);
            }
            ColumnFamilyDescriptor::new(family.name(), options)
        })
        .collect();
    // RocksDB insists on having it; nothing is ever in it.
    all.push(ColumnFamilyDescriptor::new("default", Options::default()));
    all
}

/// How files of a family are written, also those of a region that leaves for another node.
pub(crate) fn of_files(settings: &StoreSettings, cache: &Cache, family: Family) -> Options {
    match family {
        Family::Feed => binlog(settings, cache),
        _ => rows(settings, cache, family),
    }
}

/// How files of rows are written that come into level 0.
pub(crate) fn of_level_0(settings: &StoreSettings, cache: &Cache, family: Family) -> Options {
    let plain = StoreSettings {
        zstd_bottom: false,
        ..settings.clone()
    };
    let mut options = of_files(&plain, cache, family);
    if family != Family::Feed {
        // Who writes a file takes the last of these.
        options.set_compression_per_level(&[DBCompressionType::None]);
    }
    options
}

fn rows(settings: &StoreSettings, cache: &Cache, family: Family) -> Options {
    let by_key = matches!(family, Family::Metadata | Family::Data);
    let mut options = memtables(settings);
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_memtable_whole_key_filtering(by_key);
    options.set_compaction_pri(DBCompactionPri::MinOverlappingRatio);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_target_file_size_base(settings.file_bytes);
    options.set_max_bytes_for_level_base(settings.level_base_bytes);
    // Level 0 is read often and rewritten soon.
    let below = [DBCompressionType::Lz4; 6];
    let mut levels = vec![DBCompressionType::None];
    levels.extend(below);
    options.set_compression_per_level(&levels);
    if settings.zstd_bottom {
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
    }
    let mut table = blocks(settings, cache);
    table.set_whole_key_filtering(by_key);
    if by_key {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
    }
    if family == Family::Info {
        table.set_block_size(4 << 10);
    }
    options.set_block_based_table_factory(&table);
    options
}

fn binlog(settings: &StoreSettings, cache: &Cache) -> Options {
    let mut options = memtables(settings);
    options.set_compaction_style(DBCompactionStyle::Fifo);
    let mut fifo = FifoCompactOptions::default();
    fifo.set_max_table_files_size(settings.binlog_bytes);
    options.set_fifo_compaction_options(&fifo);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks(settings, cache));
    options
}

fn memtables(settings: &StoreSettings) -> Options {
    let mut options = hinted();
    options.set_write_buffer_size(settings.memtable_bytes);
    options.set_max_write_buffer_number(settings.memtables);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(PREFIX_LEN));
    options
}

/// Rows of a database come in the order of their keys: the memtable is to begin its search where the
/// one before went in, not at the top. The interface has this option by name only; should a version
/// of RocksDB not know it, all is the same but slower.
fn hinted() -> Options {
    let prefix =
        format!("memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.{PREFIX_LEN}");
    let hinted = Options::default().get_options_from_string(prefix);
    hinted.unwrap_or_default()
}

fn blocks(settings: &StoreSettings, cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(settings.block_bytes);
    table.set_bloom_filter(settings.bloom_bits, false);
    // Indexes and filters live with the open table, not in the cache: no lookup per probe, and a
    // read of the cache tier never fails for want of them.
    table.set_cache_index_and_filter_blocks(false);
    table.set_optimize_filters_for_memory(true);
    table.set_format_version(6);
    table
}

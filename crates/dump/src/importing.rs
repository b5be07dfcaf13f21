//! A dump into the rows of a new data directory, before a node starts on it.
//!
//! Whoever calls this sees to it that the store is empty, and that nobody is served from it unless
//! this has returned without an error: then every row is on disk and was read back.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use keyspace::rows::{Changes, Import, RowError, RowStore, WriteError};
use runtime::cores::Map;
use runtime::durable::{log_id, region_count};
use runtime::now_ms;
use settings::Settings;

use crate::{loading, read_parts};

/// Long imports tell how far they are this often.
const PROGRESS: Duration = Duration::from_secs(5);
/// How soon a store that is behind is asked again.
const BUSY: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;

/// Imports the dump at `path` into as many regions as there are cores. In one line why not.
pub fn import(settings: &Settings, rows: &dyn RowStore, path: &Path) -> Result<(), String> {
    let began = Instant::now();
    let name = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {name}: {error}");
    let file = File::open(path).map_err(unreadable)?;
    let total = file.metadata().map_err(unreadable)?.len();
    let shown = |bytes: u64| format!("{} of {} MB", bytes / MIB, total.div_ceil(MIB));
    tracing::info!("importing {name} ({} MB)", total.div_ceil(MIB));

    let cores = settings.num_shards.max(1);
    let count = region_count(rows, cores).map_err(|error| error.to_string())?;
    let map = Map::of_regions(count, cores);
    let owned_by_core: Vec<u64> = (0..count).map(log_id).collect();
    let region_of = |key: &[u8]| map.region_of(key);

    let (read, told) = (Cell::new(0), Cell::new(began));
    let is_time = || {
        let is_time = told.get().elapsed() > PROGRESS;
        if is_time {
            told.set(Instant::now());
        }
        is_time
    };
    let mut write = |changes: &Changes| {
        if is_time() {
            tracing::info!("importing {name}: {}", shown(read.get()));
        }
        put(rows, changes)
    };
    let mut import = Import::new(&owned_by_core, &region_of, now_ms(), &mut write);
    // Its files are to be put in order while they come: a store that never compacts is slow to read.
    rows.set_alive(&import.alive());
    rows.start_compaction();
    let source = Counted { file, read: &read };
    let summary = read_parts(source, &mut import).map_err(|error| match error {
        rdb::Error::Stopped(why) => format!("{name} cannot be imported: {why}"),
        error => format!("{name} cannot be imported: {error}; put back a good copy of it"),
    })?;
    let stopped = |why: String| format!("{name} cannot be imported: {why}");
    import
        .finish()
        .map_err(|error| stopped(error.to_string()))?;
    rows.checkpoint().map_err(|error| {
        stopped(match error {
            RowError::Cold => "the store cannot flush".into(),
            RowError::Failed(what) => what,
        })
    })?;
    import
        .check(rows, &mut |rows| {
            if is_time() {
                tracing::info!("importing {name}: {rows} rows read back");
            }
        })
        .map_err(stopped)?;
    let restored = loading::Restored {
        keys: import.keys,
        expired: import.expired,
        took: began.elapsed(),
        summary,
    };
    tracing::info!(keys = restored.keys, "imported {name}: {restored}");
    loading::warn_of_skipped(settings, path, &restored.summary);
    Ok(())
}

fn put(rows: &dyn RowStore, changes: &Changes) -> Result<(), String> {
    loop {
        match rows.write(&[changes]) {
            Ok(()) => return Ok(()),
            Err(WriteError::Busy) => std::thread::sleep(BUSY),
            Err(WriteError::Failed(what)) => return Err(what),
        }
    }
}

/// Notes how much was read.
struct Counted<'a> {
    file: File,
    read: &'a Cell<u64>,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(into)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

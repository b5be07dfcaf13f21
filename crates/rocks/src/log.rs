//! The Raft logs of all regions, in one raft-engine.
//!
//! One call of `write` is one record with one checksum: all regions' entries in it are there after a
//! crash, or none is. Truncation writes a few bytes; the space comes back by file, in [`Log::tidy`].
//!
//! **Failure is final.** After a write or sync that failed nobody knows what is on disk, and asking
//! the kernel again may lie (it forgets the error and the dirty page). So the first failure poisons
//! the log: every later call says [`LogError::Failed`] with the first reason. raft-engine itself
//! panics when a sync fails; that is caught here and is such a failure.
//!
//! **A full disk is not a failure.** raft-engine takes back what it could not append (the file is cut where it ended
//! before), and nothing of it was synced or acknowledged. So the call says [`LogError::Full`], and the next one may
//! succeed. A *sync* that finds no room is a failed sync, and final.
//!
//! Two things raft-engine does not do, and we do:
//! - it cuts its last file at the first bad record, and ignores files before a hole; we refuse a log that lacks
//!   anything that was synced (`records.rs`, `watermark.rs`);
//! - its `sync()` writes and syncs nothing (its batch is empty, so it returns early); ours writes a
//!   mark.
//!
//! Writes are one at a time (a lock, not contended: there is one writer thread, and now and then a
//! truncation), so a panic never strands another thread in raft-engine's write group.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::contained;
use raft::eraftpb::{Entry, HardState};
use raft_engine::env::{DefaultFileSystem, FileSystem, Handle, Permission};
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use replica::{LogError, LogStore, LogWrite};

use crate::directory::sync_folder;
use crate::preallocate::Preallocated;
use crate::records::{self, MARK, MARKS};
use crate::watermark::{self, Watermark};
use crate::{LogSettings, OpenError};

const HARD_STATE: &[u8] = b"hard_state";

/// How raft-engine sees our entries.
struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// The log of a node.
pub struct Log<F: FileSystem = DefaultFileSystem> {
    engine: ManuallyDrop<Engine<Preallocated<F>>>,
    /// Whether something was written that is not yet synced. Held during a write.
    unsynced: Mutex<bool>,
    /// Whether what is being written will be synced at once: `ahead.rs` goes by it.
    syncing: Arc<AtomicBool>,
    failure: OnceLock<String>,
}

impl Log {
    /// Opens the log in `path` ([`crate::DataDir::log`]), cutting a torn tail.
    pub fn open(path: &Path, settings: &LogSettings) -> Result<Arc<Log>, OpenError> {
        let syncing = Arc::new(AtomicBool::new(false));
        Log::open_on(
            path,
            settings,
            Arc::new(DefaultFileSystem),
            Some(syncing.clone()),
            syncing,
        )
    }
}

impl<F: FileSystem> Log<F> {
    /// On other files than the system's: for tests ([`crate::FaultyFiles`]).
    pub fn open_with(
        path: &Path,
        settings: &LogSettings,
        files: Arc<F>,
    ) -> Result<Arc<Log<F>>, OpenError> {
        Log::open_on(path, settings, files, None, Arc::default())
    }

    fn open_on(
        path: &Path,
        settings: &LogSettings,
        files: Arc<F>,
        direct: Option<Arc<AtomicBool>>,
        syncing: Arc<AtomicBool>,
    ) -> Result<Arc<Log<F>>, OpenError> {
        std::fs::create_dir_all(path).map_err(|error| OpenError::failed(path, error))?;
        let before = watermark::read(path)?;
        records::check(path, before.as_ref())?;
        let (mark, below) = (Arc::new(OnceLock::new()), files.clone());
        let files = Preallocated::new(files, direct, mark.clone());
        let config = config(path, settings)?;
        // A hole in a region's indices makes it panic.
        let opened = contained(|| Engine::open_with_file_system(config, Arc::new(files)));
        let engine = match opened {
            Ok(Ok(engine)) => engine,
            Ok(Err(error @ raft_engine::Error::Io(_))) => {
                return Err(OpenError::failed(path, error));
            }
            Ok(Err(raft_engine::Error::Other(error))) if error.to_string().contains("lock") => {
                return Err(OpenError::InUse(path.into()));
            }
            Ok(Err(error)) => return Err(OpenError::damaged(path, error)),
            Err(panic) => return Err(OpenError::damaged(path, panic_text(&*panic))),
        };
        // raft-engine syncs head and folder when it begins another file, but not for the first.
        let on_disk = records::sync_last(path, before.as_ref(), |path| {
            below.open(path, Permission::ReadWrite)?.sync()
        })?;
        sync_folder(path).map_err(|error| OpenError::failed(path, error))?;
        let started = Watermark::start(path, on_disk);
        let started =
            started.map_err(|error| OpenError::failed(&watermark::path_of(path), error))?;
        // Set once, here: files tell of their syncs from now on.
        let _ = mark.set(started);
        Ok(Arc::new(Log {
            engine: ManuallyDrop::new(engine),
            unsynced: Mutex::new(false),
            syncing,
            failure: OnceLock::new(),
        }))
    }

    /// Gives the space of truncated entries back. Answers which regions keep old files alive: they
    /// should be checkpointed and truncated. Call it now and then, not on a core.
    pub fn tidy(&self) -> Result<Vec<u64>, LogError> {
        let mut held_up = self.guarded(|engine| engine.purge_expired_files())?;
        held_up.retain(|&region| region != MARKS);
        Ok(held_up)
    }

    /// Why nothing can be written any more.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn write_batch(
        &self,
        unsynced: &mut bool,
        batch: &mut LogBatch,
        sync: bool,
    ) -> Result<(), LogError> {
        if *unsynced {
            batch.delete(MARKS, MARK.to_vec());
        }
        if batch.is_empty() {
            return Ok(());
        }
        *unsynced = true;
        self.syncing.store(sync, Ordering::Relaxed);
        self.guarded(|engine| engine.write(batch, sync))?;
        *unsynced = !sync;
        Ok(())
    }

    /// Runs what may fail or panic; the first failure is remembered, and nothing runs after it.
    fn guarded<T>(
        &self,
        run: impl FnOnce(&Engine<Preallocated<F>>) -> raft_engine::Result<T>,
    ) -> Result<T, LogError> {
        if let Some(reason) = self.failure.get() {
            return Err(LogError::Failed(reason.clone()));
        }
        let reason = match contained(|| run(&self.engine)) {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if lacks_room(&error) => return Err(LogError::Full(error.to_string())),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_text(&*panic),
        };
        let reason = self
            .failure
            .get_or_init(|| format!("the log cannot be written: {reason}"));
        Err(LogError::Failed(reason.clone()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: FileSystem> LogStore for Log<F> {
    fn write(&self, writes: &[LogWrite], sync: bool) -> Result<(), LogError> {
        let mut unsynced = self.lock();
        let mut batch = LogBatch::with_capacity(writes.len());
        self.guarded(|_| {
            for write in writes {
                if write.reset.is_some() {
                    batch.add_command(write.region, Command::Clean);
                }
                batch.add_entries::<Entries>(write.region, &write.entries)?;
                if let Some(state) = &write.hard_state {
                    batch.put_message(write.region, HARD_STATE.to_vec(), state)?;
                }
            }
            Ok(())
        })?;
        self.write_batch(&mut unsynced, &mut batch, sync)
    }

    fn sync(&self) -> Result<(), LogError> {
        let mut unsynced = self.lock();
        // Empty, so it carries nothing but the mark, and only if there is something to sync.
        self.write_batch(&mut unsynced, &mut LogBatch::default(), true)
    }

    fn regions(&self) -> Vec<u64> {
        let mut regions = self.engine.raft_groups();
        regions.retain(|&region| {
            region != MARKS
                && (self.span(region).is_some() || self.engine.get(region, HARD_STATE).is_some())
        });
        regions.sort_unstable();
        regions
    }

    fn hard_state(&self, region: u64) -> Result<Option<HardState>, LogError> {
        self.engine
            .get_message(region, HARD_STATE)
            .map_err(|error| LogError::Corrupt(format!("hard state of region {region}: {error}")))
    }

    fn span(&self, region: u64) -> Option<(u64, u64)> {
        let first = self.engine.first_index(region)?;
        let last = self.engine.last_index(region)?;
        Some((first, last))
    }

    fn entries(
        &self,
        region: u64,
        low: u64,
        high: u64,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let Some((first, last)) = self.span(region) else {
            return Ok(Vec::new());
        };
        let high = high.min(last.saturating_add(1));
        if low < first || low >= high {
            return Ok(Vec::new());
        }
        let corrupt = |what: String| LogError::Corrupt(format!("log of region {region}: {what}"));
        let mut entries = Vec::new();
        // It asserts that the entry read is the one looked for.
        let read = contained(|| {
            self.engine.fetch_entries_to::<Entries>(
                region,
                low,
                high,
                Some(max_bytes),
                &mut entries,
            )
        });
        let error = match read {
            Ok(Ok(_)) => return Ok(entries),
            Ok(Err(error @ raft_engine::Error::Io(_))) => LogError::Failed(error.to_string()),
            Ok(Err(error)) => corrupt(error.to_string()),
            Err(panic) => corrupt(panic_text(&*panic)),
        };
        match self.span(region) {
            Some((first, last)) if first <= low && high <= last.saturating_add(1) => Err(error),
            // Meanwhile its beginning was cut, or a new leader's shorter end was written.
            _ => self.entries(region, low, high, max_bytes),
        }
    }

    fn tidy(&self) -> Result<(), LogError> {
        Log::tidy(self).map(|_| ())
    }

    fn truncate(&self, region: u64, index: u64) -> Result<(), LogError> {
        let mut unsynced = self.lock();
        let mut batch = LogBatch::default();
        batch.add_command(region, Command::Compact { index });
        // Lost in a power cut, it leaves a longer log: nobody minds.
        self.write_batch(&mut unsynced, &mut batch, false)
    }

    fn size_bytes(&self) -> u64 {
        self.engine.get_used_size() as u64
    }
}

impl<F: FileSystem> Drop for Log<F> {
    fn drop(&mut self) {
        // Closing syncs once more, and panics if that fails: not after a failure.
        if self.failure.get().is_none() {
            // SAFETY: dropped once, here, and not used after.
            let _ = contained(|| unsafe { ManuallyDrop::drop(&mut self.engine) });
        }
    }
}

fn config(path: &Path, settings: &LogSettings) -> Result<Config, OpenError> {
    let Some(dir) = path.to_str() else {
        return Err(OpenError::failed(path, "its name is not UTF-8"));
    };
    Ok(Config {
        dir: dir.into(),
        recovery_mode: RecoveryMode::TolerateTailCorruption,
        recovery_threads: settings.recovery_threads,
        batch_compression_threshold: ReadableSize(settings.compress_bytes),
        target_file_size: ReadableSize(settings.file_bytes),
        purge_threshold: ReadableSize(settings.keep_bytes.max(settings.file_bytes)),
        ..Config::default()
    })
}

fn lacks_room(error: &raft_engine::Error) -> bool {
    use std::io::ErrorKind;
    let error = match error {
        raft_engine::Error::Io(error) => error,
        raft_engine::Error::TryAgain(_) => return true,
        _ => return false,
    };
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("raft-engine panicked").to_owned()
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;

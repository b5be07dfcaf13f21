//! A large write becomes files at once, one per family, and never sees a memtable.
//!
//! ```text
//!   rows of a write, in order ─► rows/coming-in/<family>.sst … ─► part of the database, all at once
//!                                     writing.rs                          take_in.rs
//! ```
//!
//! Rows come in order and each once, so a memtable would sort what is sorted, and a flush would write what could have
//! been written to begin with. Small writes still go there: many of them make one file, not one each (decision 25).
//!
//! Invariants
//! - A write is in every family or in none, after any crash: RocksDB notes all files in one group of records.
//! - What is on disk is what some number of the first writes made. Rows of earlier writes that are in memtables are
//!   flushed before the files come in; without that a crash would keep a later write and lose an earlier one.
//! - A write as files is on disk when it returns. That is more than was asked for, and harmless: it carries its applied
//!   indices with it.
//! - When RocksDB would make writers wait, nothing is written: [`WriteError::Busy`].
//!
//! What is left in the folder when a process ends is removed by the next open: it is part of nothing.

mod take_in;
#[cfg(test)]
mod tests;
mod writing;

use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use keyspace::rows::{Changes, WriteError};
use rust_rocksdb::properties;

use crate::store::lacks_room;
use crate::{OpenError, Store, steps};
pub(crate) use take_in::take_in;
use writing::Written;

/// Inside the database's folder, so that files can be linked; RocksDB does not look at folders.
const FOLDER: &str = "coming-in";

/// Why files did not become part of the database.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Not now.
    Busy,
    Failed(String),
}

impl Failure {
    fn of(error: impl Display) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Busy => f.write_str("the store is busy"),
            Failure::Failed(why) => f.write_str(why),
        }
    }
}

/// What a process left that ended in the middle of a write.
pub(crate) fn remove_leftovers(rows: &Path) -> Result<(), OpenError> {
    let folder = rows.join(FOLDER);
    let remove = || -> io::Result<()> {
        for left in fs::read_dir(&folder)? {
            fs::remove_file(left?.path())?;
        }
        Ok(())
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::failed(&folder, error))
        }
        _ => Ok(()),
    }
}

/// All of these changes, of any number of families.
pub(crate) fn write(store: &Store, changes: &[&Changes]) -> Result<(), WriteError> {
    let _one = store
        .coming_in
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if makes_writers_wait(store) {
        return Err(store.busy());
    }
    let folder = store.open.db.path().join(FOLDER);
    let (mut paths, mut was_taken_in) = (Vec::new(), false);
    let written = put_in(store, &folder, changes, &mut paths, &mut was_taken_in);
    if !steps::has_ended() {
        // As well as it goes: the next write removes them, or the next open.
        paths.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    match written {
        Ok(written) => {
            let add =
                |sum: &std::sync::atomic::AtomicU64, bytes| sum.fetch_add(bytes, Ordering::Relaxed);
            add(&store.written_bytes, written.row_bytes);
            add(&store.work.flushed_bytes, written.file_bytes);
            store.work.lacks_room.store(false, Ordering::Relaxed);
            store.note_orphans(changes);
            Ok(())
        }
        Err(Failure::Busy) => Err(WriteError::Busy),
        // Found out before the files were to be taken in: nothing has changed.
        Err(Failure::Failed(why)) if !was_taken_in && lacks_room(&why) => {
            store.work.lacks_room.store(true, Ordering::Relaxed);
            Err(WriteError::Busy)
        }
        Err(Failure::Failed(why)) => Err(WriteError::Failed(why)),
    }
}

/// `paths`: where there may be files behind it, of use to nobody then. `taken_in`: set when the database was asked to
/// take the files in.
fn put_in(
    store: &Store,
    folder: &Path,
    changes: &[&Changes],
    paths: &mut Vec<PathBuf>,
    taken_in: &mut bool,
) -> Result<Written, Failure> {
    fs::create_dir_all(folder).map_err(Failure::of)?;
    let written = writing::write(store, folder, changes, paths)?;
    if store.has_rows_in_memory() {
        store
            .flush()
            .map_err(|error| Failure::Failed(format!("{error:?}")))?;
    }
    step()?;
    if !written.files.is_empty() {
        *taken_in = true;
        take_in(&store.open.db, &written.files)?;
    }
    Ok(written)
}

/// Too many files in level 0, too much to compact, or too many memtables.
fn makes_writers_wait(store: &Store) -> bool {
    let is_set = |property| {
        let value = store.open.db.property_int_value(property);
        value.ok().flatten().is_some_and(|value| value > 0)
    };
    is_set(properties::IS_WRITE_STOPPED) || is_set(properties::ACTUAL_DELAYED_WRITE_RATE)
}

fn step() -> Result<(), Failure> {
    match steps::ends_here() {
        true => Err(Failure::of(steps::ENDED)),
        false => Ok(()),
    }
}

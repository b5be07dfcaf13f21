//! The rows of a write as one file per family.
//!
//! A file goes into level 0, uncompressed as what is flushed there: it is read often and rewritten soon. RocksDB puts one whose
//! range nothing lies in straight into the last level, where it may stay for years; such a file is compressed as the
//! last level is. It is such a file if nothing lies behind its first row, as when a list grows. That is a guess, and a
//! wrong one costs space or CPU, nothing else.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use keyspace::rows::{Change, Changes, Family};
use rust_rocksdb::{EnvOptions, Error, Options, Range, SizeApproximationFlags, SstFileWriter};

use super::{Failure, step};
use crate::order::for_each_in_order;
use crate::{Store, families};

/// The system is told to begin writing so often, or all of it would come at once with the sync.
const BYTES_PER_SYNC: u64 = 1 << 20;
/// Behind all rows: keys begin with a home, which is never as high.
const BEHIND_ALL: [u8; 16] = [0xff; 16];

/// Files that are on disk and part of nothing yet.
pub(super) struct Written {
    pub files: Vec<(Family, PathBuf)>,
    pub file_bytes: u64,
    pub row_bytes: u64,
}

/// Each file is in `paths` before it is made.
pub(super) fn write(
    store: &Store,
    folder: &Path,
    changes: &[&Changes],
    paths: &mut Vec<PathBuf>,
) -> Result<Written, Failure> {
    let mut on_disk = EnvOptions::default();
    on_disk.set_bytes_per_sync(BYTES_PER_SYNC);
    let options = Default::default();
    let mut files = Files {
        store,
        folder,
        options: &options,
        on_disk: &on_disk,
        paths,
        open: None,
        written: Written {
            files: Vec::new(),
            file_bytes: 0,
            row_bytes: 0,
        },
    };
    let mut failure = None;
    for_each_in_order(changes, |change| {
        if failure.is_none() {
            failure = files.add(&change).err();
        }
    });
    match failure {
        Some(failure) => Err(failure),
        None => files.end().map(|()| files.written),
    }
}

struct Files<'a> {
    store: &'a Store,
    folder: &'a Path,
    /// By family; made for those that have rows.
    options: &'a [OnceCell<Options>; Family::ALL.len()],
    on_disk: &'a EnvOptions,
    paths: &'a mut Vec<PathBuf>,
    /// Rows come family by family: one is open at a time.
    open: Option<(Family, PathBuf, SstFileWriter<'a>)>,
    written: Written,
}

impl Files<'_> {
    #[inline]
    fn add(&mut self, change: &Change<'_>) -> Result<(), Failure> {
        if self
            .open
            .as_ref()
            .is_none_or(|(family, ..)| *family != change.family)
        {
            self.end()?;
            self.begin(change.family, change.key)?;
        }
        let Some((_, _, file)) = &mut self.open else {
            return Ok(());
        };
        let value_len = change.value.map_or(0, <[u8]>::len);
        self.written.row_bytes += (change.key.len() + value_len) as u64;
        let added = match change.value {
            Some(value) => file.put(change.key, value),
            None => file.delete(change.key),
        };
        added.map_err(failed)
    }

    fn begin(&mut self, family: Family, first: &[u8]) -> Result<(), Failure> {
        let Some(options) = self.options.get(family as usize) else {
            return Ok(());
        };
        let options = options.get_or_init(|| {
            let Store {
                settings, cache, ..
            } = self.store;
            match self.is_last(family, first) {
                true => families::of_files(settings, cache, family),
                false => families::of_level_0(settings, cache, family),
            }
        });
        let path = self.folder.join(format!("{}.sst", family.name()));
        self.paths.push(path.clone());
        // Never over what is there: a file that was taken in and could not be removed here is one of the database's.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::of(error));
            }
            _ => {}
        }
        let mut file = SstFileWriter::create_with_env_options(options, self.on_disk);
        file.open(&path).map_err(failed)?;
        self.open = Some((family, path, file));
        Ok(())
    }

    /// Whether no file has a row behind this one.
    fn is_last(&self, family: Family, first: &[u8]) -> bool {
        let db = &self.store.open.db;
        let behind = [Range::new(first, &BEHIND_ALL)];
        let files = SizeApproximationFlags::INCLUDE_FILES;
        let sizes = db.get_approximate_sizes_cf_with_flags(&db.family(family), files, &behind);
        sizes.is_ok_and(|sizes| sizes.iter().all(|&size| size == 0))
    }

    /// The open file is on disk.
    fn end(&mut self) -> Result<(), Failure> {
        if let Some((family, path, mut file)) = self.open.take() {
            file.finish().map_err(failed)?;
            self.written.file_bytes += file.file_size();
            self.written.files.push((family, path));
            step()?;
        }
        Ok(())
    }
}

fn failed(error: Error) -> Failure {
    Failure::Failed(error.into_string())
}

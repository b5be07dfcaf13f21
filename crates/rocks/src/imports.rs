//! A data directory that begins with somebody else's data.
//!
//! ```text
//!   begin    IMPORTING names the dump               (synced)   a start from here on begins again
//!   …        rows are written, flushed, checked
//!   finish   FORMAT                                 (synced)   from here on it is a data directory
//!            IMPORTING becomes IMPORTED                        which dump it was
//! ```
//!
//! *Invariants*: without FORMAT nobody is served, by any version; folders are emptied only where
//! IMPORTING is and FORMAT is not, so never those of a node that has started once.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::directory::{DataDir, OpenError, sync_folder};

const MARK: &str = "IMPORTING";
const DONE: &str = "IMPORTED";
const WORD: &str = "neokv-import 1";

/// A dump that was, or is being, imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// With all its folders.
    pub source: PathBuf,
    pub bytes: u64,
    pub changed_ms: u64,
}

impl Import {
    /// The file as it is now.
    pub fn of(source: &Path) -> io::Result<Import> {
        let source = fs::canonicalize(source)?;
        let found = fs::metadata(&source)?;
        let changed = found.modified()?.duration_since(UNIX_EPOCH);
        Ok(Import {
            source,
            bytes: found.len(),
            changed_ms: changed.map_or(0, |since| since.as_millis() as u64),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let Import {
            bytes, changed_ms, ..
        } = self;
        let mut text = format!("{WORD}\n{bytes} {changed_ms}\n").into_bytes();
        // Last: a file name may have any byte in it.
        text.extend_from_slice(self.source.as_os_str().as_bytes());
        text
    }

    fn decode(text: &[u8]) -> Option<Import> {
        let mut lines = text.splitn(3, |&byte| byte == b'\n');
        if lines.next()? != WORD.as_bytes() {
            return None;
        }
        let numbers = std::str::from_utf8(lines.next()?).ok()?;
        let (bytes, changed_ms) = numbers.split_once(' ')?;
        Some(Import {
            bytes: bytes.parse().ok()?,
            changed_ms: changed_ms.parse().ok()?,
            source: OsString::from_vec(lines.next()?.to_vec()).into(),
        })
    }
}

impl DataDir {
    /// The import that was begun and did not come to its end.
    pub fn unfinished_import(&self) -> Result<Option<Import>, OpenError> {
        match self.is_new() {
            true => self.read_mark(MARK),
            false => Ok(None),
        }
    }

    /// What the data was imported from.
    pub fn imported(&self) -> Result<Option<Import>, OpenError> {
        self.read_mark(DONE)
    }

    /// Makes an empty place for the rows, in a directory that is new or has half an import.
    pub fn begin_import(&self, import: &Import) -> Result<(), OpenError> {
        if !self.is_new() {
            return Err(OpenError::failed(self.path(), "it has data already"));
        }
        if self.path().join(MARK).exists() {
            self.remove_folders()?;
        }
        // Refuses files that are not ours, before the mark says that all of it may go.
        self.create_folders()?;
        self.write_file(MARK, &import.encode())
    }

    /// All rows are on disk: it is a data directory now.
    pub fn finish_import(&self) -> Result<(), OpenError> {
        self.write_format()?;
        self.note_imported()
    }

    /// As if it had never been begun.
    pub fn undo_import(&self) -> Result<(), OpenError> {
        if !self.is_new() || !self.path().join(MARK).exists() {
            return Ok(());
        }
        self.remove_folders()?;
        let failed = |error: io::Error| OpenError::failed(self.path(), error);
        fs::remove_file(self.path().join(MARK)).map_err(failed)?;
        sync_folder(self.path()).map_err(failed)
    }

    /// The mark is of no use any more; also when this was interrupted.
    pub(crate) fn note_imported(&self) -> Result<(), OpenError> {
        let failed = |error: io::Error| OpenError::failed(self.path(), error);
        match fs::rename(self.path().join(MARK), self.path().join(DONE)) {
            Ok(()) => sync_folder(self.path()).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn remove_folders(&self) -> Result<(), OpenError> {
        for folder in [self.rows(), self.log()] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(OpenError::failed(&folder, error));
                }
                _ => {}
            }
        }
        sync_folder(self.path()).map_err(|error| OpenError::failed(self.path(), error))
    }

    fn read_mark(&self, name: &str) -> Result<Option<Import>, OpenError> {
        let path = self.path().join(name);
        match fs::read(&path) {
            Ok(text) => Import::decode(&text)
                .map(Some)
                .ok_or_else(|| OpenError::damaged(&path, "it does not name a dump")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::failed(&path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_whole_or_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let source = temp.path().join("a dump\nof two lines");
        fs::write(&source, "REDIS").unwrap();
        let import = Import::of(&source).unwrap();
        let data = temp.path().join("data");
        let dir = DataDir::lock(&data).unwrap();
        assert!(dir.is_new());

        dir.begin_import(&import).unwrap();
        fs::write(dir.rows().join("half"), "").unwrap();
        assert_eq!(dir.unfinished_import().unwrap().as_ref(), Some(&import));
        let refused = dir.prepare().unwrap_err();
        assert!(matches!(refused, OpenError::HalfImported { .. }));

        dir.begin_import(&import).unwrap();
        assert!(!dir.rows().join("half").exists());
        dir.undo_import().unwrap();
        assert_eq!(dir.unfinished_import().unwrap(), None);
        assert!(!dir.rows().exists());

        dir.begin_import(&import).unwrap();
        dir.write_format().unwrap();
        // Interrupted right here: it is whole.
        assert_eq!(dir.unfinished_import().unwrap(), None);
        dir.prepare().unwrap();
        assert_eq!(dir.imported().unwrap(), Some(import.clone()));
        assert!(dir.begin_import(&import).is_err());
        dir.undo_import().unwrap();
        assert!(dir.rows().exists());
    }

    #[test]
    fn files_that_are_not_ours_stay() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("dump.rdb"), "REDIS").unwrap();
        let import = Import::of(&temp.path().join("dump.rdb")).unwrap();
        let dir = DataDir::lock(temp.path()).unwrap();
        fs::create_dir(dir.rows()).unwrap();
        fs::write(dir.rows().join("precious"), "").unwrap();
        let refused = dir.begin_import(&import).unwrap_err();
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
        dir.undo_import().unwrap();
        assert!(dir.rows().join("precious").exists());
    }
}

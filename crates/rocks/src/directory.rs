//! The data directory: whose it is, which format it has, where things lie in it.
//!
//! A directory is made in an order that a crash cannot spoil: the folders first, `FORMAT` last. So
//! a directory with `FORMAT` has its folders, and one whose folders are gone has been damaged by
//! hand; it is refused instead of being started empty.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of everything in a data directory. Raised when an older binary could not read it.
const FORMAT: u32 = 1;
const FORMAT_WORD: &str = "neokv-data";

/// Why a data directory cannot be used. The text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// Another process has it.
    InUse(PathBuf),
    /// Made by a newer version.
    TooNew { path: PathBuf, found: u32 },
    /// Not as we left it.
    Damaged { path: PathBuf, what: String },
    /// The log lacks what was synced: acknowledged writes are lost.
    LostLog { data: PathBuf, what: String },
    /// An import into it did not come to its end.
    HalfImported { path: PathBuf, source: PathBuf },
    /// The system refused.
    Failed { path: PathBuf, what: String },
}

impl OpenError {
    pub(crate) fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        OpenError::Damaged {
            path: path.into(),
            what: what.to_string(),
        }
    }

    /// `log`: its folder.
    pub(crate) fn lost_log(log: &Path, what: impl fmt::Display) -> Self {
        OpenError::LostLog {
            data: log.parent().unwrap_or(log).into(),
            what: what.to_string(),
        }
    }

    pub(crate) fn failed(path: &Path, what: impl fmt::Display) -> Self {
        OpenError::Failed {
            path: path.into(),
            what: what.to_string(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse(path) => write!(
                f,
                "data directory {} is in use by another process; stop it, or start this one with another --data-dir",
                path.display()
            ),
            OpenError::TooNew { path, found } => write!(
                f,
                "{} has format {found}, this binary reads up to {FORMAT}; start a newer neokv, or use another --data-dir",
                path.display()
            ),
            OpenError::Damaged { path, what } => write!(
                f,
                "{} is damaged: {what}. Nothing was changed. Restore it from a backup or a replica, or move it away to start empty",
                path.display()
            ),
            OpenError::LostLog { data, what } => write!(
                f,
                "the log has lost acknowledged writes: {what}. This is no torn write after a power cut: the missing part was on disk. \
                 Nothing was changed. Restore {data} from a backup; or go on without the writes behind this place: \
                 neokv accept-lost-log --data-dir {data}",
                data = data.display()
            ),
            OpenError::HalfImported { path, source } => write!(
                f,
                "the import of {} into {} was interrupted; it can be begun again",
                source.display(),
                path.display()
            ),
            OpenError::Failed { path, what } => {
                write!(f, "cannot open {}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// A data directory of ours, locked as long as this lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// The lock goes with the file, also when the process is killed.
    _lock: File,
}

impl DataDir {
    /// Makes it if it is not there.
    pub fn open(path: &Path) -> Result<DataDir, OpenError> {
        let dir = DataDir::lock(path)?;
        dir.prepare()?;
        Ok(dir)
    }

    /// Makes the folder if it is not there, and takes it; nothing in it is looked at.
    pub fn lock(path: &Path) -> Result<DataDir, OpenError> {
        fs::create_dir_all(path).map_err(|error| OpenError::failed(path, error))?;
        Ok(DataDir {
            path: path.into(),
            _lock: lock(path)?,
        })
    }

    /// Makes or checks what is in it; rows and log can be opened then.
    pub fn prepare(&self) -> Result<(), OpenError> {
        self.finish_aside()?;
        match fs::read_to_string(self.path.join("FORMAT")) {
            Ok(text) => {
                self.check(&text)?;
                self.note_imported()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(import) = self.unfinished_import()? {
                    return Err(OpenError::HalfImported {
                        path: self.path.clone(),
                        source: import.source,
                    });
                }
                self.create_folders()?;
                self.write_format()
            }
            Err(error) => Err(OpenError::failed(&self.path.join("FORMAT"), error)),
        }
    }

    /// Whether no node ever started on it.
    pub fn is_new(&self) -> bool {
        !self.path.join("FORMAT").exists()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folders with what was given up of a damaged log.
    pub fn lost_logs(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        let is_lost = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("lost-log") && path.is_dir()
        };
        paths.filter(is_lost).collect()
    }

    /// For [`crate::Store::open`].
    pub fn rows(&self) -> PathBuf {
        self.path.join("rows")
    }

    /// For the log.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn create_folders(&self) -> Result<(), OpenError> {
        for folder in [self.rows(), self.log()] {
            // Rows or a log without FORMAT: not ours, or FORMAT was removed by hand.
            if fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some()) {
                return Err(OpenError::damaged(
                    &self.path,
                    format!("{} has files but FORMAT is missing", folder.display()),
                ));
            }
            fs::create_dir_all(&folder).map_err(|error| OpenError::failed(&folder, error))?;
        }
        Ok(())
    }

    pub(crate) fn write_format(&self) -> Result<(), OpenError> {
        self.write_file("FORMAT", format!("{FORMAT_WORD} {FORMAT}\n").as_bytes())
    }

    /// A file that is there whole or not at all, also after a power cut.
    pub(crate) fn write_file(&self, name: &str, content: &[u8]) -> Result<(), OpenError> {
        let failed = |error: io::Error| OpenError::failed(&self.path, error);
        let written = self.path.join(format!("{name}.new"));
        let mut file = File::create(&written).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&written, self.path.join(name)).map_err(failed)?;
        sync_folder(&self.path).map_err(failed)
    }

    fn check(&self, text: &str) -> Result<(), OpenError> {
        let path = self.path.join("FORMAT");
        let found = text
            .trim_end()
            .strip_prefix(FORMAT_WORD)
            .and_then(|number| number.trim().parse::<u32>().ok())
            .ok_or_else(|| OpenError::damaged(&path, "it does not name a format"))?;
        if found > FORMAT {
            return Err(OpenError::TooNew { path, found });
        }
        for folder in [self.rows(), self.log()] {
            if !folder.is_dir() {
                return Err(OpenError::damaged(
                    &self.path,
                    format!("{} is missing", folder.display()),
                ));
            }
        }
        Ok(())
    }
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let name = path.join("LOCK");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(|error| OpenError::failed(&name, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.into())),
        Err(TryLockError::Error(error)) => Err(OpenError::failed(&name, error)),
    }
}

/// A new or renamed file is there after a power cut only if its folder was synced.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_and_it_is_told_which_directory() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let refused = DataDir::open(temp.path()).unwrap_err();
        assert_eq!(refused, OpenError::InUse(temp.path().into()));
        assert!(
            refused
                .to_string()
                .contains(&*temp.path().to_string_lossy())
        );
        drop(dir);
        DataDir::open(temp.path()).unwrap();
    }

    #[test]
    fn newer_formats_and_holes_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        drop(DataDir::open(temp.path()).unwrap());
        fs::write(temp.path().join("FORMAT"), "neokv-data 999\n").unwrap();
        let refused = DataDir::open(temp.path()).unwrap_err();
        assert!(matches!(refused, OpenError::TooNew { found: 999, .. }));
        fs::write(temp.path().join("FORMAT"), "what?").unwrap();
        assert!(matches!(
            DataDir::open(temp.path()),
            Err(OpenError::Damaged { .. })
        ));
        fs::write(temp.path().join("FORMAT"), "neokv-data 1\n").unwrap();
        fs::remove_dir(temp.path().join("log")).unwrap();
        let refused = DataDir::open(temp.path()).unwrap_err();
        assert!(refused.to_string().contains("log is missing"), "{refused}");
    }
}

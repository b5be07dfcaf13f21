//! `neokv accept-lost-log`: a log that has lost what was synced becomes a shorter one.
//!
//! The log is cut at the first place where something is missing, and all behind that place goes: what is left is the
//! node as it was at an earlier moment, never a later write without an earlier one. (Rows that were flushed since stay;
//! they are a moment, too.) Nothing is thrown away: what is cut off is in a folder beside the log.
//!
//! The watermark goes last. Ended before that, it is begun again.

use std::fs;
use std::path::{Path, PathBuf};

use crate::directory::sync_folder;
use crate::records::{self, End, Queue};
use crate::{DataDir, OpenError, watermark};

/// What was given up.
#[derive(Debug)]
pub struct Accepted {
    /// What was missing, one line for each place.
    pub lost: Vec<String>,
    /// Where the rest of the log is.
    pub kept_in: PathBuf,
}

impl DataDir {
    /// Cuts the log where it lacks what was synced; `None` if it does not.
    pub fn accept_lost_log(&self) -> Result<Option<Accepted>, OpenError> {
        let log = self.log();
        let mut lost = Vec::new();
        let mark = match watermark::read(&log) {
            Ok(mark) => mark,
            Err(OpenError::LostLog { what, .. }) => {
                lost.push(what);
                None
            }
            Err(error) => return Err(error),
        };
        let kept_in = self.unused_folder();
        for queue in Queue::ALL {
            let End::Lost(loss) = records::look(&log, queue, mark.as_ref())? else {
                continue;
            };
            let failed = |error| OpenError::failed(&kept_in, error);
            fs::create_dir_all(&kept_in).map_err(failed)?;
            for (seq, path) in records::files_of(&log, queue)? {
                if seq > loss.file.seq || seq == loss.file.seq && loss.at <= records::FILE_HEAD {
                    fs::rename(&path, in_folder(&kept_in, &path)).map_err(failed)?;
                } else if seq == loss.file.seq {
                    let copy = in_folder(&kept_in, &path);
                    fs::copy(&path, &copy).map_err(failed)?;
                    let cut = records::cut(&path, loss.at);
                    cut.map_err(|error| OpenError::failed(&path, error))?;
                }
            }
            lost.push(loss.what);
        }
        if lost.is_empty() {
            return Ok(None);
        }
        let failed = |error| OpenError::failed(self.path(), error);
        sync_folder(&log).map_err(failed)?;
        watermark::remove(&log).map_err(failed)?;
        Ok(Some(Accepted { lost, kept_in }))
    }

    pub(crate) fn unused_folder(&self) -> PathBuf {
        let mut names = (1..).map(|n: u32| self.path().join(format!("lost-log-{n}")));
        names
            .find(|path| !path.exists())
            .unwrap_or_else(|| self.path().join("lost-log"))
    }
}

fn in_folder(folder: &Path, path: &Path) -> PathBuf {
    path.file_name()
        .map_or_else(|| folder.to_path_buf(), |name| folder.join(name))
}

//! Files of the log that have their blocks before they are written to.
//!
//! A sync of bytes in fresh blocks is two writes: the bytes, and where they are (the file system's
//! journal). Over blocks that were written before it is one, half the time and half the CPU. Files
//! that raft-engine uses again have such blocks; to others zeros are written a little ahead of the
//! log, so that one sync in many pays for the journal. (Room reserved with `fallocate` does not help:
//! that it is used now must be noted, too.)
//!
//! Zeros behind the last record are what raft-engine finds in reserved room after a crash anyway: the
//! end of the log.
//!
//! Bytes over such blocks that are about to be synced go to the device without a way through the page
//! cache ([`crate::direct`]).
//!
//! This is also where the log notes how far it is on disk ([`crate::watermark`]): every sync of a file of either queue
//! passes here, and so does every removal.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};

use crate::direct::Direct;
use crate::records::FileId;
use crate::watermark::Watermark;

/// Blocks come in steps of this size.
const STEP: u64 = 256 << 10;

static ZEROS: [u8; STEP as usize] = [0; STEP as usize];

/// Another file system, with blocks ahead.
pub(crate) struct Preallocated<F> {
    below: Arc<F>,
    /// Whether what is written now will be synced at once; `None`: all goes through `below`, whose files are not
    /// the system's.
    syncing: Option<Arc<AtomicBool>>,
    mark: Arc<OnceLock<Watermark>>,
}

impl<F> Preallocated<F> {
    /// `mark`: set when the log is open; syncs before that are not noted.
    pub fn new(
        below: Arc<F>,
        syncing: Option<Arc<AtomicBool>>,
        mark: Arc<OnceLock<Watermark>>,
    ) -> Self {
        Preallocated {
            below,
            syncing,
            mark,
        }
    }

    fn file<H>(&self, path: &Path, below: H) -> File<H> {
        File {
            below: Arc::new(below),
            path: path.into(),
            id: FileId::of(path),
            end: Arc::default(),
            mark: self.mark.clone(),
        }
    }

    /// A file is about to go, or to become another one.
    fn release(&self, path: &Path) -> io::Result<()> {
        match (FileId::of(path), self.mark.get()) {
            (Some(id), Some(mark)) => mark.on_unneeded(id),
            _ => Ok(()),
        }
    }
}

/// An open file, and where it is.
pub(crate) struct File<H> {
    below: Arc<H>,
    path: PathBuf,
    id: Option<FileId>,
    /// Up to here it was written.
    end: Arc<AtomicU64>,
    mark: Arc<OnceLock<Watermark>>,
}

pub(crate) struct Writer<W> {
    below: W,
    /// Where the next write goes.
    at: u64,
    /// Up to here there are blocks.
    blocks_to: u64,
    /// Up to here raft-engine wants room; what is behind it would not be cut off when the file ends.
    room_to: u64,
    /// The way past the page cache, and when it is taken.
    direct: Option<(Direct, Arc<AtomicBool>)>,
    /// As `at`, for the syncs of the file.
    end: Arc<AtomicU64>,
}

impl<H: Handle> Handle for File<H> {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.below.truncate(offset)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.below.file_size()
    }

    fn sync(&self) -> io::Result<()> {
        let end = self.end.load(Ordering::Acquire);
        self.below.sync()?;
        if let (Some(id), Some(mark)) = (self.id, self.mark.get())
            && end > 0
        {
            mark.on_synced(id, end);
        }
        Ok(())
    }
}

impl<F: FileSystem> FileSystem for Preallocated<F> {
    type Handle = File<F::Handle>;
    type Reader = F::Reader;
    type Writer = Writer<F::Writer>;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<File<F::Handle>> {
        let below = self.below.create(path.as_ref())?;
        Ok(self.file(path.as_ref(), below))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<File<F::Handle>> {
        let below = self.below.open(path.as_ref(), permission)?;
        Ok(self.file(path.as_ref(), below))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.release(path.as_ref())?;
        self.below.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.release(from.as_ref())?;
        self.below.rename(from, to)
    }

    fn reuse<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.release(from.as_ref())?;
        self.below.reuse(from, to)
    }

    fn delete_metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.below.delete_metadata(path)
    }

    fn exists_metadata<P: AsRef<Path>>(&self, path: P) -> bool {
        self.below.exists_metadata(path)
    }

    fn new_reader(&self, handle: Arc<File<F::Handle>>) -> io::Result<F::Reader> {
        self.below.new_reader(handle.below.clone())
    }

    fn new_writer(&self, handle: Arc<File<F::Handle>>) -> io::Result<Writer<F::Writer>> {
        let syncing = self.syncing.clone();
        Ok(Writer {
            blocks_to: handle.file_size()? as u64,
            below: self.below.new_writer(handle.below.clone())?,
            at: 0,
            room_to: 0,
            direct: syncing.and_then(|syncing| Some((Direct::open(&handle.path)?, syncing))),
            end: handle.end.clone(),
        })
    }
}

impl<W> Writer<W> {
    fn move_to(&mut self, at: u64) {
        self.at = at;
        self.end.store(at, Ordering::Release);
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Zeros up to the next step, if there is to be room. Without them all is the same but slower; where there is no room
    /// for them, the next write says so.
    fn go_ahead(&mut self) -> io::Result<()> {
        let to = self.at.next_multiple_of(STEP).min(self.room_to);
        if to <= self.at {
            return Ok(());
        }
        let zeros = ZEROS.get(..(to - self.at) as usize).unwrap_or_default();
        if self.below.write_all(zeros).is_ok() {
            self.blocks_to = to;
        }
        self.below.seek(SeekFrom::Start(self.at)).map(drop)
    }

    /// Writes past the page cache, if that is a way now; false if it is not.
    fn write_direct(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some((direct, syncing)) = &mut self.direct else {
            return Ok(false);
        };
        let is_over_blocks =
            Direct::end_of(self.at, bytes.len()).is_some_and(|end| end <= self.blocks_to);
        if !is_over_blocks || !syncing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match direct.write(self.at, bytes) {
            Ok(()) => {}
            // Its blocks are larger than ours, or it does not do this for this file: nothing was written. Through the
            // page cache any bytes can be written.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.direct = None;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let end = self.at + bytes.len() as u64;
        let at = self.below.seek(SeekFrom::Start(end))?;
        self.move_to(at);
        Ok(true)
    }
}

impl<W: Write + Seek> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.write_direct(bytes)? {
            return Ok(bytes.len());
        }
        let written = self.below.write(bytes).map_err(in_plain_words)?;
        if let Some((direct, _)) = &mut self.direct {
            direct.follow(self.at, bytes.get(..written).unwrap_or_default());
        }
        self.move_to(self.at + written as u64);
        if self.at > self.blocks_to {
            self.blocks_to = self.at;
            self.go_ahead()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.below.flush()
    }
}

/// raft-engine knows a full disk by the text its own files give to it, and then begins another file, each time it is
/// tried. It need not: it is tried again when there is room.
fn in_plain_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull => io::Error::from_raw_os_error(libc::ENOSPC),
        _ => error,
    }
}

impl<W: Seek> Seek for Writer<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.below.seek(to)?;
        self.move_to(at);
        if let Some((direct, _)) = &mut self.direct {
            direct.forget();
        }
        Ok(self.at)
    }
}

impl<W: WriteExt> WriteExt for Writer<W> {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.below.truncate(offset)?;
        if let Some((direct, _)) = &mut self.direct {
            direct.forget();
        }
        self.move_to(offset as u64);
        self.blocks_to = self.at;
        self.room_to = self.at;
        Ok(())
    }

    /// Room is made by writing to it, when it is needed.
    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.room_to = self.room_to.max(offset.saturating_add(size) as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use raft_engine::env::DefaultFileSystem;

    use super::*;

    fn zeros_are_ahead(syncing: Option<Arc<AtomicBool>>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let files = Preallocated::new(Arc::new(DefaultFileSystem), syncing.clone(), Arc::default());
        let handle = Arc::new(files.create(&path).unwrap());
        let mut writer = files.new_writer(handle.clone()).unwrap();
        writer.write_all(b"head").unwrap();
        assert_eq!(handle.file_size().unwrap(), 4, "no room is wanted yet");
        writer.allocate(4, 8 * STEP as usize - 104).unwrap();
        let mut wanted = b"head".to_vec();
        for n in 0..200u8 {
            let part = vec![n; usize::from(n) * 97];
            if let Some(syncing) = &syncing {
                syncing.store(n % 5 != 4, Ordering::Relaxed);
            }
            writer.write_all(&part).unwrap();
            wanted.extend_from_slice(&part);
            let size = handle.file_size().unwrap();
            let step = wanted.len().next_multiple_of(STEP as usize);
            assert_eq!(
                size,
                if n == 0 {
                    4
                } else {
                    step.min(8 * STEP as usize - 100)
                }
            );
        }
        assert!(wanted.len() > 7 * STEP as usize);
        let mut found = Vec::new();
        let mut reader = files.new_reader(handle.clone()).unwrap();
        reader.read_to_end(&mut found).unwrap();
        let (kept, zeros) = found.split_at(wanted.len());
        assert_eq!(kept, wanted);
        assert!(zeros.iter().all(|&byte| byte == 0));

        // A file that is used again has its blocks.
        let mut writer = files.new_writer(handle.clone()).unwrap();
        writer.write_all(b"again").unwrap();
        assert_eq!(handle.file_size().unwrap(), found.len());
        writer.truncate(5).unwrap();
        assert_eq!(handle.file_size().unwrap(), 5);
        writer.allocate(5, 1000).unwrap();
        writer.write_all(b"!").unwrap();
        assert_eq!(handle.file_size().unwrap(), 1005);
    }

    #[test]
    fn zeros_are_ahead_of_what_is_written_and_never_over_it() {
        zeros_are_ahead(None);
    }

    #[test]
    fn nor_past_the_page_cache() {
        zeros_are_ahead(Some(Arc::default()));
    }
}

//! Files that fail as disks do, for tests of the log: power cuts, torn writes, a failed sync, a full
//! disk.
//!
//! Everything is written to real files at once, and remembered with what was there before until it
//! is synced. A power cut takes back what was not synced, as the page cache does; what is then on
//! the disk is opened again with any file system. (Creating and renaming files counts as durable:
//! raft-engine syncs the folder itself.)

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};

const PAGE: usize = 4096;
const NO_SPACE: i32 = 28;

/// What of the writes that were not synced reaches the disk in a power cut.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// Nothing.
    All,
    /// All but the last write, and of that one the first bytes.
    Torn(usize),
    /// Any pages, chosen by this seed.
    Pages(u64),
}

#[derive(Default)]
struct Disk {
    unsynced: Vec<Unsynced>,
    free_bytes: Option<u64>,
    sync_fails: bool,
    /// After a power cut: what a dying process still does reaches nothing.
    is_off: bool,
}

struct Unsynced {
    file: Arc<File>,
    offset: u64,
    before: Vec<u8>,
    len_before: u64,
    written: Vec<u8>,
}

/// A file system for [`crate::Log::open_with`]. Clones are the same disk.
#[derive(Clone, Default)]
pub struct FaultyFiles {
    disk: Arc<Mutex<Disk>>,
}

impl FaultyFiles {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn cut_power(&self, cut: Cut) -> io::Result<()> {
        let mut disk = self.disk();
        disk.is_off = true;
        let unsynced = std::mem::take(&mut disk.unsynced);
        let last = unsynced.iter().rposition(|write| !write.written.is_empty());
        if !matches!(cut, Cut::Torn(_)) {
            for write in unsynced.iter().rev() {
                write.take_back()?;
            }
        }
        match cut {
            Cut::All => {}
            Cut::Torn(bytes) => {
                if let Some(write) = last.and_then(|last| unsynced.get(last)) {
                    write.take_back()?;
                    let kept = write.written.len().min(bytes);
                    write
                        .file
                        .write_all_at(&write.written[..kept], write.offset)?;
                }
            }
            Cut::Pages(seed) => {
                let mut state = seed;
                for write in &unsynced {
                    write.write_some_pages(&mut state)?;
                }
            }
        }
        Ok(())
    }

    /// Syncs fail from now on.
    pub fn fail_syncs(&self) {
        self.disk().sync_fails = true;
    }

    pub fn fill_disk(&self, free_bytes: u64) {
        self.disk().free_bytes = Some(free_bytes);
    }
}

impl Unsynced {
    fn take_back(&self) -> io::Result<()> {
        self.file.write_all_at(&self.before, self.offset)?;
        self.file.set_len(self.len_before)
    }

    fn write_some_pages(&self, state: &mut u64) -> io::Result<()> {
        let mut at = 0;
        while at < self.written.len() {
            let offset = self.offset + at as u64;
            let in_page = PAGE - offset as usize % PAGE;
            let part = &self.written[at..self.written.len().min(at + in_page)];
            // A linear congruence is random enough to choose pages.
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if *state >> 63 == 1 {
                self.file.write_all_at(part, offset)?;
            }
            at += part.len();
        }
        Ok(())
    }
}

/// A file of a [`FaultyFiles`].
pub struct FaultyFile {
    file: Arc<File>,
    files: FaultyFiles,
    offset: u64,
}

impl FaultyFile {
    fn change(&self, offset: u64, written: &[u8], new_len: Option<u64>) -> io::Result<()> {
        let mut disk = self.files.disk();
        if disk.is_off {
            return Ok(());
        }
        let len_before = self.file.metadata()?.len();
        let end = match new_len {
            Some(_) => len_before,
            None => len_before.min(offset + written.len() as u64),
        };
        let mut before = vec![0; end.saturating_sub(offset) as usize];
        self.file.read_exact_at(&mut before, offset)?;
        if let Some(free) = &mut disk.free_bytes {
            if written.len() as u64 > *free {
                return Err(io::Error::from_raw_os_error(NO_SPACE));
            }
            *free -= written.len() as u64;
        }
        self.file.write_all_at(written, offset)?;
        if let Some(len) = new_len {
            self.file.set_len(len)?;
        }
        disk.unsynced.push(Unsynced {
            file: self.file.clone(),
            offset,
            before,
            len_before,
            written: written.to_vec(),
        });
        Ok(())
    }
}

impl FileSystem for FaultyFiles {
    type Handle = FaultyFile;
    type Reader = FaultyFile;
    type Writer = FaultyFile;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<FaultyFile> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).read(true).write(true);
        Ok(self.of(Arc::new(options.open(path)?)))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<FaultyFile> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(permission == Permission::ReadWrite);
        Ok(self.of(Arc::new(options.open(path)?)))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn new_reader(&self, handle: Arc<FaultyFile>) -> io::Result<FaultyFile> {
        Ok(self.of(handle.file.clone()))
    }

    fn new_writer(&self, handle: Arc<FaultyFile>) -> io::Result<FaultyFile> {
        Ok(self.of(handle.file.clone()))
    }
}

impl FaultyFiles {
    fn of(&self, file: Arc<File>) -> FaultyFile {
        FaultyFile {
            file,
            files: self.clone(),
            offset: 0,
        }
    }
}

impl Handle for FaultyFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.change(offset as u64, &[], Some(offset as u64))
    }

    fn file_size(&self) -> io::Result<usize> {
        Ok(self.file.metadata()?.len() as usize)
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.files.disk();
        if disk.is_off {
            return Ok(());
        }
        if disk.sync_fails {
            return Err(io::Error::other("injected: sync failed"));
        }
        // One file may be open more than once.
        let this = inode(&self.file)?;
        disk.unsynced
            .retain(|write| inode(&write.file).is_ok_and(|other| other != this));
        Ok(())
    }
}

fn inode(file: &File) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.ino())
}

impl WriteExt for FaultyFile {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.offset = offset as u64;
        Handle::truncate(self, offset)
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        let end = (offset + size) as u64;
        if end > self.file.metadata()?.len() {
            self.change(end, &[], Some(end))?;
        }
        Ok(())
    }
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.change(self.offset, bytes, None)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for FaultyFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Seek for FaultyFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = self.file.metadata()?.len();
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => end.checked_add_signed(by),
        };
        self.offset = offset.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

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

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};

/// Blocks come in steps of this size.
const STEP: u64 = 256 << 10;

static ZEROS: [u8; STEP as usize] = [0; STEP as usize];

/// Another file system, with blocks ahead.
pub(crate) struct Ahead<F>(pub Arc<F>);

pub(crate) struct Writer<W> {
    below: W,
    /// Where the next write goes.
    at: u64,
    /// Up to here there are blocks.
    blocks_to: u64,
    /// Up to here raft-engine wants room; what is behind it would not be cut off when the file ends.
    room_to: u64,
}

impl<F: FileSystem> FileSystem for Ahead<F> {
    type Handle = F::Handle;
    type Reader = F::Reader;
    type Writer = Writer<F::Writer>;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<F::Handle> {
        self.0.create(path)
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<F::Handle> {
        self.0.open(path, permission)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.0.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn reuse<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.0.reuse(from, to)
    }

    fn delete_metadata<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.0.delete_metadata(path)
    }

    fn exists_metadata<P: AsRef<Path>>(&self, path: P) -> bool {
        self.0.exists_metadata(path)
    }

    fn new_reader(&self, handle: Arc<F::Handle>) -> io::Result<F::Reader> {
        self.0.new_reader(handle)
    }

    fn new_writer(&self, handle: Arc<F::Handle>) -> io::Result<Writer<F::Writer>> {
        Ok(Writer {
            blocks_to: handle.file_size()? as u64,
            below: self.0.new_writer(handle)?,
            at: 0,
            room_to: 0,
        })
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
}

impl<W: Write + Seek> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.below.write(bytes)?;
        self.at += written as u64;
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

impl<W: Seek> Seek for Writer<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.below.seek(to)?;
        Ok(self.at)
    }
}

impl<W: WriteExt> WriteExt for Writer<W> {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.below.truncate(offset)?;
        self.at = offset as u64;
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

    #[test]
    fn zeros_are_ahead_of_what_is_written_and_never_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let files = Ahead(Arc::new(DefaultFileSystem));
        let handle = Arc::new(files.create(&path).unwrap());
        let mut writer = files.new_writer(handle.clone()).unwrap();
        writer.write_all(b"head").unwrap();
        assert_eq!(handle.file_size().unwrap(), 4, "no room is wanted yet");
        writer.allocate(4, 8 * STEP as usize - 104).unwrap();
        let mut wanted = b"head".to_vec();
        for n in 0..200u8 {
            let part = vec![n; usize::from(n) * 97];
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
}

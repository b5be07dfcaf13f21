//! Writes past the page cache, for what is synced at once.
//!
//! A sync through the page cache costs the kernel twice: bytes are copied into pages, then the pages have to be
//! found, marked, written and waited for. Bytes that go to the device by themselves leave only the flush of its
//! cache to `fdatasync`: half of the CPU per sync, and no page of the log pushes out one that is read.
//!
//! The device takes whole blocks only. So the block that a write ends in is remembered, and written again with what
//! follows it:
//!
//! ```text
//!   file      │ … old old old │ old new new 0 0 │ 0 0 0 0 0 0 0 │
//!   written                   └──── one write ──┘
//! ```
//!
//! A write that is torn cannot harm what was there before it: those bytes are the same in the old block and the new.
//! (Pages of the page cache are written as whole blocks, too.) Behind the last byte are zeros, which is how a log ends.
//!
//! *Invariant*: never over the end of the file; who calls has made the blocks before ([`crate::ahead`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What every disk takes.
pub(crate) const BLOCK: usize = 4096;
/// Larger writes gain nothing: the bytes are the cost, not the calls.
const MOST_BYTES: usize = 1 << 20;

/// A file that is written in whole blocks.
pub(crate) struct Direct {
    file: File,
    /// Memory that begins at a block's border somewhere: see `begin`.
    room: Vec<u8>,
    begin: usize,
    /// The room begins with what the file has in the block of this place, up to it.
    known_to: Option<u64>,
}

impl Direct {
    /// Opens a file for it; `None` where the file system does not have this.
    pub fn open(path: &Path) -> Option<Direct> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options.custom_flags(libc::O_DIRECT).open(path).ok()?;
        let room = vec![0; MOST_BYTES + 3 * BLOCK];
        let begin = room.as_ptr().align_offset(BLOCK);
        Some(Direct {
            file,
            room,
            begin,
            known_to: None,
        })
    }

    /// Where a write of so many bytes would end, the rest of its last block included; `None` if it is too large.
    pub fn end_of(at: u64, len: usize) -> Option<u64> {
        let end = at.checked_add(len as u64)?;
        (len <= MOST_BYTES).then(|| end.next_multiple_of(BLOCK as u64))
    }

    /// Writes `bytes` at `at`; what is behind them in their last block becomes zeros.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let in_block = (at % BLOCK as u64) as usize;
        let from = at - in_block as u64;
        let whole = (in_block + bytes.len()).next_multiple_of(BLOCK);
        if self.known_to != Some(at) && in_block > 0 {
            let Some(block) = self.room.get_mut(self.begin..self.begin + BLOCK) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            self.file.read_exact_at(block, from)?;
        }
        self.known_to = None;
        let Some(room) = self.room.get_mut(self.begin..self.begin + whole) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (before, rest) = room.split_at_mut(in_block);
        let (new, padding) = rest.split_at_mut(bytes.len());
        new.copy_from_slice(bytes);
        padding.fill(0);
        debug_assert_eq!(before.len() + new.len() + padding.len(), whole);
        self.file.write_all_at(room, from)?;
        let last = whole - BLOCK;
        if last > 0 {
            room.copy_within(last.., 0);
        }
        self.known_to = Some(at + bytes.len() as u64);
        Ok(())
    }

    /// These were written another way.
    pub fn follow(&mut self, at: u64, bytes: &[u8]) {
        let was_known = self.known_to.take() == Some(at) || at.is_multiple_of(BLOCK as u64);
        let end = at + bytes.len() as u64;
        let in_block = (end % BLOCK as u64) as usize;
        let (from, bytes) = match bytes.len().checked_sub(in_block) {
            Some(before) => (0, bytes.get(before..)),
            None if was_known => (in_block - bytes.len(), Some(bytes)),
            None => return,
        };
        let begin = self.begin + from;
        let Some(bytes) = bytes else { return };
        if let Some(room) = self.room.get_mut(begin..begin + bytes.len()) {
            room.copy_from_slice(bytes);
            self.known_to = Some(end);
        }
    }

    /// The next write is somewhere else, or the file was cut.
    pub fn forget(&mut self) {
        self.known_to = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_anywhere_and_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let blocks = 64;
        let mut wanted = vec![7; blocks * BLOCK];
        std::fs::write(&path, &wanted).unwrap();
        let Some(mut direct) = Direct::open(&path) else {
            return; // a file system that has only pages
        };
        let other = OpenOptions::new().write(true).open(&path).unwrap();
        let mut dice = fastrand::Rng::with_seed(1);
        let mut at = 0;
        for n in 0..2000 {
            let bytes = vec![dice.u8(..); dice.usize(..3 * BLOCK)];
            if dice.u8(..20) == 0 || at + bytes.len() + BLOCK > wanted.len() {
                at = dice.usize(..BLOCK * 8);
                direct.forget();
            }
            let end = at + bytes.len();
            wanted[at..end].copy_from_slice(&bytes);
            if dice.u8(..4) == 0 {
                other.write_all_at(&bytes, at as u64).unwrap();
                direct.follow(at as u64, &bytes);
            } else {
                direct.write(at as u64, &bytes).unwrap();
                let padded = Direct::end_of(at as u64, bytes.len()).unwrap() as usize;
                wanted[end..padded].fill(0);
            }
            at = end;
            if n % 50 == 0 {
                assert!(std::fs::read(&path).unwrap() == wanted, "after {n}");
            }
        }
        assert!(std::fs::read(&path).unwrap() == wanted);
    }

    #[test]
    fn large_writes_go_another_way() {
        assert_eq!(Direct::end_of(1, 1), Some(BLOCK as u64));
        assert_eq!(
            Direct::end_of(BLOCK as u64, MOST_BYTES),
            Some((BLOCK + MOST_BYTES) as u64)
        );
        assert_eq!(Direct::end_of(0, MOST_BYTES + 1), None);
    }
}

//! Is the log as we left it? Asked before raft-engine opens it, because raft-engine cuts its last
//! file at the first bad record and does not look behind it.
//!
//! A power cut may tear what was being written, and nothing else: that is the *tail*, and it is cut.
//! A bad record with good ones behind it was once synced and has been damaged since: acknowledged
//! writes are missing, and the log is refused, never repaired by forgetting.
//!
//! ```text
//!   file     magic  version:u64  alignment:u64          then records
//!   record   length<<8|compression:u64BE  footer offset:u64BE  [entries  crc:u32LE]  items  crc^seq:u32LE
//! ```
//!
//! **The mark.** Writes that were not synced one by one (`everysec`, `no`, truncations) may reach
//! the disk in any order, so after a power cut a good record can lie behind a torn one. A record
//! written while older ones were not yet synced carries [`MARK`] among its items; a record without
//! it says "everything before me was on disk when I was written". So: a good record without the
//! mark behind a bad one is damage, and only that.
//!
//! Files before the last one are complete: raft-engine syncs a file before it makes the next.
//!
//! **A file without a head** (power was cut while it was made) gets one here. raft-engine would write that
//! of its oldest version, whose records are not signed; such files are read, too.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::OpenError;

/// Key of the item that marks a record (in region [`MARKS`]).
pub(crate) const MARK: &[u8] = b"older writes unsynced";
/// Not a region: where marks are.
pub(crate) const MARKS: u64 = u64::MAX;

const MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
/// Magic, version, alignment.
const FILE_HEAD: usize = MAGIC.len() + 16;
const RECORD_HEAD: usize = 16;
const CRC: usize = 4;
/// The only version we write: records signed with the number of their file.
const VERSION: u64 = 2;
/// Records are not signed, and there is no alignment in the head.
const UNSIGNED_VERSION: u64 = 1;

/// Looks at every file of the log in `dir`; cuts a torn tail, refuses anything else.
pub(crate) fn check(dir: &Path) -> Result<(), OpenError> {
    let files = append_files(dir)?;
    for (at, (seq, path)) in files.iter().enumerate() {
        let bytes = fs::read(path).map_err(|error| OpenError::failed(path, error))?;
        let Some(bad) = first_bad(&bytes, *seq) else {
            continue;
        };
        if at + 1 < files.len() {
            let what = format!(
                "the record at byte {bad} fails its checksum, and it is not the end of the log"
            );
            return Err(OpenError::damaged(path, what));
        }
        let signature = head(&bytes, *seq).map_or(*seq, |(_, signature)| signature);
        if let Some(good) = synced_behind(&bytes, bad, signature) {
            let what = format!(
                "the record at byte {bad} fails its checksum, but the one at byte {good} was written after it had been synced"
            );
            return Err(OpenError::damaged(path, what));
        }
        cut(path, bad).map_err(|error| OpenError::failed(path, error))?;
    }
    Ok(())
}

/// Brings the last file to disk as it is: a record may say that everything before it was synced only if the
/// head was, too.
pub(crate) fn sync_last(dir: &Path) -> Result<(), OpenError> {
    let Some((_, path)) = append_files(dir)?.pop() else {
        return Ok(());
    };
    let synced = fs::File::open(&path).and_then(|file| file.sync_all());
    synced.map_err(|error| OpenError::failed(&path, error))
}

/// Files of the append queue in order. (Rewritten ones are copies raft-engine makes of old entries;
/// it keeps the originals until the copies are synced.)
fn append_files(dir: &Path) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let failed = |error| OpenError::failed(dir, error);
    let mut files = Vec::new();
    for file in fs::read_dir(dir).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "raftlog")
            && let Some(seq) = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse().ok())
        {
            files.push((seq, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Where the first record is that is not whole; `None` if all are.
fn first_bad(bytes: &[u8], seq: u64) -> Option<usize> {
    let Some((mut at, signature)) = head(bytes, seq) else {
        return Some(0);
    };
    while at < bytes.len() {
        match Record::at(bytes, at, signature) {
            Some(record) if record.entries_are_sound() => at += record.len,
            _ => return Some(at),
        }
    }
    None
}

/// Where the first record of a file begins, and what its records are signed with.
fn head(bytes: &[u8], seq: u64) -> Option<(usize, u64)> {
    let version = bytes.strip_prefix(MAGIC)?.first_chunk()?;
    match u64::from_be_bytes(*version) {
        VERSION if bytes.len() >= FILE_HEAD => Some((FILE_HEAD, seq)),
        UNSIGNED_VERSION => Some((MAGIC.len() + 8, 0)),
        _ => None,
    }
}

/// The first record behind `bad` that says everything before it was synced.
fn synced_behind(bytes: &[u8], bad: usize, seq: u64) -> Option<usize> {
    let mut at = bad + 1;
    while at + RECORD_HEAD + CRC < bytes.len() {
        // A length fits in five bytes, so a record begins with three zero bytes; most do not.
        if bytes[at..at + 2] != [0, 0] {
            at += 1;
            continue;
        }
        match Record::at(bytes, at, seq) {
            Some(record) if !record.is_marked() => return Some(at),
            Some(record) => at += record.len,
            None => at += 1,
        }
    }
    None
}

struct Record<'a> {
    len: usize,
    entries: &'a [u8],
    items: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that begins here, if its head and its items are sound.
    fn at(bytes: &'a [u8], at: usize, seq: u64) -> Option<Record<'a>> {
        let bytes = bytes.get(at..)?;
        let len_and_kind = u64::from_be_bytes(*bytes.first_chunk()?);
        let footer = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        let (len, footer) = (
            usize::try_from(len_and_kind >> 8).ok()?,
            usize::try_from(footer).ok()?,
        );
        if len_and_kind & 0xff > 1 || footer < RECORD_HEAD {
            return None;
        }
        let record = bytes.get(..len)?;
        let entries = record.get(RECORD_HEAD..footer)?;
        let items = checked(record.get(footer..)?, seq as u32)?;
        Some(Record {
            len,
            entries,
            items,
        })
    }

    fn entries_are_sound(&self) -> bool {
        self.entries.is_empty() || checked(self.entries, 0).is_some()
    }

    fn is_marked(&self) -> bool {
        self.items.windows(MARK.len()).any(|part| part == MARK)
    }
}

/// `bytes` without the checksum behind them, if that is right.
fn checked(bytes: &[u8], signature: u32) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<CRC>()?;
    let right =
        !content.is_empty() && crc32fast::hash(content) == u32::from_le_bytes(*crc) ^ signature;
    right.then_some(content)
}

fn cut(path: &Path, at: usize) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(at as u64)?;
    if at == 0 {
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_be_bytes())?;
        file.write_all(&0u64.to_be_bytes())?;
    }
    file.sync_all()
}

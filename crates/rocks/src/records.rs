//! Is the log as we left it? Asked before raft-engine opens it, because raft-engine cuts its last
//! file at the first bad record and does not look behind it.
//!
//! A power cut may tear what was being written, and nothing else: that is the *tail*, and it is cut.
//! Anything else that is missing or damaged was once synced: acknowledged writes are lost, and the log is
//! refused, never repaired by forgetting. What was synced is told by, in this order:
//!
//! 1. the watermark beside the log (`watermark.rs`): files that must be there, and how long they must be;
//! 2. behind it, after a power cut, the records themselves: a bad record with good ones behind it was once synced.
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
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::watermark::{Mark, Span};

/// Key of the item that marks a record (in region [`MARKS`]).
pub(crate) const MARK: &[u8] = b"older writes unsynced";
/// Not a region: where marks are.
pub(crate) const MARKS: u64 = u64::MAX;

const MAGIC: &[u8] = b"RAFT-LOG-FILE-HEADER-9986AB3E47F320B394C8E84916EB0ED5";
/// Magic, version, alignment.
pub(crate) const FILE_HEAD: usize = MAGIC.len() + 16;
const RECORD_HEAD: usize = 16;
const CRC: usize = 4;
/// The only version we write: records signed with the number of their file.
const VERSION: u64 = 2;
/// Records are not signed, and there is no alignment in the head.
const UNSIGNED_VERSION: u64 = 1;

/// One of the two sequences of files a log has. Rewritten ones are copies raft-engine makes of old entries; it removes
/// the originals when the copies are synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Append = 0,
    Rewrite = 1,
}

impl Queue {
    pub const ALL: [Queue; 2] = [Queue::Append, Queue::Rewrite];

    fn extension(self) -> &'static str {
        match self {
            Queue::Append => "raftlog",
            Queue::Rewrite => "rewrite",
        }
    }
}

/// A file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    pub queue: Queue,
    pub seq: u64,
}

impl FileId {
    /// `None`: it is none of the log, or waits to be used again.
    pub fn of(path: &Path) -> Option<FileId> {
        let extension = path.extension()?;
        let queue = Queue::ALL
            .into_iter()
            .find(|queue| extension == queue.extension())?;
        let seq = path.file_stem()?.to_str()?.parse().ok()?;
        Some(FileId { queue, seq })
    }

    fn path_in(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:016}.{}", self.seq, self.queue.extension()))
    }
}

/// Where a queue of the log ends.
pub(crate) enum End {
    Sound,
    /// What was being written when power was cut: behind this byte of the last file.
    Torn(PathBuf, usize),
    /// From this byte of this file on, what was synced is not there any more.
    Lost(Loss),
}

pub(crate) struct Loss {
    /// It may be missing.
    pub file: FileId,
    pub at: usize,
    pub what: String,
}

/// Looks at every file of the log in `dir`; cuts a torn tail, refuses anything else.
pub(crate) fn check(dir: &Path, mark: Option<&Mark>) -> Result<(), OpenError> {
    let mut torn = Vec::new();
    let mut unbegun = Vec::new();
    for queue in Queue::ALL {
        let mut files = files_of(dir, queue)?;
        let span = mark.map(|mark| mark.span(queue)).unwrap_or_default();
        unbegun.append(&mut take_unbegun(&mut files, span));
        match look(dir, queue, mark)? {
            End::Sound => {}
            End::Torn(path, at) => torn.push((path, at)),
            End::Lost(loss) => return Err(OpenError::lost_log(dir, loss.what)),
        }
    }
    for path in unbegun {
        fs::remove_file(&path).map_err(|error| OpenError::failed(&path, error))?;
    }
    for (path, at) in torn {
        cut(&path, at).map_err(|error| OpenError::failed(&path, error))?;
    }
    Ok(())
}

/// Looks at every file of a queue, and changes nothing.
pub(crate) fn look(dir: &Path, queue: Queue, mark: Option<&Mark>) -> Result<End, OpenError> {
    let mut files = files_of(dir, queue)?;
    let span = mark.map(|mark| mark.span(queue)).unwrap_or_default();
    take_unbegun(&mut files, span);
    let has_mark = span.last != 0;
    if has_mark {
        let newest = files.last().map_or(0, |(seq, _)| *seq).max(span.last);
        let is_there = |seq| files.binary_search_by_key(&seq, |(seq, _)| *seq).is_ok();
        if let Some(seq) = (span.first..=newest).find(|&seq| !is_there(seq)) {
            let file = FileId { queue, seq };
            let what = format!("{} is missing", file.path_in(dir).display());
            return Ok(End::Lost(Loss { file, at: 0, what }));
        }
    }
    for (at, (seq, path)) in files.iter().enumerate() {
        let (seq, file) = (*seq, FileId { queue, seq: *seq });
        if has_mark && seq < span.first {
            continue; // left to be used again
        }
        let bytes = fs::read(path).map_err(|error| OpenError::failed(path, error))?;
        let bad = first_bad(&bytes, seq);
        let sound_to = bad.unwrap_or(bytes.len());
        let lost = |why: String| {
            Ok(End::Lost(Loss {
                file,
                at: sound_to,
                what: format!("{} is damaged: {why}", path.display()),
            }))
        };
        let synced = mark.and_then(|mark| mark.end_of(file));
        if let Some(synced) = synced
            && synced > sound_to as u64
        {
            return lost(format!(
                "{synced} bytes of it were synced, and only the first {sound_to} can be read"
            ));
        }
        let Some(bad) = bad else {
            continue;
        };
        if at + 1 < files.len() {
            return lost(format!(
                "the record at byte {bad} fails its checksum, and it is not the end of the log"
            ));
        }
        // Copies are not synced one by one, and what was not synced has its originals.
        let signature = head(&bytes, seq).map_or(seq, |(_, signature)| signature);
        if queue == Queue::Append
            && let Some(good) = synced_behind(&bytes, bad, signature)
        {
            return lost(format!(
                "the record at byte {bad} fails its checksum, but the one at byte {good} was written after it had been synced"
            ));
        }
        return Ok(End::Torn(path.clone(), bad));
    }
    Ok(End::Sound)
}

/// How far both queues are on disk, and the lengths of their complete files.
pub(crate) struct OnDisk {
    pub spans: [Span; 2],
    pub ends: Vec<(FileId, u64)>,
}

/// Takes files away that raft-engine could not begin: it found no room for their head, or power was cut before that was
/// synced. The log goes on in the file before.
fn take_unbegun(files: &mut Vec<(u64, PathBuf)>, span: Span) -> Vec<PathBuf> {
    let mut unbegun = Vec::new();
    while files.len() > 1
        && let Some((_, path)) = files.pop_if(|(seq, path)| *seq > span.last && !has_head(path))
    {
        unbegun.push(path);
    }
    unbegun
}

fn has_head(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(FILE_HEAD as u64).read_to_end(&mut bytes));
    // Of one that cannot be read the reason is told later.
    read.is_err() || head(&bytes, 0).is_some()
}

/// Brings the last files to disk as they are: a record may say that everything before it was synced only if the
/// head was, too. What is on disk then, for the watermark; `before`: the mark so far.
pub(crate) fn sync_last(
    dir: &Path,
    before: Option<&Mark>,
    sync: impl Fn(&Path) -> io::Result<()>,
) -> Result<OnDisk, OpenError> {
    let mut spans = [Span::default(); 2];
    let mut ends = Vec::new();
    for (queue, span) in Queue::ALL.into_iter().zip(&mut spans) {
        let mut files = files_of(dir, queue)?;
        let Some((last, path)) = files.pop() else {
            continue;
        };
        let failed = |error| OpenError::failed(&path, error);
        sync(&path).map_err(failed)?;
        let end = fs::metadata(&path).map_err(failed)?.len();
        let before = before.map(|mark| mark.span(queue)).unwrap_or_default();
        let mut first = last;
        // What lies before a hole raft-engine does not read.
        for (seq, path) in files.iter().rev() {
            if *seq + 1 != first || *seq < before.first {
                break;
            }
            let len = fs::metadata(path).map_err(|error| OpenError::failed(path, error))?;
            ends.push((FileId { queue, seq: *seq }, len.len()));
            first = *seq;
        }
        *span = Span { first, last, end };
    }
    Ok(OnDisk { spans, ends })
}

/// Files of a queue in order.
pub(crate) fn files_of(dir: &Path, queue: Queue) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let failed = |error| OpenError::failed(dir, error);
    let mut files = Vec::new();
    for file in fs::read_dir(dir).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if let Some(id) = FileId::of(&path)
            && id.queue == queue
        {
            files.push((id.seq, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Where the first record is that is not whole; `None` if all are.
pub(crate) fn first_bad(bytes: &[u8], seq: u64) -> Option<usize> {
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

pub(crate) fn cut(path: &Path, at: usize) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(at as u64)?;
    if at == 0 {
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_be_bytes())?;
        file.write_all(&0u64.to_be_bytes())?;
    }
    file.sync_all()
}

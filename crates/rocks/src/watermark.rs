//! How far the log was synced, in a file beside it: what tells a torn write from lost data.
//!
//! A log whose end is damaged looks the same after a power cut, where nobody was promised what is missing, and after a
//! bit flip, a truncated or a removed file, where somebody was. So after each sync the log notes here up to where it
//! is on disk. At the next start, what the log lacks below this mark is lost (`records.rs` refuses it); what is damaged
//! behind it was never acknowledged.
//!
//! ```text
//!   <data-dir>/log.synced
//!     0       mark   magic  number  append: first last end  rewrite: first last end  crc      the even numbers
//!     4096    mark                                                                            the odd ones
//!     8192    256 ends of files that are complete   queue  seq  end  crc                      by number of the file
//! ```
//!
//! **What it costs**: one `pwrite` of 68 bytes into the page cache per sync of the log, no sync of its own. So the mark
//! is exact after the process dies in any way. A thread brings it to disk within a second; after a power cut it may be
//! that much behind, never ahead: it is written when the log's own sync has returned. Of the two copies the one with
//! the higher number counts; a torn one fails its checksum, and the other one is used.
//!
//! `first` is the oldest file the log needs. It is raised, and on disk, before a file is removed or used again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::OpenError;
use crate::directory::sync_folder;
use crate::records::{FileId, OnDisk, Queue};

const MAGIC: u64 = u64::from_be_bytes(*b"neokvlog");
/// Magic, number, two spans, checksum.
const MARK_BYTES: usize = 8 + 8 + 2 * 24 + 4;
const COPY: u64 = 4096;
const ENDS: u64 = 2 * COPY;
const SLOTS: u64 = 256;
const SLOT_BYTES: usize = 32;
const FILE_BYTES: u64 = ENDS + SLOTS * SLOT_BYTES as u64;
/// A mark is on disk this long after it was written.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// How far one queue of the log is on disk. All zero: nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The oldest file that is needed.
    pub first: u64,
    /// The newest file, and how many of its bytes were synced.
    pub last: u64,
    pub end: u64,
}

/// What a start finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub spans: [Span; 2],
    /// Lengths of files that were complete.
    ends: Vec<(FileId, u64)>,
    number: u64,
}

impl Mark {
    pub fn span(&self, queue: Queue) -> Span {
        self.spans.get(queue as usize).copied().unwrap_or_default()
    }

    /// How many bytes of a file were synced, as far as that is known.
    pub fn end_of(&self, file: FileId) -> Option<u64> {
        let span = self.span(file.queue);
        if span.last == file.seq {
            return Some(span.end);
        }
        let found = self.ends.iter().find(|(it, _)| *it == file);
        found.map(|&(_, end)| end)
    }
}

/// Where the mark of the log in `log` is.
pub(crate) fn path_of(log: &Path) -> PathBuf {
    log.with_extension("synced")
}

/// The mark of a log; none if it was written by a version that had no marks.
pub(crate) fn read(log: &Path) -> Result<Option<Mark>, OpenError> {
    let path = path_of(log);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::failed(&path, error)),
    };
    let copies = [0, COPY].map(|at| decode(bytes.get(at as usize..)?));
    let newest = copies.into_iter().flatten().max_by_key(|mark| mark.number);
    let Some(mut mark) = newest else {
        // It was made whole, and never are both copies written at once.
        return Err(OpenError::lost_log(
            log,
            format!(
                "{} is damaged, which says how much of the log there must be",
                path.display()
            ),
        ));
    };
    let slots = bytes.get(ENDS as usize..).unwrap_or_default();
    mark.ends = slots.chunks(SLOT_BYTES).filter_map(decode_end).collect();
    Ok(Some(mark))
}

/// Forgets the mark: the log as it is now is the log.
pub(crate) fn remove(log: &Path) -> io::Result<()> {
    let path = path_of(log);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    path.parent().map_or(Ok(()), sync_folder)
}

fn encode(mark: &Mark) -> [u8; MARK_BYTES] {
    let [append, rewrite] = mark.spans;
    let numbers = [MAGIC, mark.number, append.first, append.last, append.end];
    let numbers = numbers
        .into_iter()
        .chain([rewrite.first, rewrite.last, rewrite.end]);
    let mut bytes = [0; MARK_BYTES];
    for (room, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        room.copy_from_slice(&number.to_le_bytes());
    }
    seal(&mut bytes);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Mark> {
    let numbers: [u64; 8] = unseal(bytes.get(..MARK_BYTES)?)?;
    let [magic, number, a, b, c, d, e, f] = numbers;
    let span = |first, last, end| Span { first, last, end };
    (magic == MAGIC).then(|| Mark {
        spans: [span(a, b, c), span(d, e, f)],
        ends: Vec::new(),
        number,
    })
}

fn encode_end(file: FileId, end: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    let (sealed, _) = bytes.split_at_mut(28);
    for (room, number) in sealed
        .chunks_exact_mut(8)
        .zip([file.queue as u64 + 1, file.seq, end])
    {
        room.copy_from_slice(&number.to_le_bytes());
    }
    seal(sealed);
    bytes
}

fn decode_end(bytes: &[u8]) -> Option<(FileId, u64)> {
    let [queue, seq, end] = unseal(bytes.get(..28)?)?;
    let queue = match queue {
        1 => Queue::Append,
        2 => Queue::Rewrite,
        _ => return None,
    };
    Some((FileId { queue, seq }, end))
}

/// Where the length of a complete file is noted. Files this far apart are never needed at once, or the older one is
/// checked less strictly.
fn slot(file: FileId) -> u64 {
    let at = (file.seq * 2 + file.queue as u64) % SLOTS;
    ENDS + at * SLOT_BYTES as u64
}

fn seal(bytes: &mut [u8]) {
    if let Some((content, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32fast::hash(content).to_le_bytes();
    }
}

fn unseal<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(content) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut numbers = [0; N];
    for (number, part) in numbers.iter_mut().zip(content.chunks_exact(8)) {
        *number = u64::from_le_bytes(part.try_into().ok()?);
    }
    Some(numbers)
}

/// The mark of a log that is open.
pub(crate) struct Watermark {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    file: File,
    state: Mutex<State>,
    /// There is something to bring to disk, or the thread is to end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mark: Mark,
    is_unsynced: bool,
    is_asleep: bool,
    stopping: bool,
}

impl Watermark {
    /// Begins at what is on disk now: the files of both queues, all of them synced.
    pub fn start(log: &Path, on_disk: OnDisk) -> io::Result<Watermark> {
        let OnDisk { spans, ends } = on_disk;
        let path = path_of(log);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) if file.metadata()?.len() == FILE_BYTES => file,
            _ => create(&path)?,
        };
        let number = [0, COPY].map(|at| {
            let mut bytes = [0; MARK_BYTES];
            let read = file.read_exact_at(&mut bytes, at);
            read.ok()
                .and_then(|()| decode(&bytes))
                .map_or(0, |mark| mark.number)
        });
        let mark = Mark {
            spans,
            ends: Vec::new(),
            number: number.into_iter().max().unwrap_or(0),
        };
        for (id, end) in ends {
            file.write_all_at(&encode_end(id, end), slot(id))?;
        }
        let inner = Arc::new(Inner {
            file,
            state: Mutex::new(State {
                mark,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        // Both copies: an older one must not count again.
        inner.write(&mut inner.lock())?;
        inner.write(&mut inner.lock())?;
        inner.file.sync_data()?;
        let shared = inner.clone();
        let thread = std::thread::Builder::new().name("log-mark".into());
        let thread = thread.spawn(move || shared.run())?;
        Ok(Watermark {
            inner,
            thread: Some(thread),
        })
    }

    /// So many bytes of a file are on disk now.
    pub fn on_synced(&self, file: FileId, end: u64) {
        let mut state = self.inner.lock();
        let Some(span) = state.mark.spans.get_mut(file.queue as usize) else {
            return;
        };
        if (file.seq, end) <= (span.last, span.end) {
            return;
        }
        let before = *span;
        span.first = span.first.max(1);
        (span.last, span.end) = (file.seq, end);
        // A mark that cannot be written stays behind: less is checked at the next start, nothing is refused wrongly.
        let _ = self.inner.write(&mut state);
        if before.last != 0 && before.last != file.seq {
            let ended = FileId {
                queue: file.queue,
                seq: before.last,
            };
            let end = encode_end(ended, before.end);
            let _ = self.inner.file.write_all_at(&end, slot(ended));
            let _ = self.inner.file.sync_data();
        }
        if !state.is_unsynced {
            state.is_unsynced = true;
            if state.is_asleep {
                self.inner.changed.notify_one();
            }
        }
    }

    /// A file is about to go. It must not be missed, so this has to be on disk first.
    pub fn on_unneeded(&self, file: FileId) -> io::Result<()> {
        let mut state = self.inner.lock();
        let Some(span) = state.mark.spans.get_mut(file.queue as usize) else {
            return Ok(());
        };
        if file.seq < span.first || span.last == 0 {
            return Ok(());
        }
        span.first = file.seq + 1;
        self.inner.write(&mut state)?;
        self.inner.file.sync_data()
    }
}

impl Drop for Watermark {
    fn drop(&mut self) {
        self.inner.lock().stopping = true;
        self.inner.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, state: &mut State) -> io::Result<()> {
        state.mark.number += 1;
        let at = state.mark.number % 2 * COPY;
        self.file.write_all_at(&encode(&state.mark), at)
    }

    /// Brings marks to disk, a second after the first that is not.
    fn run(&self) {
        let mut state = self.lock();
        while !state.stopping {
            if !state.is_unsynced {
                state.is_asleep = true;
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.is_asleep = false;
                continue;
            }
            let waited = self.changed.wait_timeout(state, SYNC_AFTER);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_unsynced = false;
            drop(state);
            let _ = self.file.sync_data();
            state = self.lock();
        }
        drop(state);
        let _ = self.file.sync_data();
    }
}

/// A file of zeros, there whole or not at all.
fn create(path: &Path) -> io::Result<File> {
    let made = path.with_extension("synced.new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&made)?;
    file.write_all(&vec![0; FILE_BYTES as usize])?;
    for at in [0, COPY] {
        file.write_all_at(&encode(&Mark::default()), at)?;
    }
    file.sync_all()?;
    fs::rename(&made, path)?;
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(queue: Queue, seq: u64) -> FileId {
        FileId { queue, seq }
    }

    #[test]
    fn the_mark_is_what_was_synced_last_whatever_copy_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(read(&log).unwrap(), None);
        let nothing = OnDisk {
            spans: [Span::default(); 2],
            ends: Vec::new(),
        };
        let mark = Watermark::start(&log, nothing).unwrap();
        for end in 1..100 {
            mark.on_synced(id(Queue::Append, 1), end * 10);
        }
        mark.on_synced(id(Queue::Append, 1), 5);
        mark.on_synced(id(Queue::Rewrite, 7), 70);
        let found = read(&log).unwrap().unwrap();
        assert_eq!(found.end_of(id(Queue::Append, 1)), Some(990));
        assert_eq!(found.end_of(id(Queue::Rewrite, 7)), Some(70));
        assert_eq!(found.end_of(id(Queue::Append, 2)), None);
        // Files end; some go.
        for seq in 2..6 {
            mark.on_synced(id(Queue::Append, seq), 69);
            mark.on_synced(id(Queue::Append, seq), 1000 + seq);
        }
        mark.on_unneeded(id(Queue::Append, 2)).unwrap();
        let found = read(&log).unwrap().unwrap();
        let append = Span {
            first: 3,
            last: 5,
            end: 1005,
        };
        assert_eq!(found.span(Queue::Append), append);
        assert_eq!(found.end_of(id(Queue::Append, 4)), Some(1004));
        drop(mark);
        // Either copy may be torn; the other one is at most one sync behind.
        let good = fs::read(path_of(&log)).unwrap();
        let mut ends = Vec::new();
        for at in [0, COPY as usize] {
            let mut torn = good.clone();
            torn[at + 30] ^= 1;
            fs::write(path_of(&log), &torn).unwrap();
            ends.push(read(&log).unwrap().unwrap().span(Queue::Append));
        }
        assert!(ends.contains(&append), "{ends:?}");
        let mut torn = good.clone();
        torn[30] ^= 1;
        torn[COPY as usize + 30] ^= 1;
        fs::write(path_of(&log), &torn).unwrap();
        assert!(matches!(read(&log), Err(OpenError::LostLog { .. })));
        remove(&log).unwrap();
        assert_eq!(read(&log).unwrap(), None);
    }
}

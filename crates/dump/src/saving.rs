//! Writes a dump to its file, away from the cores.
//!
//! ```text
//!   core 0 ── Part ──┐ chunks of encoded entries, in any order
//!   core 1 ── Part ──┼──► saver thread ──► temp file ──► fsync ──► rename ──► fsync folder
//!   core n ── Part ──┘                     (removed if anything goes wrong)
//! ```
//!
//! Invariant: the file that had the name before stays until a whole new one is on disk. A dump is
//! whole when every part said so ([`Part::finish`]); a part that is dropped gives the save up.
//!
//! Cores never block here: a chunk is always taken, and a core that finds no room
//! ([`Part::has_room`]) stops walking its snapshot until there is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rdb::Checksum;

use crate::writer::{Header, append_header, trailer};

/// Encoded bytes that may wait for the disk before cores stop making more.
const WAITING_BYTES: usize = 32 * 1024 * 1024;

/// How a save is made.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The name the dump gets once it is whole.
    pub path: PathBuf,
    pub header: Header,
    /// `rdbchecksum`; without it the dump ends with a zero, which readers take as "not checked".
    pub checksum: bool,
}

/// Why there is no new dump.
#[derive(Debug)]
pub enum SaveError {
    Io(io::Error),
    /// A core gave up its part.
    Abandoned,
}

impl std::fmt::Display for SaveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SaveError::Io(error) => write!(f, "cannot write the dump: {error}"),
            SaveError::Abandoned => f.write_str("the save was given up"),
        }
    }
}

impl std::error::Error for SaveError {}

impl From<io::Error> for SaveError {
    fn from(error: io::Error) -> Self {
        SaveError::Io(error)
    }
}

enum Message {
    Chunk(Vec<u8>),
    PartFinished,
}

/// What one core adds to a dump.
pub struct Part {
    sender: Sender<Message>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Part {
    /// Whether the disk keeps up; if not, come back later.
    pub fn has_room(&self) -> bool {
        self.waiting_bytes.load(Ordering::Relaxed) < WAITING_BYTES
    }

    /// Hands over a chunk that begins with its database ([`crate::Encoder::begin_chunk`]). False if
    /// the save has failed: the core cancels its snapshot.
    pub fn send(&self, chunk: Vec<u8>) -> bool {
        self.waiting_bytes.fetch_add(chunk.len(), Ordering::Relaxed);
        self.sender.send(Message::Chunk(chunk)).is_ok()
    }

    /// All entries of this part were sent.
    pub fn finish(self) {
        // Nobody listens any more only if the save has failed, which is reported elsewhere.
        let _ = self.sender.send(Message::PartFinished);
    }
}

/// Starts a save of `parts` parts. `on_end` is called on the saver's thread, once, with the size
/// of the new dump or why there is none.
pub fn start(
    plan: Plan,
    parts: usize,
    on_end: impl FnOnce(Result<u64, SaveError>) + Send + 'static,
) -> io::Result<Vec<Part>> {
    let (sender, receiver) = channel();
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let handed_out = (0..parts)
        .map(|_| Part {
            sender: sender.clone(),
            waiting_bytes: waiting_bytes.clone(),
        })
        .collect();
    thread::Builder::new()
        .name("saver".into())
        .spawn(move || on_end(save(&plan, parts, receiver, &waiting_bytes)))?;
    Ok(handed_out)
}

fn save(
    plan: &Plan,
    parts: usize,
    receiver: Receiver<Message>,
    waiting_bytes: &AtomicUsize,
) -> Result<u64, SaveError> {
    let temporary = temporary_name(&plan.path);
    let written =
        write_file(plan, &temporary, parts, receiver, waiting_bytes).and_then(|size_bytes| {
            fs::rename(&temporary, &plan.path)?;
            sync_folder(&plan.path)?;
            Ok(size_bytes)
        });
    if written.is_err() {
        // It may not exist; the error that matters is the one already at hand.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_file(
    plan: &Plan,
    path: &Path,
    parts: usize,
    receiver: Receiver<Message>,
    waiting_bytes: &AtomicUsize,
) -> Result<u64, SaveError> {
    // One of this name was left by a process with our number that was killed.
    let _ = fs::remove_file(path);
    let mut file = File::create_new(path)?;
    let mut checksum = Checksum::new();
    let mut size_bytes = 0;
    let mut add = |file: &mut File, bytes: &[u8]| {
        if plan.checksum {
            checksum.update(bytes);
        }
        size_bytes += bytes.len() as u64;
        file.write_all(bytes)
    };
    let mut head = Vec::new();
    append_header(&plan.header, &mut head);
    add(&mut file, &head)?;
    let mut finished = 0;
    // Ends when every part is finished or dropped.
    for message in receiver {
        match message {
            Message::PartFinished => finished += 1,
            Message::Chunk(chunk) => {
                add(&mut file, &chunk)?;
                waiting_bytes.fetch_sub(chunk.len(), Ordering::Relaxed);
            }
        }
    }
    if finished < parts {
        return Err(SaveError::Abandoned);
    }
    let mut end = trailer(checksum);
    if !plan.checksum
        && let Some(crc) = end.last_chunk_mut::<8>()
    {
        *crc = [0; 8];
    }
    file.write_all(&end)?;
    file.sync_all()?;
    Ok(size_bytes + end.len() as u64)
}

/// A name beside the dump, so that renaming stays within one file system.
fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!("temp-{}-{number}.rdb", std::process::id()))
}

/// Makes the new name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use base::Atom;
    use keyspace::{Tuning, Value, ValueRef};

    use super::*;
    use crate::loading;
    use crate::writer::Encoder;

    fn folder(name: &str) -> PathBuf {
        let name = format!("neokv-saving-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn plan(folder: &Path, checksum: bool) -> Plan {
        Plan {
            path: folder.join("dump.rdb"),
            header: Header::default(),
            checksum,
        }
    }

    fn chunk(key: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let value = ValueRef::String(Atom::Int(7));
        Encoder::new(true).append(3, key.as_bytes(), value, None, &mut out);
        out
    }

    /// Runs a save to its end; `act` does what the cores do.
    fn run(plan: Plan, act: impl FnOnce(Vec<Part>)) -> Result<u64, SaveError> {
        let (sender, receiver) = mpsc::channel();
        let on_end = move |result| sender.send(result).unwrap();
        act(start(plan, 2, on_end).unwrap());
        receiver.recv().unwrap()
    }

    fn send_all(parts: Vec<Part>) {
        for (i, part) in parts.into_iter().enumerate() {
            assert!(part.has_room());
            part.send(chunk(&format!("key{i}")));
            part.finish();
        }
    }

    #[test]
    fn saved_and_loaded() {
        for checksum in [true, false] {
            let folder = folder(if checksum { "checked" } else { "unchecked" });
            let plan = plan(&folder, checksum);
            let size_bytes = run(plan.clone(), send_all).unwrap();
            assert_eq!(fs::metadata(&plan.path).unwrap().len(), size_bytes);
            let mut keys = Vec::new();
            let summary = loading::load(&plan.path, &Tuning::default(), &mut |db, key, owned| {
                assert!(matches!(owned.value, Value::String(text) if *text == *b"7"));
                keys.push((db, key.to_vec()));
            });
            assert_eq!(summary.unwrap().unwrap().keys, 2);
            assert_eq!(keys, [(3, b"key0".to_vec()), (3, b"key1".to_vec())]);
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn an_abandoned_save_leaves_the_old_dump() {
        let folder = folder("abandoned");
        let plan = plan(&folder, true);
        fs::write(&plan.path, b"old").unwrap();
        let result = run(plan.clone(), |mut parts| {
            parts.pop();
            send_all(parts);
        });
        assert!(matches!(result, Err(SaveError::Abandoned)));
        assert_eq!(fs::read(&plan.path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_folder_no_dump() {
        let folder = folder("missing");
        fs::remove_dir_all(&folder).unwrap();
        let result = run(plan(&folder, true), send_all);
        assert!(matches!(result, Err(SaveError::Io(_))));
        let nothing = loading::load(
            &folder.join("dump.rdb"),
            &Tuning::default(),
            &mut |_, _, _| {},
        );
        assert!(nothing.unwrap().is_none());
    }
}

//! Room on the disk: a reserve for bad times, and writes that stop before the disk is full and come back by themselves.
//!
//! ```text
//!   free ≥ disk-reserve                 writes are taken, the file RESERVE has its size
//!   free < disk-reserve                 writes are refused (MISCONF …), reads served     the way there
//!   a write of the log finds no room    RESERVE is given back: what was taken is acknowledged still
//!   a start finds less than the reserve RESERVE is given back before anything is opened
//!   there is room for RESERVE and as much again: it is made again, writes are taken again
//! ```
//!
//! Nothing fails for good because of a full disk, unless even the reserve is no help for ten seconds and the node is
//! alone: then the log fails, so that clients hear. Else the log takes back what it could not append, the store goes on when
//! it can. A thread of its own looks twice a second; the disk may fill faster than that, which is what RESERVE is for.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use settings::Settings;

use super::Durable;
use crate::Shared;

const FILE: &str = "RESERVE";
const LOOK: Duration = Duration::from_millis(500);
const LOOK_WHEN_FULL: Duration = Duration::from_millis(100);
/// How long a write under way waits for room on a node alone, although the reserve was given back. Its client waits
/// with it, and nobody else can answer; on a cluster node others lead meanwhile.
const ALONE_MS: u64 = 10_000;
/// On a small disk the reserve is this part of it.
const MOST_PART: u64 = 16;

/// Whether an error of the log or the store says that there is no room: then it passes.
pub(super) fn lacks_room(text: &str) -> bool {
    text.contains("No space left on device") || text.contains("Disk quota exceeded")
}

/// Before anything is opened: the reserve is given back if the disk has less free than that.
pub fn make_room(settings: &Settings) {
    let Some(room) = Room::of(settings) else {
        return;
    };
    if room.path.exists() && room.free().is_some_and(|free| free < room.reserve) {
        tracing::warn!(
            "the disk of {} is nearly full: its reserve ({}) is given back to start on it",
            settings.dir.display(),
            room.path.display()
        );
        room.give_back();
    }
}

/// Size and free bytes of the disk that a folder is on.
pub(crate) fn disk(folder: &Path) -> Option<(u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: plain data that the call fills; the path ends with a zero byte.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &mut found) != 0 {
            return None;
        }
        let block = found.f_frsize;
        Some((found.f_blocks * block, found.f_bavail * block))
    }
}

/// The disk of a node, and what is kept free on it.
struct Room {
    folder: PathBuf,
    path: PathBuf,
    reserve: u64,
}

impl Room {
    /// `None`: nothing is to be kept free.
    fn of(settings: &Settings) -> Option<Room> {
        let (size, _) = disk(&settings.dir)?;
        let reserve = settings.disk_reserve.min(size / MOST_PART);
        (reserve > 0).then(|| Room {
            path: settings.dir.join(FILE),
            folder: settings.dir.clone(),
            reserve,
        })
    }

    fn free(&self) -> Option<u64> {
        disk(&self.folder).map(|(_, free)| free)
    }

    fn has_file(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.len() >= self.reserve)
    }

    fn give_back(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the reserve {} stays: {error}", self.path.display());
        }
    }

    /// Makes the file, with blocks of its own; without it only the way there is watched.
    fn take(&self) -> io::Result<()> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)?;
        // SAFETY: the descriptor is open during the call.
        let refused = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, self.reserve as i64) };
        if refused == 0 {
            return file.set_len(self.reserve);
        }
        self.give_back();
        Err(io::Error::from_raw_os_error(refused))
    }
}

/// Looks at the disk until it is to stop.
pub(super) fn run(shared: &Arc<Shared>, stop: &(Mutex<bool>, Condvar)) {
    loop {
        let wait = match look(shared) {
            true => LOOK_WHEN_FULL,
            false => LOOK,
        };
        let stopping = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = stop
            .1
            .wait_timeout_while(stopping, wait, |stopping| !*stopping);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
    }
}

/// Looks once; whether the disk is full.
pub(super) fn look(shared: &Shared) -> bool {
    let Some(durable) = &shared.durable else {
        return false;
    };
    let settings = shared.settings.current();
    if shared.cluster.is_none() {
        durable.writer.set_room_timeout_ms(ALONE_MS);
    }
    let log_waits = durable.writer.lacks_room();
    let rows_wait = durable.stores.rows.lacks_room();
    let Some(room) = Room::of(&settings) else {
        durable.set_full(match log_waits || rows_wait {
            true => Some("no space is left on it".into()),
            false => None,
        });
        return durable.is_full();
    };
    let Some(mut free) = room.free() else {
        return durable.is_full();
    };
    let mut has_file = room.has_file();
    if log_waits && has_file {
        tracing::warn!(
            "the log finds no room on the disk: the reserve ({} MB) is given back",
            room.reserve >> 20
        );
        room.give_back();
        has_file = false;
    }
    let is_waited_for = log_waits || rows_wait;
    if !is_waited_for && !has_file && free >= 2 * room.reserve + room.reserve / 4 {
        has_file = room.take().is_ok();
        free = room.free().unwrap_or(free);
    }
    // To come back takes more than to stay, or it would come and go; and the file has to be there again.
    let enough = match (durable.is_full(), has_file) {
        (false, true) => room.reserve,
        (true, true) => room.reserve + room.reserve / 8,
        (_, false) => 2 * room.reserve + room.reserve / 4,
    };
    let is_full = is_waited_for || free < enough;
    durable.set_full(is_full.then(|| told(free, room.reserve)));
    is_full
}

fn told(free: u64, reserve: u64) -> String {
    format!(
        "{} KB are free, {} KB are kept in reserve (disk-reserve)",
        free >> 10,
        reserve >> 10
    )
}

impl Durable {
    /// The disk is full, and why that is said; `None`: there is room.
    fn set_full(&self, why: Option<String>) {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        match (&why, self.is_full()) {
            (Some(why), false) => tracing::error!(
                "the disk is full: {why}. Writes are refused, reads are served. Make room, or enlarge the disk: then \
                 writes are taken again by themselves"
            ),
            (None, true) => tracing::info!("the disk has room again: writes are taken"),
            _ => {}
        }
        self.is_full
            .store(why.is_some(), std::sync::atomic::Ordering::Release);
        *full = why;
    }

    /// Whether writes are refused because the disk is full. It passes.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_full.load(std::sync::atomic::Ordering::Acquire)
    }

    /// What clients are told while the disk is full.
    #[inline]
    pub fn full_refusal(&self) -> Option<base::Refusal> {
        self.is_full().then(|| self.refusal_of_full())
    }

    #[cold]
    fn refusal_of_full(&self) -> base::Refusal {
        let full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let why = full.as_deref().unwrap_or("no space left on device");
        base::Refusal::text_of(format!(
            "MISCONF Errors writing to the log: no space left on device: {why}. Commands that may modify the data set are \
             disabled until there is room; reads are served"
        ))
    }
}

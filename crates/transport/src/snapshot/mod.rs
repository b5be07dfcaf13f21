//! Snapshots: files of one region, sent over a connection of their own.
//!
//! ```text
//!  sender                                     receiver
//!    │ offer: region, id, meta, files ────────────►│ on_snapshot_offer → a directory, or no
//!    │◄──────────── have: of each file n bytes, crc│ what an earlier attempt left, read again
//!    │ (checks the crc against its own first n     │
//!    │  bytes; begins there, or at 0)              │
//!    │ chunk: file, offset, crc, data ────────────►│ crc checked, appended to `name.part`
//!    │ …                                           │
//!    │ finish ────────────────────────────────────►│ size and crc of each file, fsync, rename,
//!    │                                             │ on_snapshot_complete
//!    │◄─────────────────────────── verdict: complete, refused, or again
//! ```
//!
//! Whatever breaks in between, the sender offers the same again and the transfer goes on where
//! the receiver stood. A byte that was damaged on the way is found by the chunk's checksum; one
//! that was damaged on either disk by the file's.
//!
//! Both directions of a node share one rate each ([`throttle`]). Neither the peer thread nor a core
//! takes part: transfers live on the thread `snapshot`, disk work on up to four more.

mod files;
mod line;
mod receive;
mod send;
mod throttle;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{Mutex as TaskMutex, OwnedMutexGuard, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::config::Snapshots;
use throttle::Bucket;

pub(crate) use receive::receive;
pub(crate) use send::start;

/// What to send.
#[derive(Clone, Debug)]
pub struct OutgoingSnapshot {
    pub region: u64,
    /// Names this very content: the same id is the same bytes.
    pub id: String,
    /// For the receiver's handler; the transport does not look into it.
    pub meta: Bytes,
    /// Must stay as they are until the transfer ends.
    pub files: Vec<SnapshotFile>,
}

#[derive(Clone, Debug)]
pub struct SnapshotFile {
    /// At the receiver: letters, digits, `.`, `_`, `-`; no leading dot.
    pub name: String,
    /// Here.
    pub path: PathBuf,
    /// If it is known; else the file is read once more.
    pub crc32c: Option<u32>,
}

/// What a peer wants to send.
#[derive(Clone, Debug)]
pub struct IncomingOffer {
    pub region: u64,
    pub id: String,
    pub meta: Bytes,
    pub total_bytes: u64,
    /// Their names, in order.
    pub files: Vec<String>,
}

/// What the handler says to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Into this directory, which is made if it is not there.
    Into(PathBuf),
    /// No, and do not ask again.
    Refuse(String),
    /// Not now.
    Later(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferError {
    UnknownNode(u64),
    /// The receiver does not want it, or its handler could not use it.
    Refused(String),
    /// No attempt got any further for as long as the sender's timeout; why the last one ended.
    GaveUp(String),
    /// A file to send cannot be read, or its name cannot be sent.
    Source(String),
    Cancelled,
    Stopped,
}

impl fmt::Display for TransferError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::UnknownNode(node) => write!(out, "node {node} is not known"),
            TransferError::Refused(why) => write!(out, "refused: {why}"),
            TransferError::GaveUp(why) => write!(out, "gave up: {why}"),
            TransferError::Source(why) => out.write_str(why),
            TransferError::Cancelled => out.write_str("cancelled"),
            TransferError::Stopped => out.write_str("the transport has stopped"),
        }
    }
}

impl std::error::Error for TransferError {}

/// A transfer under way. Goes on if this is dropped.
#[derive(Clone)]
pub struct Transfer {
    progress: Arc<Measure>,
    result: watch::Receiver<Option<Result<(), TransferError>>>,
    cancel: CancellationToken,
}

#[derive(Default)]
struct Measure {
    sent: AtomicU64,
    total: AtomicU64,
    attempts: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What the receiver had when the attempt began, and what was sent since.
    pub sent_bytes: u64,
    pub total_bytes: u64,
    pub attempts: u64,
}

impl Transfer {
    pub fn progress(&self) -> Progress {
        Progress {
            sent_bytes: self.progress.sent.load(Ordering::Relaxed),
            total_bytes: self.progress.total.load(Ordering::Relaxed),
            attempts: self.progress.attempts.load(Ordering::Relaxed),
        }
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// None while it goes on.
    pub fn result(&self) -> Option<Result<(), TransferError>> {
        let result = self.result.borrow().clone();
        if result.is_none() && self.result.has_changed().is_err() {
            return Some(Err(TransferError::Stopped));
        }
        result
    }

    pub async fn finished(mut self) -> Result<(), TransferError> {
        match self.result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Err(TransferError::Stopped)),
            Err(_) => Err(TransferError::Stopped),
        }
    }
}

/// Which transfer an incoming connection belongs to: from, region, id.
type Key = (u64, u64, String);

/// All transfers of the node.
pub struct Transfers {
    outgoing: Arc<Semaphore>,
    incoming: Arc<Semaphore>,
    rate: Arc<AtomicU64>,
    sending: Bucket,
    receiving: Bucket,
    slots: Mutex<HashMap<Key, Slot>>,
    /// Complete ones: the sender may not have heard, and asks again.
    complete: Mutex<VecDeque<Key>>,
    next_slot: AtomicU64,
}

struct Slot {
    number: u64,
    stop: CancellationToken,
    /// Held while files are written, by the disk work itself.
    files: Arc<TaskMutex<()>>,
}

/// The right to write the files of a transfer; a later connection for the same one takes it away.
struct Claim {
    number: u64,
    stop: CancellationToken,
    files: OwnedMutexGuard<()>,
}

impl Transfers {
    pub fn new(config: &Snapshots) -> Transfers {
        let rate = Arc::new(AtomicU64::new(config.rate_bytes));
        Transfers {
            outgoing: Arc::new(Semaphore::new(config.outgoing_max.max(1))),
            incoming: Arc::new(Semaphore::new(config.incoming_max.max(1))),
            sending: Bucket::new(rate.clone()),
            receiving: Bucket::new(rate.clone()),
            rate,
            slots: Mutex::default(),
            complete: Mutex::default(),
            next_slot: AtomicU64::new(1),
        }
    }

    pub fn set_rate(&self, rate_bytes: u64) {
        self.rate.store(rate_bytes, Ordering::Relaxed);
    }

    /// Ends an earlier connection for the same transfer and waits until its last write is done.
    async fn claim(&self, key: &Key) -> Claim {
        let number = self.next_slot.fetch_add(1, Ordering::Relaxed);
        let stop = CancellationToken::new();
        let files = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = slots.entry(key.clone()).or_insert_with(|| Slot {
                number,
                stop: stop.clone(),
                files: Arc::default(),
            });
            if slot.number != number {
                slot.stop.cancel();
                (slot.number, slot.stop) = (number, stop.clone());
            }
            slot.files.clone()
        };
        let files = files.lock_owned().await;
        Claim {
            number,
            stop,
            files,
        }
    }

    fn release(&self, key: &Key, number: u64) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.get(key).is_some_and(|slot| slot.number == number) {
            slots.remove(key);
        }
    }

    fn is_complete(&self, key: &Key) -> bool {
        let complete = self.complete.lock();
        complete
            .unwrap_or_else(PoisonError::into_inner)
            .contains(key)
    }

    fn note_complete(&self, key: Key) {
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        if complete.len() >= 64 {
            complete.pop_front();
        }
        complete.push_back(key);
    }
}

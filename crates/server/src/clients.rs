//! The registry of connected clients: what `CLIENT LIST` shows of them and how they are told to
//! stop. Locked on connect, disconnect and by `CLIENT` commands only.
//!
//! A session publishes what others may see into atomics of its [`Client`]; others leave signals
//! there (kill, unblock) and wake its task. A session looks at its signals whenever it would wait.
//! (The `admin` owner extends this file.)

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

/// What is known of one client outside its session.
pub struct Client {
    pub id: u64,
    pub addr: String,
    pub laddr: String,
    /// Core its session lives on.
    pub core: usize,
    pub created_ms: u64,
    pub name: Mutex<Vec<u8>>,
    pub db: AtomicU8,
    pub protocol: AtomicU8,
    /// Row number of the last command (`Commands::stat_number`).
    pub last_command: AtomicU32,
    /// When the last batch of commands came.
    pub last_active_ms: AtomicU64,
    /// Commands queued by MULTI, or −1 (as `u32::MAX`) outside.
    pub queued: AtomicU32,
    pub watching: AtomicU32,
    pub input_bytes: AtomicUsize,
    pub output_bytes: AtomicUsize,
    pub blocked: AtomicBool,
    pub monitor: AtomicBool,
    pub no_evict: AtomicBool,
    /// The session is to end. Set with [`Client::kill`].
    killed: AtomicBool,
    /// The blocked command is to end: 1 as if timed out, 2 with an UNBLOCKED error.
    unblock: AtomicU8,
    waker: OnceLock<Waker>,
}

/// What `CLIENT UNBLOCK` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unblock {
    Timeout,
    Error,
}

impl Client {
    pub fn new(id: u64, addr: String, laddr: String, core: usize, now_ms: u64) -> Self {
        Client {
            id,
            addr,
            laddr,
            core,
            created_ms: now_ms,
            name: Mutex::new(Vec::new()),
            db: AtomicU8::new(0),
            protocol: AtomicU8::new(2),
            last_command: AtomicU32::new(u32::MAX),
            last_active_ms: AtomicU64::new(now_ms),
            queued: AtomicU32::new(u32::MAX),
            watching: AtomicU32::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            monitor: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            unblock: AtomicU8::new(0),
            waker: OnceLock::new(),
        }
    }

    /// The waker of the session's task; set once, when the task starts.
    pub fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Ends the session at its next pause.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Ends the blocked command; false if the client is not blocked.
    pub fn unblock(&self, how: Unblock) -> bool {
        if !self.blocked.load(Ordering::Acquire) {
            return false;
        }
        let code = match how {
            Unblock::Timeout => 1,
            Unblock::Error => 2,
        };
        self.unblock.store(code, Ordering::Release);
        self.wake();
        true
    }

    pub fn take_unblock(&self) -> Option<Unblock> {
        match self.unblock.swap(0, Ordering::AcqRel) {
            1 => Some(Unblock::Timeout),
            2 => Some(Unblock::Error),
            _ => None,
        }
    }
}

/// All clients by id.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    count: AtomicUsize,
    /// Sessions in MONITOR; the hot path looks at this number only.
    monitors: AtomicUsize,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn add(&self, client: Arc<Client>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.all().insert(client.id, client);
    }

    pub fn remove(&self, id: u64) {
        if self.all().remove(&id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The clients, locked; hold it briefly.
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.all
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) != 0
    }

    pub fn add_monitors(&self, n: isize) {
        self.monitors.fetch_add(n as usize, Ordering::Relaxed);
    }
}

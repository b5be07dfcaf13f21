//! The registry of connected clients: what `CLIENT LIST` shows of them and how they are told to
//! stop. Locked on connect, disconnect and by `CLIENT` commands only.
//!
//! A session publishes what others may see into atomics of its [`Client`]; others leave signals
//! there (kill, unblock) and wake its task. A session looks at its signals whenever it would wait.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use command::Secrets;
use node::{Requester, Specs};
use resp::Args;

/// What is known of one client outside its session.
pub struct Client {
    pub id: u64,
    pub addr: String,
    pub laddr: String,
    /// Core its session lives on.
    pub core: usize,
    pub created_ms: u64,
    /// A session of the node itself (gRPC): nobody sees it, it never idles.
    pub is_internal: bool,
    /// It speaks TLS: where other nodes are named, it is told their ports for that.
    pub is_tls: bool,
    /// The socket's descriptor.
    pub fd: AtomicI32,
    name: Mutex<Vec<u8>>,
    /// The name of the user it runs as.
    user: Mutex<Arc<[u8]>>,
    /// Name and version of the library it uses (CLIENT SETINFO).
    library: Mutex<Library>,
    pub db: AtomicU8,
    pub protocol: AtomicU8,
    /// Row number of the last command (`Specs::stat_number`).
    pub last_command: AtomicU32,
    /// When the last batch of commands came.
    pub last_active_ms: AtomicU64,
    /// Commands queued by MULTI, or −1 (as `u32::MAX`) outside.
    pub queued: AtomicU32,
    pub watching: AtomicU32,
    pub input_bytes: AtomicUsize,
    pub output_bytes: AtomicUsize,
    pub blocked: AtomicBool,
    /// Held back by CLIENT PAUSE.
    pub paused: AtomicBool,
    pub monitor: AtomicBool,
    pub no_evict: AtomicBool,
    /// Since when it has to authenticate; 0: it need not. Set with [`Clients::note_stranger`].
    stranger_since_ms: AtomicU64,
    /// What regions need to know of it.
    pub requester: Arc<Requester>,
    /// The session is to end. Set with [`Client::kill`].
    killed: AtomicBool,
    /// The blocked command is to end: 1 as if timed out, 2 with an UNBLOCKED error.
    unblock: AtomicU8,
    waker: OnceLock<Waker>,
    /// Encoded messages from outside its commands (MONITOR lines), to be sent by the session.
    pushed: Mutex<Vec<u8>>,
    has_pushed: AtomicBool,
}

/// What CLIENT SETINFO told.
#[derive(Default)]
pub struct Library {
    pub name: Vec<u8>,
    pub version: Vec<u8>,
}

/// Whether the address is of this machine only.
pub fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
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
            is_internal: false,
            is_tls: false,
            fd: AtomicI32::new(-1),
            name: Mutex::new(Vec::new()),
            user: Mutex::new(Arc::from(b"default".as_slice())),
            library: Mutex::default(),
            db: AtomicU8::new(0),
            protocol: AtomicU8::new(2),
            last_command: AtomicU32::new(u32::MAX),
            last_active_ms: AtomicU64::new(now_ms),
            queued: AtomicU32::new(u32::MAX),
            watching: AtomicU32::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            monitor: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            stranger_since_ms: AtomicU64::new(0),
            requester: Arc::new(Requester::new(id)),
            killed: AtomicBool::new(false),
            unblock: AtomicU8::new(0),
            waker: OnceLock::new(),
            pushed: Mutex::default(),
            has_pushed: AtomicBool::new(false),
        }
    }

    /// Of the node itself, on behalf of others; `for_whom` is what MONITOR and the slow log show.
    pub fn internal(id: u64, for_whom: &str, core: usize, now_ms: u64) -> Self {
        Client {
            is_internal: true,
            ..Client::new(id, for_whom.into(), for_whom.into(), core, now_ms)
        }
    }

    /// Since when it has to authenticate; 0: it need not.
    #[inline]
    pub fn stranger_since_ms(&self) -> u64 {
        self.stranger_since_ms.load(Ordering::Relaxed)
    }

    /// The waker of the session's task; set once, when the task starts.
    pub fn set_waker(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    pub fn name(&self) -> Vec<u8> {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone()
    }

    pub fn set_name(&self, name: &[u8]) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_vec();
    }

    /// The name of the user it runs as.
    pub fn user(&self) -> Arc<[u8]> {
        let user = self.user.lock().unwrap_or_else(PoisonError::into_inner);
        user.clone()
    }

    pub fn set_user(&self, name: &[u8]) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = name.into();
    }

    /// What the client told of its library, locked; hold it briefly.
    pub fn library(&self) -> MutexGuard<'_, Library> {
        self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an encoded message for the session to send, and wakes it. A client that has left more
    /// than `limit_bytes` of them unread (0: no limit) is killed.
    pub fn push(&self, message: &[u8], limit_bytes: usize) {
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        pushed.extend_from_slice(message);
        self.has_pushed.store(true, Ordering::Release);
        let too_much = limit_bytes > 0 && pushed.len() > limit_bytes;
        drop(pushed);
        if too_much {
            self.kill();
        } else {
            self.wake();
        }
    }

    /// Whether [`Client::take_pushed`] has something.
    #[inline]
    pub fn has_pushed(&self) -> bool {
        self.has_pushed.load(Ordering::Acquire)
    }

    /// What others pushed since the last call; the session calls it whenever it wakes.
    #[inline]
    pub fn take_pushed(&self) -> Option<Vec<u8>> {
        if !self.has_pushed.load(Ordering::Acquire) {
            return None;
        }
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_pushed.store(false, Ordering::Release);
        Some(std::mem::take(&mut *pushed))
    }

    /// Whether the client is on this machine.
    pub fn is_local(&self) -> bool {
        self.addr.parse().is_ok_and(is_local)
    }

    /// The line `CLIENT LIST` shows. `input_bytes`: at least so many wait to be read (the command
    /// that asks, for the asking client itself).
    pub fn line(&self, specs: &Specs, now_ms: u64, input_bytes: usize) -> String {
        let queued = self.queued.load(Ordering::Relaxed);
        let mut flags = String::new();
        for (flag, set) in [
            ('O', self.monitor.load(Ordering::Relaxed)),
            ('x', queued != u32::MAX),
            (
                'b',
                self.blocked.load(Ordering::Relaxed) || self.paused.load(Ordering::Relaxed),
            ),
            ('A', self.is_killed()),
            ('e', self.no_evict.load(Ordering::Relaxed)),
            ('T', self.requester.no_touch.load(Ordering::Relaxed)),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let multi = if queued == u32::MAX {
            -1
        } else {
            i64::from(queued)
        };
        let input = self.input_bytes.load(Ordering::Relaxed).max(input_bytes);
        let output = self.output_bytes.load(Ordering::Relaxed);
        let command = match self.last_command.load(Ordering::Relaxed) {
            u32::MAX => "NULL",
            number => specs
                .each_row()
                .find(|(at, _)| *at == number as usize)
                .map_or("NULL", |(_, row)| row.name),
        };
        let library = self.library();
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 \
             ssub=0 multi={multi} qbuf={input} qbuf-free=0 argv-mem={input} multi-mem=0 rbs={output} \
             rbp={output} obl=0 oll={} omem={output} tot-mem={} events=r cmd={command} user={} redir=-1 \
             resp={} lib-name={} lib-ver={}",
            self.id,
            self.addr,
            self.laddr,
            self.fd.load(Ordering::Relaxed),
            String::from_utf8_lossy(&self.name()),
            now_ms.saturating_sub(self.created_ms) / 1000,
            now_ms.saturating_sub(self.last_active_ms.load(Ordering::Relaxed)) / 1000,
            self.db.load(Ordering::Relaxed),
            u8::from(output > 0),
            size_of::<Client>() + 2 * input + output,
            String::from_utf8_lossy(&self.user()),
            self.protocol.load(Ordering::Relaxed),
            String::from_utf8_lossy(&library.name),
            String::from_utf8_lossy(&library.version),
        )
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

    /// Whether [`Client::take_unblock`] has something.
    pub fn is_unblocked(&self) -> bool {
        self.unblock.load(Ordering::Acquire) != 0
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
    /// Clients that have yet to authenticate.
    strangers: AtomicUsize,
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
        let removed = self.all().remove(&id);
        if let Some(client) = removed {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.note_stranger(&client, false, 0);
        }
    }

    /// Clients that have yet to authenticate.
    pub fn strangers(&self) -> usize {
        self.strangers.load(Ordering::Relaxed)
    }

    /// Notes whether a client has yet to authenticate. Its session and its end call it, one after the other.
    #[inline]
    pub fn note_stranger(&self, client: &Client, is_stranger: bool, now_ms: u64) {
        if (client.stranger_since_ms() != 0) == is_stranger {
            return;
        }
        let since = &client.stranger_since_ms;
        match is_stranger {
            true => {
                since.store(now_ms.max(1), Ordering::Relaxed);
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
            false => {
                since.store(0, Ordering::Relaxed);
                self.strangers.fetch_sub(1, Ordering::Relaxed);
            }
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

    /// Tells the sessions in MONITOR of a command. Call only when [`Clients::has_monitors`].
    #[cold]
    pub fn feed_monitors(
        &self,
        args: &Args<'_>,
        secrets: Secrets,
        db: u8,
        addr: &str,
        now_us: u64,
        limit_bytes: usize,
    ) {
        let line = monitor_line(args, secrets, db, addr, now_us);
        for client in self.all().values() {
            if client.monitor.load(Ordering::Relaxed) {
                client.push(&line, limit_bytes);
            }
        }
    }
}

/// `+1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`
fn monitor_line(args: &Args<'_>, secrets: Secrets, db: u8, addr: &str, now_us: u64) -> Vec<u8> {
    let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut line = format!("+{seconds}.{micros:06} [{db} {addr}]").into_bytes();
    for i in 0..args.len() {
        line.extend_from_slice(b" \"");
        if crate::slowlog::is_secret(args, secrets, i) {
            line.extend_from_slice(b"(redacted)");
        } else {
            args.at(i)
                .iter()
                .for_each(|&byte| resp::quote(byte, &mut line));
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_or_not() {
        let client = |addr: &str| Client::new(1, addr.into(), String::new(), 0, 0);
        assert!(client("127.0.0.1:5").is_local());
        assert!(client("[::1]:5").is_local());
        assert!(!client("10.0.0.1:5").is_local());
    }

    #[test]
    fn pushed_messages_are_taken_once() {
        let client = Client::new(1, "127.0.0.1:5".into(), String::new(), 0, 0);
        assert_eq!(client.take_pushed(), None);
        client.push(b"+a\r\n", 0);
        client.push(b"+b\r\n", 0);
        assert_eq!(client.take_pushed().unwrap(), b"+a\r\n+b\r\n");
        assert_eq!(client.take_pushed(), None);
    }

    #[test]
    fn monitor_lines_quote() {
        let buffer = b"sea\"\n\x01";
        let spans = [
            resp::Span { start: 0, len: 2 },
            resp::Span { start: 2, len: 4 },
        ];
        let line = monitor_line(
            &Args::new(buffer, &spans),
            Secrets::None,
            3,
            "1.2.3.4:5",
            1_000_002,
        );
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "+1.000002 [3 1.2.3.4:5] \"se\" \"a\\\"\\n\\x01\"\r\n"
        );
    }
}

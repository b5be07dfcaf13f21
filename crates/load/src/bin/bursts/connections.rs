//! The connections of one thread: each sends a burst, waits for all replies to it, and sends the next.
//!
//! ```text
//! epoll_wait ─▶ for every connection with something to read: recv ─▶ all replies there? ─▶ note the time, send
//! ```
//!
//! A burst costs one send and one recv (more, if replies come in pieces) and its share of one epoll_wait. Connections are
//! registered once, edge-triggered: nothing is switched on and off per request, which is most of what redis-benchmark
//! costs. Bursts are made in one place for all connections; only what a socket does not take at once is
//! copied (`unsent`), and goes out when it has room again.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::commands::Burst;
use crate::replies::Replies;

/// What the load is at; threads look once per burst.
pub const WARM: u8 = 0;
pub const COUNT: u8 = 1;
/// No further bursts; replies to those on their way are still waited for.
pub const STOP: u8 = 2;

const EVENTS_MAX: usize = 1024;
const READ_BYTES: usize = 64 << 10;
/// How soon an idle thread sees that the state has changed.
const LOOK: Duration = Duration::from_millis(20);
/// How long replies are waited for in the end.
const LATE_MAX: Duration = Duration::from_secs(5);

/// What one thread saw.
#[derive(Default)]
pub struct Seen {
    /// Successful operations that were answered while it counted.
    pub operations: u64,
    /// The same, from the first to the last reply.
    pub all_operations: u64,
    /// From the first to the last reply.
    pub errors: u64,
    pub first_error: Option<String>,
    /// How long each burst took that was answered while it counted.
    pub micros: Vec<u32>,
}

impl Seen {
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.all_operations += other.all_operations;
        self.errors += other.errors;
        self.micros.extend(other.micros);
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

struct Connection {
    stream: TcpStream,
    replies: Replies,
    /// Replies to come until the burst is answered.
    owed: u64,
    sent: Instant,
    unsent: Vec<u8>,
}

impl Connection {
    fn send(&mut self, bytes: &[u8], replies: u64, now: Instant) -> io::Result<()> {
        self.owed = replies;
        self.sent = now;
        let taken = written(&mut self.stream, bytes)?;
        self.unsent
            .extend_from_slice(bytes.get(taken..).unwrap_or_default());
        Ok(())
    }

    fn send_rest(&mut self) -> io::Result<()> {
        let taken = written(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..taken);
        Ok(())
    }
}

/// How much of it the socket took; it tells when it has room for the rest.
fn written(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(some) => {
                taken += some;
                bytes = bytes.get(some..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// All connections of a thread.
pub struct Connections<'a> {
    poll: Poll,
    connections: Vec<Connection>,
    burst: Burst,
    pipeline: u64,
    state: &'a AtomicU8,
    room: Vec<u8>,
    seen: Seen,
}

impl<'a> Connections<'a> {
    pub fn new(
        streams: Vec<std::net::TcpStream>,
        burst: Burst,
        pipeline: u64,
        state: &'a AtomicU8,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for (n, stream) in streams.into_iter().enumerate() {
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(n), both)?;
            connections.push(Connection {
                stream,
                replies: Replies::new(),
                owed: 0,
                sent: Instant::now(),
                unsent: Vec::new(),
            });
        }
        Ok(Self {
            poll,
            connections,
            burst,
            pipeline,
            state,
            room: vec![0; READ_BYTES],
            seen: Seen {
                micros: Vec::with_capacity(1 << 20),
                ..Seen::default()
            },
        })
    }

    /// Load until the state says stop and everything is answered.
    pub fn run(mut self) -> Result<Seen, String> {
        for connection in &mut self.connections {
            let first = connection.send(self.burst.next(), self.pipeline, Instant::now());
            first.map_err(|error| error.to_string())?;
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut stopped: Option<Instant> = None;
        loop {
            match self.poll.poll(&mut events, Some(LOOK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error.to_string());
                }
                _ => {}
            }
            for event in &events {
                let Token(n) = event.token();
                if event.is_readable() {
                    self.receive(n)?;
                }
                if let Some(connection) = self.connections.get_mut(n)
                    && event.is_writable()
                    && !connection.unsent.is_empty()
                {
                    connection.send_rest().map_err(|error| error.to_string())?;
                }
            }
            if self.state.load(Ordering::Relaxed) == STOP {
                let since = *stopped.get_or_insert_with(Instant::now);
                let owing = self.connections.iter().filter(|one| one.owed > 0).count();
                if owing == 0 {
                    break;
                }
                if since.elapsed() > LATE_MAX {
                    return Err(format!(
                        "{owing} connections got no answer for {LATE_MAX:?}"
                    ));
                }
            }
        }
        for connection in &self.connections {
            let error = connection.replies.first_error();
            self.seen.first_error = self.seen.first_error.take().or(error);
        }
        Ok(self.seen)
    }

    /// Reads what there is for a connection; when its burst is answered, the next goes out.
    fn receive(&mut self, n: usize) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(n) else {
            return Ok(());
        };
        let mut replies = 0;
        let mut errors = 0;
        loop {
            let read = match connection.stream.read(&mut self.room) {
                Ok(0) => return Err("the server closed a connection".to_string()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            let counted = connection
                .replies
                .take(self.room.get(..read).unwrap_or_default())?;
            replies += counted.replies;
            errors += counted.errors;
            // Less than there was room for: no more came, and asking would be a call for nothing.
            if read < self.room.len() {
                break;
            }
        }
        let state = self.state.load(Ordering::Relaxed);
        let done = replies.saturating_sub(errors);
        self.seen.errors += errors;
        self.seen.all_operations += done;
        if state == COUNT {
            self.seen.operations += done;
        }
        let Some(owed) = connection.owed.checked_sub(replies) else {
            return Err("more replies than commands".to_string());
        };
        connection.owed = owed;
        if owed > 0 || replies == 0 {
            return Ok(());
        }
        let now = Instant::now();
        if state == COUNT {
            let micros = (now - connection.sent).as_micros();
            self.seen
                .micros
                .push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
        if state == STOP {
            return Ok(());
        }
        let sent = connection.send(self.burst.next(), self.pipeline, now);
        sent.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// A server of one connection that answers each command with `reply`, in pieces of `piece` bytes.
    fn server(reply: &'static str, piece: usize) -> std::net::TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut room = vec![0; 1 << 20];
            while let Ok(read @ 1..) = stream.read(&mut room) {
                let commands = room[..read].iter().filter(|byte| **byte == b'*').count();
                for part in reply.repeat(commands).as_bytes().chunks(piece) {
                    if stream.write_all(part).is_err() {
                        return;
                    }
                }
            }
        });
        std::net::TcpStream::connect(address).unwrap()
    }

    fn load(
        reply: &'static str,
        piece: usize,
        value: usize,
        pipeline: usize,
    ) -> Result<Seen, String> {
        let args = ["SET", "k", &"v".repeat(value)].map(String::from);
        let state = AtomicU8::new(COUNT);
        let burst = Burst::new(&args, pipeline, 1, 1);
        let streams = vec![server(reply, piece)];
        let connections = Connections::new(streams, burst, pipeline as u64, &state).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                state.store(STOP, Ordering::Relaxed);
            });
            connections.run()
        })
    }

    #[test]
    fn every_burst_is_answered_and_counted() {
        let seen = load("+OK\r\n", 3, 10, 4).unwrap();
        assert!(seen.operations > 4, "{}", seen.operations);
        // Whoever was on the way when it stopped is in the sum only.
        assert_eq!(seen.all_operations % 4, 0);
        assert!(seen.all_operations >= seen.operations);
        assert_eq!(seen.operations / 4, seen.micros.len() as u64);
        assert_eq!((seen.errors, seen.first_error), (0, None));
    }

    /// More than a socket takes at once.
    #[test]
    fn large_bursts_go_out_in_pieces() {
        let seen = load("+OK\r\n", 1000, 1 << 20, 16).unwrap();
        assert!(seen.all_operations >= 16);
        assert_eq!(seen.all_operations % 16, 0);
    }

    #[test]
    fn errors_are_no_operations() {
        let seen = load("-ERR no\r\n", 100, 10, 2).unwrap();
        assert_eq!((seen.operations, seen.all_operations), (0, 0));
        assert!(seen.errors > 0);
        assert_eq!(seen.first_error.as_deref(), Some("ERR no"));
    }

    #[test]
    fn what_cannot_go_on_is_told() {
        let more = load("+OK\r\n+OK\r\n", 100, 10, 1).err();
        assert_eq!(more.as_deref(), Some("more replies than commands"));
        let other = load("HTTP/1.1 400\r\n", 100, 10, 1).err();
        assert_eq!(other.as_deref(), Some("not a reply: it begins with 'H'"));
    }
}

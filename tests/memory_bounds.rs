//! What clients can make the server take: memory for what they announce, for replies they do not read, and descriptors. Another
//! client looks meanwhile how long it waits. The bounds are generous; what was before misses them by far.
//!
//! `NEOKV_TESTED_BINARY` names another binary to compare with.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use process::Server;

const MIB: u64 = 1 << 20;
/// For anything that is to happen at all.
const LONG: Duration = Duration::from_secs(120);

struct Client(TcpStream);

impl Client {
    fn new(server: &Server) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Client(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// A line, without its end; `None` at the end of the connection.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            match self.0.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                Ok(_) => return None,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&line)),
            }
        }
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).unwrap())
    }

    fn run(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.line().expect("a reply")
    }

    /// Length, first and last byte of a bulk reply.
    fn bulk(&mut self) -> (usize, u8, u8) {
        let head = self.line().expect("a reply");
        let len: usize = head.strip_prefix('$').expect(&head).parse().unwrap();
        let mut left = len + 2;
        let (mut first, mut last) = (None, 0);
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let some = left.min(buffer.len());
            self.0.read_exact(&mut buffer[..some]).unwrap();
            first.get_or_insert(buffer[0]);
            let bytes = some.min((left).saturating_sub(2));
            if bytes > 0 {
                last = buffer[bytes - 1];
            }
            left -= some;
        }
        (len, first.unwrap(), last)
    }

    /// One line of a section of INFO.
    fn info(&mut self, section: &str, name: &str) -> u64 {
        let head = self.run(&format!("INFO {section}"));
        let len: usize = head.strip_prefix('$').unwrap().parse().unwrap();
        let mut text = vec![0; len + 2];
        self.0.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        found.expect(name).trim().parse().unwrap()
    }
}

/// Resident memory of a server.
fn resident(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next());
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < LONG {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The most memory a server had, and the longest another client waited for PING, while something was done to it.
struct Watched {
    grown: u64,
    waited: Duration,
}

impl Watched {
    fn is_within(&self, bytes: u64) {
        let (mib, waited) = (self.grown / MIB, self.waited);
        eprintln!("{mib} MiB more, PING took {waited:?} at most");
        assert!(self.grown < bytes, "{mib} MiB");
        assert!(waited < Duration::from_secs(10), "{waited:?}");
    }
}

fn watch<T>(server: &Server, act: impl FnOnce() -> T) -> (T, Watched) {
    let before = resident(server);
    let is_over = AtomicBool::new(false);
    let most = AtomicU64::new(before);
    thread::scope(|scope| {
        let memory = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(resident(server), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let pings = scope.spawn(|| {
            let mut client = Client::new(server);
            let mut worst = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(client.run("PING"), "+PONG");
                worst = worst.max(asked.elapsed());
                thread::sleep(Duration::from_millis(5));
            }
            worst
        });
        let done = act();
        is_over.store(true, Ordering::Relaxed);
        memory.join().unwrap();
        let waited = pings.join().unwrap();
        let grown = most.load(Ordering::Relaxed) - before;
        (done, Watched { grown, waited })
    })
}

/// Nodes of both engines.
fn nodes(settings: &[&str]) -> [Server; 2] {
    let mut memory = vec!["--bind", "127.0.0.1"];
    memory.extend_from_slice(settings);
    [Server::neokv_with(2, &memory), Server::durable(2, settings)]
}

#[test]
fn what_is_only_announced_takes_no_memory() {
    for server in nodes(&[]) {
        let (clients, seen) = watch(&server, || {
            let mut clients: Vec<Client> = (0..500).map(|_| Client::new(&server)).collect();
            for client in &mut clients {
                client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nx");
            }
            let mut other = Client::new(&server);
            // All of it has been read.
            assert!(soon(|| other.info("clients", "connected_clients") >= 500));
            thread::sleep(Duration::from_millis(300));
            clients
        });
        seen.is_within(200 * MIB);
        drop(clients);
        // What comes is kept, however small its parts are.
        let mut client = Client::new(&server);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3000000\r\n");
        for part in vec![b'v'; 3_000_000].chunks(70_000) {
            client.send(part);
        }
        client.send(b"\r\n");
        assert_eq!(client.line().unwrap(), "+OK");
        client.send(b"GET k\r\n");
        assert_eq!(client.bulk(), (3_000_000, b'v', b'v'));
    }
}

#[test]
fn strangers_may_only_send_little() {
    for server in nodes(&["--requirepass", "secret"]) {
        let mut long = Client::new(&server);
        long.send(b"*2\r\n$4\r\nAUTH\r\n$16385\r\nx");
        let line = long.line().unwrap();
        assert_eq!(line, "-ERR Protocol error: unauthenticated bulk length");
        let mut many = Client::new(&server);
        many.send(b"*11\r\n");
        let line = many.line().unwrap();
        assert_eq!(
            line,
            "-ERR Protocol error: unauthenticated multibulk length"
        );
    }
}

#[test]
fn without_descriptors_clients_are_refused_and_writes_go_on() {
    let settings = ["--requirepass", "secret", "--log-size", "4mb"];
    let server = Server::durable_with_descriptors(2, &settings, 1024);
    let mut writer = Client::new(&server);
    assert_eq!(writer.run("AUTH secret"), "+OK");
    let connect = || TcpStream::connect(("127.0.0.1", server.port));
    let mut strangers: Vec<TcpStream> = (0..1124).filter_map(|_| connect().ok()).collect();
    // The log begins new files meanwhile, and rows are written.
    let value = "v".repeat(100_000);
    for n in 0..300 {
        assert_eq!(writer.run(&format!("SET k{} {value}", n % 50)), "+OK");
    }
    assert!(server.log().contains("maxclients has been reduced to"));
    let maxclients = writer.info("clients", "maxclients");
    assert!((100..1000).contains(&maxclients), "{maxclients}");
    let too_many = writer.run("CONFIG SET maxclients 5000");
    assert!(
        too_many
            .contains("The operating system is not able to handle the specified number of clients"),
        "{too_many}"
    );
    let last = strangers.last_mut().unwrap();
    last.set_read_timeout(Some(LONG)).unwrap();
    let mut line = String::new();
    let _ = last.read_to_string(&mut line);
    assert_eq!(line, "-ERR max number of clients reached\r\n");
    assert!(writer.info("stats", "rejected_connections") > 0);
    // Half of the room is for those who authenticate.
    let connected = writer.info("clients", "connected_clients");
    assert!(
        connected <= maxclients / 2 + 2,
        "{connected} of {maxclients}"
    );
    drop(strangers);
    assert!(soon(|| {
        let mut client = Client::new(&server);
        client.send(b"AUTH secret\r\n");
        client.line().is_some_and(|line| line == "+OK")
    }));
    assert_eq!(writer.run("SET k v"), "+OK");
}

/// Several clients ask for far more than there is memory for, and read nothing until all have asked.
#[test]
fn replies_are_made_as_they_are_read() {
    const LONG_VALUE: usize = 16 << 20;
    const GETS: usize = 64;
    for server in nodes(&[]) {
        let mut first = Client::new(&server);
        // One per core at least.
        let keys: Vec<String> = (0..4).map(|n| format!("long{n}")).collect();
        for key in &keys {
            assert_eq!(
                first.run(&format!("SETRANGE {key} {} x", LONG_VALUE - 1)),
                format!(":{LONG_VALUE}")
            );
        }
        let (mut clients, seen) = watch(&server, || {
            let mut clients = Vec::new();
            for key in &keys {
                let mut client = Client::new(&server);
                // Reads alone, then reads behind writes.
                client.send(format!("GET {key}\r\n").repeat(GETS / 2).as_bytes());
                client.send(format!("SET {{{key}}} v\r\n").as_bytes());
                client.send(format!("GET {key}\r\n").repeat(GETS / 2).as_bytes());
                client.send(b"PING\r\n");
                clients.push(client);
            }
            thread::sleep(Duration::from_secs(3));
            clients
        });
        seen.is_within(700 * MIB);
        let ((), seen) = watch(&server, || {
            thread::scope(|scope| {
                for client in &mut clients {
                    scope.spawn(|| {
                        for n in 0..=GETS {
                            match n == GETS / 2 {
                                true => assert_eq!(client.line().unwrap(), "+OK"),
                                false => assert_eq!(client.bulk(), (LONG_VALUE, 0, b'x')),
                            }
                        }
                        assert_eq!(client.line().unwrap(), "+PONG");
                    });
                }
            });
        });
        seen.is_within(700 * MIB);
    }
}

/// Many values of middle size from all cores, in one pipeline: every reply comes, in order.
#[test]
fn a_long_pipeline_is_answered_in_order() {
    for server in nodes(&[]) {
        let mut client = Client::new(&server);
        for n in 0..40usize {
            let value = char::from(b'a' + (n % 26) as u8)
                .to_string()
                .repeat(50_000 + n);
            assert_eq!(client.run(&format!("SET k{n} {value}")), "+OK");
        }
        let mut pipeline = String::new();
        for round in 0..50 {
            for n in 0..40 {
                pipeline.push_str(&format!("GET k{n}\r\n"));
                if n % 7 == 0 {
                    pipeline.push_str(&format!("SET small{n} {round}\r\nGET small{n}\r\n"));
                }
            }
        }
        let mut writer = Client(client.0.try_clone().unwrap());
        thread::scope(|scope| {
            scope.spawn(move || writer.send(pipeline.as_bytes()));
            for round in 0..50usize {
                for n in 0..40usize {
                    let letter = b'a' + (n % 26) as u8;
                    assert_eq!(client.bulk(), (50_000 + n, letter, letter));
                    if n % 7 == 0 {
                        assert_eq!(client.line().unwrap(), "+OK");
                        let text = round.to_string();
                        let (first, last) = (text.as_bytes()[0], *text.as_bytes().last().unwrap());
                        assert_eq!(client.bulk(), (text.len(), first, last));
                    }
                }
            }
        });
    }
}

/// `client-output-buffer-limit` stops a reply that would be too long while it is made.
#[test]
fn a_reply_beyond_the_hard_limit_is_not_made() {
    for server in nodes(&[]) {
        let mut other = Client::new(&server);
        let set = "CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"";
        assert_eq!(other.run(set), "+OK");
        assert_eq!(other.run("HSET hash field 12345"), ":1");
        assert_eq!(other.run("SADD set member1 member2"), ":2");
        assert_eq!(other.run("ZADD zset 1 member1"), ":1");
        let ((), seen) = watch(&server, || {
            for command in ["HRANDFIELD hash", "SRANDMEMBER set", "ZRANDMEMBER zset"] {
                let mut greedy = Client::new(&server);
                greedy.send(format!("{command} -999999999\r\n").as_bytes());
                assert_eq!(greedy.line(), None, "{command}");
                let mut greedy = Client::new(&server);
                greedy.send(b"MULTI\r\nSET other v\r\n");
                greedy.send(format!("{command} -999999999\r\nEXEC\r\n").as_bytes());
                while greedy.line().is_some() {}
            }
        });
        seen.is_within(100 * MIB);
    }
}

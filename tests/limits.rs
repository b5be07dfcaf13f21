//! What a client may take from the server, and settings that act on connections and upkeep, on the
//! running binary.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use process::Server;

/// A bare client: inline commands out, one line back.
struct Client(TcpStream);

impl Client {
    fn new(server: &Server) -> Client {
        Client::at("127.0.0.1".parse().unwrap(), server)
    }

    fn at(address: IpAddr, server: &Server) -> Client {
        let stream = TcpStream::connect((address, server.port)).unwrap();
        let timeout = Some(Duration::from_secs(5));
        stream.set_read_timeout(timeout).unwrap();
        Client(stream)
    }

    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
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
        self.send(line);
        self.line().expect("a reply")
    }

    /// The text of a bulk reply.
    fn bulk(&mut self, line: &str) -> String {
        let head = self.run(line);
        let len: usize = head.strip_prefix('$').unwrap().parse().unwrap();
        let mut text = vec![0; len + 2];
        self.0.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Reads until the server closes the connection; false if it does not.
    fn is_closed(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Waits until it holds, for five seconds.
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Loads `big` with a string of so many bytes.
fn load_big(client: &mut Client, bytes: usize) {
    client.run(&format!("SETRANGE big {} x", bytes - 1));
}

#[test]
fn a_reply_beyond_the_hard_limit_ends_the_client() {
    let server = Server::neokv(2);
    let mut other = Client::new(&server);
    let set = "CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"";
    assert_eq!(other.run(set), "+OK");
    load_big(&mut other, 2 << 20);
    let mut greedy = Client::new(&server);
    greedy.send("GET big");
    assert_eq!(greedy.line(), None);
    // Less than the limit is sent, and others go on.
    let mut modest = Client::new(&server);
    assert_eq!(modest.bulk("GETRANGE big 0 999999").len(), 1_000_002);
    assert_eq!(other.run("PING"), "+PONG");
}

#[test]
fn a_client_that_does_not_read_ends_at_the_soft_limit() {
    let server = Server::neokv(2);
    let mut other = Client::new(&server);
    let set = "CONFIG SET client-output-buffer-limit \"normal 0 1mb 1\"";
    assert_eq!(other.run(set), "+OK");
    load_big(&mut other, 32 << 20);
    let mut lazy = Client::new(&server);
    lazy.send("CLIENT SETNAME lazy");
    assert_eq!(lazy.line().unwrap(), "+OK");
    lazy.send("GET big");
    let mut saw_waiting = false;
    let mut worst = Duration::ZERO;
    assert!(soon(|| {
        let before = Instant::now();
        let list = other.bulk("CLIENT LIST");
        worst = worst.max(before.elapsed());
        let line = list.lines().find(|line| line.contains("name=lazy"));
        saw_waiting |= line.is_some_and(|line| !line.contains("omem=0"));
        line.is_none()
    }));
    assert!(saw_waiting, "CLIENT LIST shows what waits");
    assert!(worst < Duration::from_secs(1), "{worst:?}");
    assert!(lazy.is_closed());
    // One that reads gets all of it, however long.
    let mut eager = Client::new(&server);
    assert_eq!(eager.bulk("GET big").len(), (32 << 20) + 2);
}

#[test]
fn a_monitor_that_does_not_read_ends_at_the_hard_limit() {
    let server = Server::neokv(2);
    let mut other = Client::new(&server);
    let set = "CONFIG SET client-output-buffer-limit \"normal 1mb 0 0\"";
    assert_eq!(other.run(set), "+OK");
    let mut monitor = Client::new(&server);
    assert_eq!(monitor.run("MONITOR"), "+OK");
    let echo = format!("ECHO {}", "x".repeat(50_000));
    assert!(soon(|| {
        for _ in 0..20 {
            other.bulk(&echo);
        }
        !other.bulk("CLIENT LIST").contains("cmd=monitor")
    }));
    assert!(monitor.is_closed());
}

#[test]
fn idle_clients_are_closed() {
    let server = Server::neokv(2);
    let mut other = Client::new(&server);
    assert_eq!(other.run("CONFIG SET timeout 1"), "+OK");
    let mut idle = Client::new(&server);
    let mut blocked = Client::new(&server);
    blocked.send("BLPOP nothing 2.5");
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(idle.line(), None);
            assert!(started.elapsed() >= Duration::from_secs(1));
        });
        while started.elapsed() < Duration::from_millis(2400) {
            assert_eq!(other.run("PING"), "+PONG");
            thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(blocked.line().unwrap(), "*-1");
}

#[test]
fn one_client_too_many_is_told() {
    let server = Server::neokv(2);
    let mut first = Client::new(&server);
    // The connection that saw the server start may not have come and gone yet.
    let has = |client: &mut Client, section: &str, line: &str| {
        let text = client.bulk(&format!("INFO {section}"));
        text.contains(&format!("\n{line}\r\n"))
    };
    assert!(soon(|| {
        has(&mut first, "stats", "total_connections_received:2")
            && has(&mut first, "clients", "connected_clients:1")
    }));
    assert_eq!(first.run("CONFIG SET maxclients 2"), "+OK");
    let mut second = Client::new(&server);
    assert_eq!(second.run("PING"), "+PONG");
    let mut third = Client::new(&server);
    let line = third.line().unwrap();
    assert_eq!(line, "-ERR max number of clients reached");
    assert_eq!(third.line(), None);
    assert!(has(&mut first, "stats", "rejected_connections:1"));
    drop(second);
    assert!(soon(|| has(&mut first, "clients", "connected_clients:1")));
    assert_eq!(Client::new(&server).run("PING"), "+PONG");
}

/// The kernel's timer of a connection, as `ss` shows it.
fn has_keepalive(client: &Client) -> Option<bool> {
    let port = client.0.local_addr().unwrap().port();
    let filter = format!("dport = :{port}");
    let output = std::process::Command::new("ss")
        .args(["-tnoH", "state", "established", &filter])
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).contains("timer:(keepalive"))
}

#[test]
fn keepalive_is_as_set() {
    let server = Server::neokv_with(1, &["--bind", "127.0.0.1", "--tcp-keepalive", "60"]);
    let mut probed = Client::new(&server);
    assert_eq!(probed.run("CONFIG SET tcp-keepalive 0"), "+OK");
    let mut plain = Client::new(&server);
    assert_eq!(plain.run("PING"), "+PONG");
    match (has_keepalive(&probed), has_keepalive(&plain)) {
        (Some(probed), Some(plain)) => assert_eq!((probed, plain), (true, false)),
        _ => eprintln!("SKIPPED: no ss here to look at the sockets"),
    }
}

/// An address of this machine that is not loopback. Nothing is sent to find it.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn protected_mode_refuses_other_machines() {
    let Some(outer) = outer_address() else {
        eprintln!("SKIPPED: this machine has only loopback");
        return;
    };
    let server = Server::neokv_with(2, &["--bind", "*"]);
    let mut local = Client::new(&server);
    let mut stranger = Client::at(outer, &server);
    let line = stranger.line().unwrap();
    assert!(
        line.starts_with("-DENIED Redis is running in protected mode because protected mode"),
        "{line}"
    );
    assert!(
        line.ends_with("to start accepting connections from the outside."),
        "{line}"
    );
    assert_eq!(stranger.line(), None);
    assert_eq!(local.run("CONFIG SET protected-mode no"), "+OK");
    assert_eq!(Client::at(outer, &server).run("PING"), "+PONG");
    assert_eq!(local.run("CONFIG SET protected-mode yes"), "+OK");
    assert_eq!(local.run("CONFIG SET requirepass secret"), "+OK");
    let mut stranger = Client::at(outer, &server);
    assert_eq!(stranger.run("PING"), "-NOAUTH Authentication required.");
    assert_eq!(stranger.run("AUTH secret"), "+OK");
}

/// How long after its deadline a key that nobody asks for is gone.
fn expiry_delay(hz: &str) -> Duration {
    let server = Server::neokv_with(1, &["--bind", "127.0.0.1", "--hz", hz]);
    let mut client = Client::new(&server);
    assert!(
        client
            .bulk("INFO server")
            .contains(&format!("\nhz:{hz}\r\n"))
    );
    // Between two rounds, wherever they fall: the worst of several tries.
    let mut worst = Duration::ZERO;
    for _ in 0..4 {
        client.run("SET k v PX 50");
        let started = Instant::now();
        let gone = |client: &mut Client| {
            client
                .bulk("INFO keyspace")
                .lines()
                .all(|line| !line.starts_with("db0"))
        };
        assert!(soon(|| gone(&mut client)));
        worst = worst.max(started.elapsed().saturating_sub(Duration::from_millis(50)));
    }
    worst
}

#[test]
fn hz_sets_the_pace_of_upkeep() {
    thread::scope(|scope| {
        let slow = scope.spawn(|| expiry_delay("1"));
        let fast = scope.spawn(|| expiry_delay("100"));
        let (slow, fast) = (slow.join().unwrap(), fast.join().unwrap());
        assert!(slow > Duration::from_millis(500), "hz 1: {slow:?}");
        assert!(fast < Duration::from_millis(300), "hz 100: {fast:?}");
    });
}

#[test]
fn loglevel_filters() {
    for (level, shown) in [("notice", true), ("warning", false)] {
        let server = Server::neokv_with(1, &["--bind", "127.0.0.1", "--loglevel", level]);
        let mut client = Client::new(&server);
        assert_eq!(client.run("SET k v"), "+OK");
        assert_eq!(client.run("DEBUG RELOAD"), "+OK");
        // Lines are written by a thread of their own, in order.
        assert_eq!(client.run("DEBUG LOG marker"), "+OK");
        assert!(soon(|| server.log().contains("DEBUG LOG: marker")));
        let log = server.log();
        assert_eq!(log.contains("DEBUG RELOAD"), shown, "{level}: {log}");
        // Set while it runs.
        assert_eq!(client.run("CONFIG SET loglevel notice"), "+OK");
        client.send("SHUTDOWN NOSAVE");
        assert_eq!(client.line(), None);
        assert!(soon(|| server.log().contains("SHUTDOWN by a client")));
    }
}

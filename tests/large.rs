//! The longest string there may be, 512 MB, and a change that is too large for the log, on the running binary;
//! `make test-large` runs them, for they need some 2 and 6 GB of memory. The client makes and checks the bytes as
//! they pass.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use process::Server;

const LONGEST: usize = 512 << 20;
const CHUNK: usize = 1 << 20;
/// No other client of the core may wait longer for a reply. SET copies the bytes once into the value,
/// GET once into the reply: 0.1 to 0.2 s where memory is at hand, seconds in a virtual machine
/// whose host has to find the pages first.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).unwrap();
    stream
}

/// The bytes of the value from `at` on: no two chunks are alike.
fn chunk(at: usize, bytes: &mut [u8]) {
    let mut state = at as u64 + 1;
    for eight in bytes.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        eight.copy_from_slice(&state.to_le_bytes()[..eight.len()]);
    }
}

fn expect(stream: &mut TcpStream, text: &str) {
    let mut reply = vec![0; text.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), text);
}

fn set(stream: &mut TcpStream) {
    write!(stream, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LONGEST}\r\n").unwrap();
    let mut bytes = vec![0; CHUNK];
    for at in (0..LONGEST).step_by(CHUNK) {
        chunk(at, &mut bytes);
        stream.write_all(&bytes).unwrap();
    }
    stream.write_all(b"\r\n").unwrap();
    expect(stream, "+OK\r\n");
}

fn get(stream: &mut TcpStream) {
    stream.write_all(b"GET k\r\n").unwrap();
    expect(stream, &format!("${LONGEST}\r\n"));
    let (mut bytes, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    for at in (0..LONGEST).step_by(CHUNK) {
        chunk(at, &mut expected);
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes == expected, "differs after {at}");
    }
    expect(stream, "\r\n");
}

/// Does something while another client of the same core pings; the longest it waited.
fn worst_ping(server: &Server, act: impl FnOnce()) -> Duration {
    let mut stream = connect(server);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut worst = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let before = Instant::now();
                stream.write_all(b"PING\r\n").unwrap();
                expect(&mut stream, "+PONG\r\n");
                worst = worst.max(before.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            worst
        });
        act();
        // What is freed in the background, or late, counts too.
        thread::sleep(Duration::from_millis(300));
        done.store(true, Ordering::Relaxed);
        pings.join().unwrap()
    })
}

#[test]
#[ignore = "needs 2 GB of memory: make test-large"]
fn the_longest_string() {
    let server = Server::neokv(1);
    let mut client = connect(&server);
    let mut worst = Vec::new();
    let mut step = |name: &'static str, act: &mut dyn FnMut()| {
        let started = Instant::now();
        let wait = worst_ping(&server, act);
        eprintln!("{name}: {:?}, others waited {wait:?}", started.elapsed());
        worst.push((wait, name));
    };
    step("SET", &mut || set(&mut client));
    step("GET", &mut || get(&mut client));
    step("SET again", &mut || set(&mut client));
    step("DEL", &mut || {
        client.write_all(b"DEL k\r\n").unwrap();
        expect(&mut client, ":1\r\n");
    });
    let refused = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", LONGEST + 1);
    client.write_all(refused.as_bytes()).unwrap();
    expect(&mut client, "-ERR Protocol error: invalid bulk length\r\n");
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "closed");
    // Without a long argument a string grows no longer either.
    let mut client = connect(&server);
    write!(client, "SETRANGE k {LONGEST} x\r\n").unwrap();
    let text = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    expect(&mut client, text);
    let slow: Vec<_> = worst
        .iter()
        .filter(|(wait, _)| *wait > LONGEST_WAIT)
        .collect();
    assert!(slow.is_empty(), "{slow:?}");
}

/// A list of 1.2 GB to another region: RENAME makes more rows than the log takes (`too_large.rs` has the rest, with
/// a small limit).
#[test]
#[ignore = "needs 6 GB of memory: make test-large"]
fn a_change_beyond_a_gigabyte() {
    const ELEMENT: usize = 400 << 20;
    let mut server = Server::durable(2, &[]);
    let mut client = connect(&server);
    let tag = |wanted: fn(u16) -> bool| {
        let mut tags = (0..).map(|n| n.to_string());
        tags.find(|tag| wanted(base::slot::slot_of(tag.as_bytes())))
    };
    let (here, there) = (tag(|slot| slot < 1000), tag(|slot| slot > 15_000));
    let (here, there) = (here.unwrap(), there.unwrap());
    let key = format!("{{{here}}}big");
    for nth in 1..=3 {
        let len = key.len();
        write!(
            client,
            "*3\r\n$5\r\nRPUSH\r\n${len}\r\n{key}\r\n${ELEMENT}\r\n"
        )
        .unwrap();
        let mut bytes = vec![0; CHUNK];
        for at in (0..ELEMENT).step_by(CHUNK) {
            chunk(at, &mut bytes);
            client.write_all(&bytes).unwrap();
        }
        client.write_all(b"\r\n").unwrap();
        expect(&mut client, &format!(":{nth}\r\n"));
    }
    write!(client, "RENAME {key} {{{there}}}new\r\n").unwrap();
    expect(&mut client, "-ERR the change is too large for the log\r\n");
    for restarted in [false, true] {
        if restarted {
            server.kill_and_restart();
            client = connect(&server);
        }
        write!(client, "LLEN {key}\r\nEXISTS {{{there}}}new\r\n").unwrap();
        expect(&mut client, ":3\r\n:0\r\n");
        write!(client, "MSET {{{here}}}a 1 {{{there}}}b 2\r\n").unwrap();
        expect(&mut client, "+OK\r\n");
    }
}

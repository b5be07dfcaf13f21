//! Those who should not be let in: other clusters, other nodes, doubles, and garbage.

mod peers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use peers::*;
use transport::{Config, RefusalKind};

fn first_kind(node: &Node) -> RefusalKind {
    node.ears.refusals.lock().unwrap()[0].1.kind
}

#[test]
fn another_cluster() {
    let (one, other) = (
        node(config(1)),
        node(Config {
            cluster_id: 0xBAD,
            ..config(2)
        }),
    );
    other.transport.set_peer(1, &one.address[..]);
    until("told why", || other.ears.refused("wrong cluster"));
    assert_eq!(first_kind(&other), RefusalKind::WrongCluster);
    until("logged by both", || {
        other.ears.noticed("refuses this node: wrong cluster")
            && one.ears.noticed("refused a connection from")
    });
    // Tried on and on, logged once.
    until("tried again", || counters(&other, 1).connect_failures > 5);
    let lines = other.ears.notices.lock().unwrap().len();
    assert_eq!(lines, 1);
    assert!(one.ears.ups.lock().unwrap().is_empty());
    let call = other
        .transport
        .call_blocking(&one.address[..], ECHO, "", Duration::from_secs(9));
    assert!(call.is_err(), "no calls either");
}

#[test]
fn not_the_node_one_thinks() {
    let (one, two) = (node(config(1)), node(config(2)));
    one.transport.set_peer(3, &two.address[..]);
    until("told", || one.ears.refused("not the node you think I am"));
    assert_eq!(first_kind(&one), RefusalKind::WrongNode);
}

#[test]
fn the_same_id_as_the_one_dialled() {
    let (one, double) = (node(config(1)), node(config(1)));
    double.transport.set_peer(1, &one.address[..]); // its own id: not a peer
    double.transport.set_peer(2, &one.address[..]);
    until("told", || double.ears.refusals.lock().unwrap().len() > 1);
    assert_eq!(double.transport.peers().len(), 1);
    assert_eq!(first_kind(&double), RefusalKind::WrongNode);
    let call = double
        .transport
        .call_blocking(&one.address[..], ECHO, "", Duration::from_secs(9));
    assert!(
        format!("{call:?}").contains("a node with this id connected from elsewhere"),
        "{call:?}"
    );
}

#[test]
fn one_id_from_two_processes() {
    let (one, two) = pair();
    let double = node(config(1));
    double.transport.set_peer(2, &two.address[..]);
    until("told", || {
        double
            .ears
            .refused("a node with this id connected from elsewhere")
    });
    assert_eq!(first_kind(&double), RefusalKind::SameId);
    assert!(one.transport.send(2, 1, "the first stays"));
    until("it does", || two.ears.heard() == 1);
    assert_eq!(*two.ears.ups.lock().unwrap(), [(1, true)]);
    // The first goes: the second is let in.
    one.transport.stop();
    until("let in", || double.transport.is_up(2));
}

#[test]
fn a_restart_takes_the_place_of_a_silent_former_self() {
    let (one, two) = (
        node(config(1)),
        node(Config {
            // Would keep the dead connection for ever.
            down_after: Duration::from_secs(3600),
            ..config(2)
        }),
    );
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("up", || two.transport.is_up(1));
    // As if the machine had lost power: no goodbye reaches node 2.
    proxy.stall(true);
    one.transport.stop();
    let again = node(config(1));
    again.transport.set_peer(2, &two.address[..]);
    until("let in", || again.transport.is_up(2));
    assert!(again.ears.refusals.lock().unwrap().is_empty());
}

fn talk(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_secs(20)));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn strangers_are_named() {
    for (bytes, words) in [
        (&b"*1\r\n$4\r\nPING\r\n"[..], "is a Redis client"),
        (b"GET / HTTP/1.1\r\n\r\n", "is an HTTP client"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "speaks TLS"),
        (b"hello there, are you", "is not a NeoKV node"),
        (b"NEO", "before a word"),
        (b"NEOKVP\x00\x02\x00\xff\xff\xff\xff", "too long"),
        (b"NEOKVP\x00\x02\x07", "sent a broken preface"),
    ] {
        let one = node(open_config(1));
        talk(&one.address, bytes);
        until(words, || one.ears.noticed(words));
    }
}

#[test]
fn an_unknown_version_is_told_ours() {
    let one = node(config(1));
    let answer = talk(&one.address, b"NEOKVP\x00\x09something newer");
    assert!(answer.starts_with(b"NEOKVP\x00\x02"), "{answer:?}");
    let text = String::from_utf8_lossy(&answer);
    assert!(
        text.contains("speaks version 2 of the protocol, not 9"),
        "{text}"
    );
}

/// A right greeting of node 9, with the cluster id of the tests: version 2 of the protocol, by hand.
fn greeting(purpose: u8) -> Vec<u8> {
    let mut hello = vec![0x09];
    hello.extend_from_slice(&CLUSTER.to_le_bytes());
    hello.extend_from_slice(&[0x10, 9, 0x20, purpose, 0x29]);
    hello.extend_from_slice(&77_u64.to_le_bytes());
    let mut bytes = b"NEOKVP\x00\x02\x00".to_vec();
    bytes.extend_from_slice(&(hello.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&hello);
    bytes
}

#[test]
fn garbage_behind_a_right_greeting_closes_the_connection() {
    let one = node(open_config(1));
    for (bytes, words) in [
        (&b"\xff\xff\xff\xff"[..], "a frame of 4294967295 bytes"),
        (b"\x00\x00\x00\x03\x0a\xff\x01", "cannot be parsed"),
        (
            b"\x00\x00\x00\x02\x1a\x00",
            "answers to calls that were not made",
        ),
    ] {
        let one = node(open_config(1));
        let answer = talk(&one.address, &[&greeting(1), bytes].concat());
        assert!(answer.starts_with(b"NEOKVP"));
        until(words, || one.ears.noticed(words));
    }
    drop(one);
}

#[test]
fn a_caller_sends_no_raft_messages() {
    let one = node(open_config(1));
    let frame = b"\x00\x00\x00\x04\x0a\x02\x08\x01";
    talk(&one.address, &[&greeting(2), &frame[..]].concat());
    until("noticed", || one.ears.noticed("where only calls belong"));
    talk(&one.address, &[&greeting(1), &frame[..]].concat());
    until("a peer may", || one.ears.heard() == 1);
}

#[test]
fn thousands_of_random_strings_do_no_harm() {
    let (one, two) = (node(open_config(1)), node(open_config(2)));
    one.transport.set_peer(2, &two.address[..]);
    until("up", || one.transport.is_up(2));
    let mut random = Random(0x5eed);
    for round in 0..3000 {
        let mut bytes = match round % 4 {
            0 => Vec::new(),
            1 => b"NEOKVP\x00\x02".to_vec(),
            2 => greeting(1 + (round / 4 % 3) as u8),
            _ => {
                let mut bytes = greeting(1 + (round / 4 % 3) as u8);
                let length = random.below(64) as u32;
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes
            }
        };
        let length = random.below(80);
        bytes.extend((0..length).map(|_| random.below(256) as u8));
        if round % 3 == 0 {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        let mut socket = TcpStream::connect(&one.address).unwrap();
        let _ = socket.write_all(&bytes);
    }
    assert!(two.transport.is_up(1));
    two.transport.set_peer(1, &one.address[..]);
    until("node 1 is well", || {
        let call = two.transport.call(1, ECHO, "x", Duration::from_secs(5));
        call.wait().is_ok()
    });
    assert!(one.transport.send(2, 1, "still here"));
    until("heard", || two.ears.heard() == 1);
}

#[test]
fn a_peer_that_is_damaged_on_the_way_is_dialled_again() {
    let (one, two) = (node(config(1)), node(config(2)));
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("up", || one.transport.is_up(2));
    for _ in 0..20 {
        proxy.damage_after(0); // a bit of the length of the next frame
        until("damaged", || !proxy.armed());
    }
    until("works", || {
        let call = one.transport.call(2, ECHO, "x", Duration::from_secs(2));
        call.wait().is_ok()
    });
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

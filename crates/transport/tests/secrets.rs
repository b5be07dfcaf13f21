//! The cluster secret: both sides have it, or nothing is said. Replays, reflections, damage, rotation, crowds.

mod peers;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use peers::*;
use tempfile::TempDir;
use transport::{
    Config, OutgoingSnapshot, RefusalKind, Secrets, SnapshotFile, Transport, write_secrets,
};

const LONG: Duration = Duration::from_secs(20);
/// Preface, mode, key and tag.
const FIRST_BYTES: usize = 8 + 1 + 48;

fn with(id: u64, numbers: &[u8]) -> Node {
    node(Config {
        secrets: secrets(numbers),
        ..config(id)
    })
}

fn only_refusal(node: &Node) -> RefusalKind {
    node.ears.refusals.lock().unwrap()[0].1.kind
}

#[test]
fn another_secret_is_refused_by_both_and_both_say_so() {
    let (one, two) = (with(1, &[1]), with(2, &[2]));
    two.transport.set_peer(1, &one.address[..]);
    until("told why", || {
        two.ears
            .refused("does not accept the cluster secret of this one")
    });
    assert_eq!(only_refusal(&two), RefusalKind::Secret);
    until("logged", || {
        one.ears
            .noticed("it has another cluster secret than this node")
    });
    let call = two
        .transport
        .call_blocking(&one.address[..], ECHO, "x", LONG);
    assert!(format!("{call:?}").contains("cluster secret"), "{call:?}");
    assert!(one.ears.ups.lock().unwrap().is_empty());
}

#[test]
fn no_secret_where_one_is_asked_for_and_the_other_way_round() {
    let (one, none) = (with(1, &[1]), node(open_config(2)));
    none.transport.set_peer(1, &one.address[..]);
    until("told", || {
        none.ears.refused("it asks for the cluster secret")
    });
    until("logged", || one.ears.noticed("it has no cluster secret"));
    one.transport.set_peer(2, &none.address[..]);
    until("told", || one.ears.refused("it uses no cluster secret"));
    until("logged", || none.ears.noticed("this node uses none"));
    assert!(!one.transport.is_up(2) && !none.transport.is_up(1));
}

#[test]
fn everything_goes_under_the_secret() {
    let folder = TempDir::new().unwrap();
    let (one, two) = pair();
    for at in 0..100 {
        assert!(one.transport.send(2, at, vec![1; 100_000]));
    }
    until("all arrive", || two.ears.heard() == 100);
    let body = vec![9; 3_000_000];
    let answer = one.transport.call(2, ECHO, body.clone(), LONG).wait();
    assert_eq!(answer.unwrap(), body);
    *two.ears.directory.lock().unwrap() = Some(folder.path().join("in"));
    let path = folder.path().join("file");
    std::fs::write(&path, vec![5; 1_000_000]).unwrap();
    let files = vec![SnapshotFile {
        name: "file".into(),
        path,
        crc32c: None,
    }];
    let (id, meta) = ("s".into(), "".into());
    let snapshot = OutgoingSnapshot {
        region: 1,
        id,
        meta,
        files,
    };
    let transfer = one.transport.send_snapshot(2, snapshot);
    until("sent", || transfer.result().is_some());
    assert_eq!(transfer.result(), Some(Ok(())));
}

/// What a dialler says first, taken from the line.
fn recorded() -> (Vec<u8>, Node) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialler = with(9, &[1]);
    let address = listener.local_addr().unwrap().to_string();
    dialler.transport.set_peer(1, address);
    let (mut socket, _) = listener.accept().unwrap();
    let mut bytes = vec![0; FIRST_BYTES];
    socket.read_exact(&mut bytes).unwrap();
    (bytes, dialler)
}

fn talk(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(bytes).unwrap();
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.set_read_timeout(Some(LONG));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

#[test]
fn a_replayed_first_message_is_of_no_use() {
    let one = with(1, &[1]);
    let (first, _dialler) = recorded();
    // It is right, so it is answered; without its key nobody can go on.
    let answer = talk(&one.address, &first);
    assert_eq!(answer.len(), FIRST_BYTES);
    // A record that nobody could have sealed, and one that announces more than a greeting needs.
    let unsealed = [&[0, 40][..], &[7; 40]].concat();
    for (record, words) in [
        (&unsealed[..], "key does not open"),
        (&[0xff, 0xff], "wrong length"),
    ] {
        let one = with(1, &[1]);
        talk(&one.address, &[&first, record].concat());
        until(words, || one.ears.noticed(words));
        assert_eq!(one.ears.heard(), 0);
    }
    assert!(one.ears.ups.lock().unwrap().is_empty());
    assert_eq!(one.ears.heard(), 0);
}

#[test]
fn damage_at_any_place_of_the_first_message_is_refused() {
    let (first, _dialler) = recorded();
    let one = with(1, &[1]);
    for at in [9, 20, 40, 41, FIRST_BYTES - 1] {
        let mut bytes = first.clone();
        bytes[at] ^= 1;
        let answer = talk(&one.address, &bytes);
        assert_eq!(answer, b"NEOKVP\x00\x02\x02", "byte {at}");
    }
    for length in [9, 10, FIRST_BYTES - 1] {
        assert!(talk(&one.address, &first[..length]).is_empty(), "{length}");
    }
}

#[test]
fn a_reflected_message_proves_nothing() {
    // Somebody without the secret answers with what the dialler itself has said.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = with(1, &[1]);
    let address = listener.local_addr().unwrap().to_string();
    one.transport.set_peer(2, address);
    let (mut socket, _) = listener.accept().unwrap();
    let mut bytes = vec![0; FIRST_BYTES];
    socket.read_exact(&mut bytes).unwrap();
    bytes[8] = 0; // go on
    socket.write_all(&bytes).unwrap();
    until("noticed", || {
        one.ears.refused("does not have the cluster secret")
    });
    assert!(!one.transport.is_up(2));
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let (one, two) = (node(config(1)), node(config(2)));
    let proxy = Proxy::new(&two.address);
    one.transport.set_peer(2, &proxy.address[..]);
    until("up", || one.transport.is_up(2));
    for round in 0..10 {
        let before = one.ears.broken.load(std::sync::atomic::Ordering::Relaxed);
        proxy.damage_after(round);
        until("ended", || {
            one.ears.broken.load(std::sync::atomic::Ordering::Relaxed) > before
        });
        until("again", || counters(&one, 2).connected);
    }
    assert!(two.ears.noticed("key does not open") || two.ears.noticed("wrong length"));
}

#[test]
fn a_secret_is_replaced_while_messages_flow() {
    let (one, two) = (with(1, &[1]), with(2, &[1]));
    one.transport.set_peer(2, &two.address[..]);
    two.transport.set_peer(1, &one.address[..]);
    until("up", || one.transport.is_up(2) && two.transport.is_up(1));
    let works = |what: &str| {
        until(what, || {
            let there = one.transport.call(2, ECHO, "x", LONG).wait();
            let back = two.transport.call(1, ECHO, "x", LONG).wait();
            there.is_ok() && back.is_ok()
        });
    };
    let (old, new) = (secret(1), secret(2));
    for node in [&one, &two] {
        node.transport.secrets().unwrap().add(&new).unwrap();
    }
    works("both are accepted");
    one.transport.secrets().unwrap().prefer(&new).unwrap();
    works("one dials with the new one");
    two.transport.secrets().unwrap().prefer(&new).unwrap();
    let connects = counters(&one, 2).connects;
    assert_eq!(connects, 1, "nothing was closed so far");
    for node in [&one, &two] {
        node.transport.secrets().unwrap().keep_only(&new).unwrap();
    }
    until("connections of the old one are gone", || {
        counters(&one, 2).connects > connects
    });
    works("the new one only");
    let late = node(Config {
        secrets: Some(Secrets::of(vec![old.clone()])),
        ..config(3)
    });
    let call = late
        .transport
        .call_blocking(&one.address[..], ECHO, "x", LONG);
    assert!(call.is_err(), "the old one is worth nothing: {call:?}");
    assert!(one.ears.ups.lock().unwrap().iter().all(|(_, up)| *up));
}

#[test]
fn whoever_prefers_the_old_one_still_gets_in_while_both_are_known() {
    let (one, two) = (with(1, &[2]), with(2, &[1, 2]));
    two.transport.set_peer(1, &one.address[..]);
    until("up", || two.transport.is_up(1));
}

#[test]
fn the_file_is_read_again_when_it_changes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cluster-secret");
    let write = |numbers: &[u8]| {
        let list: Vec<_> = numbers.iter().map(|it| secret(*it)).collect();
        write_secrets(&path, &list).unwrap();
    };
    write(&[1]);
    let one = node(Config {
        secrets: Some(Secrets::open(path.clone()).unwrap()),
        ..config(1)
    });
    let two = with(2, &[2]);
    two.transport.set_peer(1, &one.address[..]);
    until("refused", || two.ears.refused("cluster secret"));
    std::fs::write(&path, "garbage").unwrap();
    until("told", || one.ears.noticed("kept what was in force"));
    write(&[1, 2]);
    until("let in", || two.transport.is_up(1));
}

#[test]
fn a_crowd_of_silent_strangers_shuts_nobody_out() {
    let one = with(1, &[1]);
    let crowd: Vec<TcpStream> = (0..1500)
        .filter_map(|_| TcpStream::connect(&one.address).ok())
        .collect();
    assert!(crowd.len() > 1000);
    let began = Instant::now();
    let caller = node(Config {
        node_id: 0,
        cluster_id: 0,
        listen: None,
        ..config(7)
    });
    let answer = caller
        .transport
        .call_blocking(&one.address[..], ECHO, "x", LONG);
    assert_eq!(answer.unwrap(), "x", "after {:?}", began.elapsed());
    let two = with(2, &[1]);
    two.transport.set_peer(1, &one.address[..]);
    until("a peer too", || two.transport.is_up(1));
    assert!(one.ears.noticed("do not shake hands"));
    // The others are closed: all but as many as one source may have.
    let closed = |socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        matches!((&mut &*socket).read(&mut [0; 1]), Ok(0))
    };
    until("closed", || {
        crowd.iter().filter(|it| !closed(it)).count() <= 64
    });
}

#[test]
fn an_unknown_node_is_refused_and_let_in_when_it_is_known() {
    let one = node(Config {
        known_only: true,
        ..config(1)
    });
    let four = node(config(4));
    four.transport.set_peer(1, &one.address[..]);
    until("refused", || {
        four.ears.refused("node 4 is no node of this cluster")
    });
    assert_eq!(only_refusal(&four), RefusalKind::UnknownNode);
    assert_eq!(one.ears.unknown.lock().unwrap()[0], 4);
    assert_eq!(one.ears.heard(), 0);
    let call = four
        .transport
        .call_blocking(&one.address[..], ECHO, "x", LONG);
    assert_eq!(
        call.unwrap(),
        "x",
        "calls say in their body who asks; ctl has no id"
    );
    one.transport.set_peer(4, &four.address[..]);
    until("let in", || four.transport.is_up(1));
}

#[test]
fn a_missing_file_is_named() {
    let error = Secrets::open(Path::new("/nowhere/cluster-secret").into());
    assert!(error.unwrap_err().to_string().contains("/nowhere/"));
    let wrong = Transport::start(
        Config {
            strangers_max: 0,
            ..config(1)
        },
        std::sync::Arc::new(Ears::default()),
    );
    assert!(wrong.is_err());
}

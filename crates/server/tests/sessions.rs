//! Sessions under pressure: slow readers, kills, limits, bad input.

mod client;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use client::{Client, Value, node};

/// A client that sends and does not read slows itself only, and its memory is bounded.
#[test]
fn a_slow_reader_slows_itself() {
    let node = node(4, |_| {});
    let mut other = Client::new(&node);
    let value = "x".repeat(1000);
    let lines: Vec<String> = (0..64).map(|i| format!("SET big:{i} {value}")).collect();
    other.pipeline(&lines);
    let slow = Client::new(&node);
    let mut stream = slow.stream().try_clone().expect("clone");
    let writer = std::thread::spawn(move || {
        let mut sent = 0u64;
        let mut batch = Vec::new();
        for i in 0..64 {
            let key = format!("big:{i}");
            batch.extend(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).bytes());
        }
        stream
            .set_write_timeout(Some(Duration::from_millis(500)))
            .expect("timeout");
        // 64 KB of replies per batch, 170 MB of requests: more than any socket buffer takes.
        for _ in 0..100_000 {
            if stream.write_all(&batch).is_err() {
                break; // the server stopped reading, as it should
            }
            sent += 64;
        }
        sent
    });
    let started = Instant::now();
    let mut worst = Duration::ZERO;
    while started.elapsed() < Duration::from_secs(2) {
        let before = Instant::now();
        other.run("GET big:1");
        worst = worst.max(before.elapsed());
    }
    assert!(worst < Duration::from_secs(1), "{worst:?}");
    let sent = writer.join().expect("writer");
    assert!(
        sent < 100_000 * 64,
        "the server read everything: no back-pressure"
    );
    drop(slow);
    other.run("PING");
    node.stop();
}

#[test]
fn killed_sessions_end() {
    let node = node(4, |_| {});
    let mut admin = Client::new(&node);
    let mut idle = Client::new(&node);
    let mut blocked = Client::new(&node);
    let id = idle.run("CLIENT ID").int();
    let blocked_id = blocked.run("CLIENT ID").int();
    blocked.send(&["BLPOP", "never", "0"]);
    assert_eq!(admin.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    assert_eq!(idle.try_read(), None);
    assert_eq!(
        admin.run(&format!("CLIENT KILL ID {blocked_id}")),
        Value::Int(1)
    );
    assert_eq!(blocked.try_read(), None);
    node.stop();
}

#[test]
fn bad_input_is_answered_and_closed() {
    let node = node(2, |_| {});
    for bad in ["*1\r\n$x\r\n", "*3\r\n!abc\r\n", "*-5\r\n*99999999999\r\n"] {
        let mut client = Client::new(&node);
        client
            .stream()
            .try_clone()
            .expect("clone")
            .write_all(bad.as_bytes())
            .expect("write");
        let reply = client.read();
        assert!(reply.text().starts_with("ERR Protocol error"), "{reply:?}");
        assert_eq!(client.try_read(), None);
    }
    node.stop();
}

#[test]
fn no_more_than_maxclients() {
    let node = node(2, |settings| settings.maxclients = 3);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(&node)).collect();
    for client in &mut clients {
        client.run("PING");
    }
    let mut extra = Client::new(&node);
    assert_eq!(extra.read().text(), "ERR max number of clients reached");
    drop(clients);
    node.stop();
}

#[test]
fn passwords() {
    let node = node(2, |settings| settings.requirepass = b"secret".to_vec());
    let mut client = Client::new(&node);
    assert_eq!(
        client.run("GET a").text(),
        "NOAUTH Authentication required."
    );
    assert!(client.run("AUTH wrong").text().starts_with("WRONGPASS"));
    assert_eq!(client.run("AUTH secret").text(), "OK");
    assert_eq!(client.run("GET a"), Value::Nil);
    node.stop();
}

#[test]
fn idle_sessions_end() {
    let node = node(2, |settings| settings.timeout_seconds = 1);
    let mut client = Client::new(&node);
    client.run("PING");
    assert_eq!(client.try_read(), None);
    node.stop();
}

#[test]
fn big_values_are_exact() {
    let node = node(2, |_| {});
    let client = Client::new(&node);
    let mut stream = client.stream().try_clone().expect("clone");
    let value: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    for key in ["a", "b", "c", "d"] {
        write!(
            stream,
            "*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n${}\r\n",
            value.len()
        )
        .expect("write");
        stream.write_all(&value).expect("write");
        stream.write_all(b"\r\n").expect("write");
        let mut ok = [0; 5];
        stream.read_exact(&mut ok).expect("read");
        assert_eq!(&ok, b"+OK\r\n");
        write!(stream, "GET {key}\r\n").expect("write");
        let head = format!("${}\r\n", value.len());
        let mut back = vec![0; head.len() + value.len() + 2];
        stream.read_exact(&mut back).expect("read");
        assert!(back[head.len()..].starts_with(&value), "changed");
    }
    node.stop();
}

#[test]
fn a_port_in_use_is_named() {
    let node = node(1, |_| {});
    let settings = server::Settings {
        num_shards: 1,
        bind: vec!["127.0.0.1".into()],
        redis_port: node.port(),
        http_port: 0,
        ..server::Settings::default()
    };
    let Err(error) = server::start(settings) else {
        panic!("two nodes on one port");
    };
    let line = error.to_string();
    assert!(line.contains(&node.port().to_string()), "{line}");
    assert!(line.contains("--redis-port"), "{line}");
    node.stop();
}

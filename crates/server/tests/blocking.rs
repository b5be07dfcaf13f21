//! Blocked sessions: served in order, nothing lost, nothing twice.

mod client;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Value, node};

fn wait_for_blocked(admin: &mut Client, n: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let info = admin.run("INFO clients");
        if info.text().contains(&format!("blocked_clients:{n}\r\n")) {
            return;
        }
        assert!(Instant::now() < deadline, "{info:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn those_who_came_first_are_served_first() {
    for shards in [1, 4] {
        let node = node(shards, |_| {});
        let mut admin = Client::new(&node);
        let mut waiting: Vec<Client> = (0..8)
            .map(|i| {
                let mut client = Client::new(&node);
                client.send(&["BLPOP", "other", "line", "0"]);
                wait_for_blocked(&mut admin, i + 1);
                client
            })
            .collect();
        for i in 0..8 {
            admin.run(&format!("RPUSH line {i}"));
        }
        for (i, client) in waiting.iter_mut().enumerate() {
            let reply = client.read();
            assert_eq!(reply.list()[1].text(), i.to_string());
        }
        wait_for_blocked(&mut admin, 0);
        node.stop();
    }
}

#[test]
fn producers_and_consumers() {
    const ITEMS: usize = 3000;
    for shards in [1, 4] {
        let node = node(shards, |_| {});
        let port = node.port();
        let left = Arc::new(AtomicUsize::new(ITEMS));
        let mut threads = Vec::new();
        // Movers between the first lists and the last, over all cores.
        for i in 0..3 {
            threads.push(std::thread::spawn(move || {
                let mut client = Client::at(port);
                let mut idle = 0;
                while idle < 4 {
                    let command = format!("BLMOVE in:{i} out:{} LEFT RIGHT 0.3", (i + 1) % 3);
                    match client.run(&command) {
                        Value::Nil => idle += 1,
                        _ => idle = 0,
                    }
                }
                Vec::new()
            }));
        }
        for _ in 0..3 {
            let left = left.clone();
            threads.push(std::thread::spawn(move || {
                let mut client = Client::at(port);
                let mut got = Vec::new();
                while left.load(Ordering::SeqCst) > 0 {
                    if let Value::List(pair) = client.run("BLPOP out:0 out:1 out:2 0.2") {
                        left.fetch_sub(1, Ordering::SeqCst);
                        got.push(pair[1].text().to_string());
                    }
                }
                got
            }));
        }
        let producer = std::thread::spawn(move || {
            let mut client = Client::at(port);
            for i in 0..ITEMS {
                if i % 7 == 0 {
                    let lines = [
                        "MULTI".to_string(),
                        format!("RPUSH in:{} {i}", i % 3),
                        "EXEC".to_string(),
                    ];
                    client.pipeline(&lines);
                } else {
                    client.run(&format!("RPUSH in:{} {i}", i % 3));
                }
            }
        });
        producer.join().expect("producer");
        let mut all = HashSet::new();
        let mut count = 0;
        for thread in threads {
            for item in thread.join().expect("client") {
                count += 1;
                assert!(all.insert(item), "twice");
            }
        }
        assert_eq!((count, all.len()), (ITEMS, ITEMS));
        node.stop();
    }
}

#[test]
fn timeouts_unblock_and_disconnects() {
    let node = node(4, |_| {});
    let mut admin = Client::new(&node);
    let mut client = Client::new(&node);
    assert_eq!(client.run("BLPOP a b c d 0.05"), Value::Nil);
    assert_eq!(
        client.run("BLPOP a nonsense").text(),
        "ERR timeout is not a float or out of range"
    );
    assert_eq!(client.run("BLPOP a -1").text(), "ERR timeout is negative");
    let id = client.run("CLIENT ID").int();
    client.send(&["BLPOP", "a", "b", "0"]);
    wait_for_blocked(&mut admin, 1);
    assert_eq!(
        admin.run(&format!("CLIENT UNBLOCK {id} ERROR")),
        Value::Int(1)
    );
    assert!(client.read().text().starts_with("UNBLOCKED"));
    // A client that goes while it waits takes nothing with it.
    client.send(&["BLPOP", "a", "b", "0"]);
    wait_for_blocked(&mut admin, 1);
    drop(client);
    wait_for_blocked(&mut admin, 0);
    admin.run("RPUSH a x");
    assert_eq!(admin.run("LLEN a"), Value::Int(1));
    node.stop();
}

#[test]
fn a_pipelined_command_waits_behind_the_blocked_one() {
    let node = node(4, |_| {});
    let mut admin = Client::new(&node);
    let mut client = Client::new(&node);
    client.send(&["BLPOP", "q", "0"]);
    client.send(&["PING"]);
    wait_for_blocked(&mut admin, 1);
    admin.run("MULTI");
    admin.run("RPUSH q 1");
    admin.run("SET z 1");
    admin.run("EXEC");
    assert_eq!(client.read().list()[1].text(), "1");
    assert_eq!(client.read().text(), "PONG");
    node.stop();
}

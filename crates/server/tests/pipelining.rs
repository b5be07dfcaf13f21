//! Replies in request order, whichever core gives them.

mod client;

use std::collections::HashMap;

use client::{Client, Value, node};

/// Random single-key commands over all cores, against a model, in pipelines of random length.
#[test]
fn replies_come_in_request_order() {
    for shards in [1, 4] {
        let node = node(shards, |_| {});
        let threads: Vec<_> = (0..4)
            .map(|thread: u64| {
                let port = node.port();
                std::thread::spawn(move || one_client(port, thread))
            })
            .collect();
        for thread in threads {
            thread.join().expect("client");
        }
        node.stop();
    }
}

fn one_client(port: u16, thread: u64) {
    let mut rng = fastrand::Rng::with_seed(7 + thread);
    let mut client = Client::at(port);
    let mut model: HashMap<String, i64> = HashMap::new();
    for _ in 0..200 {
        let mut lines = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..rng.usize(1..120) {
            let key = format!("t{thread}:{}", rng.u32(0..50));
            match rng.u32(0..6) {
                0 => {
                    let value = rng.i64(0..1000);
                    lines.push(format!("SET {key} {value}"));
                    model.insert(key, value);
                    expected.push(Value::Text("OK".into()));
                }
                1 => {
                    lines.push(format!("INCR {key}"));
                    let value = model.entry(key).or_insert(0);
                    *value += 1;
                    expected.push(Value::Int(*value));
                }
                2 => {
                    let there = model.remove(&key).is_some();
                    lines.push(format!("DEL {key}"));
                    expected.push(Value::Int(there.into()));
                }
                3 => {
                    lines.push(format!("ECHO {key}"));
                    expected.push(Value::Text(key));
                }
                4 => {
                    lines.push(format!("NOSUCH {key}"));
                    expected.push(Value::Error(format!(
                        "ERR unknown command 'NOSUCH', with args beginning with: '{key}'"
                    )));
                }
                _ => {
                    lines.push(format!("GET {key}"));
                    expected.push(match model.get(&key) {
                        Some(value) => Value::Text(value.to_string()),
                        None => Value::Nil,
                    });
                }
            }
        }
        assert_eq!(client.pipeline(&lines), expected);
    }
}

/// SELECT, multi-key and whole-keyspace commands between single-key ones.
#[test]
fn barriers_keep_the_order() {
    let node = node(4, |_| {});
    let mut client = Client::new(&node);
    for round in 0..50 {
        let lines: Vec<String> = [
            "SELECT 3".into(),
            "FLUSHDB".into(),
            format!("MSET a {round} b {round} c {round} d {round}"),
            "MGET a b c d".into(),
            "SELECT 4".into(),
            "GET a".into(),
            "SELECT 3".into(),
            "DBSIZE".into(),
            "DEL a b".into(),
            "MGET a c".into(),
        ]
        .to_vec();
        let replies = client.pipeline(&lines);
        let text = |n: i64| Value::Text(n.to_string());
        assert_eq!(replies[3], Value::List(vec![text(round); 4]));
        assert_eq!(replies[5], Value::Nil);
        assert_eq!(replies[7], Value::Int(4));
        assert_eq!(replies[8], Value::Int(2));
        assert_eq!(replies[9], Value::List(vec![Value::Nil, text(round)]));
    }
    node.stop();
}

/// Every key is seen by a SCAN that goes over all cores.
#[test]
fn scan_sees_every_core() {
    let node = node(4, |_| {});
    let mut client = Client::new(&node);
    let lines: Vec<String> = (0..1000).map(|i| format!("SET key:{i} v")).collect();
    client.pipeline(&lines);
    let mut seen = std::collections::HashSet::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = client.run(&format!("SCAN {cursor} COUNT 50"));
        let [next, keys] = reply.list() else {
            panic!("{reply:?}");
        };
        seen.extend(keys.list().iter().map(|key| key.text().to_string()));
        cursor = next.text().to_string();
        if cursor == "0" {
            break;
        }
        // JavaScript reads cursors as doubles.
        assert!(cursor.parse::<u64>().unwrap() < 1 << 53);
        // A transaction understands the cursor too.
        if seen.len() % 3 == 0 {
            let lines = [
                "MULTI".into(),
                format!("SCAN {cursor} COUNT 20"),
                "EXEC".into(),
            ];
            let replies = client.pipeline(&lines);
            let [next, keys] = replies[2].list()[0].list() else {
                panic!("{replies:?}");
            };
            seen.extend(keys.list().iter().map(|key| key.text().to_string()));
            cursor = next.text().to_string();
            if cursor == "0" {
                break;
            }
        }
    }
    assert_eq!(seen.len(), 1000);
    client.run("FLUSHALL");
    client.run("MSET a 1 b 2 c 3");
    let reply = client.run("SCAN 0");
    assert_eq!(reply.list()[0].text(), "0", "few keys are one step");
    assert_eq!(reply.list()[1].list().len(), 3);
    node.stop();
}

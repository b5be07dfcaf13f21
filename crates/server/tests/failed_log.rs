//! A log that fails, on a durable node: what is refused is not to be seen, what was acknowledged stays.

mod client;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Value};
use keyspace::rows::MapStore;
use replica::{LogError, MapLog};
use server::{Server, Stores};

fn durable(shards: usize) -> (Server, Arc<MapLog>) {
    let log = Arc::new(MapLog::new());
    let settings = client::settings(shards);
    let stores = Stores {
        rows: Arc::new(MapStore::new()),
        log: log.clone(),
        feed: false,
    };
    let node = server::start_durable(settings, stores);
    (node.unwrap_or_else(|error| panic!("{error}")), log)
}

fn fail(log: &MapLog) {
    log.break_with(LogError::Failed("no disk".into()));
}

#[track_caller]
fn is_refused(reply: &Value) {
    assert!(reply.text().starts_with("MISCONF"), "{reply:?}");
}

/// Keys `a`, `b` and `c` are in three regions of four.
#[test]
fn what_is_refused_is_not_to_be_seen() {
    let commands: [&[&str]; 5] = [
        &["MSET a new b new c new"],
        &["SPOP set"],
        &["RENAME a b"],
        &[
            "WATCH a",
            "MULTI",
            "SET a new",
            "DEL b",
            "APPEND c x",
            "EXEC",
        ],
        &["FLUSHALL"],
    ];
    for lines in commands {
        let (node, log) = durable(4);
        let client = &mut Client::new(&node);
        client.run("MSET a 1 b 2 c 3");
        client.run("SADD set 1 2 3");
        client.run("SET a 4");
        fail(&log);
        let (last, before) = lines.split_last().unwrap();
        for line in before {
            client.run(line);
        }
        is_refused(&client.run(last));
        let values = client.run("MGET a b c");
        let values: Vec<i64> = values.list().iter().map(Value::int).collect();
        assert_eq!(values, [4, 2, 3], "{lines:?}");
        assert_eq!(client.run("SCARD set").int(), 3, "{lines:?}");
        is_refused(&client.run("SET a 5"));
        assert_eq!(client.run("DBSIZE").int(), 4, "{lines:?}");
        node.stop();
    }
}

/// Those that gather while the log fails, and those that had their rows in the store not yet.
#[test]
fn of_many_at_once_exactly_the_acknowledged_are_seen() {
    let (node, log) = durable(4);
    let (port, done) = (node.port(), Arc::new(AtomicU64::new(0)));
    let write = |id: usize| {
        let done = done.clone();
        move || {
            let (mut client, mut both, mut one) = (Client::at(port), 0, 0);
            loop {
                let next = both + 1;
                let reply = client.run(&format!("MSET {id}:a {next} {id}:b {next}"));
                if let Value::Error(_) = reply {
                    break is_refused(&reply);
                }
                both = next;
                let reply = client.run(&format!("INCR {id}:one"));
                if let Value::Error(_) = reply {
                    break is_refused(&reply);
                }
                one = reply.int();
                done.fetch_add(1, Ordering::Relaxed);
            }
            (both, one)
        }
    };
    let writers: Vec<_> = (0..8).map(|id| thread::spawn(write(id))).collect();
    while done.load(Ordering::Relaxed) < 200 {
        thread::sleep(Duration::from_millis(1));
    }
    fail(&log);
    let told: Vec<(i64, i64)> = writers.into_iter().map(|it| it.join().unwrap()).collect();
    let mut client = Client::new(&node);
    for (id, (both, one)) in told.into_iter().enumerate() {
        let found = client.run(&format!("MGET {id}:a {id}:b {id}:one"));
        let found = found.list().iter().map(|value| match value {
            Value::Nil => 0,
            value => value.int(),
        });
        assert_eq!(
            found.collect::<Vec<i64>>(),
            [both, both, one],
            "client {id}"
        );
    }
    node.stop();
}

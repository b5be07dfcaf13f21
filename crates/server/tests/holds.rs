//! Multi-core commands under stress: atomic, isolated, and they end.

mod client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Value, node};

const SHARDS: usize = 4;
const RUN: Duration = Duration::from_secs(4);
/// Far more than a run takes even on a loaded machine: reaching it means a deadlock.
const BOUND: Duration = Duration::from_secs(50);

/// Everything at once, over the same few keys.
#[test]
fn all_at_once() {
    let node = node(SHARDS, |_| {});
    let port = node.port();
    let mut admin = Client::new(&node);
    admin.run("MSET account:0 1000 account:1 1000 account:2 1000 account:3 1000 account:4 1000");
    admin.run("SADD set:0 member");
    admin.run("SET name:0 value");
    admin.run("MSET m:0 0 m:1 0 m:2 0 m:3 0 m:4 0 m:5 0 m:6 0 m:7 0");
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    let mut spawn = |run: fn(u16, &AtomicBool, u64), n: u64| {
        for i in 0..n {
            let (stop, done) = (stop.clone(), done.clone());
            threads.push(std::thread::spawn(move || {
                run(port, &stop, i);
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
    };
    spawn(write_many, 2);
    spawn(read_many, 2);
    spawn(rename, 2);
    spawn(move_member, 2);
    spawn(transfer, 3);
    spawn(audit, 1);
    spawn(count_everything, 1);
    spawn(single_keys, 2);
    let started = Instant::now();
    std::thread::sleep(RUN);
    stop.store(true, Ordering::SeqCst);
    while done.load(Ordering::SeqCst) < threads.len() as u64 {
        if threads.iter().any(|thread| thread.is_finished()) {
            // A failed thread is finished without being counted.
            let finished = threads.iter().filter(|t| t.is_finished()).count() as u64;
            std::thread::sleep(Duration::from_millis(50));
            if finished > done.load(Ordering::SeqCst) && finished == threads.len() as u64 {
                break;
            }
        }
        assert!(started.elapsed() < BOUND, "deadlock");
        std::thread::sleep(Duration::from_millis(10));
    }
    for thread in threads {
        thread.join().expect("a client failed");
    }
    let accounts = admin.run("MGET account:0 account:1 account:2 account:3 account:4");
    assert_eq!(accounts.list().iter().map(Value::int).sum::<i64>(), 5000);
    node.stop();
}

fn write_many(port: u16, stop: &AtomicBool, id: u64) {
    let mut client = Client::at(port);
    let mut n = id;
    while !stop.load(Ordering::Relaxed) {
        let mut keys: Vec<usize> = (0..8).collect();
        fastrand::Rng::with_seed(n).shuffle(&mut keys);
        let pairs: String = keys.iter().map(|key| format!(" m:{key} {n}")).collect();
        assert_eq!(client.run(&format!("MSET{pairs}")).text(), "OK");
        n += 2;
    }
}

/// All values of one MGET come from one MSET.
fn read_many(port: u16, stop: &AtomicBool, _: u64) {
    let mut client = Client::at(port);
    while !stop.load(Ordering::Relaxed) {
        let reply = client.run("MGET m:0 m:1 m:2 m:3 m:4 m:5 m:6 m:7");
        let values = reply.list();
        assert!(values.iter().all(|v| *v == values[0]), "mixed: {values:?}");
    }
}

/// One value wanders between keys of all cores; it is never lost nor doubled.
fn rename(port: u16, stop: &AtomicBool, id: u64) {
    let mut client = Client::at(port);
    let mut rng = fastrand::Rng::with_seed(id);
    while !stop.load(Ordering::Relaxed) {
        let (a, b) = (rng.u32(0..6), rng.u32(0..6));
        client.run(&format!("RENAME name:{a} name:{b}"));
        let there = client.run("EXISTS name:0 name:1 name:2 name:3 name:4 name:5");
        assert_eq!(there, Value::Int(1));
    }
}

fn move_member(port: u16, stop: &AtomicBool, id: u64) {
    let mut client = Client::at(port);
    let mut rng = fastrand::Rng::with_seed(id);
    while !stop.load(Ordering::Relaxed) {
        let (a, b) = (rng.u32(0..5), rng.u32(0..5));
        client.run(&format!("SMOVE set:{a} set:{b} member"));
        let union = client.run("SUNION set:0 set:1 set:2 set:3 set:4");
        assert_eq!(union.list().len(), 1);
    }
}

/// MULTI/EXEC transfers between accounts, with and without WATCH.
fn transfer(port: u16, stop: &AtomicBool, id: u64) {
    let mut client = Client::at(port);
    let mut rng = fastrand::Rng::with_seed(id);
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = (rng.u32(0..5), rng.u32(0..5));
        let amount = rng.u32(1..10);
        if rng.bool() && from != to {
            client.run(&format!("WATCH account:{from} account:{to}"));
            let a = client.run(&format!("GET account:{from}")).int() - i64::from(amount);
            let b = client.run(&format!("GET account:{to}")).int() + i64::from(amount);
            let lines = [
                "MULTI".to_string(),
                format!("SET account:{from} {a}"),
                format!("SET account:{to} {b}"),
                "EXEC".to_string(),
            ];
            let replies = client.pipeline(&lines);
            assert!(matches!(replies[3], Value::Nil | Value::List(_)));
        } else {
            let lines = [
                "MULTI".to_string(),
                format!("DECRBY account:{from} {amount}"),
                format!("INCRBY account:{to} {amount}"),
                "EXEC".to_string(),
            ];
            assert_eq!(client.pipeline(&lines)[3].list().len(), 2);
        }
    }
}

fn audit(port: u16, stop: &AtomicBool, _: u64) {
    let mut client = Client::at(port);
    while !stop.load(Ordering::Relaxed) {
        let reply = client.run("MGET account:0 account:1 account:2 account:3 account:4");
        assert_eq!(reply.list().iter().map(Value::int).sum::<i64>(), 5000);
    }
}

fn count_everything(port: u16, stop: &AtomicBool, _: u64) {
    let mut client = Client::at(port);
    while !stop.load(Ordering::Relaxed) {
        // 5 accounts, 8 of MSET, 1 name, 1 set, and those of `single_keys`.
        let size = client.run("DBSIZE").int();
        assert!((15..=15 + 200).contains(&size), "{size}");
        let names = client.run("KEYS name:*");
        assert_eq!(names.list().len(), 1);
    }
}

/// Pipelines of single-key commands go on meanwhile and stay right.
fn single_keys(port: u16, stop: &AtomicBool, id: u64) {
    let mut client = Client::at(port);
    let mut counts = vec![0i64; 100];
    let mut rng = fastrand::Rng::with_seed(id);
    while !stop.load(Ordering::Relaxed) {
        let picks: Vec<usize> = (0..30).map(|_| rng.usize(0..100)).collect();
        let lines: Vec<String> = picks
            .iter()
            .map(|p| format!("INCR single:{id}:{p}"))
            .collect();
        for (pick, reply) in picks.iter().zip(client.pipeline(&lines)) {
            counts[*pick] += 1;
            assert_eq!(reply, Value::Int(counts[*pick]));
        }
    }
}

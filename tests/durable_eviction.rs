//! `maxmemory` with a policy on a durable node and on a cluster: the data set stays below it, what goes is what the
//! policy says, it goes on every replica, and it does not come back.

#[allow(dead_code)] // shared with other tests, which use the rest
mod limited;
#[allow(dead_code)]
mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;

use limited::{BATCH, Limited, config_set, connect, eventually, info, number};
use process::Server;
use redis::{Commands, Connection};
use trio::Trio;

/// What the data set may have: about 5,900 of the values written here.
const LIMIT: u64 = 6 << 20;
/// What may be on its way through the log, and what upkeep sees every 100 ms only.
const SLACK: u64 = 2 << 20;

fn limited(policy: &str) -> Limited {
    let limit = LIMIT.to_string();
    let settings = ["--maxmemory", &limit, "--maxmemory-policy", policy];
    let server = Server::durable(2, &settings);
    let client = connect(&server);
    Limited {
        server,
        client,
        field: "data_set_bytes",
        limit: LIMIT,
        slack: SLACK,
        falls_by_itself: true,
    }
}

#[test]
fn allkeys_lru_keeps_what_is_used() {
    limited("allkeys-lru").check_hot_keys_stay(4400);
}

#[test]
fn allkeys_lfu_keeps_what_is_used_often() {
    limited("allkeys-lfu").check_keys_used_often_stay();
}

#[test]
fn allkeys_random_takes_any() {
    limited("allkeys-random").check_any_key_goes();
}

#[test]
fn volatile_policies_take_keys_with_a_deadline_only() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random"] {
        limited(policy).check_only_volatile_keys_go();
    }
}

#[test]
fn volatile_ttl_takes_the_earliest_deadline() {
    let mut node = limited("volatile-ttl");
    node.write("keep", 1000, None);
    node.write("late", 2000, Some(100_000));
    node.write("early", 6000, Some(1000));
    node.check_count(9000);
    assert_eq!(node.stay("keep", 1000), 1000);
    let late = node.stay("late", 2000);
    assert!(late >= 1950, "{late} of 2000 late keys stay");
}

#[test]
fn collections_count_what_they_hold() {
    let mut node = limited("allkeys-lru");
    let member = "m".repeat(100);
    for set in 0..40 {
        let members: Vec<String> = (0..2500).map(|i| format!("{member}{i}")).collect();
        let _: usize = node.client.sadd(format!("set:{set}"), members).unwrap();
    }
    node.until_below();
    let there = node.size();
    assert!((10..24).contains(&there), "{there} sets of 300 KB in 6 MB");
}

/// What is counted for a big collection goes with it, though after a start it is only in its rows, where its elements have no bytes.
#[test]
fn a_big_collection_on_disk_goes_with_all_it_counts() {
    let mut node = limited("allkeys-lru");
    node.write("k", 100, None);
    let value = "v".repeat(800);
    for start in (0..5000).step_by(500) {
        let fields: Vec<_> = (start..start + 500).map(|i| (i, &value)).collect();
        let () = node.client.hset_multiple("hash", &fields).unwrap();
    }
    node.server.kill_and_restart();
    node.client = connect(&node.server);
    let until = |node: &mut Limited, what, range: std::ops::Range<u64>| {
        eventually(what, || range.contains(&node.bytes()).then_some(()));
    };
    until(
        &mut node,
        "what is on disk is counted",
        4_000_000..5_000_000,
    );
    let mut client = connect(&node.server);
    let found: String = client.hget("hash", 77).unwrap();
    assert_eq!(found, value);
    let removed: usize = client.del("hash").unwrap();
    assert_eq!(removed, 1);
    until(&mut node, "all of the hash has gone", 100_000..200_000);
    assert_eq!(node.size(), 100);
}

/// What was given up is gone after a crash, what was not is there; and what is only on disk then counts and goes first,
/// also by policies that look for deadlines.
#[test]
fn evicted_keys_stay_away_after_a_crash() {
    for (policy, ttl_seconds) in [
        ("allkeys-lru", None),
        ("volatile-lru", Some(100_000)),
        ("volatile-ttl", Some(100_000)),
    ] {
        let mut node = limited(policy);
        node.write("k", 10_000, ttl_seconds);
        node.check_count(10_000);
        let (before, size) = (exist(&mut node.client, "k", 10_000), node.size());
        node.server.kill_and_restart();
        node.client = connect(&node.server);
        assert_eq!(node.size(), size, "{policy}");
        eventually("what is on disk is counted", || {
            let bytes = node.bytes();
            (bytes > LIMIT * 9 / 10).then_some(())
        });
        // Keys that the replay left in memory were used at the start: the clock of uses, which counts seconds, has to move on.
        eventually("the old keys are idle", || {
            let mut command = redis::cmd("OBJECT");
            command.arg("IDLETIME").arg("k:9999");
            let idle: Option<u64> = command.query(&mut node.client).unwrap();
            idle.is_none_or(|seconds| seconds >= 2).then_some(())
        });
        node.write("new", 4000, ttl_seconds.map(|ttl| 2 * ttl));
        node.check_count(size + 4000);
        let new = node.stay("new", 4000);
        // Samples may meet new keys only; a choice without regard to use would leave two thirds.
        assert!(new >= 3600, "{policy}: {new} of 4000 new keys stay");
        let after = exist(&mut node.client, "k", 10_000);
        let mut both = before.into_iter().zip(after);
        assert!(both.all(|(before, after)| before || !after), "{policy}");
    }
}

fn exist(client: &mut Connection, group: &str, count: usize) -> Vec<bool> {
    let mut pipe = redis::pipe();
    for i in 0..count {
        pipe.exists(format!("{group}:{i}"));
    }
    pipe.query(client).unwrap()
}

#[test]
fn a_lower_limit_and_another_policy_act_at_once() {
    let mut node = limited("noeviction");
    config_set(&mut node.client, "maxmemory", "0");
    let value = "v".repeat(1000);
    for start in (0..12_000).step_by(1000) {
        let mut pipe = redis::pipe();
        (start..start + 1000).for_each(|i| {
            pipe.set(format!("k:{i}"), &value).ignore();
        });
        let () = pipe.query(&mut node.client).unwrap();
    }
    assert_eq!(node.size(), 12_000);
    config_set(&mut node.client, "maxmemory-policy", "allkeys-random");
    config_set(&mut node.client, "maxmemory", &LIMIT.to_string());
    node.check_count(12_000);
}

#[test]
fn all_replicas_give_up_the_same() {
    let limit = LIMIT.to_string();
    let trio = Trio::start(&["--maxmemory", &limit, "--maxmemory-policy", "allkeys-lru"]);
    let value = "v".repeat(1000);
    let count = 4000;
    for node in 0..3 {
        let mut link = trio.link(node);
        // Keys of a slot that this node leads.
        let tag = (0..)
            .map(|n| format!("{{{node}-{n}}}"))
            .find(|tag| link.say(&format!("SET {tag}:0 {value}")) == "OK")
            .unwrap();
        for start in (1..count).step_by(BATCH) {
            let keys = start..count.min(start + BATCH);
            let lines: Vec<_> = keys.map(|i| format!("SET {tag}:{i} {value}")).collect();
            for reply in link.pipeline(&lines) {
                assert_eq!(reply, "OK");
            }
        }
    }
    trio.until("all are below the limit", |trio| {
        let below = |node| {
            let text = trio.link(node).say("INFO memory");
            number(&text, "data_set_bytes") <= LIMIT
        };
        (0..3).all(below)
    });
    let evicted = |node: usize| number(&trio.link(node).say("INFO stats"), "evicted_keys");
    let evicted: Vec<u64> = (0..3).map(evicted).collect();
    assert!(evicted.iter().all(|&keys| keys > 100), "{evicted:?}");
    let sum: u64 = evicted.iter().sum();
    assert!((5500..7500).contains(&sum), "{evicted:?} of 12000");
    let peers: Vec<String> = (0..3)
        .map(|it| format!("{}:{}", trio.host(it), trio::PORT + 10_000))
        .collect();
    let said = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["ctl", "--peer", &peers.join(","), "digest"])
        .arg("--cluster-secret-file")
        .arg(trio.secret())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.matches("equal").count(), 6, "{said}");
}

/// What was kept for rows to come is given back, too, when no more come.
#[test]
fn memory_falls_when_a_big_set_goes() {
    let server = Server::durable(2, &[]);
    let mut client = connect(&server);
    let _: () = client.set("small", "v").unwrap();
    let start = info(&mut client, "memory", "used_memory");
    let members: Vec<u32> = (0..100_000).collect();
    let added: usize = client.sadd("set", members).unwrap();
    assert_eq!(added, 100_000);
    let full = info(&mut client, "memory", "used_memory");
    assert!(full > start + (2 << 20), "{start}, then {full}");
    let gone: usize = client.unlink("set").unwrap();
    assert_eq!(gone, 1);
    eventually("memory falls", || {
        let used = info(&mut client, "memory", "used_memory");
        (used < start + (1 << 20)).then_some(())
    });
}

//! `maxmemory` with a policy on a durable node and on a cluster: the data set stays below it, what goes is what the
//! policy says, it goes on every replica, and it does not come back.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use process::Server;
use redis::{Commands, Connection, RedisResult};
use trio::Trio;

/// What the data set may have: about 5,900 of the values written here.
const LIMIT: u64 = 6 << 20;
/// What may be on its way through the log, and what upkeep sees every 100 ms only.
const SLACK: u64 = 2 << 20;
/// Keys written between two looks.
const BATCH: usize = 100;
const OOM: &str = "command not allowed when used memory > 'maxmemory'";

/// A durable server whose data set is limited.
struct Limited {
    server: Server,
    client: Connection,
}

fn connect(server: &Server) -> Connection {
    let url = format!("redis://127.0.0.1:{}/", server.port);
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

impl Limited {
    fn new(policy: &str) -> Limited {
        let limit = LIMIT.to_string();
        let settings = ["--maxmemory", &limit, "--maxmemory-policy", policy];
        let server = Server::durable(2, &settings);
        let client = connect(&server);
        Limited { server, client }
    }

    /// Writes `group:0`, `group:1`, … of 1000 bytes until `count` are written or one is refused;
    /// how many were written. The data set is looked at all the while.
    fn write(&mut self, group: &str, count: usize, ttl_seconds: Option<u64>) -> usize {
        self.write_and(group, count, ttl_seconds, |_| {})
    }

    fn write_and(
        &mut self,
        group: &str,
        count: usize,
        ttl_seconds: Option<u64>,
        mut between: impl FnMut(&mut Connection),
    ) -> usize {
        let value = "v".repeat(1000);
        for start in (0..count).step_by(BATCH) {
            let mut pipe = redis::pipe();
            for i in start..count.min(start + BATCH) {
                let key = format!("{group}:{i}");
                match ttl_seconds {
                    Some(ttl) => pipe.set_ex(key, &value, ttl + i as u64).ignore(),
                    None => pipe.set(key, &value).ignore(),
                };
            }
            if let Err(error) = pipe.query::<()>(&mut self.client) {
                assert!(error.to_string().contains(OOM), "{error}");
                return self.stay(group, count);
            }
            let bytes = info(&mut self.client, "memory", "data_set_bytes");
            assert!(bytes < LIMIT + SLACK, "{bytes} bytes, the limit is {LIMIT}");
            between(&mut self.client);
        }
        count
    }

    /// How many of a group's keys are there.
    fn stay(&mut self, group: &str, count: usize) -> usize {
        let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
        let mut exists = redis::cmd("EXISTS");
        exists.arg(&keys).query(&mut self.client).unwrap()
    }

    fn size(&mut self) -> u64 {
        redis::cmd("DBSIZE").query(&mut self.client).unwrap()
    }

    /// The data set is below the limit, and every key written is there or counted as evicted.
    fn check_count(&mut self, written: u64) {
        self.until_below();
        eventually("each key is there or counted", || {
            let (there, evicted) = (self.size(), info(&mut self.client, "stats", "evicted_keys"));
            assert!(evicted > 0);
            (there + evicted == written).then_some(())
        });
    }

    fn until_below(&mut self) {
        eventually("the data set is below the limit", || {
            let bytes = info(&mut self.client, "memory", "data_set_bytes");
            (bytes <= LIMIT).then_some(())
        });
    }

    /// Nothing is left to give up: writes are refused, reads and removals are not.
    fn check_full(&mut self) {
        let refused: RedisResult<()> = self.client.set("one-more", "v".repeat(1000));
        assert!(refused.unwrap_err().to_string().contains(OOM));
        let size: usize = self.client.strlen("keep:0").unwrap();
        assert_eq!(size, 1000);
        let keys: Vec<String> = (0..1000).map(|i| format!("keep:{i}")).collect();
        let removed: usize = self.client.del(keys).unwrap();
        assert_eq!(removed, 1000);
        let _: () = self.client.set("one-more", "v").unwrap();
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: never");
        thread::sleep(Duration::from_millis(20));
    }
}

fn info(client: &mut Connection, section: &str, field: &str) -> u64 {
    let text: String = redis::cmd("INFO").arg(section).query(client).unwrap();
    number(&text, field)
}

fn number(info: &str, field: &str) -> u64 {
    let mut lines = info.lines();
    let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

fn read(client: &mut Connection, group: &str, count: usize) {
    let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
    let _: Vec<Option<String>> = client.mget(keys).unwrap();
}

#[test]
fn allkeys_lru_keeps_what_is_used() {
    let mut node = Limited::new("allkeys-lru");
    node.write("hot", 400, None);
    node.write("cold", 4400, None);
    thread::sleep(Duration::from_millis(1100)); // the clock of accesses counts seconds
    read(&mut node.client, "hot", 400);
    node.write_and("new", 4000, None, |client| read(client, "hot", 400));
    node.check_count(8800);
    let (hot, cold) = (node.stay("hot", 400), node.stay("cold", 4400));
    assert!(hot >= 380, "{hot} of 400 hot keys stay");
    assert!(cold < 2700, "{cold} of 4400 cold keys stay");
}

#[test]
fn allkeys_lfu_keeps_what_is_used_often() {
    let mut node = Limited::new("allkeys-lfu");
    node.write("hot", 400, None);
    for _ in 0..10 {
        read(&mut node.client, "hot", 400);
    }
    node.write("new", 12_000, None);
    node.check_count(12_400);
    let hot = node.stay("hot", 400);
    assert!(hot >= 380, "{hot} of 400 hot keys stay");
}

#[test]
fn allkeys_random_takes_any() {
    let mut node = Limited::new("allkeys-random");
    node.write("old", 4000, None);
    node.write("new", 8000, Some(1000));
    node.check_count(12_000);
    let (old, new) = (node.stay("old", 4000), node.stay("new", 8000));
    assert!((100..3500).contains(&old), "{old}");
    assert!((1000..7000).contains(&new), "{new}");
}

#[test]
fn volatile_policies_take_keys_with_a_deadline_only() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random"] {
        let mut node = Limited::new(policy);
        node.write("keep", 2000, None);
        node.write("short", 6000, Some(1000));
        node.check_count(8000);
        assert_eq!(node.stay("keep", 2000), 2000, "{policy}");
        // More and more stay, until there is nothing else.
        let more = node.write("more", 20_000, None);
        assert!((2000..6000).contains(&more), "{policy}: {more}");
        assert_eq!(node.stay("short", 6000), 0, "{policy}");
        assert_eq!(node.stay("keep", 2000), 2000, "{policy}");
        node.check_full();
    }
}

#[test]
fn volatile_ttl_takes_the_earliest_deadline() {
    let mut node = Limited::new("volatile-ttl");
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
    let mut node = Limited::new("allkeys-lru");
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
    let mut node = Limited::new("allkeys-lru");
    node.write("k", 100, None);
    let value = "v".repeat(800);
    for start in (0..5000).step_by(500) {
        let fields: Vec<_> = (start..start + 500).map(|i| (i, &value)).collect();
        let () = node.client.hset_multiple("hash", &fields).unwrap();
    }
    node.server.kill_and_restart();
    node.client = connect(&node.server);
    let mut until = |what, range: std::ops::Range<u64>| {
        eventually(what, || {
            let bytes = info(&mut node.client, "memory", "data_set_bytes");
            range.contains(&bytes).then_some(())
        });
    };
    until("what is on disk is counted", 4_000_000..5_000_000);
    let mut client = connect(&node.server);
    let found: String = client.hget("hash", 77).unwrap();
    assert_eq!(found, value);
    let removed: usize = client.del("hash").unwrap();
    assert_eq!(removed, 1);
    until("all of the hash has gone", 100_000..200_000);
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
        let mut node = Limited::new(policy);
        node.write("k", 10_000, ttl_seconds);
        node.check_count(10_000);
        let (before, size) = (exist(&mut node.client, "k", 10_000), node.size());
        node.server.kill_and_restart();
        node.client = connect(&node.server);
        assert_eq!(node.size(), size, "{policy}");
        eventually("what is on disk is counted", || {
            let bytes = info(&mut node.client, "memory", "data_set_bytes");
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
    let mut node = Limited::new("noeviction");
    let set = |client: &mut Connection, name: &str, value: &str| {
        let mut command = redis::cmd("CONFIG");
        let () = command
            .arg("SET")
            .arg(name)
            .arg(value)
            .query(client)
            .unwrap();
    };
    set(&mut node.client, "maxmemory", "0");
    let value = "v".repeat(1000);
    for start in (0..12_000).step_by(1000) {
        let mut pipe = redis::pipe();
        (start..start + 1000).for_each(|i| {
            pipe.set(format!("k:{i}"), &value).ignore();
        });
        let () = pipe.query(&mut node.client).unwrap();
    }
    assert_eq!(node.size(), 12_000);
    set(&mut node.client, "maxmemory-policy", "allkeys-random");
    set(&mut node.client, "maxmemory", &LIMIT.to_string());
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

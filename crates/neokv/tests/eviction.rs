//! `maxmemory` under load, on the running binary: memory stays near the limit while writes go on,
//! and what goes is what the policy says.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;

use std::thread;
use std::time::Duration;

use process::Server;
use redis::{Commands, Connection, RedisResult};

/// Room for data above what the empty server uses.
const ROOM: u64 = 6 << 20;
/// What a batch in flight, buffers and unpublished counts may add.
const SLACK: u64 = 1 << 20;
/// Keys written between two looks.
const BATCH: usize = 100;
const OOM: &str = "command not allowed when used memory > 'maxmemory'";

/// A server whose memory is limited.
struct Limited {
    _server: Server,
    client: Connection,
    limit: u64,
}

impl Limited {
    fn new(policy: &str) -> Limited {
        let server = Server::neokv(2);
        let url = format!("redis://127.0.0.1:{}/", server.port);
        let client = redis::Client::open(url).unwrap();
        let mut client = client.get_connection().unwrap();
        let limit = info(&mut client, "memory", "used_memory") + ROOM;
        config(&mut client, "maxmemory-policy", policy);
        config(&mut client, "maxmemory", &limit.to_string());
        Limited {
            _server: server,
            client,
            limit,
        }
    }

    /// Writes `group:0`, `group:1`, … of 1000 bytes until `count` are written or one is refused;
    /// how many were written. Memory is looked at all the while.
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
            let used = info(&mut self.client, "memory", "used_memory");
            let limit = self.limit;
            assert!(used < limit + SLACK, "{used} used, the limit is {limit}");
            between(&mut self.client);
        }
        count
    }

    /// How many of a group's keys are there.
    fn stay(&mut self, group: &str, count: usize) -> usize {
        let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
        redis::cmd("EXISTS")
            .arg(&keys)
            .query(&mut self.client)
            .unwrap()
    }

    /// Every key written is there or counted as evicted.
    fn check_count(&mut self, written: usize) {
        let there: u64 = redis::cmd("DBSIZE").query(&mut self.client).unwrap();
        let evicted = info(&mut self.client, "stats", "evicted_keys");
        assert_eq!(there + evicted, written as u64);
        assert!(evicted > 0);
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

fn config(client: &mut Connection, name: &str, value: &str) {
    let mut command = redis::cmd("CONFIG");
    let _: () = command
        .arg("SET")
        .arg(name)
        .arg(value)
        .query(client)
        .unwrap();
}

fn info(client: &mut Connection, section: &str, field: &str) -> u64 {
    let text: String = redis::cmd("INFO").arg(section).query(client).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

fn read(client: &mut Connection, group: &str, count: usize) {
    let keys: Vec<String> = (0..count).map(|i| format!("{group}:{i}")).collect();
    let _: Vec<Option<String>> = client.mget(keys).unwrap();
}

#[test]
fn noeviction_refuses_writes() {
    let mut node = Limited::new("noeviction");
    let written = node.write("keep", 20_000, None);
    assert!((4000..7000).contains(&written), "{written}");
    let evicted = info(&mut node.client, "stats", "evicted_keys");
    assert_eq!(evicted, 0);
    node.check_full();
}

#[test]
fn allkeys_lru_keeps_what_is_used() {
    let mut node = Limited::new("allkeys-lru");
    node.write("hot", 400, None);
    node.write("cold", 3600, None);
    thread::sleep(Duration::from_millis(1100)); // the clock of accesses counts seconds
    read(&mut node.client, "hot", 400);
    node.write_and("new", 4000, None, |client| read(client, "hot", 400));
    node.check_count(8000);
    let (hot, cold) = (node.stay("hot", 400), node.stay("cold", 3600));
    assert!(hot >= 380, "{hot} of 400 hot keys stay");
    assert!(cold < 2200, "{cold} of 3600 cold keys stay");
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
    let policies = ["volatile-lru", "volatile-lfu", "volatile-random"];
    let threads = policies.map(|policy| {
        thread::spawn(move || {
            let mut node = Limited::new(policy);
            node.write("keep", 2000, None);
            node.write("short", 6000, Some(1000));
            node.check_count(8000);
            assert_eq!(node.stay("keep", 2000), 2000, "{policy}");
            // More and more stay, until there is nothing else.
            let more = node.write("more", 20_000, None);
            assert!((2000..5000).contains(&more), "{policy}: {more}");
            assert_eq!(node.stay("short", 6000), 0, "{policy}");
            assert_eq!(node.stay("keep", 2000), 2000, "{policy}");
            node.check_full();
        })
    });
    for thread in threads {
        thread.join().unwrap();
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
    assert!(late >= 1980, "{late} of 2000 late keys stay");
}

/// What waits to be freed is no data: neither is a write refused for it, nor a key evicted.
#[test]
fn replaced_values_do_not_count() {
    for policy in ["noeviction", "allkeys-lru"] {
        for size in [100_000, 2_000_000] {
            let mut node = Limited::new(policy);
            config(&mut node.client, "maxmemory", &(50 << 20).to_string());
            node.limit = 50 << 20;
            node.write("small", 2000, None);
            let value = "v".repeat(size);
            for _ in 0..(300_000_000 / size / 25) {
                let mut pipe = redis::pipe();
                (0..25).for_each(|_| {
                    pipe.set("big", &value).ignore();
                });
                let () = pipe.query(&mut node.client).unwrap();
            }
            let evicted = info(&mut node.client, "stats", "evicted_keys");
            assert_eq!(evicted, 0, "{policy}, {size}");
            assert_eq!(node.stay("small", 2000), 2000, "{policy}, {size}");
        }
    }
}

/// A flushed database is freed in the background; there is room for the next one meanwhile.
#[test]
fn a_flushed_database_does_not_count() {
    let mut node = Limited::new("noeviction");
    for _ in 0..10 {
        assert_eq!(node.write("k", 4000, None), 4000);
        let () = redis::cmd("FLUSHALL").query(&mut node.client).unwrap();
    }
}

//! `maxmemory` under load, on the running binary: memory stays near the limit while writes go on,
//! and what goes is what the policy says.

#[allow(dead_code)] // shared with other tests, which use the rest
mod limited;
#[allow(dead_code)]
mod process;

use std::thread;

use limited::{Limited, config_set, connect, info};
use process::Server;

/// Room for data above what the empty server uses.
const ROOM: u64 = 6 << 20;
/// What a batch in flight, buffers and unpublished counts may add.
const SLACK: u64 = 1 << 20;

fn limited(policy: &str) -> Limited {
    let server = Server::neokv(2);
    let mut client = connect(&server);
    let limit = info(&mut client, "memory", "used_memory") + ROOM;
    config_set(&mut client, "maxmemory-policy", policy);
    config_set(&mut client, "maxmemory", &limit.to_string());
    Limited {
        server,
        client,
        field: "used_memory",
        limit,
        slack: SLACK,
        falls_by_itself: false,
    }
}

#[test]
fn noeviction_refuses_writes() {
    let mut node = limited("noeviction");
    let written = node.write("keep", 20_000, None);
    assert!((4000..7000).contains(&written), "{written}");
    let evicted = node.evicted();
    assert_eq!(evicted, 0);
    node.check_full();
}

#[test]
fn allkeys_lru_keeps_what_is_used() {
    limited("allkeys-lru").check_hot_keys_stay(3600);
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
    let policies = ["volatile-lru", "volatile-lfu", "volatile-random"];
    let threads =
        policies.map(|policy| thread::spawn(move || limited(policy).check_only_volatile_keys_go()));
    for thread in threads {
        thread.join().unwrap();
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
    assert!(late >= 1980, "{late} of 2000 late keys stay");
}

/// What waits to be freed is no data: neither is a write refused for it, nor a key evicted.
#[test]
fn replaced_values_do_not_count() {
    for policy in ["noeviction", "allkeys-lru"] {
        for size in [100_000, 2_000_000] {
            let mut node = limited(policy);
            config_set(&mut node.client, "maxmemory", &(50 << 20).to_string());
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
            let evicted = node.evicted();
            assert_eq!(evicted, 0, "{policy}, {size}");
            assert_eq!(node.stay("small", 2000), 2000, "{policy}, {size}");
        }
    }
}

/// A flushed database is freed in the background; there is room for the next one meanwhile.
#[test]
fn a_flushed_database_does_not_count() {
    let mut node = limited("noeviction");
    for _ in 0..10 {
        assert_eq!(node.write("k", 4000, None), 4000);
        let () = redis::cmd("FLUSHALL").query(&mut node.client).unwrap();
    }
}

//! Regions nobody uses are quiet: who only looks does not wake them, and who is dead does not keep them awake.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use trio::Trio;

const REGIONS: usize = 6;

/// How many regions of a node are quiet, at most a second ago.
fn quiet(trio: &Trio, node: usize) -> usize {
    let info = trio.link(node).say("INFO cluster");
    let line = info
        .lines()
        .find_map(|it| it.strip_prefix("regions_quiet:"));
    line.unwrap_or_else(|| panic!("{info}"))
        .trim()
        .parse()
        .unwrap()
}

fn all_are_quiet(trio: &Trio) -> bool {
    (0..3).all(|node| quiet(trio, node) == REGIONS)
}

/// The keys that each node says it leads.
fn sizes(trio: &Trio, info: bool) -> usize {
    let count = |node| -> usize {
        let mut link = trio.link(node);
        if !info {
            return link.say("DBSIZE").parse().unwrap();
        }
        let text = link.say("INFO keyspace");
        let keys = text.split_once("keys=").map(|(_, rest)| rest);
        let keys = keys.and_then(|rest| rest.split(',').next());
        keys.map_or(0, |keys| keys.parse().unwrap())
    };
    (0..3).map(count).sum()
}

/// Somebody who looks every 100 ms, as monitors do: the regions fall asleep under it, and stay asleep; what they
/// are told is right all the time.
#[test]
fn who_only_looks_wakes_nobody() {
    let trio = Trio::start(&[]);
    let mut written = 0;
    for n in 0..60 {
        let key = format!("key:{n}");
        let slot = base::slot::slot_of(key.as_bytes());
        let leader = trio.leader_of(slot, 0).expect("a leader");
        assert_eq!(trio.link(leader).say(&format!("SET {key} {n}")), "OK");
        written += 1;
        // At once, right after the write.
        if n % 10 == 0 {
            assert_eq!(sizes(&trio, false), written);
            assert_eq!(sizes(&trio, true), written);
        }
    }
    let look = |trio: &Trio| {
        assert_eq!(sizes(trio, false), written);
        assert_eq!(sizes(trio, true), written);
        for node in 0..3 {
            let mut link = trio.link(node);
            assert!(link.say("INFO").contains("# Keyspace"));
            assert!(link.say("MEMORY STATS").contains("keys.count"));
        }
        std::thread::sleep(Duration::from_millis(80));
    };
    trio.until("all regions are quiet, though somebody looks", |trio| {
        look(trio);
        all_are_quiet(trio)
    });
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        look(&trio);
        assert!(all_are_quiet(&trio), "somebody who looks woke them");
    }
    // And it can see that they wake, when they are used.
    let slot = base::slot::slot_of(b"key:1");
    let leader = trio.leader_of(slot, 0).expect("a leader");
    assert_eq!(trio.link(leader).say("GET key:1"), "1");
    trio.until("one wakes", |trio| quiet(trio, leader) < REGIONS);
}

/// Those who are there, quiet.
fn are_quiet(trio: &Trio, nodes: &[usize]) -> bool {
    nodes.iter().all(|&node| quiet(trio, node) == REGIONS)
}

/// Writes a key into every region or so, at whoever leads it.
fn write(trio: &Trio, seen_by: usize, round: usize) {
    for n in 0..40 {
        let key = format!("key:{n}");
        let slot = base::slot::slot_of(key.as_bytes());
        let mut said = String::new();
        trio.until("a write", |trio| {
            let leader = trio.leader_of(slot, seen_by).unwrap_or(seen_by);
            let Ok(mut link) = trio.try_link(leader) else {
                return false;
            };
            said = link.say(&format!("SET {key} {round}"));
            said == "OK"
        });
    }
}

/// A dead node keeps nobody awake; when it is back, or goes on, it gets what it missed, and all are quiet again.
#[test]
fn a_dead_node_keeps_nobody_awake() {
    let mut trio = Trio::start(&[]);
    write(&trio, 0, 1);
    trio.kill(2);
    trio.until("quiet without it", |trio| are_quiet(trio, &[0, 1]));
    write(&trio, 0, 2);
    trio.until("awake", |trio| !are_quiet(trio, &[0, 1]));
    trio.until("quiet again", |trio| are_quiet(trio, &[0, 1]));
    trio.restart(2, &[]);
    trio.until("quiet with it", |trio| are_quiet(trio, &[0, 1, 2]));

    // One that only stands still knows nothing of what happens meanwhile.
    trio.pause(2);
    trio.until("quiet without it", |trio| are_quiet(trio, &[0, 1]));
    write(&trio, 0, 3);
    trio.until("quiet again", |trio| are_quiet(trio, &[0, 1]));
    trio.resume(2);
    trio.until("quiet with it", |trio| are_quiet(trio, &[0, 1, 2]));

    // Has it everything? Without another one it must know.
    trio.kill(1);
    for n in 0..40 {
        let key = format!("key:{n}");
        let slot = base::slot::slot_of(key.as_bytes());
        trio.until("the last write", |trio| {
            let leader = trio.leader_of(slot, 2).unwrap_or(2);
            let link = trio.try_link(leader);
            let said = link.map(|mut link| link.say(&format!("GET {key}")));
            let said = said.unwrap_or_default();
            assert!(
                said == "3" || said.is_empty() || said.starts_with('-'),
                "{said}"
            );
            said == "3"
        });
    }
    trio.until("quiet without it", |trio| are_quiet(trio, &[0, 2]));
}

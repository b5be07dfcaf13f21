//! Plain clients and a cluster whose nodes forward (`--redis-cluster-enabled no`): any node does.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use base::slot::slot_of;
use trio::{Link, Trio};

const FORWARD: &[&str] = &["--redis-cluster-enabled", "no"];

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key:{n}")).collect()
}

#[test]
fn any_node_does_for_any_key() {
    let trio = Trio::start(FORWARD);
    let mut links: Vec<Link> = (0..3).map(|node| trio.link(node)).collect();
    for (n, key) in keys(60).iter().enumerate() {
        assert_eq!(links[n % 3].say(&format!("SET {key} {n}")), "OK");
        for link in &mut links {
            assert_eq!(link.say(&format!("GET {key}")), n.to_string());
        }
    }
    // Not the redirects of others, and as if there were one server.
    assert!(links[0].say("INFO cluster").contains("cluster_enabled:0"));
    let mut direct = trio.link(0);
    assert_eq!(direct.say("CLUSTER REDIRECTS"), "OK");
    let replies: Vec<String> = keys(60)
        .iter()
        .map(|key| direct.say(&format!("GET {key}")))
        .collect();
    assert!(replies.iter().any(|reply| reply.starts_with("-MOVED ")));

    // Pipelines: replies in order, and each slot's commands in order.
    let mut lines = Vec::new();
    let mut expected = Vec::new();
    for (n, key) in keys(200).iter().enumerate() {
        lines.extend([
            format!("SET {key} {n}"),
            format!("APPEND {key} x"),
            format!("GET {key}"),
            "PING".into(),
            format!("LPUSH {key} 1"),
            format!("SADD set:{key} {n}"),
            format!("SPOP set:{key}"),
        ]);
        expected.extend([
            "OK".into(),
            (n.to_string().len() + 1).to_string(),
            format!("{n}x"),
            "PONG".into(),
            "-WRONGTYPE Operation against a key holding the wrong kind of value".into(),
            "1".into(),
            n.to_string(),
        ]);
    }
    for link in &mut links {
        assert_eq!(link.pipeline(&lines), expected);
    }

    // RESP3 there, too.
    assert!(links[1].say("HELLO 3").starts_with("Map"));
    for key in keys(6) {
        links[1].say(&format!("DEL {key}"));
        links[1].say(&format!("HSET {key} f v"));
        let reply = links[1].say(&format!("HGETALL {key}"));
        assert!(reply.starts_with("Map"), "{reply}");
        links[1].say(&format!("DEL {key}"));
    }
    assert_eq!(
        links[1].say("MGET a b").split(' ').next(),
        Some("-CROSSSLOT")
    );
    assert!(links[1].say("SELECT 1").starts_with("-ERR SELECT"));
}

#[test]
fn all_keys_are_those_of_all_nodes() {
    let trio = Trio::start(FORWARD);
    let mut links: Vec<Link> = (0..3).map(|node| trio.link(node)).collect();
    assert_eq!(links[0].say("RANDOMKEY"), "nil");
    let all: BTreeSet<String> = keys(300).into_iter().collect();
    let lines: Vec<String> = all.iter().map(|key| format!("SET {key} 1")).collect();
    links[2].pipeline(&lines);
    for link in &mut links {
        assert_eq!(link.say("DBSIZE"), "300");
        let listed = link.say("KEYS key:*");
        let listed: BTreeSet<String> = words(&listed).map(str::to_owned).collect();
        assert_eq!(listed, all);
        assert!(all.contains(&link.say("RANDOMKEY")));
        let mut found = BTreeSet::new();
        let mut cursor = "0".to_owned();
        let mut steps = 0;
        loop {
            let reply = link.say(&format!("SCAN {cursor} COUNT 20 MATCH key:*"));
            let mut parts = words(&reply);
            cursor = parts.next().expect("a cursor").to_owned();
            found.extend(parts.map(str::to_owned));
            steps += 1;
            if cursor == "0" {
                break;
            }
            assert!(steps < 1000, "SCAN does not end");
        }
        assert_eq!(found, all);
        assert!(link.say("SCAN abc").starts_with("-ERR invalid cursor"));
        assert_eq!(link.say("SCAN 18446744073709551615"), "[0 []]");
    }
    assert_eq!(links[1].say("FLUSHALL"), "OK");
    for link in &mut links {
        assert_eq!(link.say("DBSIZE"), "0");
    }
}

/// The words of a shown reply.
fn words(reply: &str) -> impl Iterator<Item = &str> {
    let is_mark = |c: char| c == ' ' || c == '[' || c == ']';
    reply.split(is_mark).filter(|word| !word.is_empty())
}

#[test]
fn transactions_go_to_the_leader() {
    let trio = Trio::start(FORWARD);
    for key in keys(12) {
        for node in 0..3 {
            let (mut link, mut other) = (trio.link(node), trio.link((node + 1) % 3));
            link.say(&format!("DEL {key}"));
            assert_eq!(link.say("MULTI"), "OK");
            assert_eq!(link.say(&format!("SET {key} 1")), "QUEUED");
            assert_eq!(link.say(&format!("INCR {key}")), "QUEUED");
            assert_eq!(link.say("PING"), "QUEUED");
            assert_eq!(link.say("EXEC"), "[OK 2 PONG]");

            for changes in [true, false, true] {
                assert_eq!(link.say(&format!("WATCH {key}")), "OK");
                assert_eq!(link.say("MULTI"), "OK");
                assert_eq!(link.say(&format!("INCR {key}")), "QUEUED");
                if changes {
                    assert_eq!(other.say(&format!("SET {key} 7")), "OK");
                }
                let expected = if changes { "nil" } else { "[8]" };
                assert_eq!(link.say("EXEC"), expected);
            }
            // A watch that was given up does not count.
            for give_up in ["UNWATCH", "DISCARD", "RESET"] {
                assert_eq!(link.say(&format!("WATCH {key}")), "OK");
                if give_up == "DISCARD" {
                    assert_eq!(link.say("MULTI"), "OK");
                }
                link.say(give_up);
                assert_eq!(other.say(&format!("SET {key} 1")), "OK");
                assert_eq!(link.say("MULTI"), "OK");
                assert_eq!(link.say(&format!("INCR {key}")), "QUEUED");
                assert_eq!(link.say("EXEC"), "[2]");
            }
        }
    }
    let mut link = trio.link(0);
    assert_eq!(link.say("MULTI"), "OK");
    assert!(link.say("SET a").starts_with("-ERR wrong number"));
    assert!(link.say("EXEC").starts_with("-EXECABORT"));
    assert_eq!(link.say("MULTI"), "OK");
    assert_eq!(link.say("SET a 1"), "QUEUED");
    assert_eq!(link.say("SET b 1"), "QUEUED");
    assert!(link.say("EXEC").starts_with("-CROSSSLOT"));
    assert_eq!(link.say("WATCH a"), "OK");
    assert!(link.say("WATCH b").starts_with("-CROSSSLOT"));
}

#[test]
fn blocked_clients_are_served_by_the_leader() {
    let trio = Trio::start(FORWARD);
    let mut control = trio.link(0);
    for key in keys(9) {
        let mut waiting = trio.link(1);
        waiting.send(&["BLPOP", &key, "0"]).unwrap();
        until_blocked(&trio, 1, 1);
        assert_eq!(control.say(&format!("RPUSH {key} x")), "1");
        let reply = trio::show(&waiting.receive().unwrap());
        assert_eq!(reply, format!("[{key} x]"));
        assert_eq!(waiting.say(&format!("BLPOP {key} 0.05")), "nil");

        // Somebody else says that it has waited long enough.
        let id = waiting.say("CLIENT ID");
        waiting.send(&["BLPOP", &key, "0"]).unwrap();
        until_blocked(&trio, 1, 1);
        let mut near = trio.link(1);
        assert_eq!(near.say(&format!("CLIENT UNBLOCK {id} ERROR")), "1");
        let reply = trio::show(&waiting.receive().unwrap());
        assert!(reply.starts_with("-UNBLOCKED "), "{reply}");

        // A client that goes takes nothing with it.
        waiting.send(&["BLPOP", &key, "0"]).unwrap();
        until_blocked(&trio, 1, 1);
        let leader = trio.leader_of(slot_of(key.as_bytes()), 0).unwrap();
        until_blocked(&trio, leader, 1);
        drop(waiting);
        for node in 0..3 {
            until_blocked(&trio, node, 0);
        }
        assert_eq!(control.say(&format!("RPUSH {key} y")), "1");
        assert_eq!(control.say(&format!("LRANGE {key} 0 -1")), "[y]");
    }
}

/// Until so many clients of a node wait.
fn until_blocked(trio: &Trio, node: usize, count: usize) {
    let mut link = trio.link(node);
    trio.until("clients wait", |_| {
        let text = link.say("INFO clients");
        text.contains(&format!("blocked_clients:{count}\r\n"))
    });
}

/// A plain client hears nothing of a leader that dies: it waits, and only what may have happened is refused.
#[test]
fn a_leader_dies() {
    let mut trio = Trio::start(FORWARD);
    let all = keys(30);
    let mut link = trio.link(0);
    for key in &all {
        assert_eq!(link.say(&format!("SET {key} 0")), "OK");
    }
    let of_two = |key: &&String| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(2);
    let watched = all.iter().find(of_two).expect("it leads some").clone();
    let mut watcher = trio.link(0);
    assert_eq!(watcher.say(&format!("WATCH {watched}")), "OK");
    let mut blocked = trio.link(1);
    let (list, blocks) = (format!("list:{{{watched}}}"), "BLPOP");
    blocked.send(&[blocks, &list, "0"]).unwrap();
    until_blocked(&trio, 1, 1);
    let set = format!("set:{{{watched}}}");
    assert_eq!(link.say(&format!("SADD {set} a b c")), "3");
    let mut newcomer = trio.link(0);

    trio.kill(2);
    let began = Instant::now();
    // Logged by its effect, and alone in its batch: it finds nobody at the address of the leader, and waits for the next.
    let popped = newcomer.say(&format!("SPOP {set}"));
    assert!(["a", "b", "c"].contains(&popped.as_str()), "{popped}");
    for key in &all {
        let reply = link.say(&format!("SET {key} 1"));
        assert!(reply == "OK" || reply.starts_with("-INDOUBT "), "{reply}");
        assert_eq!(link.say(&format!("SET {key} 2")), "OK");
        assert_eq!(link.say(&format!("GET {key}")), "2");
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(watcher.say("MULTI"), "OK");
    assert_eq!(watcher.say(&format!("SET {watched} 3")), "QUEUED");
    // Its connection was lost before EXEC, or with it: nobody knows then.
    let reply = watcher.say("EXEC");
    assert!(reply == "nil" || reply.starts_with("-INDOUBT "), "{reply}");
    let reply = trio::show(&blocked.receive().unwrap());
    assert!(
        reply.starts_with("-INDOUBT ") || reply.starts_with("-UNBLOCKED "),
        "{reply}"
    );
}

/// A leader that is frozen answers nothing, and is not waited for any longer than needed.
#[test]
fn a_leader_freezes() {
    let trio = Trio::start(FORWARD);
    let key = keys(60)
        .into_iter()
        .find(|key| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(2))
        .unwrap();
    let mut link = trio.link(0);
    assert_eq!(link.say(&format!("SET {key} 0")), "OK");
    trio.pause(2);
    let reply = link.say(&format!("SET {key} 1"));
    assert!(reply == "OK" || reply.starts_with("-INDOUBT "), "{reply}");
    assert_eq!(link.say(&format!("SET {key} 2")), "OK");
    trio.resume(2);
    for node in 0..3 {
        assert_eq!(trio.link(node).say(&format!("GET {key}")), "2");
    }
}

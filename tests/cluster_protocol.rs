//! Clients and a cluster of three nodes: who is redirected where, what is refused, what is waited for, reads
//! of followers.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;
use std::time::{Duration, Instant};

use base::slot::slot_of;
use command::{Arity, Keys, Run, Table};
use trio::Trio;

/// Keys that are spread over the slots.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key:{n}")).collect()
}

fn moved_to(reply: &str) -> Option<&str> {
    reply.strip_prefix("-MOVED ")?.split(' ').nth(1)
}

/// Every node answers for every slot: itself, or MOVED to the leader, which answers.
#[test]
fn any_node_knows_the_way() {
    let trio = Trio::start(&[]);
    let mut links: Vec<_> = (0..3).map(|node| trio.link(node)).collect();
    let mut answered = [0; 3];
    for (n, key) in keys(90).iter().enumerate() {
        let line = format!("SET {key} {n}");
        let mut leader = None;
        for node in 0..3 {
            match links[node].say(&line) {
                reply if reply == "OK" => answered[node] += 1,
                reply => {
                    let to = moved_to(&reply).unwrap_or_else(|| panic!("{reply}"));
                    assert!(reply.starts_with(&format!("-MOVED {} ", slot_of(key.as_bytes()))));
                    let to = trio.number(to);
                    assert_ne!(to, node, "to itself");
                    assert_eq!(*leader.get_or_insert(to), to);
                }
            }
        }
        let leader = leader.expect("two nodes do not lead");
        assert_eq!(links[leader].say(&format!("GET {key}")), n.to_string());
    }
    assert!(answered.iter().all(|&count| count > 10), "{answered:?}");

    // What a node says of its keys is about those it leads.
    let sizes: Vec<usize> = links
        .iter_mut()
        .map(|link| link.say("DBSIZE").parse().unwrap())
        .collect();
    assert_eq!(sizes, answered);
    for (node, link) in links.iter_mut().enumerate() {
        let listed = link.say("KEYS *");
        assert_eq!(listed.split(' ').count(), answered[node]);
        let scanned = link.say("SCAN 0 COUNT 1000");
        assert_eq!(scanned.matches("key:").count(), answered[node], "{scanned}");
        let random = link.say("RANDOMKEY");
        assert!(listed.contains(&random));
        assert!(
            link.say("INFO keyspace")
                .contains(&format!("keys={}", answered[node]))
        );
        assert!(link.say("INFO cluster").contains("cluster_enabled:1"));
        assert_eq!(link.say("SAVE"), "OK");
    }

    // FLUSHALL, too.
    assert_eq!(links[1].say("FLUSHALL"), "OK");
    assert_eq!(links[1].say("DBSIZE"), "0");
    assert_eq!(links[0].say("DBSIZE"), answered[0].to_string());
}

/// Keys of two slots are refused by every command that takes several keys, of one slot never.
#[test]
fn keys_of_two_slots() {
    let trio = Trio::start(&[]);
    let mut link = trio.link(0);
    let table = Table::pure();
    let mut tried = 0;
    for spec in table
        .specs()
        .iter()
        .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
    {
        for (one, other, crosses) in [("a", "b", true), ("{t}a", "{t}b", false)] {
            let Some(line) = with_two_keys(spec, one, other) else {
                continue;
            };
            tried += 1;
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let reply = trio::show(&link.ask(&words).expect("a reply"));
            let is_crossed = reply == "-CROSSSLOT Keys in request don't hash to the same slot";
            assert_eq!(is_crossed, crosses, "{line:?}: {reply}");
        }
    }
    assert!(tried > 70, "only {tried} commands take several keys");
    assert!(link.say("WATCH a b").starts_with("-CROSSSLOT"));

    // In a transaction: refused with EXEC if all are led here, at once if one is not.
    let led: Vec<String> = keys(60)
        .into_iter()
        .filter(|key| link.say(&format!("GET {key}")) == "nil")
        .collect();
    let second = led
        .iter()
        .find(|key| slot_of(key.as_bytes()) != slot_of(led[0].as_bytes()));
    assert_eq!(link.say("MULTI"), "OK");
    assert_eq!(link.say(&format!("SET {} 1", led[0])), "QUEUED");
    assert_eq!(link.say(&format!("SET {} 1", second.unwrap())), "QUEUED");
    assert!(link.say("EXEC").starts_with("-CROSSSLOT"));
    assert_eq!(link.say(&format!("GET {}", led[0])), "nil");

    assert_eq!(link.say("MULTI"), "OK");
    assert!(link.say("MGET a b").starts_with("-CROSSSLOT"));
    assert!(link.say("EXEC").starts_with("-EXECABORT"));

    let away = keys(60).into_iter().find(|key| !led.contains(key)).unwrap();
    assert_eq!(link.say("MULTI"), "OK");
    assert!(link.say(&format!("SET {away} 1")).starts_with("-MOVED "));
    assert!(link.say("EXEC").starts_with("-EXECABORT"));
    assert!(link.say(&format!("WATCH {away}")).starts_with("-MOVED "));
    assert!(link.say(&format!("BLPOP {away} 0")).starts_with("-MOVED "));

    // Watching another slot of this node is allowed, and noticed.
    let watched = second.unwrap();
    let mut other = trio.link(0);
    for (changes, expected) in [(false, "[OK]"), (true, "nil")] {
        assert_eq!(link.say(&format!("WATCH {watched}")), "OK");
        assert_eq!(link.say("MULTI"), "OK");
        assert_eq!(link.say(&format!("SET {} 1", led[0])), "QUEUED");
        if changes {
            assert_eq!(other.say(&format!("SET {watched} 1")), "OK");
        }
        assert_eq!(link.say("EXEC"), expected);
    }
}

/// A command with two keys, if it takes several.
fn with_two_keys(spec: &command::CommandSpec, one: &str, other: &str) -> Option<Vec<String>> {
    let mut line: Vec<String> = spec.name.split('|').map(str::to_owned).collect();
    let filler = match spec.run {
        Run::Block(_) => "0.01",
        _ => "1",
    };
    let fill = |line: &mut Vec<String>, to: usize| {
        while line.len() < to {
            line.push(filler.into());
        }
    };
    match spec.keys {
        Keys::Range { first, last, step } if last != first as isize => {
            fill(&mut line, first);
            line.push(one.into());
            let second = line.len() + step - 1;
            fill(&mut line, second);
            line.push(other.into());
            let behind = if last < 0 { -1 - last } else { 0 } as usize + step - 1;
            let end = line.len() + behind;
            fill(&mut line, end);
        }
        Keys::Counted { count_at } => {
            fill(&mut line, count_at);
            line.extend(["2".into(), one.into(), other.into()]);
        }
        Keys::DestinationAndCounted { count_at } => {
            fill(&mut line, 1);
            line.push(one.into());
            fill(&mut line, count_at);
            line.extend(["1".into(), other.into()]);
        }
        Keys::Sort { stores: true } => {
            line.extend([one.into(), "STORE".into(), other.into()]);
        }
        _ => return None,
    }
    let (Arity::Exactly(least) | Arity::AtLeast(least)) = spec.arity;
    if last_is_open(spec.keys) && line.len() < least {
        // Every further argument would be a key.
        while line.len() < least {
            line.push(one.into());
        }
    }
    fill(&mut line, least);
    Some(line)
}

fn last_is_open(keys: Keys) -> bool {
    matches!(
        keys,
        Keys::Range {
            last: -1,
            step: 1,
            ..
        }
    )
}

/// CLUSTER in all its forms, and the tools that use it.
#[test]
fn cluster_subcommands() {
    let trio = Trio::start(&[]);
    let mut link = trio.link(0);
    let refused = [
        (
            "CLUSTER COUNTKEYSINSLOT",
            "-ERR wrong number of arguments for 'cluster|countkeysinslot' command",
        ),
        (
            "CLUSTER COUNTKEYSINSLOT x",
            "-ERR value is not an integer or out of range",
        ),
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot"),
        (
            "CLUSTER GETKEYSINSLOT 1 -1",
            "-ERR Invalid slot or number of keys",
        ),
        (
            "CLUSTER GETKEYSINSLOT 16384 1",
            "-ERR Invalid slot or number of keys",
        ),
        ("CLUSTER REPLICAS abc", "-ERR Unknown node abc"),
        ("CLUSTER COUNT-FAILURE-REPORTS abc", "-ERR Unknown node abc"),
        (
            "CLUSTER bogus",
            "-ERR unknown subcommand 'bogus'. Try CLUSTER HELP.",
        ),
        (
            "CLUSTER KEYSLOT a b",
            "-ERR wrong number of arguments for 'cluster|keyslot' command",
        ),
        ("SELECT 1", "-ERR SELECT is not allowed in cluster mode"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode"),
    ];
    for (line, expected) in refused {
        assert_eq!(link.say(line), expected, "{line}");
    }
    for line in [
        "MEET 127.0.0.1 7001",
        "ADDSLOTS 1",
        "FAILOVER",
        "FORGET abc",
        "RESET",
        "BUMPEPOCH",
    ] {
        let reply = link.say(&format!("CLUSTER {line}"));
        assert!(reply.contains("is not done here: "), "{reply}");
    }
    assert_eq!(link.say("SELECT 0"), "OK");
    assert_eq!(link.say("CLUSTER KEYSLOT 123456789"), "12739");
    for key in ["{}x", "a{b", "{user}.x"] {
        let slot = slot_of(key.as_bytes()).to_string();
        assert_eq!(link.say(&format!("CLUSTER KEYSLOT {key}")), slot);
    }
    let id = link.say("CLUSTER MYID");
    assert_eq!(id.len(), 40);
    assert_eq!(link.say(&format!("CLUSTER REPLICAS {id}")), "[]");
    assert_eq!(
        link.say(&format!("CLUSTER COUNT-FAILURE-REPORTS {id}")),
        "0"
    );
    assert!(link.say("CLUSTER INFO").starts_with("cluster_state:ok\r\n"));
    assert_eq!(link.say("CLUSTER NODES").lines().count(), 3);
    assert!(
        link.say("CLUSTER NODES")
            .contains(&format!("{}@17000 myself,master", trio.address(0)))
    );

    // Keys by slot, at once after they were written.
    let leader = trio.leader_of(slot_of(b"{s}"), 0).unwrap();
    let mut leader_link = trio.link(leader);
    let slot = slot_of(b"{s}");
    for n in 1..=20 {
        assert_eq!(leader_link.say(&format!("SET {{s}}{n} x")), "OK");
        let count = leader_link.say(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
        assert_eq!(count, n.to_string());
    }
    let listed = leader_link.say(&format!("CLUSTER GETKEYSINSLOT {slot} 5"));
    assert_eq!(listed.matches("{s}").count(), 5);
    assert_eq!(leader_link.say("DEL {s}1 {s}2"), "2");
    let listed = leader_link.say(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
    assert_eq!(listed.matches("{s}").count(), 18);
    let follower = (leader + 1) % 3;
    let count = trio
        .link(follower)
        .say(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    assert_eq!(count, "0", "a follower answers for what it leads");

    // Stock tools.
    if let Some(text) = cli(&["--cluster", "check", &trio.address(1)]) {
        assert!(text.contains("[OK] All 16384 slots covered."), "{text}");
    }
    let host = trio.host(2);
    for key in keys(6) {
        if let Some(text) = cli(&["-c", "-h", &host, "-p", "7000", "SET", &key, "1"]) {
            assert!(text.contains("OK"), "{text}");
        }
    }
    let tool = Command::new("redis-benchmark")
        .args([
            "--cluster",
            "-h",
            &host,
            "-p",
            "7000",
            "-n",
            "500",
            "-c",
            "5",
            "-t",
            "set,get",
            "-q",
        ])
        .output();
    if let Ok(output) = tool {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("GET: "), "{text}");
    }
}

fn cli(arguments: &[&str]) -> Option<String> {
    let output = Command::new("redis-cli").args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// While a leader is gone clients wait, or are told where to go: nobody sees TRYAGAIN, nobody is sent
/// to the node that sends him, and the cluster goes on.
#[test]
fn a_new_leader_is_waited_for() {
    let mut trio = Trio::start(&[]);
    let key = keys(60)
        .into_iter()
        .find(|key| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(2))
        .unwrap();
    // A pipeline on its way while the leader dies, too.
    let lines: Vec<String> = (0..20)
        .flat_map(|n| {
            [
                format!("SET {key} {n}"),
                format!("GET {key}"),
                "PING".into(),
            ]
        })
        .collect();
    trio.kill(2);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut links = [trio.link(0), trio.link(1)];
    loop {
        let mut is_done = false;
        for (node, link) in links.iter_mut().enumerate() {
            let replies = link.pipeline(&lines);
            for (n, reply) in replies.iter().enumerate() {
                assert!(!reply.starts_with("-TRYAGAIN"), "{reply}");
                assert_ne!(moved_to(reply), Some(&*trio.address(node)), "to itself");
                assert_eq!(n % 3 == 2, reply == "PONG", "{replies:?}");
            }
            let all: Vec<&str> = replies.iter().map(String::as_str).collect();
            if replies[0] == "OK" {
                let got: Vec<&str> = all.iter().skip(1).step_by(3).copied().collect();
                let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
                assert_eq!(got, expected);
                is_done = true;
            }
        }
        if is_done {
            break;
        }
        assert!(Instant::now() < deadline, "no leader");
    }
}

/// Follower reads are the newest, and not given by a node that is cut off.
#[test]
fn followers_read_what_was_acknowledged() {
    let trio = Trio::start(&["--enable-follower-read", "yes"]);
    let key = "{f}counter";
    let leader = trio.leader_of(slot_of(key.as_bytes()), 0).unwrap();
    let (near, far) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut writer = trio.link(leader);
    let mut readers: Vec<_> = [near, far].map(|node| trio.link(node)).into();
    for reader in &mut readers {
        assert!(reader.say(&format!("GET {key}")).starts_with("-MOVED "));
        assert_eq!(reader.say("READONLY"), "OK");
    }
    for n in 0..300 {
        assert_eq!(writer.say(&format!("SET {key} {n}")), "OK");
        let reader = &mut readers[n % 2];
        assert_eq!(reader.say(&format!("GET {key}")), n.to_string());
        assert_eq!(
            reader.say(&format!("MGET {key} {{f}}none")),
            format!("[{n} nil]")
        );
    }
    let lines: Vec<String> = (0..50).map(|_| format!("GET {key}")).collect();
    assert!(
        readers[0]
            .pipeline(&lines)
            .iter()
            .all(|reply| reply == "299")
    );
    assert!(
        readers[0]
            .say(&format!("SET {key} x"))
            .starts_with("-MOVED ")
    );
    let slots = trio::show(&readers[0].ask(&["CLUSTER", "SLOTS"]).unwrap());
    assert!(slots.contains(&trio.host(near)) && slots.contains(&trio.host(far)));
    assert_eq!(readers[1].say("READWRITE"), "OK");
    assert!(readers[1].say(&format!("GET {key}")).starts_with("-MOVED "));

    trio.pause(leader);
    trio.pause(far);
    let reply = readers[0].say(&format!("GET {key}"));
    trio.resume(leader);
    trio.resume(far);
    assert!(reply.starts_with("-CLUSTERDOWN "), "{reply}");
    trio.until("it reads again", |_| {
        readers[0].say(&format!("GET {key}")) == "299"
    });
}

/// Without the setting READONLY changes nothing, and followers are not named.
#[test]
fn readonly_without_follower_reads() {
    let trio = Trio::start(&[]);
    let leader = trio.leader_of(slot_of(b"a"), 0).unwrap();
    let mut link = trio.link((leader + 1) % 3);
    assert_eq!(link.say("READONLY"), "OK");
    assert!(link.say("GET a").starts_with("-MOVED "));
    let slots = link.say("CLUSTER SLOTS");
    assert_eq!(
        slots.matches("127.").count(),
        trio.leaders(0).unwrap().len()
    );
}

/// A node that has lost the others says so, and what is about itself it still answers.
#[test]
fn a_node_without_the_others_does_not_hang() {
    let mut trio = Trio::start(&[]);
    let key = keys(60)
        .into_iter()
        .find(|key| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(0))
        .unwrap();
    let mut link = trio.link(0);
    assert_eq!(link.say(&format!("SET {key} 1")), "OK");
    trio.pause(1);
    trio.pause(2);
    trio.until("it notices", |_| {
        link.say(&format!("GET {key}")).starts_with("-CLUSTERDOWN ")
    });
    for line in [
        "INFO",
        "DBSIZE",
        "KEYS *",
        "RANDOMKEY",
        "SCAN 0",
        "CLUSTER INFO",
        "MEMORY STATS",
        "BGSAVE",
        "CONFIG RESETSTAT",
        "CLUSTER COUNTKEYSINSLOT 1",
        "FLUSHALL",
        "DEBUG SLEEP 0",
    ] {
        let began = Instant::now();
        link.say(line);
        assert!(began.elapsed() < Duration::from_secs(10), "{line}");
    }
    link.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(trio.ended(0));
    trio.resume(1);
    trio.resume(2);
    trio.until("the others go on", |trio| {
        let mut link = trio.link(1);
        let reply = link.say(&format!("GET {key}"));
        let at = moved_to(&reply).map(|to| trio.number(to));
        reply == "1" || at == Some(2) && trio.link(2).say(&format!("GET {key}")) == "1"
    });
}

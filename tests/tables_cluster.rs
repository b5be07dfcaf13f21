//! `neokv table` against three nodes over one PostgreSQL: any node is asked, all are looked at.

mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::process::Command;
use std::time::{Duration, Instant};

use base::slot::slot_of;
use databases::{Engine, Server};
use trio::Trio;

/// `neokv table` with these words, of one node.
fn table(trio: &Trio, node: usize, words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["table", "--address", &trio.address(node)])
        .args(words)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn done(trio: &Trio, node: usize, words: &[&str]) -> String {
    let (done, text) = table(trio, node, words);
    assert!(done, "{words:?}: {text}");
    text
}

/// At the node that leads it.
fn say(trio: &Trio, key: &str, line: &str) -> String {
    let leader = trio
        .leader_of(slot_of(key.as_bytes()), 0)
        .expect("a leader");
    trio.link(leader).say(line)
}

#[test]
fn the_command_line_asks_every_node() {
    let Some(database) = Server::start(Engine::Postgres) else {
        return;
    };
    let trio = Trio::start(&["--table-backend", &database.url()]);
    done(
        &trio,
        1,
        &["create", "users", "--fields", "age:int64,name:string"],
    );
    for node in 0..3 {
        assert!(
            done(&trio, node, &["list"]).contains("users"),
            "node {node}"
        );
    }
    for at in 0..60 {
        let key = format!("users:u{at}");
        assert_eq!(say(&trio, &key, &format!("HSET {key} age {at}")), "1");
    }
    assert_eq!(done(&trio, 2, &["drain"]), "SQL has everything\n");
    let status: serde_json::Value =
        serde_json::from_str(&done(&trio, 0, &["status", "--json"])).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    let sum = |name: &str| {
        nodes
            .iter()
            .map(|it| it["status"][name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(nodes.len(), 3);
    assert_eq!((sum("slots"), sum("rows"), sum("dirty")), (16384, 60, 0));
    let backends = done(&trio, 0, &["backends"]);
    assert_eq!(backends.matches(" up ").count(), 3, "{backends}");

    // A change that all nodes follow; a dead letter is settled through any of them.
    done(&trio, 0, &["add-field", "users", "tag:string='x'"]);
    assert_eq!(say(&trio, "users:u7", "HGET users:u7 tag"), "x");
    let (done_, text) = table(&trio, 0, &["dead", "retry", "users:u7"]);
    assert!(!done_ && text.contains("no dead letter"), "{text}");
    done(&trio, 2, &["drop-field", "users", "name"]);
    done(&trio, 1, &["drop", "users", "--keep-sql"]);
    for node in 0..3 {
        assert!(
            done(&trio, node, &["list"]).contains("no tables"),
            "node {node}"
        );
    }
    let adopt = [
        "create",
        "users",
        "--fields",
        "age:int64,tag:string",
        "--adopt",
    ];
    done(&trio, 0, &adopt);
    assert_eq!(say(&trio, "users:u7", "HGET users:u7 age"), "7");
    done(&trio, 0, &["drop", "users"]);
    let (done_, text) = table(&trio, 1, &adopt);
    assert!(!done_ && text.contains("there is no table users"), "{text}");
}

#[test]
fn a_drop_that_keeps_sql_waits_for_every_leader() {
    let Some(mut database) = Server::start(Engine::Postgres) else {
        return;
    };
    // Nothing is written by itself before the table is gone.
    let linger = ["--table-flush-linger-ms", "1500"];
    let trio = Trio::start(&[&["--table-backend", &database.url()], &linger[..]].concat());
    let create = "ROW.TABLE CREATE users FIELDS age:int64";
    assert_eq!(trio.link(1).say(create), "OK");
    let keys: Vec<String> = (0..30).map(|at| format!("users:u{at}")).collect();
    let mut leaders = [0; 3];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(say(&trio, key, &format!("HSET {key} age {at}")), "1");
        leaders[trio.leader_of(slot_of(key.as_bytes()), 0).unwrap()] += 1;
    }
    assert!(leaders.iter().all(|count| *count > 0), "{leaders:?}");
    assert_eq!(trio.link(0).say("ROW.TABLE DROP users KEEPSQL"), "OK");
    for key in &keys {
        let told = say(&trio, key, &format!("ROW.GET {key}"));
        assert!(told.contains("no such table"), "{told}");
    }
    // What SQL has is what an adopted table shows.
    let adopt = format!("{create} ADOPT");
    assert_eq!(trio.link(2).say(&adopt), "OK");
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(say(&trio, key, &format!("HGET {key} age")), at.to_string());
    }
    // The database is away: nothing is dropped, and said so.
    assert_eq!(say(&trio, "users:u1", "HSET users:u1 age 100"), "0");
    database.kill();
    let asked = trio
        .leader_of(slot_of(b"users:u1"), 0)
        .map(|leader| (leader + 1) % 3)
        .unwrap();
    let mut link = trio.link(asked);
    link.set_timeout(std::time::Duration::from_secs(60));
    let told = link.say("ROW.TABLE DROP users KEEPSQL");
    assert!(told.starts_with("-ERR nothing was dropped"), "{told}");
    assert_eq!(say(&trio, "users:u1", "HGET users:u1 age"), "100");
    database.restart();
    assert_eq!(link.say("ROW.TABLE DROP users KEEPSQL"), "OK");
}

#[test]
fn every_replica_goes_by_a_change_once_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let backend = format!("sqlite://{}/shared.db", folder.path().display());
    let trio = Trio::start(&["--table-backend", &backend, "--enable-follower-read", "yes"]);
    let mut links: Vec<_> = (0..3).map(|node| trio.link(node)).collect();
    let slot = slot_of(b"plain");
    let leader = trio.leader_of(slot, 0).unwrap();
    assert_eq!(links[leader].say("SET plain 1"), "OK");
    for link in &mut links {
        assert_eq!(link.say("READONLY"), "OK");
        assert_eq!(link.say("GET plain"), "1", "followers answer");
    }
    for n in 0..12 {
        let mut asked = trio.link(n % 3);
        let create = format!("ROW.TABLE CREATE t{n} FIELDS a:int64");
        assert_eq!(asked.say(&create), "OK");
        for (node, link) in links.iter_mut().enumerate() {
            let told = link.say(&format!("ROW.GET t{n}:x"));
            assert!(!told.contains("no such"), "node {node}: {told}");
            let told = link.say(&format!("GET t{n}:x"));
            assert!(told.contains("WRONGTYPE"), "node {node}: {told}");
            let told = link.say(&format!("ROW.SCAN t{n} 0"));
            assert!(!told.contains("no such"), "node {node}: {told}");
        }
        let add = format!("ROW.TABLE ADDFIELD t{n} b:int64=5");
        assert_eq!(asked.say(&add), "OK");
        for (node, link) in links.iter_mut().enumerate() {
            let told = link.say(&format!("HSTRLEN t{n}:x b"));
            assert!(!told.contains("has no field"), "node {node}: {told}");
        }
        assert_eq!(asked.say(&format!("ROW.TABLE DROP t{n}")), "OK");
        for (node, link) in links.iter_mut().enumerate() {
            let told = link.say(&format!("GET t{n}:x"));
            assert_eq!(told, "nil", "node {node}");
        }
    }
}

#[test]
fn a_node_that_slept_while_a_table_was_made_knows_it_before_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let backend = format!("sqlite://{}/shared.db", folder.path().display());
    let settings = ["--table-backend", &backend];
    let mut trio = Trio::start(&settings);
    trio.kill(2);
    trio.until("the others lead everything", |trio| {
        let slots = trio.leaders(0).unwrap_or_default();
        !slots.is_empty() && slots.iter().all(|(_, leader)| *leader != 2)
    });
    let create = "ROW.TABLE CREATE users FIELDS age:int64";
    trio.until("the table is made", |trio| trio.link(0).say(create) == "OK");
    let keys: Vec<String> = (0..12).map(|at| format!("users:u{at}")).collect();
    for key in &keys {
        assert_eq!(say(&trio, key, &format!("HSET {key} age 7")), "1");
    }
    // The one that slept comes back, and somebody has to lead in place of one that dies at the same time.
    trio.restart(2, &settings);
    trio.kill(0);
    let mut answered = vec![false; keys.len()];
    let mut link = trio.link(2);
    trio.until(
        "all rows are had from who was away or who is left",
        |trio| {
            let told = link.say("ROW.TABLE LIST");
            assert!(
                told.contains("users") || told.contains("TRYAGAIN"),
                "{told}"
            );
            let told = link.say("ROW.SCAN users 0");
            assert!(!told.contains("no such table"), "{told}");
            for (key, answered) in keys.iter().zip(&mut answered) {
                for told in [
                    link.say(&format!("HGET {key} age")),
                    trio.link(1).say(&format!("HGET {key} age")),
                ] {
                    *answered |= told == "7";
                    let is_elsewhere = ["-MOVED", "-TRYAGAIN", "-CLUSTERDOWN", "-SQLDOWN"]
                        .iter()
                        .any(|it| told.starts_with(it));
                    assert!(told == "7" || is_elsewhere, "{key}: {told}");
                }
                let told = link.say(&format!("GET {key}"));
                assert!(told.starts_with('-'), "a row is no plain key: {told}");
            }
            answered.iter().all(|it| *it)
        },
    );
}

/// A number of `ROW.TABLE STATUS` of a node.
fn number(trio: &Trio, node: usize, name: &str) -> u64 {
    let status = trio.link(node).ask(&["ROW.TABLE", "STATUS"]);
    let Ok(wire::Value::Array(parts)) = status else {
        panic!("{status:?}");
    };
    let of_name = |pair: &&[wire::Value]| trio::show(&pair[0]) == name;
    let pair = parts.chunks(2).find(of_name).expect(name);
    trio::show(&pair[1]).parse().expect("a number")
}

#[test]
fn a_new_leader_writes_what_sql_lacks_and_nothing_else() {
    let Some(mut database) = Server::start(Engine::Postgres) else {
        return;
    };
    let mut trio = Trio::start(&["--table-backend", &database.url()]);
    let create = ["create", "users", "--fields", "age:int64=0"];
    done(&trio, 0, &create);
    let keys: Vec<String> = (0..90).map(|at| format!("users:u{at}")).collect();
    for key in &keys {
        assert_eq!(say(&trio, key, &format!("HINCRBY {key} age 1")), "1");
    }
    done(&trio, 0, &["drain"]);
    database.kill();
    // Some of what one node leads is not in SQL any more.
    let is_its = |key: &&String| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(2);
    let owed: Vec<String> = keys.iter().filter(is_its).step_by(2).cloned().collect();
    assert!(owed.len() > 3, "{owed:?}");
    let mut link = trio.link(2);
    for key in &owed {
        assert_eq!(link.say(&format!("HINCRBY {key} age 1")), "2");
    }
    let left = [0, 1];
    let flushed = |trio: &Trio| left.map(|node| number(trio, node, "flushed")).iter().sum();
    let before: u64 = flushed(&trio);
    trio.kill(2);
    database.restart();
    trio.until("SQL has everything from those who are left", |trio| {
        let sum = |name: &str| {
            left.map(|node| number(trio, node, name))
                .iter()
                .sum::<u64>()
        };
        sum("slots") == 16384 && sum("rows") == 90 && sum("dirty") == 0
    });
    let after: u64 = flushed(&trio);
    assert_eq!(after - before, owed.len() as u64, "rows that were written");
    let right = keys.len() + owed.len();
    let asked = format!("SELECT sum(__version__) = {right} AND sum(age) = {right} FROM users");
    let told = Command::new("psql")
        .args(["-qAtc", &asked, &database.url()])
        .output();
    let told = String::from_utf8(told.unwrap().stdout).unwrap();
    assert_eq!(told.trim(), "t", "each of them once");
}

#[test]
fn a_cluster_is_told_to_name_its_database() {
    let trio = Trio::start(&[]);
    let (done, text) = table(&trio, 0, &["create", "users", "--fields", "age:int64"]);
    assert!(!done && text.contains("--table-backend 'main="), "{text}");
}

/// A refusal that waiting does not cure is the client's at once, not "no leader" after some seconds.
#[test]
fn a_full_cache_of_tables_is_said_as_it_is() {
    let Some(mut database) = Server::start(Engine::Postgres) else {
        return;
    };
    let limits = [
        "--table-cache-soft-bytes",
        "262144",
        "--table-cache-hard-bytes",
        "524288",
    ];
    for redirects in ["yes", "no"] {
        let settings = ["--redis-cluster-enabled", redirects, "--table-backend"];
        let trio = Trio::start(&[&settings[..], &[&database.url()], &limits[..]].concat());
        let create = "ROW.TABLE CREATE users FIELDS name:string";
        assert_eq!(trio.link(1).say(create), "OK");
        let leader = trio.leader_of(slot_of(b"t"), 0).expect("a leader");
        let asked = match redirects {
            "yes" => leader,
            _ => (leader + 1) % 3,
        };
        let mut link = trio.link(asked);
        let keys: Vec<String> = (0..200).map(|n| format!("users:{{t}}{n}")).collect();
        for key in &keys {
            assert_eq!(link.say(&format!("HSET {key} name x")), "1");
        }
        database.kill();
        // Dirty, no row may leave the cache.
        for key in &keys {
            assert_eq!(link.say(&format!("HSET {key} name y")), "0");
        }
        let long = "y".repeat(4000);
        let full = keys.iter().find_map(|key| {
            let began = Instant::now();
            let told = link.say(&format!("HSET {key} name {long}"));
            assert!(began.elapsed() < Duration::from_secs(2), "{told}");
            (told != "0").then_some(told)
        });
        let full = full.expect("the cache is small");
        assert!(
            full.starts_with("-TRYAGAIN the cache of tables is full"),
            "{full}"
        );
        database.restart();
        assert_eq!(link.say("ROW.TABLE DROP users"), "OK");
    }
}

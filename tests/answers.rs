//! What clients, exporters and frameworks ask of a server before they do anything with it, and WAIT: answers as Redis gives
//! them where it could, true ones elsewhere.

mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

use base::slot::slot_of;
use process::Server;
use trio::{Link, Trio};

fn link(server: &Server) -> Link {
    Link::open(&format!("127.0.0.1:{}", server.port)).expect("connected")
}

/// Waits until a client's line has all of these.
fn until_listed(link: &mut Link, words: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let list = link.say("CLIENT LIST");
        let has_all = |line: &str| {
            words
                .iter()
                .all(|word| line.split(' ').any(|it| it == *word))
        };
        if list.lines().any(has_all) {
            return;
        }
        assert!(Instant::now() < deadline, "{words:?} in\n{list}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// D4: CLIENT LIST showed what a client had done before it was blocked.
#[test]
fn a_blocked_client_is_listed_with_its_command() {
    for server in [Server::neokv(2), Server::durable(2, &[])] {
        let (mut waiting, mut asking) = (link(&server), link(&server));
        waiting.say("CLIENT SETNAME w");
        for key in ["a", "b", "c", "d"] {
            // On either core, and through the log.
            waiting.say("PING");
            waiting.say(&format!("SET {key} v"));
            until_listed(&mut asking, &["name=w", "cmd=set", "flags=N"]);
        }
        for (line, command) in [
            ("BLPOP nothing 0", "cmd=blpop"),
            ("BZPOPMIN nothing 0", "cmd=bzpopmin"),
        ] {
            assert_eq!(waiting.say("PING"), "PONG");
            let words: Vec<&str> = line.split(' ').collect();
            waiting.send(&words).expect("sent");
            until_listed(&mut asking, &["name=w", command, "flags=b"]);
            let list = asking.say("CLIENT LIST");
            let line = list.lines().find(|it| it.contains("name=w "));
            let id = line.and_then(|it| it.strip_prefix("id=")?.split(' ').next());
            let unblock = format!("CLIENT UNBLOCK {}", id.expect("its id"));
            assert_eq!(asking.say(&unblock), "1");
            waiting.receive().expect("a reply");
        }
    }
}

/// D9: Redis does not share small integers while a policy needs each key's own clock.
#[test]
fn refcount_of_small_integers() {
    let ours = [Server::neokv(2), Server::durable(1, &[])];
    for server in ours.into_iter().chain(Server::redis()) {
        let mut link = link(&server);
        let lines = [
            "SET a 5",
            "INCR a",
            "INCR b",
            "APPEND c 5",
            "GETSET d 7",
            "MSET e 1",
        ];
        for (limit, policy, count) in [
            ("0", "noeviction", "2147483647"),
            ("100mb", "volatile-ttl", "2147483647"),
            ("0", "allkeys-lru", "2147483647"),
            ("100mb", "allkeys-lru", "1"),
            ("100mb", "volatile-lfu", "1"),
        ] {
            let set = format!("CONFIG SET maxmemory {limit} maxmemory-policy {policy}");
            assert_eq!(link.say(&set), "OK");
            link.say("FLUSHALL");
            for line in lines {
                link.say(line);
                let key = line.split(' ').nth(1).expect("a key");
                let found = link.say(&format!("OBJECT REFCOUNT {key}"));
                assert_eq!(found, count, "{line} with {limit} {policy}");
            }
            link.say("SET large 10000");
            assert_eq!(link.say("OBJECT REFCOUNT large"), "1");
        }
    }
}

#[test]
fn clients_introduce_their_library() {
    let server = Server::neokv(2);
    let mut link = link(&server);
    assert_eq!(link.say("CLIENT SETINFO LIB-NAME redis-py(x)"), "OK");
    assert_eq!(link.say("client setinfo lib-ver 5.0.1"), "OK");
    let info = link.say("CLIENT INFO");
    assert!(
        info.trim_end()
            .ends_with(" lib-name=redis-py(x) lib-ver=5.0.1"),
        "{info}"
    );
    assert!(link.say("CLIENT LIST").contains(" lib-name=redis-py(x) "));
    for (line, error) in [
        (
            "CLIENT SETINFO lib-foo x",
            "-ERR Unrecognized option 'lib-foo'",
        ),
        (
            "CLIENT SETINFO LIB-NAME",
            "-ERR wrong number of arguments for 'client|setinfo' command",
        ),
    ] {
        assert_eq!(link.say(line), error);
    }
    let reply = link
        .ask(&["CLIENT", "SETINFO", "lib-ver", "a b"])
        .expect("a reply");
    let expected = "-ERR lib-ver cannot contain spaces, newlines or special characters.";
    assert_eq!(trio::show(&reply), expected);
    // RESET is about the connection; the library is the same.
    link.say("RESET");
    assert!(link.say("CLIENT INFO").contains(" lib-ver=5.0.1"));
    assert_eq!(link.say("CLIENT SETINFO lib-ver "), "OK");
    assert!(link.say("CLIENT INFO").trim_end().ends_with(" lib-ver="));
}

/// The counter of an LFU policy stays, whatever a client reads or changes that asked for it; TOUCH is what it says.
#[test]
fn no_touch_leaves_the_clocks_alone() {
    for server in [Server::neokv(2), Server::durable(2, &[])] {
        let mut link = link(&server);
        assert_eq!(link.say("CONFIG SET maxmemory-policy allkeys-lfu"), "OK");
        assert_eq!(link.say("CONFIG SET lfu-log-factor 0"), "OK");
        link.say("SET k v");
        link.say("RPUSH l a");
        let freq = |link: &mut Link, key: &str| -> i64 {
            let text = link.say(&format!("OBJECT FREQ {key}"));
            text.parse().unwrap_or_else(|_| panic!("{text}"))
        };
        assert_eq!(link.say("CLIENT NO-TOUCH ON"), "OK");
        assert!(link.say("CLIENT INFO").contains(" flags=T "));
        let (k, l) = (freq(&mut link, "k"), freq(&mut link, "l"));
        for _ in 0..20 {
            link.say("GET k");
            link.say("LRANGE l 0 -1");
            link.say("RPUSH l a");
        }
        assert_eq!((freq(&mut link, "k"), freq(&mut link, "l")), (k, l));
        link.say("TOUCH k");
        assert!(freq(&mut link, "k") > k);
        assert_eq!(link.say("CLIENT NO-TOUCH OFF"), "OK");
        for _ in 0..20 {
            link.say("GET k");
            link.say("RPUSH l a");
        }
        assert!(freq(&mut link, "k") >= k + 20 && freq(&mut link, "l") > l);
        assert_eq!(link.say("CLIENT NO-TOUCH maybe"), "-ERR syntax error");
    }
}

#[test]
fn what_tools_ask_of_a_server_alone() {
    let server = Server::durable(1, &[]);
    let mut link = link(&server);
    assert_eq!(link.say("MODULE LIST"), "[]");
    assert!(
        link.say("MODULE LOAD x")
            .starts_with("-ERR unknown subcommand 'LOAD'")
    );
    assert_eq!(link.say("REPLICAOF NO ONE"), "OK");
    assert_eq!(link.say("SLAVEOF no one"), "OK");
    let refused = link.say("REPLICAOF 127.0.0.1 6379");
    assert!(
        refused.contains("--import") && refused.contains("--join"),
        "{refused}"
    );
    assert_eq!(link.say("REPLICAOF host port"), "-ERR Invalid master port");
    assert_eq!(link.say("ROLE"), "[master 0 []]");
    for (name, value) in [
        ("save", ""),
        ("appendonly", "no"),
        ("appendfsync", "always"),
        ("databases", "16"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("notify-keyspace-events", ""),
        ("timeout", "0"),
        ("proto-max-bulk-len", "536870912"),
        ("cluster-enabled", "no"),
        ("hash-max-listpack-entries", "512"),
        ("hash-max-ziplist-value", "64"),
        ("slowlog-log-slower-than", "10000"),
        ("lfu-decay-time", "1"),
        ("hz", "10"),
        ("maxclients", "10000"),
        ("bind", "127.0.0.1"),
        ("dbfilename", "dump.rdb"),
        ("requirepass", ""),
        ("tcp-keepalive", "300"),
        ("io-threads", "1"),
        ("latency-monitor-threshold", "0"),
        ("replica-read-only", "yes"),
        ("min-replicas-to-write", "0"),
        ("min-slaves-max-lag", "10"),
        ("lua-time-limit", "5000"),
        ("stream-node-max-bytes", "4096"),
        ("masterauth", ""),
        ("tls-port", "0"),
        ("unixsocket", ""),
        ("activedefrag", "no"),
    ] {
        let found = link.say(&format!("CONFIG GET {name}"));
        let expected = format!("[{name} {value}]");
        assert!(found == expected || name == "save", "{name}: {found}");
        assert!(found.starts_with(&format!("[{name} ")), "{name}: {found}");
    }
    // What was read can be written back, and nothing else.
    assert_eq!(link.say("CONFIG SET io-threads 1 hz 10"), "OK");
    let refused = link.say("CONFIG SET io-threads 4");
    assert!(refused.ends_with("can't set immutable config"), "{refused}");
    assert!(
        link.say("CONFIG GET min-*")
            .contains("min-replicas-max-lag")
    );
    // Names that mean nothing here stay unknown.
    assert_eq!(link.say("CONFIG GET rdb-del-sync-files"), "[]");
}

#[test]
fn wait_on_a_node_alone_answers_at_once() {
    for server in [Server::neokv(2), Server::durable(2, &[])] {
        let mut link = link(&server);
        link.set_timeout(Duration::from_secs(10));
        for line in ["WAIT 1 0", "WAIT 0 0", "WAIT 5 100000", "WAIT -1 0"] {
            link.say("SET k v");
            assert_eq!(link.say(line), "0", "{line}");
        }
        for (line, error) in [
            ("WAIT x 0", "-ERR value is not an integer or out of range"),
            ("WAIT 1 x", "-ERR timeout is not an integer or out of range"),
            ("WAIT 1 -1", "-ERR timeout is negative"),
            (
                "WAITAOF 2 0 0",
                "-ERR value is out of range, value must between 0 and 1",
            ),
            (
                "WAITAOF 0 -1 0",
                "-ERR value is out of range, must be positive",
            ),
            ("WAITAOF 0 0 -1", "-ERR timeout is negative"),
            (
                "WAITAOF 0 0",
                "-ERR wrong number of arguments for 'waitaof' command",
            ),
        ] {
            assert_eq!(link.say(line), error, "{line}");
        }
        link.say("MULTI");
        link.say("SET k v");
        link.say("WAIT 1 0");
        assert_eq!(link.say("EXEC"), "[OK 0]");
    }
}

#[test]
fn waitaof_knows_what_is_on_disk() {
    let memory = Server::neokv(1);
    let mut link_of_memory = link(&memory);
    assert_eq!(
        link_of_memory.say("WAITAOF 1 0 0"),
        "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
    );
    assert_eq!(link_of_memory.say("WAITAOF 0 1 0"), "[0 0]");

    let server = Server::durable(2, &[]);
    let mut link = link(&server);
    link.set_timeout(Duration::from_secs(20));
    assert_eq!(link.say("WAITAOF 1 0 0"), "[1 0]");
    link.say("SET k v");
    assert_eq!(link.say("WAITAOF 1 3 0"), "[1 0]");
    // Acknowledged before it is on disk: it is a second later, and then that is the answer.
    assert_eq!(link.say("CONFIG SET log-sync everysec"), "OK");
    link.say("SET k v");
    assert_eq!(link.say("WAITAOF 1 0 0"), "[1 0]");
    // Nobody syncs: there is nothing to wait for.
    assert_eq!(link.say("CONFIG SET log-sync no"), "OK");
    link.say("SET k v");
    assert_eq!(link.say("WAITAOF 1 0 50"), "[0 0]");
    assert_eq!(link.say("WAITAOF 1 0 0"), "[0 0]");
    link.say("MULTI");
    link.say("WAITAOF 1 0 0");
    assert_eq!(link.say("EXEC"), "[[0 0]]");
    assert_eq!(link.say("CONFIG SET log-sync always"), "OK");
    assert_eq!(link.say("WAITAOF 1 0 0"), "[0 0]", "until the next write");
    link.say("SET k v");
    assert_eq!(link.say("WAITAOF 1 0 0"), "[1 0]");
}

/// A key whose slot this node leads.
fn key_led_by(trio: &Trio, node: usize) -> String {
    let keys = (0..).map(|n| format!("key:{n}"));
    let mut led = keys.filter(|key| trio.leader_of(slot_of(key.as_bytes()), 0) == Some(node));
    led.next().expect("a key")
}

/// A node that does not answer: who waits for it waits, who does not is answered by the majority.
#[test]
fn wait_in_a_cluster_counts_followers() {
    let trio = Trio::start(&[]);
    let mut leader = trio.link(0);
    let key = key_led_by(&trio, 0);
    assert_eq!(leader.say(&format!("SET {key} 1")), "OK");
    for line in ["WAIT 2 0", "WAIT 9 0"] {
        assert_eq!(leader.say(line), "2", "{line}");
    }
    assert_eq!(leader.say("WAITAOF 1 2 0"), "[1 2]");
    let at_least_one = leader.say("WAIT 0 0");
    assert!(["1", "2"].contains(&&*at_least_one), "{at_least_one}");
    leader.say("MULTI");
    leader.say(&format!("SET {key} 2"));
    leader.say("WAIT 2 0");
    let reply = leader.say("EXEC");
    assert!(reply == "[OK 1]" || reply == "[OK 2]", "{reply}");
    assert_eq!(leader.say("WAIT 2 0"), "2");

    trio.pause(2);
    assert_eq!(leader.say(&format!("SET {key} 3")), "OK");
    assert_eq!(leader.say("WAIT 1 0"), "1");
    assert_eq!(leader.say("WAIT 2 100"), "1");
    leader.say("CLIENT SETNAME w");
    leader.send(&["WAIT", "2", "0"]).expect("sent");
    let mut other = trio.link(0);
    until_listed(&mut other, &["name=w", "cmd=wait", "flags=b"]);
    trio.resume(2);
    assert_eq!(trio::show(&leader.receive().expect("a reply")), "2");

    // One that goes while it waits is gone.
    trio.pause(2);
    assert_eq!(leader.say(&format!("SET {key} 4")), "OK");
    leader.send(&["WAIT", "2", "0"]).expect("sent");
    until_listed(&mut other, &["name=w", "cmd=wait", "flags=b"]);
    drop(leader);
    trio.until("the client is gone", |_| {
        !other.say("CLIENT LIST").contains("name=w ")
    });
    trio.resume(2);
}

#[test]
fn wait_behind_a_node_that_forwards() {
    let trio = Trio::start(&["--redis-cluster-enabled", "no"]);
    let mut link = trio.link(0);
    for node in 0..3 {
        let key = key_led_by(&trio, node);
        assert_eq!(link.say(&format!("SET {key} 1")), "OK");
        assert_eq!(link.say("WAIT 2 0"), "2");
    }
}

#[test]
fn no_touch_goes_along_to_another_node() {
    let trio = Trio::start(&[
        "--redis-cluster-enabled",
        "no",
        "--maxmemory-policy",
        "allkeys-lfu",
        "--lfu-log-factor",
        "0",
    ]);
    let key = key_led_by(&trio, 1);
    let mut link = trio.link(0);
    assert_eq!(link.say(&format!("SET {key} v")), "OK");
    let freq = |link: &mut Link| link.say(&format!("OBJECT FREQ {key}"));
    let before = freq(&mut link);
    assert_eq!(link.say("CLIENT NO-TOUCH ON"), "OK");
    for _ in 0..5 {
        assert_eq!(link.say(&format!("GET {key}")), "v");
    }
    assert_eq!(freq(&mut link), before);
    assert_eq!(link.say("CLIENT NO-TOUCH OFF"), "OK");
    link.say(&format!("GET {key}"));
    assert_ne!(freq(&mut link), before);
}

/// D6, and what cluster clients ask.
#[test]
fn what_tools_ask_of_a_cluster_node() {
    let trio = Trio::start(&[]);
    let mut links = [0, 1].map(|node| trio.link(node));
    let [first, second] = links.each_mut().map(|link| link.say("CLUSTER MYSHARDID"));
    let is_id = |id: &str| id.len() == 40 && id.bytes().all(|it| it.is_ascii_hexdigit());
    assert!(is_id(&first) && is_id(&second) && first != second);
    let [link, _] = &mut links;
    assert_eq!(link.say("CLUSTER MYSHARDID"), first);
    let id = link.say("CLUSTER MYID");
    assert_ne!(id, first);
    assert_eq!(
        link.say(&format!("CLUSTER COUNT-FAILURE-REPORTS {id}")),
        "0"
    );
    assert_eq!(link.say(&format!("CLUSTER REPLICAS {id}")), "[]");
    assert_eq!(link.say(&format!("CLUSTER SLAVES {id}")), "[]");
    assert_eq!(
        link.say("CONFIG GET cluster-enabled"),
        "[cluster-enabled yes]"
    );
    let key = key_led_by(&trio, 0);
    let other = key_led_by(&trio, 1);
    assert_eq!(
        link.say(&format!("SORT_RO {key} STORE {other}")),
        "-ERR syntax error"
    );
    let crosses = link.say(&format!("SORT {key} STORE {other}"));
    assert!(crosses.starts_with("-CROSSSLOT"), "{crosses}");
}

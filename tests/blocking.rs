//! Blocked clients of durable nodes, alone and in a cluster: who waits on a key gets what comes, nobody is told that a healthy
//! cluster is down, and waiting costs nothing in the log.

mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use base::slot::slot_of;
use process::Server;
use trio::{Link, Trio};

/// Nothing here waits for a leader: an answer that takes this long was stuck.
const STUCK: Duration = Duration::from_millis(2_500);

fn alone(shards: usize) -> Server {
    Server::durable(shards, &[])
}

/// A cluster of one node.
fn cluster(shards: usize) -> Server {
    let init = ["--cluster-init", "yes", "--replicas", "1", "--regions", "4"];
    let server = Server::durable(shards, &init);
    let mut link = link(&server);
    until("all slots have a leader", || {
        link.say("CLUSTER INFO").contains("cluster_state:ok")
            && (0..40).all(|n| link.say(&format!("GET key:{n}")) == "nil")
    });
    server
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port)
}

fn link(server: &Server) -> Link {
    Link::open(&address(server)).expect("a connection")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: never");
        thread::sleep(Duration::from_millis(2));
    }
}

fn field(link: &mut Link, section: &str, name: &str) -> u64 {
    let info = link.say(&format!("INFO {section}"));
    let mut lines = info.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.expect(name).trim().parse().expect("a number")
}

fn until_blocked(link: &mut Link, count: u64) {
    until(&format!("{count} are blocked"), || {
        field(link, "clients", "blocked_clients") == count
    });
}

/// Clients of one node: one that asks, and those that wait.
struct Clients {
    address: String,
    asks: Link,
    waits: Vec<Link>,
}

impl Clients {
    fn new(address: &str, waiting: usize) -> Clients {
        let open = || Link::open(address).expect("a connection");
        Clients {
            address: address.into(),
            asks: open(),
            waits: (0..waiting).map(|_| open()).collect(),
        }
    }

    /// Lets each of the waiting clients wait with its line, one after the other.
    fn wait(&mut self, lines: &[&str]) {
        for (at, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            self.waits[at].send(&words).expect("sent");
            until_blocked(&mut self.asks, at as u64 + 1);
        }
    }

    /// The reply to this line, which nothing holds up.
    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        let began = Instant::now();
        let reply = self.asks.say(line);
        assert!(began.elapsed() < STUCK, "{line}: {reply}");
        reply
    }

    #[track_caller]
    fn asks(&mut self, line: &str, expected: &str) {
        assert_eq!(self.ask(line), expected, "{line}");
    }

    /// What the nth of those that waited was given.
    #[track_caller]
    fn was_told(&mut self, nth: usize, expected: &str) {
        let reply = self.waits[nth].receive().expect("a reply");
        assert_eq!(trio::show(&reply), expected, "client {nth}");
    }
}

/// What one RPUSH sets going runs to its end before anybody reads.
fn linked_moves(address: &str, tag: &str, rounds: usize) {
    let mut clients = Clients::new(address, 3);
    let key = |name: &str| format!("{{{tag}}}{name}");
    let (a, b, c, d) = (key("a"), key("b"), key("c"), key("d"));
    for round in 0..rounds {
        clients.wait(&[
            &format!("BLMOVE {b} {c} LEFT RIGHT 0"),
            &format!("BLMOVE {a} {b} RIGHT LEFT 0"),
        ]);
        clients.asks(&format!("RPUSH {a} {round}"), "1");
        clients.asks(&format!("LRANGE {a} 0 -1"), "[]");
        clients.asks(&format!("LRANGE {b} 0 -1"), "[]");
        clients.asks(&format!("LRANGE {c} 0 -1"), &format!("[{round}]"));
        clients.was_told(0, &round.to_string());
        clients.was_told(1, &round.to_string());

        clients.asks(&format!("LPOP {c}"), &round.to_string());

        // Three in a row, the last of which takes it out, begun by a transaction.
        clients.wait(&[
            &format!("BRPOPLPUSH {c} {d} 0"),
            &format!("BLMPOP 0 2 {d} {a} LEFT"),
            &format!("BLMOVE {b} {c} LEFT RIGHT 0"),
        ]);
        assert_eq!(clients.asks.say("MULTI"), "OK");
        assert_eq!(clients.asks.say(&format!("DEL {d}")), "QUEUED");
        assert_eq!(clients.asks.say(&format!("RPUSH {b} x{round}")), "QUEUED");
        clients.asks("EXEC", "[0 1]");
        clients.asks(&format!("EXISTS {a} {b} {c} {d}"), "0");
        clients.was_told(0, &format!("x{round}"));
        clients.was_told(1, &format!("[{d} [x{round}]]"));
        clients.was_told(2, &format!("x{round}"));
        until_blocked(&mut clients.asks, 0);
    }
}

/// Others that wait, also on what the log's entry does not serve by itself.
fn other_waits(address: &str, tag: &str, rounds: usize) {
    let mut clients = Clients::new(address, 3);
    let key = |name: &str| format!("{{{tag}}}{name}");
    let (a, b, z) = (key("a"), key("b"), key("z"));
    for round in 0..rounds {
        // A circle: it ends where it began.
        clients.wait(&[
            &format!("BLMOVE {a} {b} LEFT RIGHT 0"),
            &format!("BLMOVE {b} {a} LEFT RIGHT 0"),
        ]);
        clients.asks(&format!("RPUSH {a} {round}"), "1");
        clients.asks(&format!("LRANGE {a} 0 -1"), &format!("[{round}]"));
        clients.asks(&format!("LPOP {a}"), &round.to_string());
        clients.was_told(0, &round.to_string());
        clients.was_told(1, &round.to_string());

        // Two wait for one element; the second gets the next.
        clients.wait(&[&format!("BLPOP {a} {b} 0"), &format!("BLPOP {b} {a} 0")]);
        clients.asks(&format!("RPUSH {a} one"), "1");
        clients.asks(&format!("LLEN {a}"), "0");
        clients.was_told(0, &format!("[{a} one]"));
        clients.asks(&format!("LPUSH {b} two"), "1");
        clients.asks(&format!("LLEN {b}"), "0");
        clients.was_told(1, &format!("[{b} two]"));

        // Sorted sets, and a list made by a command that is logged by its effect.
        clients.wait(&[&format!("BZMPOP 0 1 {z} MIN"), &format!("BLPOP {b} 0")]);
        clients.asks(&format!("ZADD {z} 1 low 2 high"), "2");
        clients.was_told(0, &format!("[{z} [[low 1]]]"));
        clients.asks(&format!("ZCARD {z}"), "1");
        clients.asks(&format!("SORT {z} ALPHA STORE {b}"), "1");
        clients.was_told(1, &format!("[{b} high]"));
        clients.asks(&format!("LLEN {b}"), "0");
        clients.asks(&format!("DEL {z}"), "1");

        // One leaves at the very moment: what it does not take is the other's.
        clients.wait(&[&format!("BLPOP {a} 0"), &format!("BLPOP {a} 0")]);
        let gone = std::mem::replace(
            &mut clients.waits[0],
            Link::open(&clients.address).expect("a connection"),
        );
        let leaves = thread::spawn(move || drop(gone));
        clients.asks(&format!("RPUSH {a} one two"), "2");
        leaves.join().expect("it left");
        let got = trio::show(&clients.waits[1].receive().expect("a reply"));
        assert!(got == format!("[{a} one]") || got == format!("[{a} two]"));
        until_blocked(&mut clients.asks, 0);
        let left = clients.ask(&format!("LLEN {a}"));
        assert!(left == "0" || left == "1", "{left}");
        clients.ask(&format!("DEL {a}"));
    }
}

/// Many take from one list, with short timeout, while others fill it: nothing is lost, nothing comes twice.
fn queue(address: &str, tag: &str) {
    const EACH: usize = 400;
    let key = format!("{{{tag}}}queue");
    let fill = |producer: usize| {
        let (address, key) = (address.to_owned(), key.clone());
        thread::spawn(move || {
            let mut link = Link::open(&address).expect("a connection");
            for n in (0..EACH).step_by(4) {
                let lines: Vec<String> = (n..n + 4)
                    .map(|n| format!("RPUSH {key} {producer}-{n}"))
                    .collect();
                for reply in link.pipeline(&lines) {
                    assert!(reply.parse::<u64>().is_ok(), "{reply}");
                }
            }
        })
    };
    let take = || {
        let (address, key) = (address.to_owned(), key.clone());
        thread::spawn(move || {
            let mut link = Link::open(&address).expect("a connection");
            let mut got = Vec::new();
            let mut idle = 0;
            while idle < 100 {
                match link.say(&format!("BLPOP {key} 0.02")) {
                    reply if reply == "nil" => idle += 1,
                    reply => {
                        let item = reply.rsplit(' ').next().expect("an element");
                        assert!(reply.starts_with('['), "{reply}");
                        got.push(item.trim_end_matches(']').to_owned());
                        idle = 0;
                    }
                }
            }
            got
        })
    };
    let consumers: Vec<_> = (0..4).map(|_| take()).collect();
    let producers: Vec<_> = (0..3).map(fill).collect();
    producers.into_iter().for_each(|it| it.join().expect("all"));
    let got: Vec<String> = consumers
        .into_iter()
        .flat_map(|it| it.join().expect("all"))
        .collect();
    let different: BTreeSet<&String> = got.iter().collect();
    assert_eq!((got.len(), different.len()), (3 * EACH, 3 * EACH));
}

#[test]
fn waiting_in_a_row_on_a_node_alone() {
    for shards in [1, 2] {
        let server = alone(shards);
        linked_moves(&address(&server), "t", 40);
        other_waits(&address(&server), "t", 20);
        queue(&address(&server), "t");
    }
}

#[test]
fn waiting_in_a_row_in_a_cluster_of_one() {
    for shards in [1, 2] {
        let server = cluster(shards);
        linked_moves(&address(&server), "t", 60);
        other_waits(&address(&server), "t", 30);
        queue(&address(&server), "t");
    }
}

#[test]
fn waiting_in_a_row_among_three() {
    let trio = Trio::start(&[]);
    let leader = trio.leader_of(slot_of(b"t"), 0).expect("a leader");
    let address = trio.address(leader);
    linked_moves(&address, "t", 40);
    other_waits(&address, "t", 20);
    queue(&address, "t");
}

/// Reads come while a waiter is served by an entry of its own: memory is ahead of the log then, and they wait for it.
#[test]
fn reads_beside_a_waiter_that_is_served_alone() {
    let server = cluster(1);
    let address = address(&server);
    let mut clients = Clients::new(&address, 2);
    let mut readers: Vec<Link> = (0..4).map(|_| link(&server)).collect();
    for round in 0..60 {
        clients.wait(&["BLPOP {t}a 0", "BLPOP {t}b 0"]);
        // Logged by its effect: nobody is served in the same entry.
        clients.asks("SADD {t}set x", "1");
        let lines = [
            "SORT {t}set ALPHA STORE {t}a",
            "SORT {t}set ALPHA STORE {t}b",
        ];
        clients
            .asks
            .send(&lines[0].split(' ').collect::<Vec<_>>())
            .expect("sent");
        for reader in &mut readers {
            let reads = ["GET {t}x".to_owned(), "LLEN {t}a".to_owned()];
            let began = Instant::now();
            let replies = reader.pipeline(&reads);
            assert_eq!(replies[0], "nil", "round {round}");
            assert!(replies[1].len() == 1, "{replies:?}, round {round}");
            assert!(began.elapsed() < STUCK, "round {round}");
        }
        assert_eq!(trio::show(&clients.asks.receive().expect("a reply")), "1");
        clients.asks(lines[1], "1");
        clients.was_told(0, "[{t}a x]");
        clients.was_told(1, "[{t}b x]");
        clients.asks("DEL {t}set", "1");
        until_blocked(&mut clients.asks, 0);
    }
}

const EMPTY: [&str; 8] = [
    "BLPOP {t}none {t}other 0.01",
    "BRPOP {t}none 0.01",
    "BLMOVE {t}none {t}to LEFT RIGHT 0.01",
    "BRPOPLPUSH {t}none {t}to 0.01",
    "BLMPOP 0.01 2 {t}none {t}other LEFT",
    "BZPOPMIN {t}none 0.01",
    "BZPOPMAX {t}none {t}other 0.01",
    "BZMPOP 0.01 1 {t}none MAX COUNT 2",
];

/// Entries, commands, and bytes of the log.
fn logged(link: &mut Link) -> [u64; 3] {
    [
        field(link, "persistence", "log_entries"),
        field(link, "persistence", "log_commands"),
        field(link, "persistence", "log_bytes_since_checkpoint"),
    ]
}

#[test]
fn waiting_for_what_does_not_exist_writes_no_log() {
    for (server, is_alone) in [(alone(1), true), (alone(2), true), (cluster(2), false)] {
        let mut link = link(&server);
        assert_eq!(link.say("SET {t}some thing"), "OK");
        let before = logged(&mut link);
        for line in EMPTY {
            for _ in 0..3 {
                assert_eq!(link.say(line), "nil", "{line}");
            }
        }
        // What is wrong with the arguments is still found, and a key of another type.
        assert!(link.say("BLPOP {t}none x").starts_with("-ERR timeout"));
        assert!(
            link.say("BLMOVE {t}none {t}to UP LEFT 0")
                .starts_with("-ERR syntax")
        );
        assert!(link.say("BLMPOP 0 0 {t}none LEFT").starts_with("-ERR"));
        let after = logged(&mut link);
        assert_eq!(before[..2], after[..2], "entries and commands");
        // The meta service of a cluster writes to the same log.
        assert!(!is_alone || before == after, "{before:?} {after:?}");
    }
}

/// Milliseconds by the clock of the node.
fn now_ms(link: &mut Link) -> u64 {
    let time = link.say("TIME");
    let mut words = time.trim_matches(['[', ']']).split(' ');
    let mut next = || words.next().expect("a word").parse::<u64>();
    let (seconds, micros) = (next().expect("seconds"), next().expect("microseconds"));
    seconds * 1000 + micros / 1000
}

/// The node looks for such keys ten times a second: most of the rounds are faster.
#[test]
fn a_key_whose_time_has_come_is_removed_by_the_log() {
    for server in [alone(1), alone(2), cluster(2)] {
        let mut link = link(&server);
        let mut expired = 0;
        for round in 0..30 {
            let deadline_ms = now_ms(&mut link) + 20;
            for line in [
                format!("RPUSH {{t}}{round} 1 2"),
                format!("PEXPIREAT {{t}}{round} {deadline_ms}"),
            ] {
                assert!(!link.say(&line).starts_with('-'), "{line}");
            }
            // Of a slow node, PEXPIREAT may have removed it.
            expired += u64::from(now_ms(&mut link) < deadline_ms);
            until("its time has come", || now_ms(&mut link) > deadline_ms);
            let line = format!("BLPOP {{t}}{round} 0.001");
            assert_eq!(link.say(&line), "nil", "{line}");
        }
        until("all are removed", || {
            field(&mut link, "stats", "expired_keys") >= expired
        });
        assert_eq!(link.say("DBSIZE"), "0");
    }
}

#[test]
fn who_waits_is_served_by_what_comes_through_the_log() {
    for server in [alone(2), cluster(2)] {
        let mut clients = Clients::new(&address(&server), 2);
        clients.asks("SET {t}plain 1", "OK");
        clients.asks(
            "BLPOP {t}plain 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        );
        clients.wait(&["BLPOP {t}plain2 {t}a 0", "BZPOPMIN {t}z 0"]);
        clients.asks("SET {t}a text", "OK");
        clients.asks("DEL {t}a", "1");
        clients.asks("RENAME {t}plain {t}a", "OK");
        clients.asks("DEL {t}a", "1");
        clients.asks("RPUSH {t}source 1 2", "2");
        clients.asks("RENAME {t}source {t}a", "OK");
        clients.was_told(0, "[{t}a 1]");
        clients.asks("LRANGE {t}a 0 -1", "[2]");
        clients.asks("BLPOP {t}a 0", "[{t}a 2]");
        clients.asks("ZADD {t}z 3 c", "1");
        clients.was_told(1, "[{t}z c 3]");
        clients.asks("EXISTS {t}a {t}z", "0");
    }
}

#[test]
fn the_list_of_clients_says_what_a_blocked_one_waits_with() {
    for server in [Server::neokv(1), alone(2), cluster(1)] {
        let mut clients = Clients::new(&address(&server), 1);
        assert_eq!(clients.waits[0].say("CLIENT SETNAME waits"), "OK");
        clients.wait(&["BLPOP {t}none 0"]);
        let list = clients.ask("CLIENT LIST");
        let line = list.lines().find(|line| line.contains("name=waits"));
        assert!(
            line.is_some_and(|line| line.contains("cmd=blpop")),
            "{list}"
        );
    }
}

//! Runs `tests/transcripts/*.txt` against the pure command table, the server on one and on four
//! cores, the durable server, and a real `redis-server`: what is written there is what Redis does, and what we do.

mod process;
mod transcript;
mod trio;

use process::Server;
use transcript::Kind;
use transcript::tagged::Tagged;
use transcript::target::{Live, Pure};
use transcript::wire;
use trio::Trio;

#[test]
fn pure_table() {
    transcript::run_all(&mut Pure::new(), Kind::Pure);
}

#[test]
fn server_with_1_shard() {
    let server = Server::neokv(1);
    let mut target = Live::new(server.port).expect("connect");
    transcript::run_all(&mut target, Kind::Server);
}

#[test]
fn server_with_4_shards() {
    let server = Server::neokv(4);
    let mut target = Live::new(server.port).expect("connect");
    transcript::run_all(&mut target, Kind::Server);
}

#[test]
fn durable_with_1_shard() {
    let server = Server::durable(1, &[]);
    let mut target = Live::new(server.port).expect("connect");
    transcript::run_all(&mut target, Kind::Server);
}

/// A cache of no size: every value leaves memory after every entry and comes back from its rows.
#[test]
fn durable_with_3_shards_and_no_cache() {
    let server = Server::durable(3, &["--cache-size", "1"]);
    let mut target = Live::new(server.port).expect("connect");
    transcript::run_all(&mut target, Kind::Uncached);
}

/// The leader of the one slot all keys are in: every write is kept by a majority.
#[test]
fn cluster_at_the_leader() {
    let trio = Trio::start(&[]);
    let leader = trio.leader_of(Tagged::slot(), 0).expect("a leader");
    let live = Live::at(trio.address(leader)).expect("connect");
    transcript::run_all(&mut Tagged::new(live), Kind::Cluster);
}

/// A node that does not lead, and forwards everything.
#[test]
fn cluster_by_forwarding() {
    let trio = Trio::start(&["--redis-cluster-enabled", "no"]);
    let leader = trio.leader_of(Tagged::slot(), 0).expect("a leader");
    let node = (leader + 1) % 3;
    let live = Live::at(trio.address(node)).expect("connect");
    let mut links = [node, leader].map(|node| trio.link(node));
    let waits_there = move || {
        let [here, there] = links.each_mut().map(|link| {
            let info = link.say("INFO clients");
            let line = info.lines().find(|it| it.starts_with("blocked_clients:"));
            line.map(str::to_owned)
        });
        here == there
    };
    transcript::run_all(&mut Tagged::forwarding(live, waits_there), Kind::Forwarding);
}

#[test]
fn redis_as_oracle() {
    let Some(server) = Server::redis() else {
        return;
    };
    let mut target = Live::new(server.port).expect("connect");
    transcript::run_all(&mut target, Kind::Oracle);
}

/// Not a test: `NEOKV_TRANSCRIPT=name scripts/record-transcripts` writes Redis' replies down.
#[test]
#[ignore = "writes files; run it through scripts/record-transcripts"]
fn record() {
    let server = Server::redis().expect("recording needs redis-server");
    let mut target = Live::new(server.port).expect("connect");
    for path in transcript::files() {
        match transcript::record(&path, &mut target) {
            Ok(count) => println!("{}: {count} replies written", path.display()),
            Err(why) => panic!("{why}"),
        }
    }
}

//! The walks of ARCHITECTURE.md are true: one `SET` is followed through the running binary.
//!
//! A debug build writes the stack of calls whenever a request reaches a milestone (`base::milestone`). The files of
//! `session`, `runtime` and `node` on these stacks are the walk: what leads from the socket to the log and back. What is
//! called on the way and has returned (look-ups, encoders, the libraries below) is not on it.

#[allow(dead_code)] // shared with other tests, which use the rest
mod process;
mod trio;
#[path = "transcript/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use base::slot::slot_of;
use process::Server;
use trio::{Link, Trio};

/// Longest walks, in files.
const DURABLE: usize = 10;
const CLUSTER: usize = 12;

/// What a durable write passes, in this order.
const MILESTONES: [&str; 8] = [
    "the session added the command to a batch",
    "the region queued the batch",
    "the leader proposed the entry",
    "the core sent the log job",
    "the log writer wrote the entry",
    "the region executed the command",
    "the core gave the batch back to the session",
    "the session wrote the reply",
];
/// In addition: what the leader of a cluster does, and what it hears.
const OF_LEADER: [&str; 3] = [
    "the core sent messages to a peer",
    "the node received messages of a peer",
    "the region took a message of a peer",
];
const OF_FOLLOWER: [&str; 6] = [
    "the node received messages of a peer",
    "the region took a message of a peer",
    "the core sent the log job",
    "the log writer wrote the entry",
    "the core sent messages to a peer",
    "the region executed the command",
];

type Files = BTreeSet<String>;

/// Milestones and the files on their stacks.
fn stacks(text: &str) -> Vec<(String, Files)> {
    let stack = |text: &str| {
        let mut lines = text.lines();
        let name = lines.next().unwrap_or_default().to_owned();
        (name, files_of(lines))
    };
    text.split("milestone: ").skip(1).map(stack).collect()
}

/// The files of a stack, from its top down to where the task or the thread begins.
fn files_of<'a>(lines: impl Iterator<Item = &'a str>) -> Files {
    let mut files = Files::new();
    for line in lines {
        let line = line.trim_start();
        let begins = ["tokio::runtime::task", "__rust_begin_short_backtrace"];
        if begins.iter().any(|function| line.contains(function)) {
            break;
        }
        let Some(place) = line.strip_prefix("at ") else {
            continue;
        };
        let path = place.split(':').next().unwrap_or_default();
        let Some((_, path)) = path.rsplit_once("crates/") else {
            continue;
        };
        if let Some((name @ ("session" | "runtime" | "node"), file)) = path.split_once("/src/") {
            files.insert(format!("{name}/{file}"));
        }
    }
    files
}

/// The files of one write: reads until all milestones were passed, and nothing is half written.
fn passed(path: &Path, milestones: &[&str]) -> Vec<(String, Files)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = 0;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let found = stacks(&text);
        let is_there = |name: &&str| found.iter().any(|(it, _)| it == name);
        if milestones.iter().all(is_there) && text.len() == before {
            return found;
        }
        before = text.len();
        let names: Vec<&String> = found.iter().map(|(name, _)| name).collect();
        assert!(Instant::now() < deadline, "only {names:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files that a walk of ARCHITECTURE.md names.
fn documented(heading: &str) -> Files {
    let page = include_str!("../ARCHITECTURE.md");
    let (_, walk) = page.split_once(heading).expect("the walk");
    let (_, list) = walk.split_once("Files: ").expect("its files");
    let (list, _) = list.split_once("\n\n").expect("an end");
    let name = |part: (usize, &str)| (part.0 % 2 == 1).then(|| part.1.to_owned());
    list.split('`').enumerate().filter_map(name).collect()
}

#[test]
fn a_durable_set_walks_as_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("milestones");
    let variable = ("NEOKV_MILESTONES", path.to_str().unwrap());
    let server = Server::durable_in(1, &[], &[variable]);
    let mut link = Link::open(&format!("127.0.0.1:{}", server.port)).unwrap();
    assert_eq!(link.say("PING"), "PONG");
    std::fs::write(&path, "").unwrap();
    assert_eq!(link.say("SET k v"), "OK");
    let found = passed(&path, &MILESTONES);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, MILESTONES, "each once, in this order");
    let files: Files = found.into_iter().flat_map(|(_, files)| files).collect();
    assert_eq!(files, documented("### 2. Durable"));
    assert!(files.len() <= DURABLE, "{files:?}");
}

#[test]
fn a_cluster_set_walks_as_the_page_says() {
    let trio = Trio::start_in(&[], &[("NEOKV_MILESTONES", "milestones")]);
    let slot = slot_of(b"k");
    let mut always: Option<Files> = None;
    // Heartbeats and snapshots of other regions are on the way, too; not during each of these writes.
    let mut followed = 0;
    while followed < 5 {
        let mut leader = None;
        trio.until("a leader", |trio| {
            leader = trio.leader_of(slot, 0);
            leader.is_some()
        });
        let leader = leader.unwrap();
        let follower = (leader + 1) % 3;
        let paths = [leader, follower].map(|node| trio.file(node, "milestones"));
        for path in &paths {
            std::fs::write(path, "").unwrap();
        }
        // The leader may change: writing stacks takes time.
        if trio.link(leader).say(&format!("SET k {followed}")) != "OK" {
            continue;
        }
        followed += 1;
        let leads = [&MILESTONES[..], &OF_LEADER].concat();
        let found = [passed(&paths[0], &leads), passed(&paths[1], &OF_FOLLOWER)];
        let found = found.into_iter().flatten();
        let files: Files = found.flat_map(|(_, files)| files).collect();
        always = Some(match always {
            None => files,
            Some(always) => always.intersection(&files).cloned().collect(),
        });
    }
    let files = always.unwrap();
    assert_eq!(files, documented("### 3. Cluster"));
    assert!(files.len() <= CLUSTER, "{files:?}");
}

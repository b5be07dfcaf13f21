//! A wall clock that jumps: keys live as long as they should, and it is said.
//!
//! The processes run with a library that makes the wall clock wrong by as much as a file says.

#[path = "../node/mod.rs"]
#[allow(dead_code)] // shared with other tests, which use the rest
mod node;
#[path = "../trio/mod.rs"]
mod trio;
#[path = "../transcript/wire.rs"]
#[allow(dead_code)]
mod wire;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use node::{Folder, Node, call, free_port};
use redis::Connection;
use trio::Trio;

const YEAR: &str = "31536000";
const RIGHT: &str = "0";
/// Long enough for keys that are due to be removed.
const MOMENT: Duration = Duration::from_millis(1500);

/// The library, compiled once.
fn library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let source = "../../tests/clock/jump.c"; // from the folder of the package, where tests run
        let name = format!("neokv-clock-{}.so", std::process::id());
        let library = std::env::temp_dir().join(name);
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source)
            .status();
        assert!(made.expect("cc").success());
        library
    });
    &LIBRARY
}

fn start(folder: &Folder, settings: &[&str]) -> Node {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--bind", "127.0.0.1", "--http-port", "0"])
        .args(["--redis-port", &port.to_string(), "--num-shards", "2"])
        .args(settings)
        .arg("--data-dir")
        .arg(folder.0.join("data"))
        .env("LD_PRELOAD", library())
        .env("NEOKV_TEST_CLOCK", folder.0.join("clock"));
    Node::of(command, port)
}

fn set_clock(folder: &Folder, seconds: &str) {
    put(&folder.0.join("clock"), seconds);
}

/// Whole or not at all: it is read all the time.
fn put(path: &Path, seconds: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, seconds).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

fn info(client: &mut Connection, name: &str) -> Option<i64> {
    let info: String = call(client, "INFO server");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line?.trim().parse().ok()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A key that is to live for two seconds does.
fn two_seconds(client: &mut Connection) {
    call::<String>(client, "SET short v EX 2");
    let left: i64 = call(client, "PTTL short");
    assert!(left <= 2_000, "{left} ms left of 2 s");
    until("it expires", || {
        call::<Option<String>>(client, "GET short").is_none()
    });
}

fn a_year_for_a_moment(settings: &[&str]) {
    let folder = Folder::new();
    let node = start(&folder, settings);
    let client = &mut node.client();
    for n in 0..100 {
        call::<String>(client, &format!("SET hour{n} v EX 3600"));
    }
    set_clock(&folder, YEAR);
    let began = Instant::now();
    while began.elapsed() < MOMENT {
        call::<String>(client, "SET during v EX 3600");
        assert_eq!(
            call::<Option<String>>(client, "GET during").as_deref(),
            Some("v")
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    until("the jump is noticed", || {
        info(client, "clock_jumps").is_some_and(|it| it > 0)
    });
    assert!(info(client, "clock_ahead_ms").is_some_and(|it| it > 31_000_000_000));
    set_clock(&folder, RIGHT);
    until("it is right again", || {
        info(client, "clock_ahead_ms").is_some_and(|it| it.abs() < 1_000)
    });
    for key in (0..100)
        .map(|n| format!("hour{n}"))
        .chain(["during".into()])
    {
        let left: i64 = call(client, &format!("PTTL {key}"));
        assert!(
            (3_000_000..=3_600_000).contains(&left),
            "{key}: {left} ms left of an hour"
        );
    }
    two_seconds(client);
}

#[test]
fn a_jump_for_a_moment_expires_nothing_in_memory() {
    a_year_for_a_moment(&["--engine", "memory"]);
}

#[test]
fn a_jump_for_a_moment_expires_nothing_on_disk() {
    a_year_for_a_moment(&["--engine", "rocksdb", "--block-cache-size", "64mb"]);
}

/// What was logged while the clock was wrong does not make later keys live for a year.
#[test]
fn a_node_that_was_started_with_a_wrong_clock_goes_by_the_right_one_afterwards() {
    let folder = Folder::new();
    let settings = ["--engine", "rocksdb", "--block-cache-size", "64mb"];
    set_clock(&folder, YEAR);
    let node = start(&folder, &settings);
    let client = &mut node.client();
    for n in 0..100 {
        call::<String>(client, &format!("SET key{n} v"));
    }
    two_seconds(client);
    node.kill();
    set_clock(&folder, RIGHT);
    let node = start(&folder, &settings);
    let client = &mut node.client();
    for n in 0..100 {
        let key = format!("two{n}");
        call::<String>(client, &format!("SET {key} v EX 2"));
        let left: i64 = call(client, &format!("PTTL {key}"));
        assert!(left <= 2_000, "{left} ms left of 2 s");
    }
    two_seconds(client);
    assert_eq!(
        call::<Option<String>>(client, "GET key7").as_deref(),
        Some("v")
    );
}

/// Of a cluster, whoever leads.
#[test]
fn a_jump_of_one_node_expires_nothing_in_a_cluster() {
    let library = library().to_str().unwrap();
    let environment = [("LD_PRELOAD", library), ("NEOKV_TEST_CLOCK", "clock")];
    let trio = Trio::start_in(&["--cluster-redirect", "no"], &environment);
    let mut link = trio.link(0);
    let keys: Vec<String> = (0..60).map(|n| format!("hour{n}")).collect();
    for key in &keys {
        assert_eq!(link.say(&format!("SET {key} v EX 3600")), "OK");
    }
    put(&trio.file(1, "clock"), YEAR);
    let began = Instant::now();
    while began.elapsed() < MOMENT {
        for key in &keys {
            assert_eq!(link.say(&format!("SET other{key} v EX 3600")), "OK");
        }
    }
    trio.until("the jump is told", |trio| trio.log(1).contains("jumped by"));
    put(&trio.file(1, "clock"), RIGHT);
    for key in &keys {
        for key in [key.clone(), format!("other{key}")] {
            let left: i64 = link.say(&format!("PTTL {key}")).parse().unwrap();
            assert!(
                (3_000_000..=3_603_000).contains(&left),
                "{key}: {left} ms left of an hour"
            );
        }
        link.say(&format!("SET {key} v EX 2"));
        let left: i64 = link.say(&format!("PTTL {key}")).parse().unwrap();
        assert!(left <= 5_000, "{key}: {left} ms left of 2 s");
    }
    trio.until("they expire", |_| {
        keys.iter()
            .all(|key| link.say(&format!("GET {key}")) == "nil")
    });
}

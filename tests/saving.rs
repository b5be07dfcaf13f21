//! Saving and loading, on the running binary, with `redis-server` as the judge of the files.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use node::{Folder, Node, call, free_port, has_redis, try_call};
use redis::Connection;

impl Node {
    fn neokv(folder: &Path, shards: usize, save: &str) -> Node {
        let port = free_port();
        Node::of(neokv(folder, shards, save, port), port)
    }

    fn redis(folder: &Path) -> Node {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--enable-debug-command", "yes"])
            .arg("--dir")
            .arg(folder);
        Node::of(command, port)
    }
}

fn neokv(folder: &Path, shards: usize, save: &str, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--engine", "memory", "--save", save])
        .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--http-port", "0"])
        .args(["--enable-debug-command", "yes"])
        .args(["--num-shards", &shards.to_string()])
        .arg("--dir")
        .arg(folder);
    command
}

fn info(client: &mut Connection, field: &str) -> String {
    let text: String = call(client, "INFO persistence");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field} in {text}"))
        .to_string()
}

fn wait_for(client: &mut Connection, field: &str, value: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while info(client, field) != value {
        assert!(Instant::now() < deadline, "{field} never was {value}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

const ACCOUNTS: u64 = 500;
const PAIRS: u64 = 200;

/// Money moves between accounts by EXEC, pairs change by MSET, until told to stop.
fn traffic(port: u16, seed: u64, stop: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
        let mut client = client.get_connection().unwrap();
        let mut dice = Dice(seed);
        let mut rounds = 0;
        while !stop.load(Ordering::Relaxed) {
            let (from, to) = (dice.roll(ACCOUNTS), dice.roll(ACCOUNTS));
            let (sum, pair) = (dice.roll(1000), dice.roll(PAIRS));
            let mut moved = redis::pipe();
            moved.atomic();
            moved.cmd("DECRBY").arg(format!("account:{from}")).arg(sum);
            moved.cmd("INCRBY").arg(format!("account:{to}")).arg(sum);
            let _: (i64, i64) = moved.query(&mut client).unwrap();
            let value = format!("{seed}-{rounds}");
            let mut set = redis::cmd("MSET");
            set.arg(format!("left:{pair}")).arg(&value);
            set.arg(format!("right:{pair}")).arg(&value);
            let _: () = set.query(&mut client).unwrap();
            // New keys, removed keys and changed collections take other ways through a snapshot.
            let _: () = call(&mut client, &format!("SET new:{seed}:{rounds} x"));
            let _: () = call(&mut client, &format!("UNLINK key:{}", dice.roll(100_000)));
            let _: () = call(&mut client, &format!("RPUSH list:{pair} {rounds}"));
            rounds += 1;
        }
        rounds
    })
}

#[test]
fn a_background_save_is_one_moment_while_writes_go_on() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 4, "");
    let mut client = node.client();
    let _: () = call(&mut client, "DEBUG POPULATE 100000");
    for n in 0..ACCOUNTS {
        let _: () = call(&mut client, &format!("SET account:{n} 1000"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (1..4)
        .map(|seed| traffic(node.port, seed, stop.clone()))
        .collect();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(100));
        let reply: String = call(&mut client, "BGSAVE");
        assert_eq!(reply, "Background saving started");
        wait_for(&mut client, "rdb_bgsave_in_progress", "0");
        assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
        let judge = Node::redis(&folder.0);
        let mut judge = judge.client();
        let keys: Vec<String> = (0..ACCOUNTS).map(|n| format!("account:{n}")).collect();
        let sums: Vec<i64> = redis::cmd("MGET").arg(&keys).query(&mut judge).unwrap();
        assert_eq!(sums.iter().sum::<i64>(), 1000 * ACCOUNTS as i64);
        for pair in 0..PAIRS {
            let values: Vec<Option<String>> =
                call(&mut judge, &format!("MGET left:{pair} right:{pair}"));
            assert_eq!(values[0], values[1]);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let rounds: u64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
    println!("{rounds} rounds of traffic during three saves");
}

/// Every type in small and big, several databases, deadlines.
fn fill(client: &mut Connection) {
    let mut dice = Dice(7);
    let _: () = call(client, "SET plain text");
    let _: () = call(client, "SET number -12345678901");
    let _: () = call(client, &format!("SET long {}", "abc".repeat(10_000)));
    let _: () = call(client, "SET soon x PX 1");
    let _: () = call(client, "SET later x EX 5000");
    for (name, count) in [("small", 5), ("big", 2000)] {
        for n in 0..count {
            let roll = dice.roll(1 << 30);
            let _: () = call(client, &format!("RPUSH {name}:list {n} word-{roll}"));
            let _: () = call(client, &format!("SADD {name}:ints {n}"));
            let _: () = call(client, &format!("SADD {name}:words word-{roll}"));
            let _: () = call(client, &format!("HSET {name}:hash {n} value-{roll}"));
            let score = roll as f64 / 7.0;
            let _: () = call(client, &format!("ZADD {name}:zset {score} word-{roll}"));
        }
        let _: () = call(client, &format!("EXPIRE {name}:zset 6000"));
    }
    let _: () = call(client, "SELECT 9");
    let _: () = call(client, "HSET elsewhere a 1 b 2");
    let _: () = call(client, "SELECT 0");
    thread::sleep(Duration::from_millis(5));
}

/// Everything but time, and the deadlines.
fn state(client: &mut Connection) -> (String, [i64; 2]) {
    let deadlines = ["later", "big:zset"];
    let digest = call(client, "DEBUG DIGEST");
    (
        digest,
        deadlines.map(|key| call(client, &format!("PEXPIRETIME {key}"))),
    )
}

#[test]
fn data_goes_from_redis_through_restarts_and_back_to_redis() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let redis = Node::redis(&folder.0);
    let mut client = redis.client();
    fill(&mut client);
    let _: i64 = call(&mut client, "EXISTS soon"); // counted by a digest until it is looked at
    let expected = state(&mut client);
    let _: () = call(&mut client, "SAVE");
    drop(redis);

    // Loaded here, on four shards; stopped by a signal, which saves.
    let node = Node::neokv(&folder.0, 4, "3600 1");
    let mut client = node.client();
    assert_eq!(state(&mut client), expected);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    let _: () = call(&mut client, "SET added x");
    let _: () = call(&mut client, "DEL added");
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "2");
    assert!(node.terminate());

    // On one shard; reloaded in place; stopped by a client.
    let node = Node::neokv(&folder.0, 1, "");
    let mut client = node.client();
    assert_eq!(state(&mut client), expected);
    let _: () = call(&mut client, "DEBUG RELOAD");
    assert_eq!(state(&mut client), expected);
    let error = try_call::<String>(&mut client, "SHUTDOWN SAVE NOSAVE").unwrap_err();
    assert!(error.to_string().contains("syntax error"), "{error}");
    assert!(try_call::<String>(&mut client, "SHUTDOWN SAVE").is_err());
    assert!(node.ended());

    let redis = Node::redis(&folder.0);
    assert_eq!(state(&mut redis.client()), expected);
}

#[test]
fn a_shutdown_keeps_what_was_acknowledged() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 2, "3600 1");
    let mut client = node.client();
    let writer = thread::spawn(move || {
        let mut last = 0;
        while let Ok(n) = try_call::<i64>(&mut client, "INCR n") {
            last = n;
        }
        last
    });
    thread::sleep(Duration::from_millis(200));
    assert!(node.terminate());
    let acknowledged = writer.join().unwrap();
    assert!(acknowledged > 0);
    let node = Node::neokv(&folder.0, 2, "");
    let kept: i64 = call(&mut node.client(), "GET n");
    // The last one may have run without its reply getting out.
    assert!(
        (acknowledged..=acknowledged + 1).contains(&kept),
        "{acknowledged} {kept}"
    );
}

#[test]
fn a_damaged_dump_is_refused_in_one_line() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 2, "");
    let mut client = node.client();
    let _: () = call(&mut client, "DEBUG POPULATE 1000");
    let _: () = call(&mut client, "SAVE");
    drop(node);
    let good = fs::read(folder.dump()).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for bad in [&good[..good.len() - 100], &flipped, b"not a dump at all"] {
        fs::write(folder.dump(), bad).unwrap();
        let output = neokv(&folder.0, 2, "", free_port()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&*folder.dump().to_string_lossy()), "{said}");
        assert!(said.contains("move the file away"), "{said}");
        assert_eq!(fs::read(folder.dump()).unwrap(), bad, "it was changed");
    }
}

#[test]
fn a_killed_save_leaves_the_old_dump() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 2, "");
    let mut client = node.client();
    let _: () = call(&mut client, "DEBUG POPULATE 1000");
    let _: () = call(&mut client, "SAVE");
    let old = fs::read(folder.dump()).unwrap();
    let _: () = call(&mut client, "SET more x");
    let _: () = call(&mut client, "CONFIG SET rdb-key-save-delay 10000");
    let _: () = call(&mut client, "BGSAVE");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(info(&mut client, "rdb_bgsave_in_progress"), "1");
    let error = try_call::<String>(&mut client, "BGSAVE").unwrap_err();
    assert!(error.to_string().contains("already in progress"), "{error}");
    drop(node); // kill -9
    assert_eq!(fs::read(folder.dump()).unwrap(), old);
    let node = Node::neokv(&folder.0, 2, "");
    let keys: i64 = call(&mut node.client(), "DBSIZE");
    assert_eq!(keys, 1000);
}

#[test]
fn a_shutdown_during_a_save_leaves_no_temporary_file() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 2, "");
    let mut client = node.client();
    let _: () = call(&mut client, "DEBUG POPULATE 1000");
    let _: () = call(&mut client, "CONFIG SET rdb-key-save-delay 100000");
    let _: () = call(&mut client, "BGSAVE");
    thread::sleep(Duration::from_millis(50));
    assert!(try_call::<String>(&mut client, "SHUTDOWN NOSAVE").is_err());
    assert!(node.ended());
    let files = fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(files, 0);
}

#[test]
fn writes_stop_when_saves_fail() {
    let folder = Folder::new();
    let data = folder.0.join("data");
    let node = Node::neokv(&data, 2, "3600 1000");
    let mut client = node.client();
    let _: () = call(&mut client, "SET a 1");
    fs::remove_dir_all(&data).unwrap();
    let _: () = call(&mut client, "BGSAVE");
    wait_for(&mut client, "rdb_last_bgsave_status", "err");
    // It is told a moment before the save is over, and SAVE does not run beside it.
    wait_for(&mut client, "rdb_bgsave_in_progress", "0");
    for line in ["SET a 2", "PING"] {
        let error = try_call::<String>(&mut client, line).unwrap_err();
        assert_eq!(error.code(), Some("MISCONF"), "{error}");
    }
    assert!(try_call::<String>(&mut client, "SAVE").is_err());
    let value: i64 = call(&mut client, "GET a");
    assert_eq!(value, 1);
    let _: () = call(&mut client, "CONFIG SET stop-writes-on-bgsave-error no");
    let _: () = call(&mut client, "SET a 2");
    let _: () = call(&mut client, "CONFIG SET stop-writes-on-bgsave-error yes");
    // A save that works makes up for it.
    fs::create_dir_all(&data).unwrap();
    let _: () = call(&mut client, "SAVE");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    let _: () = call(&mut client, "SET a 3");
}

#[test]
fn save_points_and_scheduled_saves() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 4, "1 10");
    let mut client = node.client();
    for n in 0..9 {
        let _: () = call(&mut client, &format!("SET k{n} x"));
    }
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(info(&mut client, "rdb_saves"), "0");
    let _: () = call(&mut client, "SET k9 x");
    wait_for(&mut client, "rdb_saves", "1");
    wait_for(&mut client, "rdb_bgsave_in_progress", "0");
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    let mut exec = redis::pipe();
    exec.atomic();
    exec.cmd("BGSAVE").cmd("SET").arg("inside").arg("x");
    let replies: (String, String) = exec.query(&mut client).unwrap();
    assert_eq!(replies.0, "Background saving scheduled");
    wait_for(&mut client, "rdb_saves", "2");
}

/// A save of a million keys must not be felt: prints the slowest reply of a client that asks all
/// the time. The bound is loose because tests run on loaded machines and unoptimised.
#[test]
fn replies_stay_prompt_during_a_big_save() {
    let folder = Folder::new();
    let node = Node::neokv(&folder.0, 2, "");
    let mut client = node.client();
    let _: () = call(&mut client, "DEBUG POPULATE 1000000");
    let mut probe = node.client();
    let saving = Arc::new(AtomicBool::new(true));
    let going = saving.clone();
    let prober = thread::spawn(move || {
        let (mut worst, mut count) = (Duration::ZERO, 0u64);
        let mut dice = Dice(3);
        while going.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let _: () = call(
                &mut probe,
                &format!("APPEND key:{} y", dice.roll(1_000_000)),
            );
            worst = worst.max(asked.elapsed());
            count += 1;
        }
        (worst, count)
    });
    let began = Instant::now();
    let _: () = call(&mut client, "SAVE");
    let took = began.elapsed();
    saving.store(false, Ordering::Relaxed);
    let (worst, count) = prober.join().unwrap();
    println!(
        "1 M keys saved in {took:.1?}; {count} probes meanwhile, the slowest took {worst:.1?}"
    );
    assert!(count > 10);
    assert!(worst < Duration::from_millis(500), "{worst:?}");
}

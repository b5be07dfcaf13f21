//! Moving from Redis: a dump becomes the data of a durable node, as a whole or not at all.
//!
//! `redis-server` writes the dumps and says what is in them.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use node::{Folder, Node, call, free_port, has_redis};
use redis::{Connection, FromRedisValue, Value};

impl Folder {
    /// Made by the node.
    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// What is in the data directory, but for its lock.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.data()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "LOCK").collect();
        names.sort();
        names
    }
}

impl Node {
    fn redis(folder: &Folder) -> Node {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--enable-debug-command", "yes"])
            .args(["--maxmemory", "2gb", "--dir"])
            .arg(&folder.0);
        Node::of(command, port)
    }

    fn neokv(folder: &Folder, shards: usize, more: &[&str]) -> Node {
        let port = free_port();
        Node::of(neokv(folder, port, shards, more), port)
    }
}

fn neokv(folder: &Folder, port: u16, shards: usize, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--engine", "rocksdb", "--data-dir", "data"])
        .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--http-port", "0"])
        .args(["--block-cache-size", "64mb", "--cache-size", "1mb"])
        .args(["--num-shards", &shards.to_string()])
        .args(more)
        .current_dir(&folder.0);
    command
}

/// Starts a node that must not start: what it says.
fn refused(folder: &Folder, more: &[&str]) -> String {
    let output = neokv(folder, free_port(), 2, more).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// Everything a database may hold, in all the ways Redis writes it.
fn fill(client: &mut Connection) {
    let mut pipe = redis::pipe();
    for n in 0..2000 {
        pipe.cmd("SET").arg(format!("string:{n}")).arg(n);
        pipe.cmd("RPUSH").arg(format!("list:{}", n % 50)).arg(n);
        pipe.cmd("SADD").arg(format!("ints:{}", n % 20)).arg(n);
        let field = format!("field {n}");
        pipe.cmd("SADD").arg(format!("set:{}", n % 7)).arg(&field);
        pipe.cmd("HSET").arg(format!("hash:{}", n % 30)).arg(&field);
        pipe.arg(n);
        pipe.cmd("ZADD").arg(format!("zset:{}", n % 11));
        pipe.arg(f64::from(n) / 7.0 - 100.0).arg(&field);
    }
    // Each of these in more than one batch of rows.
    for n in 0..25_000 {
        let long = format!("{n:0100}");
        pipe.cmd("HSET").arg("big hash").arg(n).arg(&long);
        pipe.cmd("RPUSH").arg("big list").arg(&long);
        pipe.cmd("SADD").arg("big set").arg(&long);
        pipe.cmd("ZADD").arg("big zset").arg(n % 1000).arg(&long);
    }
    pipe.cmd("SET").arg("").arg("the key is empty");
    pipe.cmd("SET").arg("empty").arg("");
    pipe.cmd("SET").arg(b"\x00\xff\r\n\"".as_slice());
    pipe.arg(b"\xfe\x00\r\n".as_slice());
    pipe.cmd("SET").arg("long").arg("ab".repeat(200_000));
    pipe.cmd("SET").arg("number").arg(i64::MIN);
    pipe.cmd("RPUSH").arg("plain node").arg("x".repeat(100_000));
    pipe.cmd("ZADD")
        .arg("ends")
        .arg("-inf")
        .arg("low")
        .arg("inf");
    pipe.arg("high")
        .arg("-0")
        .arg("zero")
        .arg("1e300")
        .arg("far");
    for (n, key) in ["string:7", "list:7", "set:3", "zset:3", "big hash"]
        .iter()
        .enumerate()
    {
        pipe.cmd("PEXPIRE").arg(key).arg(10_000_000 + n);
    }
    for db in [3, 15] {
        pipe.cmd("SELECT").arg(db);
        pipe.cmd("SET").arg("string:1").arg(format!("of {db}"));
        pipe.cmd("HSET").arg("h").arg("f").arg(db);
    }
    pipe.cmd("SELECT").arg(0);
    pipe.query::<()>(client).unwrap();
}

/// All of a database, by key: type, deadline, value in an order of its own.
fn contents(client: &mut Connection, db: u8) -> Vec<(Vec<u8>, String, i64, Value)> {
    call::<()>(client, &format!("SELECT {db}"));
    let (mut keys, mut cursor) = (Vec::<Vec<u8>>::new(), 0u64);
    loop {
        let found: (u64, Vec<Vec<u8>>) = call(client, &format!("SCAN {cursor} COUNT 1000"));
        keys.extend(found.1);
        cursor = found.0;
        if cursor == 0 {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    let size: usize = call(client, "DBSIZE");
    assert_eq!(size, keys.len());
    let mut all = Vec::new();
    for keys in keys.chunks(1000) {
        let mut asked = redis::pipe();
        for key in keys {
            asked.cmd("TYPE").arg(key).cmd("PEXPIRETIME").arg(key);
        }
        let heads: Vec<Value> = asked.query(client).unwrap();
        let heads: Vec<(String, i64)> = heads
            .chunks(2)
            .map(|it| match it {
                [kind, at_ms] => (
                    String::from_redis_value_ref(kind).unwrap(),
                    i64::from_redis_value_ref(at_ms).unwrap(),
                ),
                _ => panic!("{it:?}"),
            })
            .collect();
        let mut asked = redis::pipe();
        for (key, (kind, _)) in keys.iter().zip(&heads) {
            match kind.as_str() {
                "string" => asked.cmd("GET").arg(key),
                "list" => asked.cmd("LRANGE").arg(key).arg(0).arg(-1),
                "set" => asked.cmd("SMEMBERS").arg(key),
                "zset" => asked
                    .cmd("ZRANGE")
                    .arg(key)
                    .arg(0)
                    .arg(-1)
                    .arg("WITHSCORES"),
                _ => asked.cmd("HGETALL").arg(key),
            };
        }
        let values: Vec<Value> = asked.query(client).unwrap();
        for ((key, (kind, at_ms)), mut value) in keys.iter().zip(heads).zip(values) {
            if let Value::Array(items) = &mut value
                && (kind == "hash" || kind == "set")
            {
                let width = if kind == "hash" { 2 } else { 1 };
                let mut parts: Vec<_> = items.chunks(width).map(<[Value]>::to_vec).collect();
                parts.sort_by_cached_key(|part| format!("{part:?}"));
                *items = parts.concat();
            }
            all.push((key.clone(), kind, at_ms, value));
        }
    }
    call::<()>(client, "SELECT 0");
    all
}

fn assert_equal(redis: &mut Connection, neokv: &mut Connection) {
    for db in [0, 3, 15] {
        let (theirs, ours) = (contents(redis, db), contents(neokv, db));
        assert_eq!(theirs.len(), ours.len(), "keys of database {db}");
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            let key = theirs.0.escape_ascii();
            assert_eq!(theirs.0, ours.0);
            assert_eq!(theirs.1, ours.1, "type of '{key}'");
            assert_eq!(theirs.2, ours.2, "deadline of '{key}'");
            assert!(theirs.3 == ours.3, "value of '{key}'");
        }
    }
}

#[test]
fn all_of_a_dump_is_there_and_it_is_read_once() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let oracle = Node::redis(&folder);
    let mut redis = oracle.client();
    fill(&mut redis);
    call::<()>(&mut redis, "SET soon gone PX 300");
    call::<()>(&mut redis, "SAVE");
    thread::sleep(Duration::from_millis(400));
    let gone: Option<String> = call(&mut redis, "GET soon");
    assert_eq!(gone, None);

    let import = ["--import", "dump.rdb"];
    let node = Node::neokv(&folder, 3, &import);
    let mut client = node.client();
    assert_equal(&mut redis, &mut client);
    // They can be changed as if they had been made here.
    for client in [&mut redis, &mut client] {
        let mut pipe = redis::pipe();
        pipe.cmd("HSET").arg("big hash").arg("x").arg("y");
        pipe.cmd("LPUSH").arg("big list").arg("before");
        pipe.cmd("LPUSH").arg("list:3").arg("before");
        pipe.cmd("DEL").arg("big set").arg("set:1");
        pipe.cmd("SADD").arg("set:1").arg("anew");
        pipe.cmd("ZINCRBY")
            .arg("big zset")
            .arg(5)
            .arg(format!("{:0100}", 77));
        pipe.cmd("DEL").arg("big");
        pipe.cmd("INCR").arg("string:5");
        pipe.query::<()>(client).unwrap();
    }
    assert_equal(&mut redis, &mut client);
    node.kill();

    // The flag may stay; another number of cores makes no difference.
    let node = Node::neokv(&folder, 2, &import);
    assert_equal(&mut redis, &mut node.client());
    assert!(node.terminate());
    fs::remove_file(folder.dump()).unwrap();
    let node = Node::neokv(&folder, 1, &import);
    assert_equal(&mut redis, &mut node.client());
    node.kill();

    call::<()>(&mut redis, "SAVE");
    let text = refused(&folder, &import);
    assert!(text.contains("has changed since"), "{text}");
    fs::copy(folder.dump(), folder.0.join("other.rdb")).unwrap();
    let text = refused(&folder, &["--import", "other.rdb"]);
    assert!(text.contains("has data already"), "{text}");
    let node = Node::neokv(&folder, 4, &[]);
    assert_equal(&mut redis, &mut node.client());
}

#[test]
fn a_dump_in_a_new_folder_is_imported_as_redis_would_load_it() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let oracle = Node::redis(&folder);
    let mut redis = oracle.client();
    call::<()>(&mut redis, "DEBUG POPULATE 1000");
    call::<()>(&mut redis, "XADD stream * field value");
    call::<()>(&mut redis, "SAVE");
    fs::create_dir(folder.data()).unwrap();
    let inside = folder.data().join("dump.rdb");
    fs::copy(folder.dump(), &inside).unwrap();
    let node = Node::neokv(&folder, 2, &[]);
    let mut client = node.client();
    assert_eq!(call::<usize>(&mut client, "DBSIZE"), 1000);
    // What has no place here is still in the file, whatever is saved over it.
    assert!(folder.data().join("dump.rdb.original").exists());
    call::<()>(&mut client, "DEL key:1");
    node.kill();
    let node = Node::neokv(&folder, 2, &[]);
    assert_eq!(call::<usize>(&mut node.client(), "DBSIZE"), 999);
}

#[test]
fn an_interrupted_import_begins_again() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let oracle = Node::redis(&folder);
    let mut redis = oracle.client();
    fill(&mut redis);
    call::<()>(&mut redis, "DEBUG POPULATE 40000 more 500");
    call::<()>(&mut redis, "SAVE");
    let mut interrupted = 0;
    for round in 0..12 {
        let flag: &[&str] = if interrupted == 0 {
            &["--import", "dump.rdb"]
        } else {
            &[]
        };
        let mut command = neokv(&folder, free_port(), 1 + round % 3, flag);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let mark = folder.data().join("IMPORTING");
        while !mark.exists() && !folder.data().join("FORMAT").exists() {
            assert!(child.try_wait().unwrap().is_none());
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(120 * (round as u64 % 6)));
        child.kill().unwrap();
        child.wait().unwrap();
        if folder.files().contains(&"FORMAT".to_string()) {
            break;
        }
        interrupted += 1;
    }
    assert!(interrupted > 2, "the import is too quick to be interrupted");
    if folder.files().contains(&"IMPORTING".to_string()) {
        let away = folder.0.join("away");
        fs::rename(folder.dump(), &away).unwrap();
        let text = refused(&folder, &[]);
        assert!(text.contains("the file is gone"), "{text}");
        fs::rename(away, folder.dump()).unwrap();
    }
    let node = Node::neokv(&folder, 2, &[]);
    assert_equal(&mut redis, &mut node.client());
    let mut files = folder.files();
    files.retain(|name| name != "RESERVE"); // made a moment after the start
    assert_eq!(files, ["FORMAT", "IMPORTED", "log", "log.synced", "rows"]);
}

#[test]
fn a_damaged_dump_leaves_nothing_behind() {
    if !has_redis() {
        return;
    }
    let folder = Folder::new();
    let oracle = Node::redis(&folder);
    let mut redis = oracle.client();
    call::<()>(&mut redis, "DEBUG POPULATE 20000");
    call::<()>(&mut redis, "SAVE");
    let good = fs::read(folder.dump()).unwrap();
    let bad = folder.0.join("bad.rdb");
    let middle = good.len() / 2;
    let mut flipped = good.clone();
    flipped[middle] ^= 1;
    let cases = [
        &flipped[..],
        &good[..middle],
        &good[..good.len() - 1],
        b"not a dump",
        b"",
    ];
    let import = ["--import", "bad.rdb"];
    for bytes in cases {
        fs::write(&bad, bytes).unwrap();
        let text = refused(&folder, &import);
        assert!(text.contains("cannot be imported"), "{text}");
        assert!(text.contains("Nothing was left"), "{text}");
        assert_eq!(folder.files(), [""; 0]);
    }
    fs::remove_file(&bad).unwrap();
    let text = refused(&folder, &import);
    assert!(text.contains("No such file"), "{text}");
    fs::write(folder.data().join("dump.rdb"), &flipped).unwrap();
    let text = refused(&folder, &[]);
    assert!(text.contains("cannot be imported"), "{text}");
    assert_eq!(folder.files(), ["dump.rdb"]);
    fs::remove_file(folder.data().join("dump.rdb")).unwrap();

    let node = Node::neokv(&folder, 2, &["--import", "dump.rdb"]);
    assert_eq!(call::<usize>(&mut node.client(), "DBSIZE"), 20_000);
}

#[test]
fn a_folder_with_data_is_not_imported_into() {
    let folder = Folder::new();
    let node = Node::neokv(&folder, 1, &[]);
    call::<()>(&mut node.client(), "SET k v");
    node.kill();
    fs::write(folder.dump(), b"REDIS0010\xff\0\0\0\0\0\0\0\0").unwrap();
    let text = refused(&folder, &["--import", "dump.rdb"]);
    assert!(text.contains("has data already"), "{text}");
    let text = refused(&folder, &["--import", "dump.rdb", "--engine", "memory"]);
    assert!(text.contains("--import"), "{text}");
    let node = Node::neokv(&folder, 1, &[]);
    let value: String = call(&mut node.client(), "GET k");
    assert_eq!(value, "v");
}

#[test]
fn keys_and_elements_that_come_twice_are_refused() {
    let string = b"\x00\x01k\x01v".as_slice();
    let set = b"\x02\x01s\x02\x01m\x01m".as_slice();
    for (body, why) in [
        ([string, string].concat(), "named twice in database 0"),
        (set.to_vec(), "key 's' has 1 elements that were named twice"),
    ] {
        let folder = Folder::new();
        let dump = [b"REDIS0010", &body[..], b"\xff\0\0\0\0\0\0\0\0"].concat();
        fs::write(folder.dump(), dump).unwrap();
        let text = refused(&folder, &["--import", "dump.rdb"]);
        assert!(text.contains(why), "{text}");
        assert_eq!(folder.files(), [""; 0]);
    }
}

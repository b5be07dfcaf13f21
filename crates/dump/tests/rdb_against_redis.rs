//! Dumps of a real `redis-server` are read here, and dumps written here are loaded by it: the
//! digest of the data set must be the same on both ends. Skipped where Redis is not installed.
#![allow(
    clippy::disallowed_methods,
    reason = "the test starts a process and talks to it; the crate does not"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::DbIndex;
use dump::{Encoder, Header, Summary};
use keyspace::{Owned, Tuning};
use rdb::Checksum;

/// A folder of its own that goes when the test does.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("neokv-rdb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn dump(&self) -> PathBuf {
        self.0.join("dump.rdb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

struct Redis {
    process: Child,
    stream: BufReader<TcpStream>,
}

impl Redis {
    /// A server over `folder`; it loads the dump there, if any.
    fn start(folder: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--dir"])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut tries = 0;
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break BufReader::new(stream),
                Err(error) if tries == 1200 => panic!("no redis-server: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            tries += 1;
        };
        let mut redis = Redis { process, stream };
        while redis.run(&[b"PING"]).starts_with("-LOADING") {
            std::thread::sleep(Duration::from_millis(50));
        }
        redis
    }

    fn run(&mut self, args: &[&[u8]]) -> String {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            write!(bytes, "${}\r\n", arg.len()).unwrap();
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).unwrap();
        self.reply()
    }

    /// A reply as text; an array as its elements joined.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        let (marker, rest) = line.split_at(1);
        match (marker, rest.parse::<i64>()) {
            ("$", Ok(len @ 0..)) => {
                let mut bytes = vec![0; len as usize + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..len as usize]).into_owned()
            }
            ("*", Ok(n @ 0..)) => (0..n).map(|_| self.reply() + " ").collect(),
            _ => line,
        }
    }

    fn ok(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.run(&words);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        reply
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn installed() -> bool {
    let version = Command::new("redis-server").arg("--version").output();
    if version.is_err() {
        eprintln!("SKIPPED: redis-server is not installed, nothing was compared with it");
    }
    version.is_ok()
}

/// Every encoding Redis 7.0 has for the five types, in two databases.
fn fill(redis: &mut Redis) {
    let ints = [
        0,
        1,
        12,
        13,
        -1,
        63,
        127,
        128,
        -128,
        -129,
        4095,
        -4096,
        4096,
        32767,
        -32768,
        40_000,
        8_388_607,
        -8_388_608,
        8_388_608,
        2_147_483_647,
        -2_147_483_648,
        3_000_000_000,
        i64::MAX,
        i64::MIN,
    ];
    let long = "abc".repeat(3000);
    let binary: Vec<u8> = (0..20_000u32).map(|i| ((i * i) >> 3) as u8).collect();
    for (i, n) in ints.iter().enumerate() {
        redis.ok(&format!("SET s:int{i} {n}"));
        redis.ok(&format!("RPUSH l:ints {n} w{n}"));
        redis.ok(&format!("SADD t:int{} {n}", i / 6));
        redis.ok(&format!("ZADD z:ints {n} {n}"));
        redis.ok(&format!("HSET h:ints {n} {n} f{n} v{n}"));
    }
    redis.run(&[b"SET", b"s:empty", b""]);
    redis.run(&[b"SET", b"s:binary", &binary]);
    redis.run(&[b"SET", &binary[..300], b"long key"]);
    redis.ok(&format!("SET s:long {long}"));
    redis.ok("SET s:ttl x PXAT 4000000000123");
    redis.ok(&format!("RPUSH l:wide a {long} {} b", "x".repeat(70)));
    for len in [10, 63, 64, 127, 128, 4000, 5000, 20_000] {
        let text = "y".repeat(len);
        redis.ok(&format!("RPUSH l:lengths {text}"));
        redis.ok(&format!("HSET h:lengths f{len} {text}"));
    }
    redis.ok("ZADD z:odd inf a -inf b 1.5 c -0.1 d 1e300 e 3.0000000000000004 f");
    for i in 0..3000 {
        redis.ok(&format!("RPUSH l:big element{i}"));
        redis.ok(&format!("SADD t:big member{i}"));
        redis.ok(&format!("SADD t:bigint {}", i * 7));
        redis.ok(&format!("ZADD z:big {}.25 member{i}", i % 100));
        redis.ok(&format!("HSET h:big field{i} value{i}"));
    }
    redis.ok("SADD t:small a b c");
    redis.ok("PEXPIREAT h:big 4000000000456");
    redis.ok("DEBUG QUICKLIST-PACKED-THRESHOLD 100B");
    redis.ok(&format!("RPUSH l:plain a {long} b {long}"));
    redis.ok("SELECT 9");
    redis.ok("SET other database");
    redis.ok("SELECT 0");
}

type Entry = (DbIndex, Vec<u8>, Owned);

fn read(path: &Path) -> (Vec<Entry>, Summary) {
    let bytes = std::fs::read(path).unwrap();
    let mut entries = Vec::new();
    let mut each = |db, key: &[u8], owned| entries.push((db, key.to_vec(), owned));
    let summary = dump::read(&bytes[..], &Tuning::default(), &mut each).unwrap();
    (entries, summary)
}

fn write(entries: &[Entry], compress: bool) -> Vec<u8> {
    let mut out = Vec::new();
    dump::append_header(&Header::default(), &mut out);
    dump::append_db_size(0, entries.len(), 2, &mut out);
    let mut encoder = Encoder::new(compress);
    for (db, key, owned) in entries {
        encoder.append(*db, key, owned.value.borrow(), owned.expire_at_ms, &mut out);
    }
    let mut checksum = Checksum::new();
    checksum.update(&out);
    out.extend(dump::trailer(checksum));
    out
}

#[test]
fn dumps_go_both_ways() {
    if !installed() {
        return;
    }
    let theirs = Folder::new("theirs");
    let mut redis = Redis::start(&theirs.0);
    fill(&mut redis);
    let digest = redis.ok("DEBUG DIGEST");
    // What has no place here is stepped over.
    redis.ok("XADD stream 1-1 f v");
    redis.ok("XADD stream 1-2 f v");
    redis.ok("XGROUP CREATE stream group 0");
    redis.ok("XREADGROUP GROUP group me COUNT 1 STREAMS stream >");
    let library = b"#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    redis.run(&[b"FUNCTION", b"LOAD", library]);

    for compress in [true, false] {
        redis.ok(&format!(
            "CONFIG SET rdbcompression {}",
            if compress { "yes" } else { "no" }
        ));
        redis.ok("SAVE");
        let (entries, summary) = read(&theirs.dump());
        assert_eq!(summary.skipped.len(), 1);
        assert_eq!(summary.skipped[0].key, b"stream");
        assert_eq!(summary.functions, 1);

        let ours = Folder::new(if compress { "packed" } else { "plain" });
        std::fs::write(ours.dump(), write(&entries, compress)).unwrap();
        let check = Command::new("redis-check-rdb").arg(ours.dump()).output();
        let check = check.unwrap();
        let text = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success(), "{text}");

        let mut second = Redis::start(&ours.0);
        assert_eq!(second.ok("DEBUG DIGEST"), digest);
        assert_eq!(second.ok("PEXPIRETIME s:ttl"), ":4000000000123");
        assert_eq!(second.ok("PEXPIRETIME h:big"), ":4000000000456");
        assert_eq!(second.ok("PEXPIRETIME s:long"), ":-1");
    }
}

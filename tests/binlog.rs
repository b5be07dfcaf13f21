//! The change feed of a durable node: every write, in the order of its region, exactly once.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::collections::BTreeMap;
use std::process::Command;

use node::{Folder, Node, free_port};
use redis::Connection;

impl Folder {
    /// Lines of `neokv feed`, and what it complains of.
    fn feed(&self, from: &[&str]) -> (Vec<String>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command.args(["feed", "--data-dir"]).arg(&self.0);
        for from in from {
            command.args(["--from", from]);
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        (text.lines().map(Into::into).collect(), errors)
    }
}

impl Node {
    fn start(folder: &Folder, more: &[&str]) -> Node {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["server", "--num-shards", "2", "--block-cache-size", "64mb"])
            .args(["--redis-port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--http-port", "0"])
            .arg("--data-dir")
            .arg(&folder.0)
            .args(more);
        Node::of(command, port)
    }
}

/// Writes `from..to`, each to one of ten keys, alone and in pipelines; some over both regions.
fn write(client: &mut Connection, from: u32, to: u32) {
    for n in (from..to).step_by(10) {
        let mut pipe = redis::pipe();
        for n in n..n + 10 {
            pipe.cmd("SET").arg(format!("key:{}", n % 10)).arg(n);
        }
        pipe.query::<()>(client).unwrap();
        let mut both = redis::cmd("MSET");
        both.arg("a").arg(n).arg("b").arg(n).arg("c").arg(n);
        both.query::<()>(client).unwrap();
    }
}

fn index_of(line: &str) -> (u64, u64) {
    let (place, _) = line.split_once(' ').unwrap();
    let (region, index) = place.split_once(':').unwrap();
    (region.parse().unwrap(), index.parse().unwrap())
}

/// The indices have no holes; every SET and every value of MSET's keys is there once, in order.
fn check(lines: &[String], writes: u32) {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sets: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut rows: BTreeMap<char, Vec<u32>> = BTreeMap::new();
    for line in lines {
        let (region, index) = index_of(line);
        let before = last.entry(region).or_insert(index - 1);
        assert!(index == *before || index == *before + 1, "{line}");
        *before = index;
        let words: Vec<&str> = line.split(' ').collect();
        if let [_, stamp, "0", "\"SET\"", key, value] = words[..] {
            assert!(stamp.parse::<u64>().unwrap() > 1_600_000_000_000);
            let value = value.trim_matches('"').parse().unwrap();
            sets.entry(key.into()).or_default().push(value);
        } else if let [_, _, "-", "PUT", "redis_metadata", row, value] = words[..] {
            // The key ends the row; type and deadline are before the value.
            let key = row.trim_matches('"').chars().last().unwrap();
            let value = value.trim_matches('"').rsplit("\\x00").next().unwrap();
            rows.entry(key).or_default().push(value.parse().unwrap());
        }
    }
    for digit in 0..10 {
        let expected: Vec<u32> = (digit..writes).step_by(10).collect();
        assert_eq!(sets[&format!("\"key:{digit}\"")], expected);
    }
    for key in ['a', 'b', 'c'] {
        let expected: Vec<u32> = (0..writes).step_by(10).collect();
        assert_eq!(rows[&key], expected, "{key}");
    }
}

#[test]
fn every_write_is_in_the_feed_once_whatever_happens() {
    let folder = Folder::new();
    let binlog = ["--binlog", "yes"];
    let node = Node::start(&folder, &binlog);
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["feed", "--data-dir"])
        .arg(&folder.0)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("in use"), "{text}");
    write(&mut node.client(), 0, 500);
    assert!(node.terminate());
    let (lines, errors) = folder.feed(&[]);
    assert_eq!(errors, "");
    check(&lines, 500);

    // Killed, also while it replays.
    let mut done = 500;
    for _ in 0..3 {
        let node = Node::start(&folder, &binlog);
        write(&mut node.client(), done, done + 200);
        done += 200;
        node.kill();
    }
    Node::start(&folder, &binlog).terminate();
    let (all, errors) = folder.feed(&[]);
    assert_eq!(errors, "");
    check(&all, done);
    assert!(all.starts_with(&lines[..10]));

    // From a position on; a region that is not named comes whole.
    let (region, index) = index_of(lines.last().unwrap());
    let next = format!("{region}:{}", index + 1);
    let (rest, _) = folder.feed(&[&next, "1:1000000"]);
    assert_eq!(region, 2);
    assert!(rest.iter().all(|line| index_of(line) > (region, index)));
    let expected = all.iter().filter(|line| index_of(line) > (region, index));
    assert!(expected.eq(rest.iter()));

    // Off for a while: the hole is told.
    let node = Node::start(&folder, &[]);
    redis::cmd("SET")
        .arg("unseen")
        .arg(1)
        .query::<()>(&mut node.client())
        .unwrap();
    assert!(node.terminate());
    Node::start(&folder, &binlog).terminate();
    let (lines, errors) = folder.feed(&[]);
    assert!(!lines.iter().any(|line| line.contains("unseen")));
    assert!(errors.contains("are not in the feed"), "{errors}");
}

#[test]
fn without_the_setting_there_is_none() {
    let folder = Folder::new();
    let node = Node::start(&folder, &[]);
    write(&mut node.client(), 0, 20);
    assert!(node.terminate());
    assert_eq!(folder.feed(&[]).0, [""; 0]);
}

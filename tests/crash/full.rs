//! A disk that is really full: writes are refused in words that help, reads are served, a node starts on it, and with
//! room writes come back by themselves. Small disks of memory (tmpfs); where none can be mounted the tests are skipped.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::node::{Folder, Node, Settings, Sync, is_redis};
use crate::verify::Questions;
use crate::wire::Value;

/// Long: others may use the machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A small disk under the data of a server, gone when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`: not allowed here.
    fn new(folder: &Folder, size: &str) -> Option<Disk> {
        let path = folder.data();
        let options = format!("size={size}");
        let words = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mounted = Command::new("mount").args(words).arg(&path).status();
        if !mounted.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no small disk in CI");
            eprintln!("SKIPPED: no small disk can be mounted here");
            return None;
        }
        Some(Disk(path))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let mut mount = Command::new("mount");
        let grown = mount.args(["-o", &options]).arg(&self.0).status();
        assert!(grown.is_ok_and(|status| status.success()));
    }

    /// Somebody else's file takes all that is left.
    fn fill(&self) {
        let mut file = File::create(self.0.join("not ours")).expect("a file");
        for bytes in [1 << 20, 64 << 10, 4096, 512, 1] {
            while file.write_all(&vec![7; bytes]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("not ours")).expect("it is removed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn set(questions: &mut Questions, key: &str, size: usize) -> Value {
    questions.ask(&["SET", key, &"v".repeat(size)])
}

fn is_ok(reply: &Value) -> bool {
    *reply == Value::Simple(b"OK".to_vec())
}

/// Waits until a write is acknowledged, and says which.
fn until_writable(node: &Node, name: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    let mut questions = Questions::new(node.port).expect("a connection");
    for n in 0.. {
        let key = format!("{name}{n}");
        let reply = set(&mut questions, &key, 100);
        if is_ok(&reply) {
            return key;
        }
        assert!(
            Instant::now() < deadline,
            "{name}: writes do not come back: {reply:?}\n{}",
            node.tail()
        );
        thread::sleep(Duration::from_millis(50));
    }
    unreachable!("the loop ends by itself")
}

/// Writes until it is refused because the disk is full; what was acknowledged.
fn write_until_full(node: &Node, name: &str, size: usize) -> Vec<String> {
    let mut questions = Questions::new(node.port).expect("a connection");
    let mut written = Vec::new();
    for n in 0..100_000 {
        let key = format!("{name}{n}");
        match set(&mut questions, &key, size) {
            Value::Error(error) => {
                let error = String::from_utf8_lossy(&error).into_owned();
                assert!(error.starts_with("MISCONF"), "{error}");
                assert!(error.contains("no space left on device"), "{error}");
                return written;
            }
            reply => assert!(is_ok(&reply), "{reply:?}"),
        }
        written.push(key);
    }
    panic!("the disk is never full");
}

fn check_all(node: &Node, keys: &[String]) {
    let mut questions = Questions::new(node.port).expect("a connection");
    for key in keys {
        let found = questions.ask(&["EXISTS", key]);
        assert_eq!(found, Value::Int(1), "{key} was acknowledged");
    }
}

#[test]
fn a_disk_that_fills_up_stops_writes_until_there_is_room() {
    if is_redis() {
        return;
    }
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "48m") else {
        return;
    };
    let settings = Settings::new(Sync::Always);
    let mut node = Node::start(&folder, &settings).unwrap();
    let mut keys = write_until_full(&node, "first", 20_000);
    check_all(&node, &keys);
    let mut questions = Questions::new(node.port).unwrap();
    let removal = questions.ask(&["DEL", "first0"]);
    assert!(
        matches!(removal, Value::Error(_)),
        "as in Redis: {removal:?}"
    );
    let health = questions.ask(&["INFO", "persistence"]);
    assert!(format!("{health:?}").len() > 10);
    disk.grow("400m");
    keys.push(until_writable(&node, "second"));
    check_all(&node, &keys);
    node.kill();
    let node = Node::start(&folder, &settings).unwrap();
    check_all(&node, &keys);
    drop(node);
    drop(disk);
}

#[test]
fn a_node_starts_on_a_full_disk_and_takes_writes_when_there_is_room() {
    if is_redis() {
        return;
    }
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "64m") else {
        return;
    };
    let settings = Settings::new(Sync::Always);
    let mut node = Node::start(&folder, &settings).unwrap();
    let mut questions = Questions::new(node.port).unwrap();
    let mut keys: Vec<String> = (0..200).map(|n| format!("key{n}")).collect();
    for key in &keys {
        assert!(is_ok(&set(&mut questions, key, 10_000)));
    }
    node.kill();
    disk.fill();
    for _ in 0..2 {
        // Killed on the full disk, and started on it again.
        let mut node = Node::start(&folder, &settings).unwrap();
        check_all(&node, &keys);
        let refused = set(&mut Questions::new(node.port).unwrap(), "more", 10);
        assert!(
            matches!(&refused, Value::Error(error) if error.starts_with(b"MISCONF")),
            "{refused:?}"
        );
        node.kill();
    }
    let mut node = Node::start(&folder, &settings).unwrap();
    disk.make_room();
    keys.push(until_writable(&node, "after"));
    check_all(&node, &keys);
    node.terminate();
    assert!(node.ends_within(TIMEOUT), "{}", node.tail());
    let node = Node::start(&folder, &settings).unwrap();
    check_all(&node, &keys);
    drop(node);
    drop(disk);
}

/// The disk is full from one moment to the next, while clients write: whoever is answered OK keeps it, and nobody waits
/// for ever.
#[test]
fn a_disk_that_is_full_at_once_loses_nothing_and_writes_come_back() {
    if is_redis() {
        return;
    }
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "64m") else {
        return;
    };
    let mut settings = Settings::new(Sync::Always);
    settings.log_bytes = Some(1 << 20);
    let mut node = Node::start(&folder, &settings).unwrap();
    let mut keys = Vec::new();
    for round in 0..3 {
        let port = node.port;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                thread::spawn(move || {
                    let mut questions = Questions::new(port).unwrap();
                    let mut written = Vec::new();
                    for n in 0..1_000_000 {
                        let key = format!("key{round}:{writer}:{n}");
                        match set(&mut questions, &key, 50) {
                            Value::Error(error) => {
                                assert!(error.starts_with(b"MISCONF"), "{error:?}");
                                return written;
                            }
                            reply => assert!(is_ok(&reply), "{reply:?}"),
                        }
                        written.push(key);
                    }
                    panic!("the disk is never full");
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(200));
        disk.fill();
        for writer in writers {
            keys.extend(writer.join().expect("a writer"));
        }
        check_all(&node, &keys);
        if round == 1 {
            node.kill();
            node = Node::start(&folder, &settings).unwrap();
            check_all(&node, &keys);
        }
        disk.make_room();
        keys.push(until_writable(&node, &format!("after{round}:")));
    }
    node.kill();
    let node = Node::start(&folder, &settings).unwrap();
    check_all(&node, &keys);
    drop(node);
    drop(disk);
}

//! Data that nobody may use, or that is not as it was left: refused at the start, in words that help.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node::{Folder, Node, Settings, Sync, is_redis};
use crate::verify::Questions;
use crate::wire::Value;

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// A server that has written enough for its log to have a middle, and is dead.
fn written() -> Folder {
    let folder = Folder::new();
    let mut node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
    let mut questions = Questions::new(node.port).unwrap();
    for n in 0..2000 {
        let key = format!("key{n}");
        assert_eq!(questions.ask(&["SET", &key, &"x".repeat(100)]), ok());
    }
    node.kill();
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The start of a server, which must fail; what it said.
fn refusal(folder: &Folder) -> String {
    match Node::start(folder, &Settings::new(Sync::Always)) {
        Ok(_) => panic!("the server starts"),
        Err(said) => said,
    }
}

#[test]
fn a_log_damaged_before_its_end_is_refused() {
    if is_redis() {
        return;
    }
    let folder = written();
    let log = files(&folder.data().join("log"));
    let path = log
        .iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let bytes = fs::read(path).unwrap();
    // Space reserved behind what was written is zeros.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    file.write_all_at(&[bytes[end / 2] ^ 0x55], end as u64 / 2)
        .unwrap();
    let said = refusal(&folder);
    assert!(said.contains("is damaged"), "{said}");
    assert!(said.contains(&*folder.data().to_string_lossy()), "{said}");
    // Made good again, everything is there: the refused start has changed nothing.
    file.write_all_at(&[bytes[end / 2]], end as u64 / 2)
        .unwrap();
    let node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
    let mut questions = Questions::new(node.port).unwrap();
    assert_eq!(questions.ask(&["DBSIZE"]), Value::Int(2000));
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on() {
    if is_redis() {
        return;
    }
    let folder = written();
    let node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
    let said = refusal(&folder);
    assert!(said.contains("in use by another process"), "{said}");
    let mut questions = Questions::new(node.port).unwrap();
    assert_eq!(questions.ask(&["SET", "still", "here"]), ok());
}

/// SIGTERM leaves nothing to do for the next start; and SHUTDOWN neither.
#[test]
fn an_orderly_end_keeps_everything() {
    let folder = written();
    for n in 0..4 {
        let mut node = Node::start(&folder, &Settings::new(Sync::EverySecond)).unwrap();
        let mut questions = Questions::new(node.port).unwrap();
        assert_eq!(questions.ask(&["DBSIZE"]), Value::Int(2000 + n));
        assert_eq!(questions.ask(&["SET", &format!("life{n}"), "x"]), ok());
        if n % 2 == 0 {
            questions.ask(&["SHUTDOWN"]);
        } else {
            node.terminate();
        }
        assert!(node.ends_within(Duration::from_secs(30)), "{}", node.tail());
    }
    let node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
    let mut questions = Questions::new(node.port).unwrap();
    assert_eq!(questions.ask(&["DBSIZE"]), Value::Int(2004));
}

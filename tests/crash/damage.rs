//! Data that nobody may use, or that is not as it was left: refused at the start, in words that help.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The files of the log that have records, the oldest first.
fn log_files(folder: &Folder) -> Vec<PathBuf> {
    let mut log = files(&folder.data().join("log"));
    log.retain(|path| path.extension().is_some_and(|it| it == "raftlog"));
    log
}

/// Changes the last file of the log from where its records end.
fn change_end(folder: &Folder, change: impl FnOnce(&mut Vec<u8>, usize)) {
    let path = log_files(folder).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // Space reserved behind what was written is zeros.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    change(&mut bytes, end);
    fs::write(&path, bytes).unwrap();
}

fn copy_of(folder: &Folder) -> Folder {
    let copy = Folder::new();
    let from = folder.data().join(".");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(from)
        .arg(copy.data())
        .status();
    assert!(copied.unwrap().success());
    copy
}

/// Runs the command that a refused start told of, word for word.
fn accept(said: &str) -> String {
    let command = said.split("neokv accept-lost-log").nth(1);
    let words = command.expect("the command to accept the loss").lines();
    let words = words
        .into_iter()
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let mut program = Command::new(env!("CARGO_BIN_EXE_neokv"));
    let output = program.arg("accept-lost-log").args(words).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told} {output:?}");
    told
}

fn keys(node: &Node) -> i64 {
    match Questions::new(node.port).unwrap().ask(&["DBSIZE"]) {
        Value::Int(keys) => keys,
        other => panic!("{other:?}"),
    }
}

/// What a log may lose of what was acknowledged. Each is refused, and accepted only by the command that the refusal
/// names.
#[test]
fn a_log_that_lost_what_was_acknowledged_is_refused_until_that_is_accepted() {
    if is_redis() {
        return;
    }
    let whole = written();
    type Lose = fn(&Folder);
    let ways: [(&str, Lose); 5] = [
        ("a bit of the last record", |folder| {
            change_end(folder, |bytes, end| bytes[end - 40] ^= 1);
        }),
        ("the last byte", |folder| {
            change_end(folder, |bytes, end| bytes.truncate(end - 1));
        }),
        ("zeros instead of the last records", |folder| {
            change_end(folder, |bytes, end| bytes[end - 3000..].fill(0));
        }),
        ("the last file", |folder| {
            fs::remove_file(log_files(folder).pop().unwrap()).unwrap();
        }),
        ("all files of the log", |folder| {
            for path in files(&folder.data().join("log")) {
                fs::remove_file(path).unwrap();
            }
        }),
    ];
    for (name, lose) in ways {
        let folder = copy_of(&whole);
        lose(&folder);
        for _ in 0..2 {
            let said = refusal(&folder);
            assert!(said.contains("lost acknowledged writes"), "{name}: {said}");
        }
        let told = accept(&refusal(&folder));
        assert!(told.contains("LOST: "), "{name}: {told}");
        let mut node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
        let left = keys(&node);
        assert!((0..2000).contains(&left), "{name}: {left}");
        assert!(
            node.tail().contains("lost-log-1"),
            "{name}: {}",
            node.tail()
        );
        let mut questions = Questions::new(node.port).unwrap();
        assert_eq!(questions.ask(&["SET", "after", "x"]), ok(), "{name}");
        node.kill();
        // It was accepted once: what is lost from now on is another loss.
        let node = Node::start(&folder, &Settings::new(Sync::Always)).unwrap();
        assert_eq!(keys(&node), left + 1, "{name}");
        drop(node);
        change_end(&folder, |bytes, end| bytes[end - 20] ^= 8);
        let said = refusal(&folder);
        assert!(said.contains("neokv accept-lost-log"), "{name}: {said}");
    }
    // Nothing is given up where nothing is lost.
    let said = format!(
        "neokv accept-lost-log --data-dir {}",
        whole.data().display()
    );
    assert!(accept(&said).contains("has lost nothing"));
    let node = Node::start(&whole, &Settings::new(Sync::Always)).unwrap();
    assert_eq!(keys(&node), 2000);
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

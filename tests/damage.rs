//! Blocks of the store that are damaged on disk: what cannot be read is an error to whoever asks for it, and
//! everything else is served.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use node::{Folder, Node, call, free_port, try_call};
use redis::{Connection, RedisResult};

const KEYS: usize = 3000;
const BLOCK_BYTES: u64 = 128 << 10;

fn neokv(folder: &Path) -> Node {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--redis-port", &port.to_string()])
        .args(["--bind", "127.0.0.1", "--http-port", "0"])
        .args(["--num-shards", "2", "--data-dir"])
        .arg(folder.join("data"));
    Node::of(command, port)
}

/// A value that no compression makes smaller.
fn value(n: usize) -> String {
    let mut state = n as u64 + 1;
    let mut text = String::new();
    while text.len() < 1000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

fn sst_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|it| it == "sst") => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// Writes over a few bytes here and there in the first half of the largest table files: that is where data
/// blocks are; what opening a file needs is at its end.
fn damage(folder: &Path) {
    let mut damaged = 0;
    for path in sst_files(folder) {
        let bytes = fs::metadata(&path).unwrap().len();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let mut at = 1000;
        while bytes > 2 * BLOCK_BYTES && at < bytes / 2 {
            file.write_all_at(b"neither this nor that", at).unwrap();
            damaged += 1;
            at += BLOCK_BYTES;
        }
    }
    assert!(damaged > 3, "no table file is large enough");
}

fn get(client: &mut Connection, n: usize) -> RedisResult<Option<String>> {
    redis::cmd("GET").arg(format!("key{n}")).query(client)
}

#[test]
fn a_node_alone_serves_what_it_can_read() {
    let folder = Folder::new();
    let node = neokv(&folder.0);
    let mut client = node.client();
    let mut pipeline = redis::pipe();
    for n in 0..KEYS {
        pipeline.set(format!("key{n}"), value(n)).ignore();
    }
    pipeline.query::<()>(&mut client).unwrap();
    // A collection that stays in its rows, so that it is read by ranges.
    for from in (0..20_000).step_by(1000) {
        let mut zadd = redis::cmd("ZADD");
        zadd.arg("big");
        for n in from..from + 1000 {
            zadd.arg(n).arg(format!("{n}-{}", &value(n)[..100]));
        }
        zadd.query::<()>(&mut client).unwrap();
    }
    assert!(node.terminate(), "it ends well");
    damage(&folder.0);

    let node = neokv(&folder.0);
    let mut client = node.client();
    let (mut sound, mut unreadable) = (Vec::new(), Vec::new());
    for n in 0..KEYS {
        match get(&mut client, n) {
            Ok(Some(found)) => {
                assert_eq!(found, value(n), "key{n}");
                sound.push(n);
            }
            Ok(None) => panic!("key{n} is said not to exist"),
            Err(error) => {
                let text = error.to_string();
                let names = text.contains(&format!("key 'key{n}' cannot be read"));
                assert!(names, "{text}");
                unreadable.push(n);
            }
        }
    }
    assert!(!unreadable.is_empty(), "nothing was damaged");
    assert!(sound.len() > KEYS / 2, "{} are readable", sound.len());

    // Writes that need what cannot be read are refused, alone and among others; all the rest goes on.
    let bad = unreadable[0];
    let append = |n: usize| format!("APPEND key{n} more");
    let error = try_call::<i64>(&mut client, &append(bad)).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let appended: i64 = call(&mut client, &append(sound[0]));
    assert_eq!(appended as usize, value(sound[0]).len() + 4);
    let mut pipeline = redis::pipe();
    pipeline.cmd("SET").arg("new").arg("1").ignore();
    pipeline.cmd("APPEND").arg(format!("key{bad}")).arg("x");
    pipeline.cmd("INCR").arg("new");
    let replies = pipeline.query::<Vec<i64>>(&mut client);
    assert!(replies.is_err(), "one of them is refused");
    assert_eq!(call::<i64>(&mut client, "INCR new"), 3, "the others ran");

    // A transaction that names such a key answers, too.
    let mut exec = redis::pipe();
    exec.atomic().cmd("INCR").arg("new");
    exec.cmd("APPEND").arg(format!("key{bad}")).arg("x");
    assert!(exec.query::<Vec<i64>>(&mut client).is_err());
    assert!(try_call::<Option<String>>(&mut client, &format!("MGET key{bad} new")).is_err());

    // Ranges of the collection are whole or an error.
    for from in (0..20_000).step_by(500) {
        let line = format!("ZRANGE big {from} {}", from + 499);
        if let Ok(members) = try_call::<Vec<String>>(&mut client, &line) {
            assert_eq!(members.len(), 500, "{line}");
        }
        let line = format!("ZADD big XX CH {from} {from}-{}", &value(from)[..100]);
        let _ = try_call::<i64>(&mut client, &line);
    }
    assert_eq!(call::<String>(&mut client, "PING"), "PONG");
    let written: String = call(&mut client, "SET after all");
    assert_eq!(written, "OK");
    node.kill();

    // A start that executes the log again refuses the same commands and no others.
    let node = neokv(&folder.0);
    let mut client = node.client();
    assert_eq!(call::<String>(&mut client, "GET after"), "all");
    let length: i64 = call(&mut client, &format!("STRLEN key{}", sound[0]));
    assert_eq!(length as usize, value(sound[0]).len() + 4);
    assert!(get(&mut client, bad).is_err());
}

//! kill -9 at random moments, also while a server is still recovering.

use std::thread;
use std::time::{Duration, Instant};

use crate::node::{Folder, Node, Settings, Sync, is_redis};
use crate::round::Histories;
use crate::verify::Questions;
use crate::wire::Value;
use crate::{Dice, deaths, seed};

#[test]
fn kill_9_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    if let Err(wrong) = run(seed) {
        panic!("NEOKV_SEED={seed}: {wrong}");
    }
}

fn run(seed: u64) -> Result<(), String> {
    let folder = Folder::new();
    let mut dice = Dice::new(seed);
    let mut histories = Histories::new(8, seed);
    let deaths = deaths();
    for _ in 0..deaths {
        let settings = settings(&mut dice);
        // Half of the time the recovery is killed, too, once or more.
        while dice.roll(2) == 0 {
            let mut node = Node::spawn(&folder, &settings);
            thread::sleep(Duration::from_millis(dice.roll(250)));
            node.kill();
        }
        let mut node = histories.restart(&folder, &settings)?;
        let port = node.port;
        let time = Duration::from_millis(20 + dice.roll(500));
        histories.write(port, || {
            thread::sleep(time);
            node.kill();
        })?;
        refused(&histories)?;
    }
    histories.restart(&folder, &settings(&mut dice))?;
    println!("{deaths} kills: {}", histories.summary());
    Ok(())
}

/// Nothing is wrong with the disk: no write may be refused.
pub fn refused(histories: &Histories) -> Result<(), String> {
    match histories
        .clients
        .iter()
        .find_map(|client| client.refused.as_ref())
    {
        Some(error) => Err(format!("a write was refused: {error}")),
        None => Ok(()),
    }
}

/// The moment of the fsync may differ from one start to the next, too. What neokv has acknowledged was written at
/// least, and survives a dead process even if it was not synced. (Redis with `everysec` may still hold it in its own
/// memory: this test sees that.)
fn settings(dice: &mut Dice) -> Settings {
    let relaxed = dice.roll(3) == 0 && !is_redis();
    let mut settings = Settings::new(if relaxed {
        Sync::EverySecond
    } else {
        Sync::Always
    });
    settings.vary(dice);
    settings
}

/// The test of the test: each of these is one wrong thing in one key, and must be seen.
#[test]
fn what_is_wrong_is_seen() {
    let folder = Folder::new();
    let mut histories = Histories::new(2, 1);
    let node = histories
        .restart(&folder, &Settings::new(Sync::Always))
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    histories
        .write(node.port, || {
            // Until everything has been used.
            let mut questions = Questions::new(node.port).unwrap();
            let keys = [
                "bigList",
                "bigHash",
                "bigSet",
                "bigZset",
                "smallList",
                "counter0",
                "ring-from",
            ];
            let mut names: Vec<String> = keys.iter().map(|key| format!("client0:{key}")).collect();
            names.push("done".into());
            let mut exists = vec!["EXISTS"];
            exists.extend(names.iter().map(String::as_str));
            while questions.ask(&exists) != Value::Int(8) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        })
        .unwrap();
    refused(&histories).unwrap();
    histories.verify(&node).unwrap();
    let mut questions = Questions::new(node.port).unwrap();
    for (wrong, right) in [
        ("INCRBY client0:counter0 1", "INCRBY client0:counter0 -1"),
        ("INCRBY shared0 1", "INCRBY shared0 -1"),
        ("RPUSH client0:bigList 0", "RPOP client0:bigList"),
        (
            "LMOVE client0:bigList client0:bigList LEFT RIGHT",
            "LMOVE client0:bigList client0:bigList RIGHT LEFT",
        ),
        (
            "HSET client0:bigHash f999999 999999",
            "HDEL client0:bigHash f999999",
        ),
        ("SADD client0:bigSet m999999", "SREM client0:bigSet m999999"),
        (
            "ZADD client0:bigZset 999999 m999999",
            "ZREM client0:bigZset m999999",
        ),
        (
            "RENAME client0:smallList elsewhere",
            "RENAME elsewhere client0:smallList",
        ),
        (
            "LMOVE client0:ring-from elsewhere LEFT LEFT",
            "LMOVE elsewhere client0:ring-from LEFT LEFT",
        ),
        (
            "LMOVE done elsewhere RIGHT LEFT",
            "LMOVE elsewhere done LEFT RIGHT",
        ),
    ] {
        for (line, good) in [(wrong, false), (right, true)] {
            let argv: Vec<&str> = line.split(' ').collect();
            let reply = questions.ask(&argv);
            assert!(
                !matches!(reply, Value::Error(_) | Value::Closed | Value::Nil),
                "{line}: {reply:?}"
            );
            let verified = histories.verify(&node);
            assert_eq!(verified.is_ok(), good, "after {line}: {verified:?}");
        }
    }
}

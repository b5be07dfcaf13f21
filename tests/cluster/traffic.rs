//! Clients that work while faults happen, and what they saw.
//!
//! Each group of keys shares a slot: a register `r` (GET, SET, SET GET, SET NX GET, GETDEL), a log `l` with its
//! counter `c` (APPEND and INCR as a transaction, or GET of either), a counter `n` of its own. Every value and token is
//! unique, so whoever reads one knows where it came from.
//!
//! At the end all is healed, every key is read once more by a client and once on every node that has a replica, and the
//! history is checked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Dice;
use crate::client::{Client, Fate, text};
use crate::nodes::{Cluster, key_in};
use crate::verify;
use crate::wire::Value;
use sim::history::{Action, History, Seen};

/// What a session waits between calls: histories stay short enough to be checked.
const REST: Duration = Duration::from_millis(4);

/// What all sessions share.
struct Record {
    history: History,
    /// By group: its last write that was acknowledged.
    written: BTreeMap<String, Instant>,
    surprises: Vec<String>,
    /// Why calls did not happen or are unknown, by the first word, with an example.
    reasons: BTreeMap<String, (usize, String)>,
}

pub struct Traffic {
    record: Arc<Mutex<Record>>,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    groups: Vec<String>,
}

impl Traffic {
    /// Some sessions on one group of keys in every region. `name` makes the keys new ones.
    pub fn start(cluster: &Cluster, name: &str, sessions: u32, seed: u64) -> Traffic {
        let number = cluster.answering()[0];
        let ranges = cluster.ranges(number).expect("slots");
        let tags = ranges.iter().map(|it| key_in(it.first, it.last, name));
        let groups: Vec<String> = tags.collect();
        let record = Arc::new(Mutex::new(Record {
            history: History::new(),
            written: BTreeMap::new(),
            surprises: Vec::new(),
            reasons: BTreeMap::new(),
        }));
        let stopped = Arc::new(AtomicBool::new(false));
        let threads = (0..sessions).map(|id| {
            let mut worker = Worker {
                id,
                client: cluster.client().starting_at(id as usize),
                dice: Dice::new(seed.wrapping_add(u64::from(id) << 32)),
                groups: groups.clone(),
                record: record.clone(),
                count: 0,
            };
            let stopped = stopped.clone();
            std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    worker.turn();
                    std::thread::sleep(REST);
                }
            })
        });
        let threads = threads.collect();
        let traffic = Traffic {
            record,
            stopped,
            threads,
            groups,
        };
        traffic.until_written(Duration::from_secs(20));
        traffic
    }

    /// Waits until every group has been written since now; how long that took.
    pub fn until_written(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let missing = {
                let record = self.record.lock().expect("the record");
                let is_new = |group: &&String| {
                    let written = record.written.get(*group);
                    written.is_none_or(|&at| at < began)
                };
                let missing: Vec<String> = self.groups.iter().filter(is_new).cloned().collect();
                if missing.is_empty() {
                    return began.elapsed();
                }
                assert!(
                    began.elapsed() < limit,
                    "no write within {limit:?} to {missing:?}; {:?}",
                    record.reasons
                );
                missing
            };
            drop(missing);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets it go on for a while.
    pub fn run(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Ends the traffic, heals nothing; see [`Traffic::finish`].
    fn end(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a session");
        }
    }

    /// All nodes run and reach each other: the traffic ends, everything is read once more, everything is checked.
    pub fn finish(mut self, cluster: &Cluster) {
        self.end();
        let mut record = self.record.lock().expect("the record");
        let said = verify::summary(&record.history);
        eprintln!("{said}; {:?}", record.reasons);
        assert!(record.surprises.is_empty(), "{:?}", record.surprises);
        verify::all(cluster, &mut record.history, &self.keys());
    }

    fn keys(&self) -> Vec<String> {
        let groups = self.groups.iter();
        groups
            .flat_map(|group| ["r", "l", "c", "n"].map(|kind| format!("{group}{kind}")))
            .collect()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One session.
struct Worker {
    id: u32,
    client: Client,
    dice: Dice,
    groups: Vec<String>,
    record: Arc<Mutex<Record>>,
    count: u32,
}

impl Worker {
    fn turn(&mut self) {
        let group = self.groups[self.dice.roll(self.groups.len() as u64) as usize].clone();
        self.count += 1;
        let value = format!("{}-{}", self.id, self.count);
        let token = format!("{value},");
        let key = |kind: &str| format!("{group}{kind}");
        let (actions, writes) = match self.dice.roll(20) {
            0..5 => (vec![(key("r"), Action::Get)], false),
            5..8 => (vec![(key("r"), Action::Set(value))], true),
            8..10 => (vec![(key("r"), Action::Swap(value))], true),
            10 => (vec![(key("r"), Action::SetNew(value))], true),
            11 => (vec![(key("r"), Action::Take)], true),
            12..14 => (vec![(key("l"), Action::Get)], false),
            14 => (vec![(key("c"), Action::Get)], false),
            15 => (vec![(key("n"), Action::Incr)], true),
            16 => (vec![(key("n"), Action::Get)], false),
            17 => (vec![(key("l"), Action::Append(token))], true),
            _ => (
                vec![(key("l"), Action::Append(token)), (key("c"), Action::Incr)],
                true,
            ),
        };
        if self.call(actions).is_some() && writes {
            let mut record = self.record.lock().expect("the record");
            record.written.insert(group, Instant::now());
        }
    }

    /// Makes a call and records it; what was seen, if it was answered.
    fn call(&mut self, actions: Vec<(String, Action)>) -> Option<Vec<Seen>> {
        let commands: Vec<Vec<String>> = actions.iter().map(command).collect();
        let number = {
            let mut record = self.record.lock().expect("the record");
            record.history.call(self.id, actions.clone())
        };
        let fate = self.client.call(&actions[0].0, &commands);
        let mut record = self.record.lock().expect("the record");
        let (why, pause) = match fate {
            Fate::Done(replies) => {
                let seen = actions
                    .iter()
                    .zip(&replies)
                    .map(|(it, reply)| seen(it, reply));
                let seen: Option<Vec<Seen>> = seen.collect();
                match seen {
                    Some(seen) => {
                        record.history.done(number, seen.clone());
                        return Some(seen);
                    }
                    None => {
                        let text = format!("{actions:?} answered {replies:?}");
                        record.surprises.push(text);
                        return None;
                    }
                }
            }
            Fate::Refused(why) => {
                record.history.refused(number);
                (why, true)
            }
            Fate::Unknown(why) => {
                record.history.unknown(number);
                (why, false)
            }
            Fate::Surprise(why) => {
                record.history.unknown(number);
                record.surprises.push(format!("{actions:?}: {why}"));
                (why, true)
            }
        };
        let mut words = why.split(": ");
        let word = words.nth(1).unwrap_or(&why).split(' ').next();
        let reason = record.reasons.entry(word.unwrap_or_default().into());
        reason.or_insert_with(|| (0, why)).0 += 1;
        drop(record);
        if pause {
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

fn command((key, action): &(String, Action)) -> Vec<String> {
    let words: Vec<&str> = match action {
        Action::Get => vec!["GET", key],
        Action::Set(value) => vec!["SET", key, value],
        Action::Swap(value) => vec!["SET", key, value, "GET"],
        Action::SetNew(value) => vec!["SET", key, value, "NX", "GET"],
        Action::Append(token) => vec!["APPEND", key, token],
        Action::Incr => vec!["INCR", key],
        Action::Take => vec!["GETDEL", key],
        Action::Put(token) => vec!["SADD", key, token],
        Action::Pull => vec!["SPOP", key],
        Action::All => vec!["SMEMBERS", key],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// What a reply tells; none, if it is not one of this command.
fn seen((key, action): &(String, Action), reply: &Value) -> Option<Seen> {
    let is_counter = verify::is_counter(key);
    Some(match (action, reply) {
        (Action::Set(_), Value::Simple(ok)) if ok == b"OK" => Seen::Nothing,
        (Action::Incr | Action::Append(_), Value::Int(number)) => Seen::Number(*number),
        (Action::Get | Action::Swap(_) | Action::SetNew(_) | Action::Take, Value::Nil) => {
            Seen::Text(None)
        }
        (Action::Get, Value::Bulk(_)) if is_counter => Seen::Number(text(reply)?.parse().ok()?),
        (Action::Get | Action::Swap(_) | Action::SetNew(_) | Action::Take, Value::Bulk(_)) => {
            Seen::Text(Some(text(reply)?))
        }
        _ => return None,
    })
}

//! Sessions that work on a few hot rows while faults happen, and what they saw. One of them speaks gRPC.
//!
//! A change that carries a REQUEST and whose fate is unknown is asked again until it is known: for the judge it is one
//! call, from the first question to the last answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::grpc::{Grpc, NoAnswer};
use super::judge::is_counter;
use super::model::{Act, Call, Row, Told};
use super::watch::Floors;
use crate::Dice;
use crate::client::{Client, Fate};
use crate::nodes::Cluster;
use crate::wire::Value;

/// Between calls of a session: histories stay short enough to be checked.
const REST: Duration = Duration::from_millis(8);

/// What all sessions share.
#[derive(Default)]
struct Record {
    calls: Vec<Call>,
    /// By key: its last change that was acknowledged.
    written: BTreeMap<usize, Instant>,
    surprises: Vec<String>,
    /// How calls ended, by the first word of the reason.
    ends: BTreeMap<String, (usize, String)>,
}

#[derive(Clone)]
struct Shared {
    record: Arc<Mutex<Record>>,
    clock: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    keys: Arc<Vec<String>>,
    floors: Floors,
}

pub struct Traffic {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
    /// Keys of the same region.
    regions: Vec<Vec<usize>>,
}

impl Traffic {
    pub fn start(cluster: &Cluster, keys: Arc<Vec<String>>, floors: Floors, seed: u64) -> Traffic {
        let ranges = cluster.ranges(cluster.answering()[0]).expect("slots");
        let is_in = |range: &crate::nodes::Range, key: &str| {
            (range.first..=range.last).contains(&base::slot::slot_of(key.as_bytes()))
        };
        let regions = ranges.iter().map(|range| {
            let keys = keys.iter().enumerate();
            keys.filter(|(_, key)| is_in(range, key))
                .map(|(at, _)| at)
                .collect()
        });
        let shared = Shared {
            record: Arc::default(),
            clock: Arc::default(),
            stopped: Arc::default(),
            keys: keys.clone(),
            floors,
        };
        let threads = (0..6).map(|id| {
            let mut session = Session::new(id, cluster, &shared, seed);
            // The last speaks gRPC.
            let grpc = (id == 5).then(|| Grpc::new(cluster));
            std::thread::spawn(move || {
                while !session.is_over() {
                    match &grpc {
                        Some(grpc) => session.turn_by(grpc),
                        None => session.turn(),
                    }
                    std::thread::sleep(REST);
                }
            })
        });
        Traffic {
            threads: threads.collect(),
            regions: regions.filter(|it: &Vec<usize>| !it.is_empty()).collect(),
            shared,
        }
    }

    /// Waits until a row of every region has been changed since now; how long that took.
    pub fn until_written(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let record = self.shared.record.lock().expect("the record");
            let is_new = |key: &usize| record.written.get(key).is_some_and(|&at| at > began);
            if self.regions.iter().all(|keys| keys.iter().any(is_new)) {
                return began.elapsed();
            }
            let ends = record.ends.clone();
            drop(record);
            assert!(
                began.elapsed() < limit,
                "a region was not written within {limit:?}; {ends:#?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it: every call, and a client to go on with.
    pub fn finish(mut self) -> (Vec<Call>, Finisher) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a session");
        }
        let mut record = self.shared.record.lock().expect("the record");
        let calls = std::mem::take(&mut record.calls);
        let unknown = calls.iter().filter(|it| it.ended.is_none()).count();
        let ends: Vec<String> = record
            .ends
            .iter()
            .map(|(word, (count, example))| format!("{count} × {word} ({example})"))
            .collect();
        eprintln!(
            "{} calls, {unknown} of them unknown\n    {}",
            calls.len(),
            ends.join("\n    ")
        );
        assert!(record.surprises.is_empty(), "{:#?}", record.surprises);
        let clock = self.shared.clock.clone();
        (calls, Finisher { clock })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Reads on, as part of the history.
pub struct Finisher {
    clock: Arc<AtomicU64>,
}

impl Finisher {
    /// One more read of each row; the faults are over, so it must come to an end.
    pub fn read(&self, cluster: &Cluster, keys: &[String], calls: &mut Vec<Call>) -> Vec<Row> {
        let mut client = cluster.client();
        let mut rows = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            cluster.until(&format!("{key} can be read"), |_| {
                let called = self.clock.fetch_add(1, Ordering::SeqCst);
                let replies = match client.call(key, &Act::Read.commands(key, None)) {
                    Fate::Done(replies) => replies,
                    why => return Err(format!("{why:?}")),
                };
                let told = Act::Read.told(&replies).expect("a row");
                let Told::Row(_, row) = &told else {
                    panic!("{told:?}");
                };
                rows.push(row.clone());
                calls.push(Call {
                    session: usize::MAX,
                    key: number,
                    act: Act::Read,
                    called,
                    ended: Some((self.clock.fetch_add(1, Ordering::SeqCst), told)),
                });
                Ok(())
            });
        }
        rows
    }
}

struct Session {
    id: usize,
    client: Client,
    dice: Dice,
    shared: Shared,
    /// By key: as it was seen last.
    known: BTreeMap<usize, Row>,
    /// As a sender of requests.
    name: String,
    count: u64,
}

impl Session {
    fn new(id: usize, cluster: &Cluster, shared: &Shared, seed: u64) -> Session {
        Session {
            id,
            client: cluster.client().starting_at(id),
            dice: Dice::new(seed.wrapping_add((id as u64) << 32)),
            shared: shared.clone(),
            known: BTreeMap::new(),
            name: format!("{seed:016x}{id:016x}"),
            count: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    fn turn(&mut self) {
        let number = self.dice.roll(self.shared.keys.len() as u64) as usize;
        match self.dice.roll(20) {
            0 => self.kick(number),
            1 => self.wait_sql(number),
            _ => {
                let act = self.choose(number);
                self.call(number, act);
            }
        }
    }

    fn turn_by(&mut self, grpc: &Grpc) {
        let number = self.dice.roll(self.shared.keys.len() as u64) as usize;
        let act = self.choose(number);
        let called = self.tick();
        let (act, ended) = match grpc.call(&self.shared.keys[number], &act) {
            Ok((act, told)) => (act, Some((self.tick(), told))),
            Err(NoAnswer(why)) => {
                self.note(&why);
                (act, None)
            }
        };
        // Of the others it only asks for the row.
        let may_write = matches!(act, Act::Add(_) | Act::Set(..));
        if ended.is_some() || may_write {
            self.record(number, act, called, ended);
        }
    }

    fn choose(&mut self, number: usize) -> Act {
        self.count += 1;
        let v: Arc<str> = format!("{}-{}", self.id, self.count).into();
        let by = 1 + self.dice.roll(3) as i64;
        let known = self.known.get(&number).cloned();
        let known = known.unwrap_or_else(Row::missing);
        // Now and then from a version that is not the last.
        let version = Some(known.version);
        if is_counter(&self.shared.keys[number]) {
            return match self.dice.roll(10) {
                0..3 => Act::Add(by),
                3..6 => Act::Incr(by),
                6 => Act::Both(by, v),
                7 => Act::Set(version, v),
                8 => Act::Fields,
                _ => Act::Read,
            };
        }
        match self.dice.roll(16) {
            0..2 => Act::Put(v),
            2..4 => Act::Set(version, v),
            4 => Act::Set(None, v),
            5 => Act::SetNew(v),
            6..8 => Act::Swap(known.v, v),
            8 => Act::Add(by),
            9 => Act::Incr(by),
            10 => Act::Both(by, v),
            11 => Act::Remove,
            12 => Act::Del(if by == 1 { None } else { version }),
            13 => Act::Fields,
            _ => Act::Read,
        }
    }

    /// Makes a call and records it, unless it has certainly not happened.
    fn call(&mut self, number: usize, act: Act) {
        let key = self.shared.keys[number].clone();
        let is_request = act.is_row_write() && self.dice.roll(2) == 0;
        let name = self.name.clone();
        let request = is_request.then_some((name.as_str(), self.count));
        let commands = act.commands(&key, request);
        let called = self.tick();
        let mut may_have_happened = false;
        let told = loop {
            match self.client.call(&key, &commands) {
                Fate::Done(replies) => match act.told(&replies) {
                    Some(told) => break Some(told),
                    None => {
                        self.surprise(format!("{commands:?} answered {replies:?}"));
                        break None;
                    }
                },
                Fate::Surprise(why) => {
                    self.surprise(format!("{commands:?}: {why}"));
                    break None;
                }
                Fate::Unknown(why) => {
                    may_have_happened = true;
                    self.note(&why);
                }
                Fate::Refused(why) => self.note(&why),
            }
            if !is_request || !may_have_happened || self.is_over() {
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let ended = told.map(|told| (self.tick(), told));
        if ended.is_none() && !(may_have_happened && act.writes()) {
            std::thread::sleep(Duration::from_millis(20));
            return;
        }
        self.record(number, act, called, ended);
    }

    fn record(&mut self, number: usize, act: Act, called: u64, ended: Option<(u64, Told)>) {
        let mut record = self.shared.record.lock().expect("the record");
        if let Some((_, told)) = &ended {
            if act.writes() {
                record.written.insert(number, Instant::now());
            }
            if let Told::Row(_, row) = told {
                self.known.insert(number, row.clone());
            }
        }
        record.calls.push(Call {
            session: self.id,
            key: number,
            act,
            called,
            ended,
        });
    }

    /// Out of the cache, if SQL has it: nobody can tell the difference.
    fn kick(&mut self, number: usize) {
        let key = self.shared.keys[number].clone();
        match self.client.ask(&key, &["ROW.KICK", &key]) {
            Fate::Done(replies) if replies == [Value::Simple(b"OK".to_vec())] => {
                self.note("ROW.KICK: kicked");
            }
            Fate::Surprise(why) if why.contains("not in SQL yet") => {
                self.note("ROW.KICK: not-in-SQL-yet");
            }
            Fate::Refused(why) | Fate::Unknown(why) => self.note(&why),
            other => self.surprise(format!("ROW.KICK {key}: {other:?}")),
        }
    }

    /// From its answer on, SQL has it.
    fn wait_sql(&mut self, number: usize) {
        let key = self.shared.keys[number].clone();
        let words = ["ROW.WAITSQL", &key, "TIMEOUT", "1000"];
        match self.client.ask(&key, &words) {
            Fate::Done(replies) => match replies[..] {
                [Value::Int(version)] => {
                    self.shared.floors.raise(number, version);
                    self.note("ROW.WAITSQL: SQL-has-it");
                }
                _ => self.surprise(format!("{words:?} answered {replies:?}")),
            },
            Fate::Surprise(why) if why.contains("TIMEOUT ") => self.note("ROW.WAITSQL: TIMEOUT"),
            Fate::Refused(why) | Fate::Unknown(why) => self.note(&why),
            other => self.surprise(format!("{words:?}: {other:?}")),
        }
    }

    fn tick(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, why: &str) {
        let word = why.split(": ").nth(1).unwrap_or(why).split(' ').next();
        let mut record = self.shared.record.lock().expect("the record");
        let end = record.ends.entry(word.unwrap_or_default().into());
        end.or_insert_with(|| (0, why.into())).0 += 1;
    }

    fn surprise(&self, what: String) {
        eprintln!("SURPRISE {what}");
        let mut record = self.shared.record.lock().expect("the record");
        record.surprises.push(what);
    }
}

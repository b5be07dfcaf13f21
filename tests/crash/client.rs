//! A client with a known history: it writes to keys of its own, pipelined, and keeps what it was told.
//!
//! `settled` is what the acknowledged commands have made of a key, `ahead` what all sent ones will have made of it:
//! replies are compared with that, so a write that was applied twice shows at once in the next reply.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Dice;
use crate::model::{Effect, Outcome, State};
use crate::wire::{self, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    List,
    Hash,
    Set,
    Zset,
}

pub struct Key {
    pub name: String,
    pub kind: Kind,
    pub settled: State,
    ahead: State,
}

/// A command, or a transaction, on its way.
pub struct Sent {
    pub shown: String,
    /// MULTI and what is queued have a reply each; the last one counts.
    replies: usize,
    expected: Value,
    pub effects: Vec<(usize, Effect)>,
}

pub struct Client {
    pub id: u64,
    pub keys: Vec<Key>,
    /// Since the first error or break of the connection, in order. Empty while all goes well.
    pub doubtful: Vec<(Sent, Outcome)>,
    /// Errors came back, so commands behind a failed one may have happened.
    pub refused: Option<String>,
    pub acknowledged: u64,
    waiting: VecDeque<Sent>,
    dice: Dice,
    /// Numbers are never used twice, not even those of writes that were lost.
    next: u64,
}

/// Indices into `keys`, by use.
const COUNTERS: (usize, u64) = (0, 4);
const TEXTS: (usize, u64) = (4, 8);
const ACCOUNTS: (usize, u64) = (12, 4);
const SMALL: (usize, u64) = (16, 4);
const BIG: (usize, u64) = (20, 4);
const RING: (usize, usize) = (24, 25);

/// Accounts that all clients move money between; only their sum is known.
pub const SHARED: u64 = 32;
pub const SHARED_START: i64 = 1000;

const TYPES: [Kind; 4] = [Kind::List, Kind::Hash, Kind::Set, Kind::Zset];

impl Client {
    pub fn new(id: u64, seed: u64) -> Client {
        let mut keys = Vec::new();
        let mut add = |name: String, kind| {
            keys.push(Key {
                name: format!("client{id}:{name}"),
                kind,
                settled: State::Missing,
                ahead: State::Missing,
            })
        };
        (0..COUNTERS.1).for_each(|n| add(format!("counter{n}"), Kind::Number));
        (0..TEXTS.1).for_each(|n| add(format!("text{n}"), Kind::Number));
        (0..ACCOUNTS.1).for_each(|n| add(format!("account{n}"), Kind::Number));
        TYPES
            .iter()
            .for_each(|kind| add(format!("small{kind:?}"), *kind));
        TYPES
            .iter()
            .for_each(|kind| add(format!("big{kind:?}"), *kind));
        add("ring-from".into(), Kind::List);
        add("ring-to".into(), Kind::List);
        Client {
            id,
            keys,
            doubtful: Vec::new(),
            refused: None,
            acknowledged: 0,
            waiting: VecDeque::new(),
            dice: Dice::new(seed.wrapping_add(id)),
            next: 0,
        }
    }

    /// Writes until the connection breaks, an error comes back, or it is told to stop. Says what is wrong with a reply.
    pub fn run(&mut self, port: u16, depth: u64, stop: &AtomicBool) -> Result<(), String> {
        let broken = self.talk(port, depth, stop)?;
        let waiting = std::mem::take(&mut self.waiting);
        assert!(broken || waiting.is_empty());
        self.doubtful
            .extend(waiting.into_iter().map(|sent| (sent, Outcome::Unknown)));
        Ok(())
    }

    /// Whether the connection broke.
    fn talk(&mut self, port: u16, depth: u64, stop: &AtomicBool) -> Result<bool, String> {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return Ok(true);
        };
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
        let mut reader = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
        let mut writer = stream;
        loop {
            let stopping = stop.load(Ordering::Relaxed) || self.refused.is_some();
            if stopping && self.waiting.is_empty() {
                return Ok(false);
            }
            let room = 1 + self.dice.roll(depth);
            let mut bytes = Vec::new();
            while !stopping && (self.waiting.len() as u64) < room {
                self.compose(&mut bytes);
            }
            if writer.write_all(&bytes).is_err() {
                // What the server has answered before it died is in the socket still, and counts.
                while self.receive(&mut reader)? {}
                return Ok(true);
            }
            let keep = self.dice.roll(room) as usize;
            while self.waiting.len() > if stopping { 0 } else { keep } {
                if !self.receive(&mut reader)? {
                    return Ok(true);
                }
            }
        }
    }

    /// One reply; false if the connection is broken or nothing is waited for.
    fn receive(&mut self, reader: &mut BufReader<TcpStream>) -> Result<bool, String> {
        let Some(sent) = self.waiting.front() else {
            return Ok(false);
        };
        let mut last = Value::Closed;
        for _ in 0..sent.replies {
            last = match wire::decode(reader) {
                Ok(value) => value,
                // A line or value cut in two by the death of the server is no reply.
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err(format!(
                        "client {}: no reply for half a minute to {}",
                        self.id, sent.shown
                    ));
                }
                Err(_) => Value::Closed,
            };
            if last == Value::Closed {
                return Ok(false);
            }
        }
        let Some(sent) = self.waiting.pop_front() else {
            return Ok(false);
        };
        if let Value::Error(text) = &last {
            let text = String::from_utf8_lossy(text).into_owned();
            self.refused
                .get_or_insert(format!("{}: {text}", sent.shown));
            self.doubtful.push((sent, Outcome::Unknown));
            return Ok(true);
        }
        self.acknowledged += 1;
        if !self.doubtful.is_empty() {
            self.doubtful.push((sent, Outcome::Acknowledged));
            return Ok(true);
        }
        let unchecked = sent.expected == Value::Closed && matches!(&last, Value::Array(_));
        if last != sent.expected && !unchecked {
            return Err(format!(
                "client {}: {} was answered {last:?} instead of {:?}",
                self.id, sent.shown, sent.expected
            ));
        }
        for (key, effect) in &sent.effects {
            self.keys[*key].settled.apply(effect);
        }
        Ok(true)
    }

    /// After a restart: what is there is the history now.
    pub fn adopt(&mut self, found: Vec<State>) {
        for (key, state) in self.keys.iter_mut().zip(found) {
            key.ahead = state.clone();
            key.settled = state;
        }
        self.doubtful.clear();
        self.refused = None;
    }

    fn fresh(&mut self, count: u64) -> u64 {
        self.next += count;
        self.next - count
    }

    fn pick(&mut self, (first, count): (usize, u64)) -> usize {
        first + self.dice.roll(count) as usize
    }

    /// The next command of the history, into `bytes`.
    fn compose(&mut self, bytes: &mut Vec<u8>) {
        let mut draft = Draft::default();
        match self.dice.roll(16) {
            0 | 1 => {
                let key = self.pick(COUNTERS);
                self.increment(&mut draft, key, 1);
            }
            2 | 3 => {
                let (key, n) = (self.pick(TEXTS), self.fresh(1));
                self.write(&mut draft, key, n);
            }
            4..=6 => {
                let key = self.pick(SMALL);
                if self.keys[key].ahead.len() > 200 || self.dice.roll(60) == 0 {
                    self.remove(&mut draft, &[key]);
                } else {
                    self.add(&mut draft, key, 1);
                }
            }
            7 => {
                let key = self.pick(BIG);
                if self.keys[key].ahead.len() > 5000 && self.dice.roll(100) == 0 {
                    self.remove(&mut draft, &[key]);
                } else {
                    self.add(&mut draft, key, 20);
                }
            }
            8 => self.transfer(&mut draft),
            9 => self.shared_transfer(&mut draft),
            10 => self.write_several(&mut draft),
            11 | 12 => self.ring(&mut draft),
            13 => self.record(&mut draft),
            14 => {
                let keys = [self.pick(TEXTS), self.pick(TEXTS)];
                if keys[0] != keys[1] {
                    self.remove(&mut draft, &keys);
                } else {
                    self.increment(&mut draft, COUNTERS.0, 1);
                }
            }
            _ => self.rename(&mut draft),
        }
        let sent = draft.finish(bytes);
        self.waiting.push_back(sent);
    }

    fn happen(&mut self, draft: &mut Draft, key: usize, effect: Effect) {
        self.keys[key].ahead.apply(&effect);
        draft.effects.push((key, effect));
    }

    fn increment(&mut self, draft: &mut Draft, key: usize, by: i64) {
        self.happen(draft, key, Effect::Increment(by));
        let key = &self.keys[key];
        draft.command(
            &["INCRBY", &key.name, &by.to_string()],
            Value::Int(key.ahead.number()),
        );
    }

    fn write(&mut self, draft: &mut Draft, key: usize, n: u64) {
        self.happen(draft, key, Effect::Write(n as i64));
        draft.command(&["SET", &self.keys[key].name, &n.to_string()], ok());
    }

    fn add(&mut self, draft: &mut Draft, key: usize, count: u64) {
        let from = self.fresh(count);
        self.happen(draft, key, Effect::Add { from, count });
        let Key {
            name, kind, ahead, ..
        } = &self.keys[key];
        let mut words = vec![name.clone()];
        for n in from..from + count {
            match kind {
                Kind::Hash => words.extend([format!("f{n}"), n.to_string()]),
                Kind::Zset => words.extend([n.to_string(), format!("m{n}")]),
                Kind::Set => words.push(format!("m{n}")),
                Kind::List | Kind::Number => words.push(n.to_string()),
            }
        }
        let (verb, reply) = match kind {
            Kind::Hash => ("HSET", count),
            Kind::Zset => ("ZADD", count),
            Kind::Set => ("SADD", count),
            Kind::List | Kind::Number => ("RPUSH", ahead.len()),
        };
        let mut argv = vec![verb];
        argv.extend(words.iter().map(String::as_str));
        draft.command(&argv, Value::Int(reply as i64));
    }

    fn remove(&mut self, draft: &mut Draft, keys: &[usize]) {
        let mut argv = vec!["DEL".to_string()];
        let mut there = 0;
        for key in keys {
            there += i64::from(self.keys[*key].ahead != State::Missing);
            argv.push(self.keys[*key].name.clone());
            self.happen(draft, *key, Effect::Remove);
        }
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        draft.command(&argv, Value::Int(there));
    }

    /// Money between two accounts of this client, by EXEC.
    fn transfer(&mut self, draft: &mut Draft) {
        let (from, to) = (self.pick(ACCOUNTS), self.pick(ACCOUNTS));
        let sum = 1 + self.dice.roll(1000) as i64;
        draft.multi();
        self.increment(draft, from, -sum);
        self.increment(draft, to, sum);
        draft.exec();
    }

    fn shared_transfer(&mut self, draft: &mut Draft) {
        let (from, to) = (self.dice.roll(SHARED), self.dice.roll(SHARED));
        let sum = 1 + self.dice.roll(1000) as i64;
        draft.multi();
        // What the others have left there nobody knows.
        draft.command(&["INCRBY", &shared(from), &(-sum).to_string()], Value::Nil);
        draft.command(&["INCRBY", &shared(to), &sum.to_string()], Value::Nil);
        draft.exec_unchecked();
    }

    fn write_several(&mut self, draft: &mut Draft) {
        let n = self.fresh(1);
        let mut argv = vec!["MSET".to_string()];
        let first = self.dice.roll(TEXTS.1);
        for step in [0, 1, 3] {
            let key = TEXTS.0 + ((first + step) % TEXTS.1) as usize;
            argv.extend([self.keys[key].name.clone(), n.to_string()]);
            self.happen(draft, key, Effect::Write(n as i64));
        }
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        draft.command(&argv, ok());
    }

    /// Into one list, from there to another, out of that one.
    fn ring(&mut self, draft: &mut Draft) {
        let (from, to) = RING;
        let first = self.keys[from].ahead.first();
        match (self.dice.roll(8), first) {
            (0..=3, _) | (4..=6, None) => self.add(draft, from, 1),
            (4..=6, Some(n)) => {
                self.happen(draft, from, Effect::TakeFirst);
                self.happen(draft, to, Effect::Add { from: n, count: 1 });
                let (from, to) = (&self.keys[from].name, &self.keys[to].name);
                draft.command(&["LMOVE", from, to, "LEFT", "RIGHT"], bulk(Some(n)));
            }
            _ => {
                let reply = bulk(self.keys[to].ahead.first());
                self.happen(draft, to, Effect::TakeFirst);
                draft.command(&["LPOP", &self.keys[to].name], reply);
            }
        }
    }

    /// Different things to keys of different types, by EXEC.
    fn record(&mut self, draft: &mut Draft) {
        let (counter, text, collection) = (self.pick(COUNTERS), self.pick(TEXTS), self.pick(SMALL));
        let n = self.fresh(1);
        draft.multi();
        self.increment(draft, counter, 1);
        self.write(draft, text, n);
        self.add(draft, collection, 2);
        if self.dice.roll(8) == 0 {
            self.remove(draft, &[collection]);
            self.add(draft, collection, 1);
        }
        draft.exec();
    }

    fn rename(&mut self, draft: &mut Draft) {
        let (from, to) = (self.pick(TEXTS), self.pick(TEXTS));
        let State::Number(n) = self.keys[from].ahead else {
            let n = self.fresh(1);
            return self.write(draft, from, n);
        };
        if from != to {
            self.happen(draft, from, Effect::Remove);
            self.happen(draft, to, Effect::Write(n));
        }
        draft.command(
            &["RENAME", &self.keys[from].name, &self.keys[to].name],
            ok(),
        );
    }
}

pub fn shared(n: u64) -> String {
    format!("shared{n}")
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(n: Option<u64>) -> Value {
    n.map_or(Value::Nil, |n| Value::Bulk(n.to_string().into_bytes()))
}

/// A command or transaction being put together.
#[derive(Default)]
struct Draft {
    bytes: Vec<u8>,
    shown: String,
    expected: Vec<Value>,
    effects: Vec<(usize, Effect)>,
    /// In a transaction: replies so far (MULTI's and one per queued command).
    queued: Option<usize>,
    checked: bool,
}

impl Draft {
    fn raw(&mut self, argv: &[&str]) {
        let argv: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.bytes.extend(wire::encode(&argv));
        self.shown += &argv.join(&b' ').escape_ascii().to_string();
        self.shown += "; ";
    }

    fn command(&mut self, argv: &[&str], expected: Value) {
        self.raw(argv);
        self.expected.push(expected);
        self.queued = self.queued.map(|n| n + 1);
    }

    fn multi(&mut self) {
        self.raw(&["MULTI"]);
        self.queued = Some(1);
    }

    fn exec(&mut self) {
        self.raw(&["EXEC"]);
        self.checked = true;
    }

    fn exec_unchecked(&mut self) {
        self.raw(&["EXEC"]);
    }

    fn finish(mut self, bytes: &mut Vec<u8>) -> Sent {
        bytes.append(&mut self.bytes);
        let (replies, expected) = match self.queued {
            Some(queued) if self.checked => (queued + 1, Value::Array(self.expected)),
            Some(queued) => (queued + 1, Value::Closed), // some array
            None => (1, self.expected.pop().unwrap_or(Value::Closed)),
        };
        Sent {
            shown: self.shown,
            replies,
            expected,
            effects: self.effects,
        }
    }
}

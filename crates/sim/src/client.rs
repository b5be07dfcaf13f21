//! Sessions: what clients ask for, and what they make of the answers.
//!
//! A session does one call at a time. A refusal that says "not here" is tried again elsewhere: it
//! certainly did nothing. An answer that does not come in time leaves the outcome unknown, and the
//! session goes on with something else, as a real one would after an error.
//!
//! Keys of a region: registers (`r`), logs of unique tokens (`l`), counters (`c`), which the history
//! records, and others of every type (`n`), on which only the digests of the replicas look.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::history::{Action, Seen};
use crate::row_calls::{Column, RowAct};
use crate::sql::row_key;

/// One command: its words.
pub type Words = Vec<Vec<u8>>;

/// What a node is asked. All commands of a request happen together.
#[derive(Debug, Clone)]
pub struct Request {
    pub session: u32,
    pub ticket: u64,
    pub region: u64,
    pub commands: Arc<Vec<Words>>,
    pub is_read: bool,
    /// Whoever is asked may answer, if it knows enough (READONLY).
    pub anywhere: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The reply of each command.
    Done(Vec<Vec<u8>>),
    /// Not here; this node leads, as far as is known. Nothing happened.
    Moved(Option<u64>),
    /// Not now. Nothing happened.
    Refused,
}

/// A call under way.
#[derive(Debug)]
pub struct Current {
    pub request: Request,
    /// Its number in the history; noise has none.
    pub call: Option<usize>,
    /// The same of a call on a row.
    pub row: Option<usize>,
    /// With a number: it may be asked for again when no answer came.
    pub has_number: bool,
    /// One of its tries got no answer.
    pub in_doubt: bool,
    pub asked: u64,
    pub gives_up_us: u64,
}

#[derive(Debug)]
pub struct Session {
    pub id: u32,
    pub rng: fastrand::Rng,
    pub current: Option<Current>,
    /// By region: who is asked first.
    pub guess: Vec<u64>,
    tickets: u64,
    values: u64,
    keys: usize,
    regions: u64,
    /// Numbers of requests on rows, and what it last saw of these.
    numbers: u64,
    pub seen: BTreeMap<String, (i64, Option<Arc<str>>)>,
}

/// How often each kind of call is made, of a hundred.
const READS: u32 = 38;

impl Session {
    pub fn new(id: u32, rng: fastrand::Rng, regions: u64, keys: usize) -> Session {
        Session {
            id,
            rng,
            current: None,
            guess: vec![1; regions as usize + 1],
            tickets: 0,
            values: 0,
            keys,
            regions,
            numbers: 0,
            seen: BTreeMap::new(),
        }
    }

    pub fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}.{}", self.id, self.values)
    }

    /// A call that changes nothing.
    pub fn choose_read(&mut self) -> (u64, Vec<(String, Action)>, Vec<Words>) {
        let region = self.rng.u64(1..=self.regions);
        let key = key('r', region, self.rng.usize(..self.keys));
        let commands = vec![words(&key, &Action::Get)];
        (region, vec![(key, Action::Get)], commands)
    }

    /// A new call: its region, and what it does; nothing to be recorded if it is noise.
    pub fn choose(&mut self) -> (u64, Vec<(String, Action)>, Vec<Words>) {
        let region = self.rng.u64(1..=self.regions);
        let nth = self.rng.usize(..self.keys);
        let register = key('r', region, nth);
        let log = key('l', region, nth);
        let counter = key('c', region, nth);
        let token = format!("{},", self.value());
        let actions = match self.rng.u32(..100) {
            0..READS => {
                let kind = *self.rng.choice(&['r', 'r', 'l', 'c']).unwrap_or(&'r');
                vec![(key(kind, region, nth), Action::Get)]
            }
            READS..55 => vec![(register, Action::Set(self.value()))],
            55..65 => vec![(register, Action::Swap(self.value()))],
            65..70 => vec![(register, Action::SetNew(self.value()))],
            70..73 => vec![(register, Action::Take)],
            73..82 => vec![(log, Action::Append(token))],
            82..90 => vec![(counter, Action::Incr), (log, Action::Append(token))],
            90..94 => {
                let swap = Action::Swap(self.value());
                let other = key('r', region, self.rng.usize(..self.keys));
                let mut both = vec![(register.clone(), swap), (log, Action::Append(token))];
                if other != register {
                    both.push((other, Action::Set(self.value())));
                }
                both
            }
            _ => return (region, Vec::new(), self.noise(region)),
        };
        let commands = actions.iter().map(|(key, action)| words(key, action));
        let commands = commands.collect();
        (region, actions, commands)
    }

    /// A call on a row: its region and key, what it does, and its number if it has one.
    pub fn choose_row(
        &mut self,
        rows: usize,
        has_m: bool,
    ) -> (u64, String, RowAct, Option<(u32, u64)>) {
        let region = self.rng.u64(1..=self.regions);
        let key = row_key(region, self.rng.usize(..rows));
        let text: Arc<str> = self.value().into();
        let (version, last) = self.seen.get(&key).cloned().unwrap_or_default();
        let expect = (self.rng.u32(..3) == 0).then_some(version);
        let by = self.rng.i64(1..100);
        let column = match has_m && self.rng.bool() {
            true => Column::M,
            false => Column::N,
        };
        let act = match self.rng.u32(..100) {
            0..25 => RowAct::Get,
            25..30 => RowAct::HGet(Column::S),
            30..35 => RowAct::HGet(column),
            35..47 => RowAct::Set { text, expect },
            47..52 => RowAct::SetNew { text },
            52..60 => RowAct::Swap {
                when: last.unwrap_or_else(|| "x".into()),
                text,
            },
            60..75 => RowAct::Incr { column, by, expect },
            75..80 => RowAct::Del { expect },
            80..88 => RowAct::HSet { text },
            88..96 => RowAct::HIncr { by },
            _ => RowAct::HDel,
        };
        let is_plain = matches!(
            act,
            RowAct::Get
                | RowAct::HGet(_)
                | RowAct::HSet { .. }
                | RowAct::HIncr { .. }
                | RowAct::HDel
        );
        let number = (!is_plain && self.rng.u32(..3) > 0).then(|| {
            self.numbers += 1;
            (self.id, self.numbers)
        });
        (region, key, act, number)
    }

    /// Commands of all types, on few keys; what they answer is nobody's business.
    fn noise(&mut self, region: u64) -> Vec<Words> {
        let mut commands = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let (small, number) = (self.rng.u32(..8), self.rng.u32(..1000));
            let value = self.value();
            let text = match self.rng.u32(..14) {
                0 => format!("HSET nh{region} f{small} {value}"),
                1 => format!("HINCRBY nh{region} n{small} {number}"),
                2 => format!("HDEL nh{region} f{small} n{small}"),
                3 => format!("RPUSH nl{region} {value}"),
                4 => format!("LPOP nl{region}"),
                5 => format!("LINSERT nl{region} BEFORE {value} {number}"),
                6 => format!("ZADD nz{region} {number} m{small}"),
                7 => format!("ZINCRBY nz{region} 1.5 m{small}"),
                8 => format!("ZPOPMIN nz{region}"),
                9 => format!("SADD ns{region} {small} {value}"),
                10 => format!("SREM ns{region} {small}"),
                11 => format!("SET nt{region}{small} {value} PX {}", 1 + number * 3),
                12 => format!("PEXPIRE nh{region} {}", 1 + number * 3),
                _ => format!("DEL nl{region} nt{region}{small}"),
            };
            commands.push(split(&text));
        }
        commands
    }
}

pub fn key(kind: char, region: u64, nth: usize) -> String {
    format!("{kind}{region}.{nth}")
}

fn split(text: &str) -> Words {
    text.split(' ').map(|word| word.into()).collect()
}

pub fn words(key: &str, action: &Action) -> Words {
    match action {
        Action::Get => split(&format!("GET {key}")),
        Action::Set(value) => split(&format!("SET {key} {value}")),
        Action::Swap(value) => split(&format!("SET {key} {value} GET")),
        Action::SetNew(value) => split(&format!("SET {key} {value} NX GET")),
        Action::Append(token) => split(&format!("APPEND {key} {token}")),
        Action::Incr => split(&format!("INCR {key}")),
        Action::Take => split(&format!("GETDEL {key}")),
    }
}

/// What a reply tells of the key; `None` if it is no answer to this.
pub fn read_reply(key: &str, action: &Action, reply: &[u8]) -> Option<Seen> {
    let text = std::str::from_utf8(reply).ok()?;
    let (first, rest) = text.split_once("\r\n")?;
    let kind = first.chars().next()?;
    let word = first.get(1..)?;
    Some(match (action, kind) {
        (Action::Set(_), '+') => Seen::Nothing,
        (Action::Append(_) | Action::Incr, ':') => Seen::Number(word.parse().ok()?),
        (Action::Set(_) | Action::Append(_) | Action::Incr, _) => return None,
        (_, '$') if word == "-1" => Seen::Text(None),
        (_, '$') => {
            let text = rest.strip_suffix("\r\n")?;
            match key.starts_with('c') {
                true => Seen::Number(text.parse().ok()?),
                false => Seen::Text(Some(text.into())),
            }
        }
        _ => return None,
    })
}

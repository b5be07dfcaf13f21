//! Sessions: what clients ask for, and what they make of the answers.
//!
//! A session does one call at a time. A refusal that says "not here" is tried again elsewhere: it
//! certainly did nothing. An answer that does not come in time leaves the outcome unknown, and the
//! session goes on with something else, as a real one would after an error.
//!
//! Keys of a region: registers (`r`), logs of unique tokens (`l`), counters (`c`), sets (`s`) and lists (`p`)
//! of unique tokens, which the history records, and others of every type (`n`), on which only the digests of
//! the replicas look.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

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
    pub how: How,
}

/// How a node runs a request that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum How {
    /// The log of its region has its commands.
    #[default]
    Log,
    /// The logs of its regions have what it changed.
    Effect,
    /// As [`How::Effect`], if nobody has changed its first key since that was read, some time before.
    Watch,
    /// It waits for an element.
    Block,
}

/// What a session chose to do: the region it asks about, what the history records, the commands.
pub struct Choice {
    pub region: u64,
    pub actions: Vec<(String, Action)>,
    pub commands: Vec<Words>,
    pub how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The reply of each command.
    Done(Vec<Vec<u8>>),
    /// Not here; this node leads, as far as is known. Nothing happened.
    Moved(Option<u64>),
    /// Not now. Nothing happened.
    Refused,
    /// A watched key has changed, so nothing happened.
    Aborted,
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
    pub fn choose_read(&mut self) -> Choice {
        let region = self.rng.u64(1..=self.regions);
        let key = key('r', region, self.rng.usize(..self.keys));
        Choice::new(region, vec![(key, Action::Get)], How::Log)
    }

    /// A new call; nothing to be recorded if it is noise. `is_alone`: a call may be about several regions.
    pub fn choose(&mut self, is_alone: bool) -> Choice {
        let mut choice = match self.rng.u32(..10) {
            0 | 1 => self.choose_pool(),
            2 => {
                let region = self.rng.u64(1..=self.regions);
                let register = key('r', region, self.rng.usize(..self.keys));
                let swap = Action::Swap(self.value());
                return Choice::new(region, vec![(register, swap)], How::Watch);
            }
            _ => self.choose_one(),
        };
        let is_read = choice.actions.iter().all(|(_, action)| action.is_read());
        if choice.how != How::Log || is_read {
            return choice;
        }
        if is_alone && self.rng.bool() {
            let others: Vec<Choice> = (0..4).map(|_| self.choose_one()).collect();
            let writes_elsewhere = |other: &Choice| {
                let writes = other.actions.iter().any(|(_, action)| !action.is_read());
                writes && other.region != choice.region
            };
            let mut others = others.into_iter();
            let Some(other) = others.find(writes_elsewhere) else {
                return choice;
            };
            let is_other = |(key, _): &(String, Action)| {
                let mut these = choice.actions.iter();
                these.all(|(of, _)| of != key)
            };
            if other.actions.iter().all(is_other) {
                choice.actions.extend(other.actions);
                choice.commands.extend(other.commands);
            }
            choice.how = How::Effect;
        } else if self.rng.u32(..4) == 0 {
            choice.how = How::Effect;
        }
        choice
    }

    /// A token is put into a set or a list, or taken out of it.
    fn choose_pool(&mut self) -> Choice {
        let region = self.rng.u64(1..=self.regions);
        let kind = *self.rng.choice(&['s', 'p']).unwrap_or(&'s');
        let pool = key(kind, region, self.rng.usize(..self.keys));
        let (action, how) = match (self.rng.u32(..5), kind) {
            (0..3, _) => (Action::Put(self.value()), How::Log),
            (_, 's') => (Action::Pull, How::Effect),
            (3, _) => (Action::Pull, How::Log),
            _ => (Action::Pull, How::Block),
        };
        let mut choice = Choice::new(region, vec![(pool.clone(), action)], how);
        if how == How::Block {
            choice.commands = vec![split(&format!("BLPOP {pool} 0"))];
        }
        choice
    }

    fn choose_one(&mut self) -> Choice {
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
            _ => {
                let noise = self.noise(region);
                let mut choice = Choice::new(region, Vec::new(), How::Log);
                choice.commands = noise;
                return choice;
            }
        };
        Choice::new(region, actions, How::Log)
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
        let (mut commands, region) = (Vec::new(), tag(region));
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

impl Choice {
    pub fn new(region: u64, actions: Vec<(String, Action)>, how: How) -> Choice {
        let commands = actions.iter().map(|(key, action)| words(key, action));
        Choice {
            region,
            commands: commands.collect(),
            actions,
            how,
        }
    }
}

/// The hash tag of the keys of a region: in braces, a number whose slot belongs to it.
pub fn tag(region: u64) -> &'static str {
    static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let slot =
            |number: &u64| u64::from(base::slot::slot_of(format!("{{{number}}}").as_bytes()));
        let of_region = |region: u64| {
            let is_its = |number: &u64| slot(number) % MOST_REGIONS == region % MOST_REGIONS;
            (0..).find(is_its).unwrap_or_default()
        };
        let tags = (0..MOST_REGIONS).map(of_region);
        tags.map(|number| format!("{{{number}}}")).collect()
    });
    TAGS.get(region as usize).map_or("{0}", String::as_str)
}

/// Regions of a run, at most.
pub const MOST_REGIONS: u64 = 8;

pub fn key(kind: char, region: u64, nth: usize) -> String {
    format!("{kind}{}.{nth}", tag(region))
}

/// The region of a key.
pub fn region_of(key: &str) -> u64 {
    let is_its = |region: &u64| key.contains(tag(*region));
    (1..MOST_REGIONS).find(is_its).unwrap_or(1)
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
        Action::Put(token) if key.starts_with('s') => split(&format!("SADD {key} {token}")),
        Action::Put(token) => split(&format!("RPUSH {key} {token}")),
        Action::Pull if key.starts_with('s') => split(&format!("SPOP {key}")),
        Action::Pull => split(&format!("LPOP {key}")),
        Action::All if key.starts_with('s') => split(&format!("SMEMBERS {key}")),
        Action::All => split(&format!("LRANGE {key} 0 -1")),
    }
}

/// The last string of a reply, if it has one.
fn last_bulk(text: &str) -> Option<&str> {
    let mut lines = text.strip_suffix("\r\n")?.rsplit("\r\n");
    let (last, head) = (lines.next()?, lines.next()?);
    head.starts_with('$').then_some(last)
}

/// What a reply tells of the key; `None` if it is no answer to this.
pub fn read_reply(key: &str, action: &Action, reply: &[u8]) -> Option<Seen> {
    let text = std::str::from_utf8(reply).ok()?;
    let (first, rest) = text.split_once("\r\n")?;
    let kind = first.chars().next()?;
    let word = first.get(1..)?;
    Some(match (action, kind) {
        (Action::Set(_), '+') => Seen::Nothing,
        (Action::Append(_) | Action::Incr | Action::Put(_), ':') => {
            Seen::Number(word.parse().ok()?)
        }
        (Action::Pull, '$' | '*') if word == "-1" => Seen::Text(None),
        (Action::Pull, '$' | '*') => Seen::Text(Some(last_bulk(text)?.into())),
        (Action::All, '*') => {
            let lines = rest.split("\r\n");
            let items = lines.filter(|line| !line.is_empty() && !line.starts_with('$'));
            Seen::Many(items.map(Into::into).collect())
        }
        (Action::Put(_) | Action::Pull | Action::All, _) => return None,
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

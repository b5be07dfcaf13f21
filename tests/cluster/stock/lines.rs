//! What clients have written down, and the one history it makes.
//!
//! ```text
//!   {"at":812…,"session":100,"call":7,"op":"SET","key":"{kill0}r","value":"100-7"}     called
//!   {"at":813…,"session":100,"call":7,"fate":"done","seen":null}                       returned: done, refused,
//!                                                                                      unknown or surprise
//! ```
//!
//! `at` is CLOCK_MONOTONIC in nanoseconds, read before the call was made or after it returned. All clients run on one
//! machine, so sorting by it gives the history an observer outside would have written. What did not return is open.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;
use sim::history::{Action, History, Seen};

use crate::verify;

/// The clock of all clients.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives as long as the call.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(done, 0, "no clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A file that grows.
pub struct Tail {
    file: File,
    /// Of a line that is not complete yet.
    rest: Vec<u8>,
    events: Vec<Json>,
    /// Calls that have not returned: when, and if it writes, the key.
    open: HashMap<(u64, u64), (u64, Option<String>)>,
    /// By session and key: the last acknowledged write, when it was called and when it returned.
    written: HashMap<(u64, String), (u64, u64)>,
}

impl Tail {
    pub fn open(path: &Path) -> Tail {
        File::create(path).expect("a file");
        Tail {
            file: File::open(path).expect("a file"),
            rest: Vec::new(),
            events: Vec::new(),
            open: HashMap::new(),
            written: HashMap::new(),
        }
    }

    /// What has come since.
    pub fn read(&mut self) {
        self.file.read_to_end(&mut self.rest).expect("a file");
        let end = self.rest.iter().rposition(|&byte| byte == b'\n');
        let Some(end) = end else {
            return;
        };
        let complete: Vec<u8> = self.rest.drain(..=end).collect();
        for line in complete
            .split(|&byte| byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            let event: Json = serde_json::from_slice(line)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line)));
            let call = (number(&event, "session"), number(&event, "call"));
            let at = number(&event, "at");
            if let Some(op) = event["op"].as_str() {
                let key = event["key"].as_str().map(str::to_owned);
                self.open
                    .insert(call, (at, key.filter(|_| !op.starts_with("GET"))));
            } else if let Some((called, Some(key))) = self.open.remove(&call)
                && event["fate"] == "done"
            {
                self.written.insert((call.0, group_of(&key)), (called, at));
            }
            self.events.push(event);
        }
    }

    /// Whether a write to a group that began after `since` was acknowledged.
    pub fn has_written(&mut self, session: u32, group: &str, since: u64) -> bool {
        self.read();
        let last = self.written.get(&(session.into(), group.into()));
        last.is_some_and(|&(called, _)| called >= since)
    }

    /// How long after `since` the last of its groups was written.
    pub fn all_written(&self, session: u32, groups: &[String], since: u64) -> Duration {
        let written = groups
            .iter()
            .filter_map(|group| self.first_written(session, group, since));
        Duration::from_nanos(written.max().unwrap_or(since) - since)
    }

    fn first_written(&self, session: u32, group: &str, since: u64) -> Option<u64> {
        let mut called = HashMap::new();
        for event in &self.events {
            if number(event, "session") != u64::from(session) || number(event, "at") < since {
                continue;
            }
            let call = number(event, "call");
            match event["op"].as_str() {
                Some(op) if !op.starts_with("GET") => {
                    let key = event["key"].as_str().unwrap_or_default();
                    called.insert(call, group_of(key) == group);
                }
                Some(_) => {}
                None if event["fate"] == "done" && called.get(&call) == Some(&true) => {
                    return Some(number(event, "at"));
                }
                None => {}
            }
        }
        None
    }

    pub fn last_lines(&self, session: u32) -> String {
        let of_session = self.events.iter().rev();
        let of_session = of_session.filter(|it| number(it, "session") == u64::from(session));
        let lines: Vec<String> = of_session.take(20).map(Json::to_string).collect();
        lines.join("\n")
    }

    pub fn events(self) -> Vec<Json> {
        self.events
    }
}

/// A key without its kind.
fn group_of(key: &str) -> String {
    key[..key.len() - 1].to_owned()
}

fn number(event: &Json, name: &str) -> u64 {
    let number = event[name].as_u64();
    number.unwrap_or_else(|| panic!("no {name} in {event}"))
}

/// What all clients saw together.
#[derive(Default)]
pub struct Found {
    pub history: History,
    /// Keys of sets and their members: those somebody tried to add, and those that were acknowledged.
    pub tried: BTreeSet<(String, String)>,
    pub added: BTreeSet<(String, String)>,
    pub surprises: Vec<String>,
    /// Why calls were refused or are unknown, by the first words, with their number.
    pub reasons: BTreeMap<String, usize>,
}

pub fn merge(mut events: Vec<Json>) -> Found {
    // At one moment calls are first: what overlaps is not ordered by chance.
    events.sort_by_key(|event| (number(event, "at"), event["op"].is_null()));
    let mut found = Found::default();
    let mut open: HashMap<(u64, u64), Open> = HashMap::new();
    for event in &events {
        let call = (number(event, "session"), number(event, "call"));
        if event["op"].is_string() {
            open.insert(call, found.called(event, call.0 as u32));
        } else {
            let open = open.remove(&call);
            found.returned(event, open.expect("it was called"));
        }
    }
    found
}

enum Open {
    Call(usize, String),
    Member(String, String),
}

impl Found {
    fn called(&mut self, event: &Json, session: u32) -> Open {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let (key, value) = (text("key"), text("value"));
        let action = match text("op").as_str() {
            "GET" => Action::Get,
            "SET" => Action::Set(value),
            "SWAP" => Action::Swap(value),
            "APPEND" => Action::Append(value),
            "INCR" => Action::Incr,
            "GETDEL" => Action::Take,
            "SADD" => {
                self.tried.insert((key.clone(), value.clone()));
                return Open::Member(key, value);
            }
            other => panic!("what is {other}?"),
        };
        let call = self.history.call(session, vec![(key.clone(), action)]);
        Open::Call(call, key)
    }

    fn returned(&mut self, event: &Json, open: Open) {
        let fate = event["fate"].as_str().unwrap_or_default();
        if fate != "done" {
            let why = event["why"].as_str().unwrap_or_default();
            let words: Vec<&str> = why.split([' ', ':']).take(3).collect();
            *self.reasons.entry(words.join(" ")).or_default() += 1;
            if fate == "surprise" {
                self.surprises.push(event.to_string());
            }
        }
        match (open, fate) {
            (Open::Member(key, member), "done") => {
                self.added.insert((key, member));
            }
            (Open::Member(..), _) => {}
            (Open::Call(call, key), "done") => {
                let action = self.history.calls[call].parts[0].action.clone();
                match seen(&key, &action, &event["seen"]) {
                    Some(seen) => self.history.done(call, vec![seen]),
                    None => self.surprises.push(format!("{action:?}: {event}")),
                }
            }
            (Open::Call(call, _), "refused") => self.history.refused(call),
            (Open::Call(call, _), _) => self.history.unknown(call),
        }
    }
}

/// What a reply tells; none, if it is not one of this command.
fn seen(key: &str, action: &Action, reply: &Json) -> Option<Seen> {
    Some(match (action, reply) {
        (Action::Set(_), Json::Null) => Seen::Nothing,
        (Action::Incr | Action::Append(_), Json::Number(number)) => Seen::Number(number.as_i64()?),
        (Action::Get, Json::Number(number)) if verify::is_counter(key) => {
            Seen::Number(number.as_i64()?)
        }
        (Action::Get | Action::Swap(_) | Action::Take, Json::Null) => Seen::Text(None),
        (Action::Get | Action::Swap(_) | Action::Take, Json::String(text)) => {
            Seen::Text(Some(text.clone()))
        }
        _ => return None,
    })
}

#[test]
fn a_stale_read_by_another_client_is_found() {
    let event = |at: u64, session: u32, rest: &str| -> Json {
        serde_json::from_str(&format!(
            r#"{{"at":{at},"session":{session},"call":1,{rest}}}"#
        ))
        .expect("JSON")
    };
    let by = |read_at: u64, seen: &str| {
        let events = vec![
            event(read_at + 5, 200, &format!(r#""fate":"done","seen":{seen}"#)),
            event(read_at, 200, r#""op":"GET","key":"kr""#),
            event(20, 100, r#""fate":"done","seen":null"#),
            event(10, 100, r#""op":"SET","key":"kr","value":"a""#),
        ];
        sim::check::linear::check(&merge(events).history)
    };
    assert_eq!(by(15, "null"), Ok(0), "at the same time");
    assert_eq!(by(25, r#""a""#), Ok(0));
    assert!(by(25, "null").is_err(), "after it was acknowledged");
}

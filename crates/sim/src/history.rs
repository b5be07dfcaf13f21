//! What the clients did and what they saw, in the order they saw it.
//!
//! A call is one request: one command, or several that happen together. It ends in one of three
//! ways: *done*, with what was seen; *refused*, certainly without effect; *unknown*, for the answer
//! never came, and then it may have happened at any time since, or may never happen.
//!
//! The same records can be made from real clients: nothing here knows of the simulator.

use crate::row_calls::{RowAct, RowCall, RowSeen};

/// What one command does to its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Get,
    Set(String),
    /// `SET key value GET`.
    Swap(String),
    /// `SET key value NX GET`: seen is what was there.
    SetNew(String),
    /// Tokens end with a comma, and each is used once.
    Append(String),
    Incr,
    /// `GETDEL`. All actions that find a value tell it, so a value nobody saw had no effect on others.
    Take,
    /// A token, used once, is put into a set or a list.
    Put(String),
    /// Any token is taken out of a set, the first of a list.
    Pull,
    /// All tokens of a set or a list.
    All,
}

impl Action {
    pub fn is_read(&self) -> bool {
        matches!(self, Action::Get | Action::All)
    }

    /// Whether its key is a set or a list of tokens.
    pub fn is_of_pool(&self) -> bool {
        matches!(self, Action::Put(_) | Action::Pull | Action::All)
    }
}

/// What its reply told of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing, or the reply did not come.
    Nothing,
    Text(Option<String>),
    Number(i64),
    Many(Vec<String>),
}

#[derive(Debug, Clone)]
pub struct Part {
    pub key: String,
    pub action: Action,
    pub seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Open,
    Done,
    Refused,
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Call {
    pub session: u32,
    pub parts: Vec<Part>,
    /// Moments of the history's own clock, which moves with each call and each return.
    pub called: u64,
    pub ended: Option<u64>,
    pub fate: Fate,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// Those on rows of tables.
    pub rows: Vec<RowCall>,
    clock: u64,
}

impl History {
    pub fn new() -> History {
        History::default()
    }

    pub fn call(&mut self, session: u32, actions: Vec<(String, Action)>) -> usize {
        self.clock += 1;
        let part = |(key, action)| Part {
            key,
            action,
            seen: Seen::Nothing,
        };
        self.calls.push(Call {
            session,
            parts: actions.into_iter().map(part).collect(),
            called: self.clock,
            ended: None,
            fate: Fate::Open,
        });
        self.calls.len() - 1
    }

    pub fn done(&mut self, call: usize, seen: Vec<Seen>) {
        self.end(call, Fate::Done);
        if let Some(call) = self.calls.get_mut(call) {
            for (part, seen) in call.parts.iter_mut().zip(seen) {
                part.seen = seen;
            }
        }
    }

    pub fn refused(&mut self, call: usize) {
        self.end(call, Fate::Refused);
    }

    pub fn unknown(&mut self, call: usize) {
        self.end(call, Fate::Unknown);
    }

    fn end(&mut self, call: usize, fate: Fate) {
        self.clock += 1;
        if let Some(call) = self.calls.get_mut(call) {
            call.fate = fate;
            call.ended = Some(self.clock);
        }
    }

    pub fn call_row(&mut self, session: u32, key: &str, act: RowAct) -> usize {
        self.clock += 1;
        self.rows.push(RowCall {
            session,
            key: key.into(),
            act,
            seen: None,
            called: self.clock,
            ended: None,
            fate: Fate::Open,
        });
        self.rows.len() - 1
    }

    pub fn row_done(&mut self, call: usize, seen: RowSeen) {
        self.end_row(call, Fate::Done, Some(seen));
    }

    pub fn row_refused(&mut self, call: usize) {
        self.end_row(call, Fate::Refused, None);
    }

    pub fn row_unknown(&mut self, call: usize) {
        self.end_row(call, Fate::Unknown, None);
    }

    fn end_row(&mut self, call: usize, fate: Fate, seen: Option<RowSeen>) {
        self.clock += 1;
        if let Some(call) = self.rows.get_mut(call) {
            (call.fate, call.seen) = (fate, seen);
            call.ended = Some(self.clock);
        }
    }

    pub fn count(&self, fate: Fate) -> usize {
        self.calls.iter().filter(|call| call.fate == fate).count()
    }

    pub fn count_rows(&self, fate: Fate) -> usize {
        self.rows.iter().filter(|call| call.fate == fate).count()
    }
}

/// One call in words.
pub fn describe(call: &Call) -> String {
    let mut text = format!("session {:2}", call.session);
    for part in &call.parts {
        let (key, seen) = (&part.key, &part.seen);
        let action = match &part.action {
            Action::Get => format!("GET {key}"),
            Action::Set(value) => format!("SET {key} {value}"),
            Action::Swap(value) => format!("SET {key} {value} GET"),
            Action::SetNew(value) => format!("SET {key} {value} NX GET"),
            Action::Append(token) => format!("APPEND {key} {token}"),
            Action::Incr => format!("INCR {key}"),
            Action::Take => format!("GETDEL {key}"),
            Action::Put(token) => format!("put {token} into {key}"),
            Action::Pull => format!("pull from {key}"),
            Action::All => format!("all of {key}"),
        };
        let seen = match seen {
            Seen::Nothing => String::new(),
            Seen::Text(None) => " = nil".into(),
            Seen::Text(Some(text)) => format!(" = {text:?}"),
            Seen::Number(number) => format!(" = {number}"),
            Seen::Many(all) => format!(" = {all:?}"),
        };
        text.push_str(&format!("  {action}{seen}"));
    }
    let ended = call.ended.unwrap_or(0);
    format!(
        "{:5}..{ended:5} {:8} {text}",
        call.called,
        format!("{:?}", call.fate)
    )
}

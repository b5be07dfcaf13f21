//! What clients do with rows of tables, what they saw, and what they should have seen.
//!
//! A row has a number `n`, a text `s` and, in some runs from some time on, a number `m`. Texts are unique, so are the versions of
//! a row. [`judge`] is all a row is to a client, with no cache, log or database: what every call answers, and what it leaves.
//!
//! A call with a request number may be tried again when no answer came: all its tries are one call.

use std::sync::Arc;

use crate::history::Fate;

/// The fields a table begins with, and the one that may come; their defaults are in [`Shown::new`].
pub const FIELDS: &str = "n:int64=5,s:string='x'";
pub const LATER: &str = "m:int64=7";
pub const TABLE: &str = "t";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    N,
    S,
    M,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::N => "n",
            Column::S => "s",
            Column::M => "m",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowAct {
    /// What SQL had before all began.
    Begin(RowState),
    Get,
    Set {
        text: Arc<str>,
        expect: Option<i64>,
    },
    SetNew {
        text: Arc<str>,
    },
    Swap {
        when: Arc<str>,
        text: Arc<str>,
    },
    Incr {
        column: Column,
        by: i64,
        expect: Option<i64>,
    },
    Del {
        expect: Option<i64>,
    },
    HGet(Column),
    HSet {
        text: Arc<str>,
    },
    HIncr {
        by: i64,
    },
    /// `DEL`.
    HDel,
}

/// A row that is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shown {
    pub n: i64,
    pub s: Arc<str>,
    pub m: i64,
}

impl Shown {
    fn new() -> Shown {
        Shown {
            n: 5,
            s: "x".into(),
            m: 7,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RowState {
    pub version: i64,
    pub row: Option<Shown>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowSeen {
    Row {
        status: &'static str,
        version: i64,
        shown: Option<Shown>,
    },
    Text(Option<Arc<str>>),
    Number(i64),
}

#[derive(Debug, Clone)]
pub struct RowCall {
    pub session: u32,
    pub key: String,
    pub act: RowAct,
    pub seen: Option<RowSeen>,
    /// Moments of the history's clock.
    pub called: u64,
    pub ended: Option<u64>,
    pub fate: Fate,
}

impl RowAct {
    pub fn is_read(&self) -> bool {
        matches!(self, RowAct::Get | RowAct::HGet(_))
    }

    /// The command, with the number of the request if it has one.
    pub fn words(&self, key: &str, request: Option<(u32, u64)>) -> Vec<Vec<u8>> {
        let with = |expect: &Option<i64>| {
            let expect = expect.map_or(String::new(), |version| format!(" VERSION {version}"));
            let request = request.map_or(String::new(), |(client, number)| {
                format!(" REQUEST {:032x} {number}", client + 1)
            });
            format!("{expect}{request} RETURN ALL")
        };
        let text = match self {
            RowAct::Begin(_) | RowAct::Get => format!("ROW.GET {key}"),
            RowAct::Set { text, expect } => {
                format!("ROW.SET {key}{} FIELDS 1 s {text}", with(expect))
            }
            RowAct::SetNew { text } => format!("ROW.SETNX {key}{} FIELDS 1 s {text}", with(&None)),
            RowAct::Swap { when, text } => {
                let with = with(&None);
                format!("ROW.CAS {key}{with} WHEN 1 s {when} FIELDS 1 s {text}")
            }
            RowAct::Incr { column, by, expect } => {
                format!("ROW.INCRBY {key} {} {by}{}", column.name(), with(expect))
            }
            RowAct::Del { expect } => format!("ROW.DEL {key}{}", with(expect)),
            RowAct::HGet(column) => format!("HGET {key} {}", column.name()),
            RowAct::HSet { text } => format!("HSET {key} s {text}"),
            RowAct::HIncr { by } => format!("HINCRBY {key} n {by}"),
            RowAct::HDel => format!("DEL {key}"),
        };
        text.split(' ').map(|word| word.into()).collect()
    }

    /// What a reply tells; `None` if it is no answer to this.
    pub fn read_reply(&self, reply: &[u8]) -> Option<RowSeen> {
        let text = std::str::from_utf8(reply).ok()?;
        let mut lines = text.split("\r\n");
        let first = lines.next()?;
        match (first.as_bytes().first()?, self) {
            (b':', RowAct::HSet { .. } | RowAct::HIncr { .. } | RowAct::HDel) => {
                Some(RowSeen::Number(first.get(1..)?.parse().ok()?))
            }
            (b'$', RowAct::HGet(_)) => Some(RowSeen::Text(match first {
                "$-1" => None,
                _ => Some(lines.next()?.into()),
            })),
            (b'*', _) => {
                let status = lines.next()?.strip_prefix('+')?;
                let all = [
                    "ok",
                    "version_mismatch",
                    "exist",
                    "not_exist",
                    "unchanged",
                    "cas_not_equal",
                ];
                let status = all.into_iter().find(|it| *it == status)?;
                let version = lines.next()?.strip_prefix(':')?.parse().ok()?;
                lines.next()?;
                let words: Vec<&str> = lines.filter(|it| !it.starts_with('$')).collect();
                let mut shown = None;
                for pair in words.chunks_exact(2) {
                    let row = shown.get_or_insert_with(Shown::new);
                    match pair[0] {
                        "n" => row.n = pair[1].parse().ok()?,
                        "m" => row.m = pair[1].parse().ok()?,
                        "s" => row.s = pair[1].into(),
                        _ => return None,
                    }
                }
                Some(RowSeen::Row {
                    status,
                    version,
                    shown,
                })
            }
            _ => None,
        }
    }
}

/// What a call should see of a row, and what it leaves.
pub fn judge(state: &RowState, act: &RowAct) -> (RowSeen, RowState) {
    let told = |status, state: &RowState| RowSeen::Row {
        status,
        version: state.version,
        shown: state.row.clone(),
    };
    let stays = |seen| (seen, state.clone());
    let changed = |row: Shown| RowState {
        version: state.version.abs() + 1,
        row: Some(row),
    };
    let gone = || RowState {
        version: -(state.version.abs() + 1),
        row: None,
    };
    if let RowAct::Set { expect, .. } | RowAct::Incr { expect, .. } | RowAct::Del { expect } = act
        && expect.is_some_and(|version| version != state.version)
    {
        return stays(told("version_mismatch", state));
    }
    let now = state.row.clone();
    let base = now.clone().unwrap_or_else(Shown::new);
    let with_text = |text: &Arc<str>| {
        changed(Shown {
            s: text.clone(),
            ..base.clone()
        })
    };
    let ok = |next: RowState| (told("ok", &next), next);
    match act {
        RowAct::Begin(begin) => (told("ok", begin), begin.clone()),
        RowAct::Get => match now {
            Some(_) => stays(told("ok", state)),
            None => stays(told("not_exist", state)),
        },
        RowAct::Set { text, .. } => ok(with_text(text)),
        RowAct::SetNew { .. } if now.is_some() => stays(told("exist", state)),
        RowAct::SetNew { text } => ok(with_text(text)),
        RowAct::Swap { .. } | RowAct::Del { .. } if now.is_none() => {
            stays(told("not_exist", state))
        }
        RowAct::Swap { when, .. } if *when != base.s => stays(told("cas_not_equal", state)),
        RowAct::Swap { text, .. } => ok(with_text(text)),
        RowAct::Incr { column, by, .. } => {
            let mut row = base;
            match column {
                Column::M => row.m += by,
                _ => row.n += by,
            }
            ok(changed(row))
        }
        RowAct::Del { .. } => ok(gone()),
        RowAct::HGet(column) => stays(RowSeen::Text(now.map(|row| match column {
            Column::N => row.n.to_string().into(),
            Column::M => row.m.to_string().into(),
            Column::S => row.s,
        }))),
        RowAct::HSet { text } => (RowSeen::Number(now.is_none().into()), with_text(text)),
        RowAct::HIncr { by } => {
            let n = base.n + by;
            (RowSeen::Number(n), changed(Shown { n, ..base }))
        }
        RowAct::HDel if now.is_none() => stays(RowSeen::Number(0)),
        RowAct::HDel => (RowSeen::Number(1), gone()),
    }
}

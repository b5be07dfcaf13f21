//! What a row is, if there were one copy of it and no cache: every call, what it answers, and the row after it.

use std::sync::Arc;

use crate::client::text;
use crate::wire::Value;

/// Version 0: never there; negative: deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    pub version: i64,
    pub n: i64,
    pub v: Arc<str>,
}

/// As the table is declared.
pub const FIELDS: &str = "n:int64,v:string";

impl Row {
    pub fn missing() -> Row {
        Row::deleted(0)
    }

    pub fn deleted(version: i64) -> Row {
        Row {
            version,
            n: 0,
            v: "".into(),
        }
    }

    fn is_there(&self) -> bool {
        self.version > 0
    }

    fn next(&self) -> i64 {
        self.version.abs() + 1
    }

    fn with_n(&self, n: i64) -> Row {
        Row {
            version: self.next(),
            n,
            v: self.v.clone(),
        }
    }

    fn with_v(&self, v: &Arc<str>) -> Row {
        Row {
            version: self.next(),
            n: self.n,
            v: v.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// ROW.GET
    Read,
    /// HMGET
    Fields,
    /// HSET v
    Put(Arc<str>),
    /// HINCRBY n
    Add(i64),
    /// HINCRBY n and HSET v as a transaction
    Both(i64, Arc<str>),
    /// DEL
    Remove,
    /// ROW.SET v
    Set(Option<i64>, Arc<str>),
    /// ROW.SETNX v
    SetNew(Arc<str>),
    /// ROW.CAS WHEN v FIELDS v
    Swap(Arc<str>, Arc<str>),
    /// ROW.INCRBY n
    Incr(i64),
    /// ROW.DEL
    Del(Option<i64>),
}

/// What a call was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Row(String, Row),
    /// Nothing: no row.
    Fields(Option<(i64, Arc<str>)>),
    Number(i64),
}

impl Told {
    fn of(status: &str, row: &Row) -> Told {
        Told::Row(status.into(), row.clone())
    }
}

impl Act {
    pub fn writes(&self) -> bool {
        !matches!(self, Act::Read | Act::Fields)
    }

    /// Whether it may carry a REQUEST.
    pub fn is_row_write(&self) -> bool {
        matches!(
            self,
            Act::Set(..) | Act::SetNew(_) | Act::Swap(..) | Act::Incr(_) | Act::Del(_)
        )
    }

    /// What it adds to `n`.
    pub fn adds(&self) -> i64 {
        match self {
            Act::Add(by) | Act::Both(by, _) | Act::Incr(by) => *by,
            _ => 0,
        }
    }

    /// What it adds to the version, if it does what it wants.
    pub fn changes(&self) -> i64 {
        match self {
            Act::Read | Act::Fields => 0,
            Act::Both(..) => 2,
            _ => 1,
        }
    }

    pub fn commands(&self, key: &str, request: Option<(&str, u64)>) -> Vec<Vec<String>> {
        let mut options = Vec::new();
        if let Some((client, number)) = request {
            options.extend(["REQUEST".into(), client.to_string(), number.to_string()]);
        }
        if let Act::Set(Some(version), _) | Act::Del(Some(version)) = self {
            options.extend(["VERSION".into(), version.to_string()]);
        }
        let line = |words: &[&str]| words.iter().map(|it| it.to_string()).collect();
        let row = |head: &[&str], tail: &[&str]| {
            let mut words: Vec<String> = line(head);
            words.extend(options.iter().cloned());
            words.extend(["RETURN".into(), "ALL".into()]);
            words.extend(line(tail));
            vec![words]
        };
        match self {
            Act::Read => vec![line(&["ROW.GET", key])],
            Act::Fields => vec![line(&["HMGET", key, "n", "v"])],
            Act::Put(v) => vec![line(&["HSET", key, "v", v])],
            Act::Add(by) => vec![line(&["HINCRBY", key, "n", &by.to_string()])],
            Act::Both(by, v) => vec![
                line(&["HINCRBY", key, "n", &by.to_string()]),
                line(&["HSET", key, "v", v]),
            ],
            Act::Remove => vec![line(&["DEL", key])],
            Act::Set(_, v) => row(&["ROW.SET", key], &["FIELDS", "1", "v", v]),
            Act::SetNew(v) => row(&["ROW.SETNX", key], &["FIELDS", "1", "v", v]),
            Act::Swap(when, v) => row(
                &["ROW.CAS", key],
                &["WHEN", "1", "v", when, "FIELDS", "1", "v", v],
            ),
            Act::Incr(by) => row(&["ROW.INCRBY", key, "n", &by.to_string()], &[]),
            Act::Del(_) => row(&["ROW.DEL", key], &[]),
        }
    }

    /// What the replies tell; none, if they are not of this call.
    pub fn told(&self, replies: &[Value]) -> Option<Told> {
        match (self, replies) {
            (Act::Both(..), [Value::Int(n), Value::Int(0)]) => Some(Told::Number(*n)),
            (Act::Put(_) | Act::Add(_) | Act::Remove, [Value::Int(n)]) => Some(Told::Number(*n)),
            (Act::Fields, [Value::Array(values)]) => match &values[..] {
                [Value::Nil, Value::Nil] => Some(Told::Fields(None)),
                [n, v] => Some(Told::Fields(Some((
                    text(n)?.parse().ok()?,
                    text(v)?.into(),
                )))),
                _ => None,
            },
            (_, [Value::Array(parts)]) => {
                let [status, Value::Int(version), Value::Array(fields)] = &parts[..] else {
                    return None;
                };
                let of = |name: &str| {
                    let mut pairs = fields.chunks(2);
                    let pair = pairs.find(|pair| text(&pair[0]).as_deref() == Some(name))?;
                    text(pair.get(1)?)
                };
                let mut row = Row::deleted(*version);
                if *version > 0 {
                    row.n = of("n")?.parse().ok()?;
                    row.v = of("v")?.into();
                }
                Some(Told::Row(text(status)?, row))
            }
            _ => None,
        }
    }

    /// What it answers on this row, and the row afterwards.
    pub fn on(&self, row: &Row) -> (Told, Row) {
        let same = |told: Told| (told, row.clone());
        let done = |next: Row| (Told::of("ok", &next), next);
        let refused = |status: &str| same(Told::of(status, row));
        match self {
            Act::Set(Some(version), _) | Act::Del(Some(version)) if *version != row.version => {
                refused("version_mismatch")
            }
            Act::Read if row.is_there() => refused("ok"),
            Act::Read => refused("not_exist"),
            Act::Fields => same(Told::Fields(row.is_there().then(|| (row.n, row.v.clone())))),
            Act::Put(v) => (Told::Number(i64::from(!row.is_there())), row.with_v(v)),
            Act::Add(by) => (Told::Number(row.n + by), row.with_n(row.n + by)),
            Act::Both(by, v) => {
                let next = row.with_n(row.n + by).with_v(v);
                (Told::Number(next.n), next)
            }
            Act::Remove if !row.is_there() => same(Told::Number(0)),
            Act::Remove => (Told::Number(1), Row::deleted(-row.next())),
            Act::Set(_, v) => done(row.with_v(v)),
            Act::SetNew(_) if row.is_there() => refused("exist"),
            Act::SetNew(v) => done(row.with_v(v)),
            Act::Swap(..) | Act::Del(_) if !row.is_there() => refused("not_exist"),
            Act::Swap(when, _) if *when != row.v => refused("cas_not_equal"),
            Act::Swap(_, v) => done(row.with_v(v)),
            Act::Incr(by) => done(row.with_n(row.n + by)),
            Act::Del(_) => done(Row::deleted(-row.next())),
        }
    }
}

/// One call of a session, and how it ended.
#[derive(Debug, Clone)]
pub struct Call {
    pub session: usize,
    /// Number of its key.
    pub key: usize,
    pub act: Act,
    pub called: u64,
    /// The moment and the answer; none: it may have happened at any time since.
    pub ended: Option<(u64, Told)>,
}

impl Call {
    pub fn told(&self) -> Option<&Told> {
        self.ended.as_ref().map(|(_, told)| told)
    }
}

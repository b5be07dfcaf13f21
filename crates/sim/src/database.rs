//! The SQL database behind the tables: it keeps its promises (guards, whole statements), and nothing else.
//!
//! ```text
//!   bench ──Statement──► on its way ──► runs: guarded flush, load ──► answer ──► bench
//!              │            │ any time later                 │ half of it, and no answer
//!              └ lost       └ blocked by a lock, refused      └ lost; the bench hears of a time-out
//! ```
//!
//! The one idea: a statement has left its leader for good. It runs whenever it arrives, whoever leads then, and only its
//! guard keeps it from harm. `flush` is the contract of `sqldb`, row by row; what it writes is shown to [`crate::check::written`].

use std::collections::BTreeMap;
use std::sync::Arc;

use table::entry::{Found, RowId};
use table::leader::{Fault, Flush, Read, Wrote};
use table::{Image, Table, Value};

use node::Said;

use crate::bugs::Bug;

/// What a leader asks of the database, and whom the answer is for.
#[derive(Debug, Clone)]
pub struct Statement {
    pub node: u64,
    pub life: u64,
    pub region: u64,
    pub write_back: u64,
    pub number: u64,
    pub ask: Ask,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Load(Arc<Table>, Vec<Arc<str>>),
    Flush(Arc<Table>, Vec<Flush>),
}

impl Ask {
    /// Nothing came of it, or nobody knows.
    pub fn failed(&self, why: &str) -> Said {
        let fault = Fault::Transient(why.into());
        match self {
            Ask::Load(..) => Said::Loaded(Err(fault)),
            Ask::Flush(..) => Said::Flushed(Err(fault)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Well,
    /// Every statement is refused.
    Down,
    /// Somebody holds a lock: statements wait.
    Blocked,
    Slow,
}

/// The columns of a row that differ from their defaults: the same whoever writes them by whatever schema.
pub type Contents = BTreeMap<u16, Value>;

/// What a statement changed.
#[derive(Debug)]
pub struct Wrote1 {
    pub id: RowId,
    pub before: i64,
    pub version: i64,
    pub contents: Contents,
}

pub struct Database {
    pub rows: BTreeMap<RowId, (i64, Contents)>,
    pub health: Health,
    /// Behind a lock.
    pub blocked: Vec<Statement>,
    /// Statements that have not run yet.
    pub under_way: usize,
    /// Newest schema its tables were made for, by table: DDL comes before everything else.
    pub epochs: BTreeMap<u32, u64>,
    bug: Bug,
    pub loads: u64,
    pub flushes: u64,
}

impl Database {
    pub fn new(bug: Bug) -> Database {
        Database {
            rows: BTreeMap::new(),
            health: Health::Well,
            blocked: Vec::new(),
            under_way: 0,
            epochs: BTreeMap::new(),
            bug,
            loads: 0,
            flushes: 0,
        }
    }

    pub fn version(&self, id: &RowId) -> i64 {
        self.rows.get(id).map_or(0, |(version, _)| *version)
    }

    pub fn load(&mut self, table: &Table, keys: &[Arc<str>]) -> Vec<Read> {
        self.loads += 1;
        let one = |key: &Arc<str>| {
            let id = RowId {
                table: table.id,
                key: key.clone(),
            };
            Read::Found(match self.rows.get(&id) {
                None => Found::Missing,
                Some((version, _)) if *version < 0 => Found::Row(Image::deleted(*version)),
                Some((version, contents)) => {
                    let value = |field: &table::Field| {
                        let value = contents.get(&field.id);
                        value.unwrap_or(&field.default).clone()
                    };
                    let values = table.fields.iter().map(value).collect();
                    Found::Row(Image::of_values(table, *version, values))
                }
            })
        };
        keys.iter().map(one).collect()
    }

    /// Writes the rows whose guards hold, as one transaction.
    pub fn flush(&mut self, table: &Table, rows: &[Flush]) -> (Vec<Wrote>, Vec<Wrote1>) {
        self.flushes += 1;
        let mut changes = Vec::new();
        let wrote = rows.iter().map(|row| {
            let id = RowId {
                table: table.id,
                key: row.key.clone(),
            };
            let has = self.version(&id);
            let fits = (row.low..=row.high).contains(&has.unsigned_abs());
            match has == row.version {
                true => return Wrote::Already,
                false if fits || self.bug == Bug::FlushUnguarded => {}
                false => return Wrote::Conflict { sql_version: has },
            }
            let (version, contents) = self.rows.entry(id.clone()).or_default();
            *version = row.version;
            if row.version < 0 {
                contents.clear();
            }
            for (field, value) in table.fields.iter().zip(&row.values) {
                match *value == field.default {
                    true => contents.remove(&field.id),
                    false => contents.insert(field.id, value.clone()),
                };
            }
            changes.push(Wrote1 {
                id,
                before: has,
                version: row.version,
                contents: contents.clone(),
            });
            Wrote::Written
        });
        (wrote.collect(), changes)
    }
}

/// The contents of a cached row, to be compared with those in the database.
pub fn contents_of(table: &Table, image: &Image) -> Contents {
    let set = |field: &table::Field| {
        let value = image.get(field.id)?;
        (*value != field.default).then(|| (field.id, value.clone()))
    };
    table.fields.iter().filter_map(set).collect()
}

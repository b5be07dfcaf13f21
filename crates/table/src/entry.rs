//! What the log of a region says about rows.
//!
//! ```text
//!   leader: decides, proposes ──► log ──► every replica: Rows::apply, the same outcome everywhere
//! ```
//!
//! The one idea: an entry says what was *wanted* or *found out*, never what the row becomes. That is decided when it is
//! applied, against the row as it is then. So an entry may come late: if its time is over it changes nothing.
//!
//! Times are stamps in milliseconds: the clock of the leader that proposed.

use std::sync::Arc;

use crate::amount::Amount;
use crate::image::Image;
use crate::schema::Table;
use crate::value::Value;

mod bytes;

/// A row of a table. Keys are shared between the cache, its indexes and the queues of the leader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    pub table: u32,
    pub key: Arc<str>,
}

impl RowId {
    pub fn new(table: u32, key: &str) -> RowId {
        RowId {
            table,
            key: key.into(),
        }
    }
}

/// Field ids and their values.
pub type Fields = Vec<(u16, Value)>;

#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// The table from now on, unless a newer epoch is known or it was dropped.
    Schema(Table),
    /// The table and all its rows are gone, written back or not.
    Drop {
        table: u32,
    },
    /// What SQL had. Only for rows that are not cached.
    Loaded {
        /// Of the leader that read: what an earlier one read may be older than what was written back since.
        term: u64,
        rows: Vec<(RowId, Found)>,
    },
    Write(Write),
    /// SQL has these.
    Flushed(Vec<Flushed>),
    /// Forget these rows if they are at this version and SQL has it.
    Kick(Vec<(RowId, i64)>),
    Lease {
        lease: Lease,
        /// The holder has led for longer than a lease lasts: whatever the clock of the one before said, his is over.
        waited: bool,
    },
    /// SQL does not take the row.
    Dead(Dead),
    /// The dead letter of this version is to be tried again.
    Retry {
        id: RowId,
        version: i64,
        /// After a conflict: over this version in SQL, whatever put it there.
        over: Option<u64>,
    },
    /// The dead letter of this version, and what waited with it, is given up: the row is what SQL has.
    Discard {
        id: RowId,
        version: i64,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Missing,
    /// A deleted row has a negative version; one put there by somebody else may have version 0.
    Row(Image),
}

/// SQL has `version` (without sign), and with it every change made before `taken`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flushed {
    pub id: RowId,
    pub version: u64,
    pub taken: u64,
}

/// Who may write back, until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    pub holder: u64,
    pub term: u64,
    pub until: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    pub id: RowId,
    /// The version SQL did not take.
    pub version: i64,
    pub kind: DeadKind,
    /// For people; cut at [`WHY_BYTES_MAX`].
    pub why: Box<str>,
}

/// Longest reason kept with a dead letter.
pub const WHY_BYTES_MAX: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadKind {
    /// A constraint, a type, a length.
    Refused,
    /// SQL has a version nobody expected; 0 is no row.
    Conflict { sql_version: i64 },
}

/// One change that a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    pub id: RowId,
    pub op: Op,
    pub expect: Expect,
    /// What the outcome shows of the row.
    pub ask: Ask,
    pub request: Option<Request>,
    /// Of the schema the client or its node knew.
    pub epoch: u64,
    /// Largest image this may make. In the entry, so that all replicas judge by the same number.
    pub row_max: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Merges; a row that is not there begins with the defaults.
    Set(Fields),
    /// Only if there is no row.
    SetNx(Fields),
    /// Only if the row has the values of `when`.
    Cas {
        when: Fields,
        set: Fields,
    },
    /// As `Cas`; a row that is not there is made.
    CasNx {
        when: Fields,
        set: Fields,
    },
    /// Adds; a row that is not there begins with the defaults. Taking away is adding the negation.
    Incr {
        field: u16,
        by: Amount,
    },
    Del,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    #[default]
    Any,
    /// 0 or the negative version of a deleted row: there is none.
    Version(i64),
    Present,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ask {
    #[default]
    Nothing,
    All,
    Fields(Vec<u16>),
}

/// A retry has the numbers of the first try. Numbers of a client grow; at most [`crate::REQUESTS_KEPT`] are open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub client: u128,
    pub number: u64,
}

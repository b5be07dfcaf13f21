//! What only the leader of a region does about its rows: load, write back, evict, let clients wait.
//!
//! ```text
//!   miss ───► Loads ──────► Action::Load ──► owner, SQL ──► on_loaded ──► Propose(Loaded) ──► log ─┐
//!   dirty ──► Writeback ──► Action::Flush ─► owner, SQL ──► on_flushed ─► Propose(Flushed) ─► log ─┤
//!   full ───► Evict ──────────────────────────────────────────────────────► Propose(Kick) ──► log ─┤
//!   time ───► Tenure ─────────────────────────────────────────────────────► Propose(Lease) ─► log ─┤
//!   clients ◄─ Action::Done ◄────────────────────── on_applied ◄───────────────── Rows::apply ◄────┘
//! ```
//!
//! The one idea: nothing here is true until it has come back through the log. This side only remembers what is under way; all of it
//! is thrown away with the office and made anew from [`Rows`] by the next leader.
//!
//! **Contract.** Made when the replica leads *and has applied an entry of its own term*; dropped when it stops leading. The owner puts every
//! [`Action::Propose`] into the log of this term, once and in order: what cannot be taken now is kept, not left out; what is not in the log when
//! the office ends is forgotten. It answers every `Load` and `Flush` once, and calls `turn` every few milliseconds
//! and after any of the other calls.

use std::sync::Arc;

use crate::entry::{Entry, Found, Op, RowId, Write};
use crate::rows::{Applied, Row, Rows, What};
use crate::schema::Table;
use crate::value::Value;

use steady::Steady;

mod backoff;
mod evict;
mod limits;
mod loads;
mod steady;
mod tenure;
mod waits;
mod writeback;

pub use evict::Evict;
pub use limits::Limits;
pub use loads::Loads;
pub use tenure::Tenure;
pub use waits::Waits;
pub use writeback::Writeback;

/// What the owner is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Propose(Entry),
    /// One SELECT; then [`Leader::on_loaded`].
    Load {
        number: u64,
        table: Arc<Table>,
        keys: Vec<Arc<str>>,
    },
    /// One guarded write of many rows; then [`Leader::on_flushed`].
    Flush {
        number: u64,
        table: Arc<Table>,
        rows: Vec<Flush>,
    },
    /// Whoever waits with this ticket goes on.
    Done {
        ticket: u64,
        end: End,
    },
}

/// A row to be written, as `sqldb` takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Flush {
    pub key: Arc<str>,
    pub slot: u16,
    pub version: i64,
    /// The versions, without sign, that SQL may have now.
    pub low: u64,
    pub high: u64,
    /// One per field of the table; none of a deleted row.
    pub values: Vec<Value>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrote {
    Written,
    Already,
    Conflict {
        sql_version: i64,
    },
    Refused {
        why: Box<str>,
    },
    /// Somebody else has locked it: later, and the others need not wait.
    Busy,
}

/// What SQL had of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    Found(Found),
    Unreadable { why: Box<str> },
}

/// Why nothing is known of a whole batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Later it may work.
    Transient(Box<str>),
    /// Somebody must do something about the table.
    Unfit(Box<str>),
}

impl Fault {
    fn why(&self) -> &str {
        match self {
            Fault::Transient(why) | Fault::Unfit(why) => why,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Of a load: look again, the row is cached (or not any more). Of a wait: SQL has it.
    Ready,
    /// Everything is in SQL but these dead letters, of which the first are named.
    Drained {
        dead: usize,
        named: Vec<RowId>,
    },
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The database does not answer.
    Down(Box<str>),
    TimedOut,
    /// Too many wait, or the cache is full.
    Full,
    NoTable,
    /// The row in SQL is none of ours, or the table there does not fit.
    Unreadable(Box<str>),
    /// The row is a dead letter.
    Dead(Box<str>),
    /// The row has no such version; or had, and somebody discarded it.
    NoSuchVersion,
}

/// For `INFO`, `/metrics` and `table status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Age of the oldest change that SQL lacks, dead letters left out.
    pub lag_ms: u64,
    pub dirty: usize,
    pub queued: usize,
    /// Rows of statements under way.
    pub flying: usize,
    pub dead: usize,
    pub rows: usize,
    pub bytes: usize,
    /// Clients that wait for a load.
    pub waiting: usize,
    /// Since the office began.
    pub loads: u64,
    pub loaded: u64,
    pub flushes: u64,
    pub flushed: u64,
    pub kicked: u64,
    /// Of SQL, for loads and for flushes.
    pub faults: u64,
}

#[derive(Debug)]
pub struct Leader {
    limits: Limits,
    clock: Steady,
    tenure: Tenure,
    loads: Loads,
    writeback: Writeback,
    evict: Evict,
    waits: Waits,
}

impl Leader {
    /// Takes office: everything SQL may lack is queued at once. `me` is the replica, `now` its clock.
    pub fn new(limits: Limits, me: u64, term: u64, rows: &Rows, now: u64) -> Leader {
        Leader {
            clock: Steady::new(now),
            tenure: Tenure::new(me, term, now),
            loads: Loads::new(term),
            writeback: Writeback::new(rows, now),
            evict: Evict::default(),
            waits: Waits::default(),
            limits,
        }
    }

    /// What time brings.
    pub fn tick(&mut self, rows: &Rows, now: u64, out: &mut Vec<Action>) {
        let now = self.clock.read(now);
        let has_work = rows.dirty().next().is_some() || rows.bytes() > self.limits.soft_bytes;
        self.tenure.tick(&self.limits, rows, now, has_work, out);
        self.loads.tick(&self.limits, rows, now, out);
        let ours = self.tenure.is_ours(&self.limits, rows, now);
        self.writeback.propose(&self.limits, out);
        if ours {
            let hurry = self.waits.is_any() || rows.bytes() > self.limits.soft_bytes;
            self.writeback.tick(&self.limits, rows, now, hurry, out);
            self.evict.tick(&self.limits, rows, out);
        }
        self.waits.tick(rows, now, out);
    }

    /// The row is not cached: the ticket hears `Done` when it is, or why it will not be. `Err`: at once.
    pub fn want(
        &mut self,
        rows: &Rows,
        id: &RowId,
        ticket: u64,
        deadline: u64,
        now: u64,
    ) -> Result<(), Failure> {
        if !self.has_room(rows) {
            return Err(Failure::Full);
        }
        let now = self.clock.read(now);
        let deadline = self.clock.at(deadline);
        self.loads
            .want(&self.limits, rows, id, ticket, deadline, now)
    }

    /// Whether there is room for more.
    pub fn has_room(&self, rows: &Rows) -> bool {
        rows.bytes() < self.limits.hard_bytes
    }

    /// Whether a write is to be proposed; if not it is answered `Retry(Full)`. Also without room, if it makes nothing larger.
    pub fn takes(&self, rows: &Rows, write: &Write) -> bool {
        match write.op {
            Op::Del => true,
            Op::Incr { field, .. } => {
                let has = |row: &Row| row.image.get(field).is_some();
                rows.get(&write.id).is_some_and(has) || self.has_room(rows)
            }
            _ => self.has_room(rows),
        }
    }

    pub fn on_loaded(
        &mut self,
        rows: &Rows,
        number: u64,
        result: Result<Vec<Read>, Fault>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let now = self.clock.read(now);
        self.loads
            .on_loaded(&self.limits, rows, number, result, now, out);
    }

    pub fn on_flushed(
        &mut self,
        rows: &Rows,
        number: u64,
        result: Result<Vec<Wrote>, Fault>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let now = self.clock.read(now);
        if result.is_ok()
            && let Some(backend) = self.writeback.backend_of(number)
        {
            self.loads.on_alive(backend);
        }
        self.writeback
            .on_flushed(&self.limits, rows, number, result, now, out);
    }

    /// After every entry, in order, with what [`Rows::apply`] returned.
    pub fn on_applied(&mut self, rows: &Rows, applied: &Applied, now: u64, out: &mut Vec<Action>) {
        let now = self.clock.read(now);
        match applied.what {
            What::Nothing | What::Schema | What::Lease => {}
            What::Dropped(table) => {
                self.loads.on_dropped(table, out);
                self.writeback.on_dropped(table);
            }
            What::Kicked => self.evict.on_kicked(rows, &applied.rows),
            What::Loaded => self.loads.on_cached(&applied.rows, out),
            _ => {}
        }
        for id in &applied.rows {
            self.writeback.look(rows, id, applied.what, now);
            self.waits.look(rows, id, out);
        }
    }

    /// `WAITSQL`: done when SQL has the version (without sign) or a newer one.
    pub fn wait_sql(
        &mut self,
        rows: &Rows,
        id: &RowId,
        version: u64,
        ticket: u64,
        deadline: u64,
    ) -> Result<(), End> {
        let deadline = self.clock.at(deadline);
        self.waits
            .sql(&self.limits, rows, id, version, ticket, deadline)
    }

    /// Done when SQL has all that was changed until now (of one table), dead letters left out.
    pub fn drain(
        &mut self,
        rows: &Rows,
        table: Option<u32>,
        ticket: u64,
        deadline: u64,
        now: u64,
    ) -> Result<(), Failure> {
        let (now, deadline) = (self.clock.read(now), self.clock.at(deadline));
        self.waits
            .drain(&self.limits, rows, table, ticket, deadline, now)
    }

    /// Whether this leader may write to SQL now.
    pub fn has_lease(&self, rows: &Rows, now: u64) -> bool {
        self.tenure.is_ours(&self.limits, rows, self.clock.at(now))
    }

    /// Tables that cannot be written back at present, and what the database says.
    pub fn tables_in_trouble(&self) -> impl Iterator<Item = (u32, &str)> {
        self.writeback.troubles()
    }

    /// Backends that are not asked for rows at present, and what they said.
    pub fn backends_down(&self, now: u64) -> impl Iterator<Item = (&str, &str)> {
        self.loads.troubles(self.clock.at(now))
    }

    pub fn numbers(&self, rows: &Rows, now: u64) -> Numbers {
        let now = self.clock.at(now);
        let oldest = rows.dirty().next().map(|(since, _)| since);
        let mut numbers = Numbers {
            lag_ms: oldest.map_or(0, |since| now.saturating_sub(since)),
            dirty: rows.dirty_count(),
            dead: rows.dead_count(),
            rows: rows.len(),
            bytes: rows.bytes(),
            kicked: self.evict.kicked(),
            ..Numbers::default()
        };
        self.loads.count(&mut numbers);
        self.writeback.count(&mut numbers);
        numbers
    }
}

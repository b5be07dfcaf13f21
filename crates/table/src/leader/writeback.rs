//! Writing back: what SQL lacks goes there, many rows per statement, one statement per row at a time.
//!
//! ```text
//!   dirty ──► queued ──linger──► flying ──Written, Already──► settling (Flushed proposed) ──► applied: clean, or queued again
//!               ▲                  │  └──Refused, Conflict──► dying (Dead proposed) ────────► applied: dead letter
//!               └─── fault, Busy ──┘
//! ```
//!
//! The one idea: how a row is guarded says what this leader *knows*. `sure` is what SQL had by its own answer, or by the log; `tried`
//! the newest version a statement without an answer carried. SQL may have anything from the one to the other. A new
//! leader does not know what the one before tried (`doubt`): anything below the row's version.
//!
//! **Invariants.** A row has at most one statement under way. Nothing is sent without the lease. All changes of a row while it waits or
//! flies become one more statement. Rows of a table go in the order in which they became dirty.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use base::slot::slot_of;
use foldhash::fast::FixedState;

use crate::entry::{Dead, DeadKind, Entry, Flushed, RowId};
use crate::rows::{Row, Rows, State, What};
use crate::schema::Table;

use super::backoff::Backoff;
use super::{Action, Fault, Flush, Limits, Numbers, Wrote};

/// When so many rows wait, they wait so many times longer, but no longer than so many milliseconds because of it; fewer in between.
const MANY_ROWS: u64 = 512;
const MANY_TIMES: u64 = 10;
const MANY_MS: u64 = 500;

#[derive(Debug, Default)]
pub struct Writeback {
    /// Never walked but to drop a table: its order is nobody's business.
    owed: HashMap<RowId, Owed, FixedState>,
    queues: BTreeMap<u32, Queue>,
    flying: BTreeMap<u64, Batch>,
    /// Statements under way.
    backends: BTreeMap<String, usize>,
    /// In SQL, to be said in the log.
    confirmed: Vec<Flushed>,
    /// Numbers of statements and of places in queues.
    next: u64,
    /// The table whose turn it is: one that always has something must not keep the others waiting.
    first: u32,
    flying_rows: usize,
    flushes: u64,
    flushed: u64,
    faults: u64,
}

/// A table has its own back-off: one that does not fit must not stop the others.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Place>,
    backoff: Backoff,
    flying: usize,
    /// What the database said last, if it took nothing.
    trouble: Option<Box<str>>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    at: u64,
    key: Arc<str>,
}

#[derive(Debug)]
struct Owed {
    stage: Stage,
    sure: u64,
    tried: u64,
    doubt: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// At this place; other places of the key are void.
    Queued(u64),
    Flying,
    Settling,
    Dying,
}

#[derive(Debug)]
struct Batch {
    table: u32,
    backend: String,
    rows: Vec<Sent>,
    taken: u64,
}

#[derive(Debug)]
struct Sent {
    id: RowId,
    version: i64,
    low: u64,
    high: u64,
    at: u64,
}

/// How long the first of so many rows waits for further changes. Where many are changed, many are changed again: the longer they
/// wait, the less there is to write.
fn linger(limits: &Limits, rows: usize) -> u64 {
    let rows = (rows as u64).min(MANY_ROWS);
    let most = limits.linger.saturating_mul(MANY_TIMES).min(MANY_MS);
    let more = most.saturating_sub(limits.linger);
    limits.linger + more * rows / MANY_ROWS
}

impl Writeback {
    /// Everything dirty is queued: SQL may lack it, or have it without our knowing.
    pub(super) fn new(rows: &Rows, now: u64) -> Writeback {
        let mut all = Writeback::default();
        for (since, id) in rows.dirty() {
            all.owe(id, since.min(now), true);
        }
        all
    }

    fn owe(&mut self, id: &RowId, at: u64, doubt: bool) {
        let number = self.queue(id, at, false);
        let owed = Owed {
            stage: Stage::Queued(number),
            sure: 0,
            tried: 0,
            doubt,
        };
        self.owed.insert(id.clone(), owed);
    }

    fn queue(&mut self, id: &RowId, at: u64, first: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let key = id.key.clone();
        let place = Place { number, at, key };
        let queue = &mut self.queues.entry(id.table).or_default().waiting;
        if first {
            queue.push_front(place);
        } else {
            queue.push_back(place);
        }
        number
    }

    /// Something happened to the row.
    pub(super) fn look(&mut self, rows: &Rows, id: &RowId, what: What, now: u64) {
        let owes = |row: &&Row| row.is_dirty() && row.dead.is_none();
        let Some(row) = rows.get(id).filter(owes) else {
            // what flies comes back and finds nobody waiting
            let flies = |owed: &mut Owed| owed.stage == Stage::Flying;
            if !self.owed.get_mut(id).is_some_and(flies) {
                self.owed.remove(id);
            }
            return;
        };
        let Some(owed) = self.owed.get(id) else {
            // a refused row may have been tried by others before
            let doubt = what == What::Retried { strict: false };
            self.owe(id, now, doubt);
            return;
        };
        let again = match owed.stage {
            Stage::Queued(_) | Stage::Flying => false,
            Stage::Settling => row.version() > owed.sure,
            Stage::Dying => what == What::Dead, // it was not taken as dead
        };
        if again {
            let number = self.queue(id, now, false);
            if let Some(owed) = self.owed.get_mut(id) {
                owed.stage = Stage::Queued(number);
            }
        }
    }

    /// Sends what is due; only while the lease is ours. `hurry`: somebody waits for it.
    pub(super) fn tick(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        now: u64,
        hurry: bool,
        out: &mut Vec<Action>,
    ) {
        let mut tables: Vec<u32> = self.queues.keys().copied().collect();
        let turned = tables.partition_point(|table| *table < self.first);
        tables.rotate_left(turned);
        for id in tables {
            let Some(table) = rows.table(id) else {
                continue;
            };
            while self.may_send(limits, table, now, hurry) {
                let batch = self.take(limits, rows, table);
                if !batch.is_empty() {
                    self.send(table, batch, now, out);
                    self.first = id.saturating_add(1);
                }
            }
        }
    }

    fn may_send(&self, limits: &Limits, table: &Table, now: u64, hurry: bool) -> bool {
        let Some(queue) = self.queues.get(&table.id) else {
            return false;
        };
        let linger = match hurry {
            true if queue.waiting.len() >= limits.flush_rows => 0,
            true => limits.linger,
            false => linger(limits, queue.waiting.len()),
        };
        let due = |first: &Place| first.at.saturating_add(linger) <= now;
        let flying = self.backends.get(&table.backend).copied().unwrap_or(0);
        queue.waiting.front().is_some_and(due)
            && queue.backoff.may_send(now, queue.flying)
            && flying < limits.flush_batches
    }

    fn take(&mut self, limits: &Limits, rows: &Rows, table: &Arc<Table>) -> Vec<(Flush, Sent)> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let Some(queue) = self.queues.get_mut(&table.id) else {
            return batch;
        };
        while batch.len() < limits.flush_rows.max(1) && bytes < limits.flush_bytes {
            let Some(place) = queue.waiting.pop_front() else {
                break;
            };
            let id = RowId {
                table: table.id,
                key: place.key,
            };
            let Some(owed) = self.owed.get_mut(&id) else {
                continue;
            };
            if owed.stage != Stage::Queued(place.number) {
                continue;
            }
            let Some(row) = rows.get(&id).filter(|row| row.dead.is_none()) else {
                self.owed.remove(&id);
                continue;
            };
            let version = row.version();
            let low = row.sql.max(owed.sure);
            if low >= version {
                // SQL has it; the log will say so
                owed.stage = Stage::Settling;
                continue;
            }
            let high = if owed.doubt { version } else { owed.tried };
            let high = high.clamp(low, (version - 1).max(low));
            owed.tried = owed.tried.max(version);
            owed.stage = Stage::Flying;
            bytes += row.size(&id);
            let flush = Flush {
                key: id.key.clone(),
                slot: slot_of(format!("{}:{}", table.name, id.key).as_bytes()),
                version: row.image.version,
                low,
                high,
                values: match row.state {
                    State::Present => row.image.values(table),
                    _ => Vec::new(),
                },
            };
            let sent = Sent {
                version: row.image.version,
                low,
                high,
                at: place.at,
                id,
            };
            batch.push((flush, sent));
        }
        batch
    }

    fn send(
        &mut self,
        table: &Arc<Table>,
        batch: Vec<(Flush, Sent)>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let number = self.next;
        self.next += 1;
        self.flushes += 1;
        self.flying_rows += batch.len();
        *self.backends.entry(table.backend.clone()).or_default() += 1;
        self.queues.entry(table.id).or_default().flying += 1;
        let (rows, sent) = batch.into_iter().unzip();
        out.push(Action::Flush {
            number,
            table: table.clone(),
            rows,
        });
        let batch = Batch {
            table: table.id,
            backend: table.backend.clone(),
            rows: sent,
            taken: now,
        };
        self.flying.insert(number, batch);
    }

    /// Where a statement under way was sent.
    pub(super) fn backend_of(&self, number: u64) -> Option<&str> {
        self.flying.get(&number).map(|batch| batch.backend.as_str())
    }

    pub(super) fn on_flushed(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        number: u64,
        result: Result<Vec<Wrote>, Fault>,
        now: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(batch) = self.flying.remove(&number) else {
            return;
        };
        self.flying_rows -= batch.rows.len();
        if let Some(flying) = self.backends.get_mut(&batch.backend) {
            *flying = flying.saturating_sub(1);
        }
        if rows.table(batch.table).is_none() {
            return; // dropped meanwhile
        }
        let queue = self.queues.entry(batch.table).or_default();
        queue.flying = queue.flying.saturating_sub(1);
        match result {
            Ok(wrote) => {
                queue.backoff.succeeded();
                queue.trouble = None;
                let mut wrote = wrote.into_iter();
                for sent in batch.rows {
                    let id = sent.id.clone();
                    match wrote.next() {
                        Some(Wrote::Busy) => self.later(sent, now),
                        Some(wrote) => self.on_wrote(sent, wrote, batch.taken, out),
                        None => self.again(sent), // not answered: in doubt, like after a fault
                    }
                    self.look(rows, &id, What::Nothing, now);
                }
            }
            Err(fault) => {
                queue.backoff.failed(limits, now);
                queue.trouble = Some(fault.why().into());
                self.faults += 1;
                for sent in batch.rows.into_iter().rev() {
                    let id = sent.id.clone();
                    self.again(sent);
                    self.look(rows, &id, What::Nothing, now);
                }
            }
        }
        self.propose(limits, out);
    }

    /// Nobody knows whether SQL has it: the same place in the queue, and a guard that allows for both.
    fn again(&mut self, sent: Sent) {
        if self.owed.contains_key(&sent.id) {
            let number = self.queue(&sent.id, sent.at, true);
            if let Some(owed) = self.owed.get_mut(&sent.id) {
                owed.stage = Stage::Queued(number);
            }
        }
    }

    /// It was left out: behind all others.
    fn later(&mut self, sent: Sent, now: u64) {
        if self.owed.contains_key(&sent.id) {
            let number = self.queue(&sent.id, now, false);
            if let Some(owed) = self.owed.get_mut(&sent.id) {
                owed.stage = Stage::Queued(number);
            }
        }
    }

    fn on_wrote(&mut self, sent: Sent, wrote: Wrote, taken: u64, out: &mut Vec<Action>) {
        let Some(owed) = self.owed.get_mut(&sent.id) else {
            return;
        };
        let (kind, why) = match wrote {
            Wrote::Written | Wrote::Already => {
                owed.sure = owed.sure.max(sent.version.unsigned_abs());
                owed.doubt = false;
                owed.stage = Stage::Settling;
                self.flushed += 1;
                self.confirmed.push(Flushed {
                    id: sent.id,
                    version: sent.version.unsigned_abs(),
                    taken,
                });
                return;
            }
            Wrote::Busy => return,
            Wrote::Refused { why } => (DeadKind::Refused, why),
            Wrote::Conflict { sql_version } => {
                let expected = match sent.high {
                    0 => "no row".to_owned(),
                    high if high == sent.low => format!("version {high}"),
                    high => format!("version {} to {high}", sent.low),
                };
                let why = format!("SQL has version {sql_version} of this row; expected {expected}");
                (DeadKind::Conflict { sql_version }, why.into())
            }
        };
        owed.stage = Stage::Dying;
        out.push(Action::Propose(Entry::Dead(Dead {
            id: sent.id,
            version: sent.version,
            kind,
            why,
        })));
    }

    /// What SQL has is said in the log.
    pub(super) fn propose(&mut self, limits: &Limits, out: &mut Vec<Action>) {
        while !self.confirmed.is_empty() {
            let count = self.confirmed.len().min(limits.entry_rows.max(1));
            let some = self.confirmed.drain(..count).collect();
            out.push(Action::Propose(Entry::Flushed(some)));
        }
    }

    pub(super) fn on_dropped(&mut self, table: u32) {
        self.owed.retain(|id, _| id.table != table);
        self.confirmed.retain(|flushed| flushed.id.table != table);
        self.queues.remove(&table);
    }

    /// Tables of which the last flush failed, and why.
    pub(super) fn troubles(&self) -> impl Iterator<Item = (u32, &str)> {
        let all = self.queues.iter();
        all.filter_map(|(table, queue)| Some((*table, queue.trouble.as_deref()?)))
    }

    pub(super) fn count(&self, numbers: &mut Numbers) {
        numbers.queued = self.owed.len() - self.flying_rows.min(self.owed.len());
        numbers.flying = self.flying_rows;
        numbers.flushes = self.flushes;
        numbers.flushed = self.flushed;
        numbers.faults += self.faults;
    }
}

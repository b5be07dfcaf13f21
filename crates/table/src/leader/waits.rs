//! Clients that wait for SQL: until it has a version of a row, or all that was changed so far.
//!
//! A drain does not wait for rows changed after it began, or it would never end under load. A dead letter is told at once: nobody
//! knows when it will move.

use std::collections::BTreeMap;

use crate::entry::RowId;
use crate::rows::Rows;

use super::{Action, End, Failure, Limits};

/// Dead letters that a drain names.
const NAMED_MAX: usize = 16;

#[derive(Debug, Default)]
pub struct Waits {
    rows: BTreeMap<RowId, Vec<Wait>>,
    drains: Vec<Wait>,
    count: usize,
    /// The earliest deadline there may be.
    next: Option<u64>,
}

#[derive(Debug)]
struct Wait {
    ticket: u64,
    /// Version of a row, or stamp of a drain.
    upto: u64,
    /// A drain of only this table.
    table: Option<u32>,
    deadline: u64,
}

impl Waits {
    pub(super) fn sql(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        id: &RowId,
        version: u64,
        ticket: u64,
        deadline: u64,
    ) -> Result<(), End> {
        if let Some(end) = end_of(rows, id, version) {
            return Err(end);
        }
        let wait = self
            .wait(limits, version, None, ticket, deadline)
            .map_err(End::Failed)?;
        self.rows.entry(id.clone()).or_default().push(wait);
        Ok(())
    }

    pub(super) fn drain(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        table: Option<u32>,
        ticket: u64,
        deadline: u64,
        now: u64,
    ) -> Result<(), Failure> {
        let wait = self.wait(limits, rows.latest(now), table, ticket, deadline)?;
        self.drains.push(wait);
        Ok(())
    }

    fn wait(
        &mut self,
        limits: &Limits,
        upto: u64,
        table: Option<u32>,
        ticket: u64,
        deadline: u64,
    ) -> Result<Wait, Failure> {
        if self.count >= limits.waiters {
            return Err(Failure::Full);
        }
        self.count += 1;
        self.next = Some(self.next.map_or(deadline, |next| next.min(deadline)));
        Ok(Wait {
            ticket,
            upto,
            table,
            deadline,
        })
    }

    pub(super) fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Something happened to the row.
    pub(super) fn look(&mut self, rows: &Rows, id: &RowId, out: &mut Vec<Action>) {
        let Some(waits) = self.rows.get_mut(id) else {
            return;
        };
        let before = waits.len();
        waits.retain(|wait| match end_of(rows, id, wait.upto) {
            Some(end) => {
                let ticket = wait.ticket;
                out.push(Action::Done { ticket, end });
                false
            }
            None => true,
        });
        self.count -= before - waits.len();
        if waits.is_empty() {
            self.rows.remove(id);
        }
    }

    pub(super) fn tick(&mut self, rows: &Rows, now: u64, out: &mut Vec<Action>) {
        let before = self.drains.len();
        self.drains.retain(|wait| {
            let is_meant = |id: &RowId| wait.table.is_none_or(|table| table == id.table);
            let mut older = rows.dirty().take_while(|(since, _)| *since <= wait.upto);
            if older.any(|(_, id)| is_meant(id)) {
                return true;
            }
            let dead = || rows.dead().map(|(id, _)| id).filter(|id| is_meant(id));
            let end = End::Drained {
                dead: dead().count(),
                named: dead().take(NAMED_MAX).cloned().collect(),
            };
            let ticket = wait.ticket;
            out.push(Action::Done { ticket, end });
            false
        });
        self.count -= before - self.drains.len();
        if self.next.is_some_and(|next| next <= now) {
            self.expire(rows, now, out);
        }
    }

    /// Also looks after rows that went with their table.
    fn expire(&mut self, rows: &Rows, now: u64, out: &mut Vec<Action>) {
        let mut next: Option<u64> = None;
        let mut gone = 0;
        let mut stays = |wait: &Wait, end: Option<End>| {
            let end = match end {
                None if wait.deadline <= now => End::Failed(Failure::TimedOut),
                None => {
                    next = Some(next.map_or(wait.deadline, |next| next.min(wait.deadline)));
                    return true;
                }
                Some(end) => end,
            };
            let ticket = wait.ticket;
            out.push(Action::Done { ticket, end });
            gone += 1;
            false
        };
        self.rows.retain(|id, waits| {
            waits.retain(|wait| stays(wait, end_of(rows, id, wait.upto)));
            !waits.is_empty()
        });
        self.drains.retain(|wait| stays(wait, None));
        self.next = next;
        self.count -= gone;
    }
}

/// What a wait for this version ends with, if it ends.
fn end_of(rows: &Rows, id: &RowId, version: u64) -> Option<End> {
    if rows.table(id.table).is_none() {
        return Some(End::Failed(Failure::NoTable));
    }
    let Some(row) = rows.get(id) else {
        // only what SQL has leaves the cache, unless somebody discarded it
        let forgotten = rows.is_forgotten(id);
        let no = || End::Failed(Failure::NoSuchVersion);
        return Some(if forgotten { no() } else { End::Ready });
    };
    if row.sql >= version {
        return Some(End::Ready);
    }
    if version > row.version() {
        return Some(End::Failed(Failure::NoSuchVersion));
    }
    let dead = row.dead.as_ref()?;
    Some(End::Failed(Failure::Dead(dead.why.clone())))
}

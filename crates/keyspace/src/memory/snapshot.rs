//! A point-in-time save while writes go on, without fork.
//!
//! Every entry has a parity bit. When no snapshot runs, all entries have the keyspace's parity;
//! beginning one flips the keyspace's, so that every entry of that moment differs, in O(1).
//! The walk ([`Keyspace::snapshot_step`]) hands entries out and flips them; new entries are born
//! flipped and so are never part of it. A write that meets an entry not yet flipped first puts it
//! aside here: moved if it is removed or replaced, copied if it is changed in place. A flush puts
//! the whole table aside. What is put aside is handed out before the walk goes on.

use std::collections::VecDeque;

use base::DbIndex;

use super::entry::{Entry, EntryRef};
use super::table::{Position, Table};
use crate::{Garbage, Keyspace, ValueRef};

/// Receives database, key, value and deadline of each saved entry.
pub type SaveEntry<'a> = dyn FnMut(DbIndex, &[u8], ValueRef<'_>, Option<u64>) + 'a;

#[derive(Default)]
pub(crate) struct Snapshot {
    /// Entries put aside by writes, with the database they were in.
    entries: VecDeque<(DbIndex, Entry)>,
    /// Tables put aside by flushes, with how far each was walked.
    tables: Vec<(DbIndex, Table<Entry>, u64)>,
    /// The walk: database (by its number at the beginning) and cursor in it.
    db: DbIndex,
    cursor: u64,
    cancelled: bool,
}

impl Keyspace {
    /// Begins a snapshot of this moment; one still running is given up.
    pub fn begin_snapshot(&mut self) {
        self.cancel_snapshot();
        while !self.snapshot_step(usize::MAX, &mut |_, _, _, _| {}) {}
        for (number, db) in self.dbs.iter_mut().enumerate() {
            db.origin = number as DbIndex;
        }
        self.parity = !self.parity;
        self.snapshot = Some(Box::default());
    }

    /// Whether a snapshot is not yet handed out completely.
    pub fn is_saving(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Gives up the running snapshot: nothing is put aside any more. Its entries still have to be
    /// walked, by calling [`Keyspace::snapshot_step`] to the end or by the next beginning.
    pub fn cancel_snapshot(&mut self) {
        if let Some(snapshot) = &mut self.snapshot
            && !snapshot.cancelled
        {
            snapshot.cancelled = true;
            let entries = std::mem::take(&mut snapshot.entries);
            let tables = std::mem::take(&mut snapshot.tables);
            self.garbage.push(Garbage::new((entries, tables), 0));
        }
    }

    /// Hands out more of the snapshot: about `budget` keys and elements. True when all is done.
    /// Each entry of the moment of [`Keyspace::begin_snapshot`] is handed out exactly once.
    pub fn snapshot_step(&mut self, budget: usize, each: &mut SaveEntry<'_>) -> bool {
        let Some(mut snapshot) = self.snapshot.take() else {
            return true;
        };
        let mut left = budget;
        let done = self.step(&mut snapshot, &mut left, each);
        if !done {
            self.snapshot = Some(snapshot);
        }
        done
    }

    fn step(
        &mut self,
        snapshot: &mut Snapshot,
        left: &mut usize,
        each: &mut SaveEntry<'_>,
    ) -> bool {
        let parity = self.parity;
        while let Some((db, entry)) = snapshot.entries.pop_front() {
            hand_out(db, entry.borrow(), left, each);
            self.dispose(entry);
            if *left == 0 {
                return false;
            }
        }
        while let Some((db, table, cursor)) = snapshot.tables.last_mut() {
            while walk(*db, table, cursor, parity, left, each) {
                if *left == 0 {
                    return false;
                }
            }
            let table = snapshot.tables.pop();
            self.garbage.push(Garbage::new(table, 0));
        }
        while (snapshot.db as usize) < self.dbs.len() {
            if let Some(db) = self.dbs.iter().find(|db| db.origin == snapshot.db) {
                let sink: &mut SaveEntry<'_> = if snapshot.cancelled {
                    &mut |_, _, _, _| {}
                } else {
                    each
                };
                while walk(
                    snapshot.db,
                    &db.table,
                    &mut snapshot.cursor,
                    parity,
                    left,
                    sink,
                ) {
                    if *left == 0 {
                        return false;
                    }
                }
            }
            snapshot.db += 1;
            snapshot.cursor = 0;
        }
        true
    }

    /// Before an entry is changed in place: puts a copy aside if it is not saved yet.
    #[inline]
    pub(crate) fn preserve(&mut self, db: usize, position: Position) {
        if self.snapshot.is_some() {
            self.preserve_slow(db, position);
        }
    }

    fn preserve_slow(&mut self, db: usize, position: Position) {
        let (Some(snapshot), Some(db)) = (&mut self.snapshot, self.dbs.get(db)) else {
            return;
        };
        let Some(entry) = db.table.at(position) else {
            return;
        };
        if entry.parity() != self.parity {
            if !snapshot.cancelled {
                let copy = Entry::copy(entry, entry.birth());
                snapshot.entries.push_back((db.origin, copy));
            }
            entry.set_parity(self.parity);
        }
    }

    /// What becomes of an entry taken out of database `db`: put aside for the snapshot, or freed.
    #[inline]
    pub(crate) fn retire(&mut self, db: usize, entry: Entry) {
        if let Some(snapshot) = &mut self.snapshot
            && !snapshot.cancelled
            && entry.borrow().parity() != self.parity
        {
            let origin = self.dbs.get(db).map_or(0, |db| db.origin);
            snapshot.entries.push_back((origin, entry));
        } else {
            self.dispose(entry);
        }
    }

    /// What becomes of the table of a flushed database.
    pub(crate) fn retire_table(&mut self, origin: DbIndex, table: Table<Entry>) {
        match &mut self.snapshot {
            Some(snapshot) if !snapshot.cancelled => snapshot.tables.push((origin, table, 0)),
            _ => self.garbage.push(Garbage::new(table, 0)),
        }
    }
}

/// Hands out the entries of a table not yet saved, some of them; false at the end of the table.
fn walk(
    db: DbIndex,
    table: &Table<Entry>,
    cursor: &mut u64,
    parity: bool,
    left: &mut usize,
    each: &mut SaveEntry<'_>,
) -> bool {
    *left = left.saturating_sub(1);
    *cursor = table.scan(*cursor, 16, |entry| {
        if entry.parity() != parity {
            entry.set_parity(parity);
            hand_out(db, entry, left, each);
        }
    });
    *cursor != 0
}

fn hand_out(db: DbIndex, entry: EntryRef<'_>, left: &mut usize, each: &mut SaveEntry<'_>) {
    *left = left.saturating_sub(1 + entry.elements().unwrap_or(0));
    each(db, entry.key(), entry.value(), entry.deadline_ms());
}

//! Applying an entry: total, guarded, deterministic.
//!
//! Every entry can be applied to every state. What does not fit (a late load, a kick of a dirty row, a flush nobody waits for)
//! changes nothing. The index guards against the whole entry twice, the guards below against its meaning twice.

use crate::entry::{Dead, DeadKind, Entry, Flushed, Found, Lease, RowId};
use crate::image::Image;
use crate::outcome::Outcome;
use crate::schema::Table;

use super::row::DeadLetter;
use super::store::{Change, Place};
use super::{Row, Rows, State, Tab};

/// What an entry did, for the owner (answer) and for the leader (go on).
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    pub what: What,
    /// The rows it was about, changed or not. Of a write only a row that was clean: what is dirty already is no news to the leader.
    pub rows: Vec<RowId>,
    /// Of a write.
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Applied before.
    Nothing,
    Schema,
    Dropped(u32),
    Loaded,
    Written,
    Flushed,
    Kicked,
    Lease,
    Dead,
    /// `strict`: only over exactly what SQL is known to have.
    Retried {
        strict: bool,
    },
    Discarded,
}

impl Applied {
    fn nothing() -> Applied {
        Applied {
            what: What::Nothing,
            rows: Vec::new(),
            outcome: None,
        }
    }
}

impl Rows {
    /// [`Rows::run`] for an owner that does not guard against an entry twice itself.
    pub fn apply(&mut self, index: u64, stamp: u64, entry: Entry) -> Applied {
        if index <= self.applied {
            return Applied::nothing();
        }
        self.applied = index;
        self.run(stamp, entry)
    }

    /// `stamp`: the clock of the leader that proposed the entry, in milliseconds, as it is written in the log.
    pub fn run(&mut self, stamp: u64, entry: Entry) -> Applied {
        let mut done = Applied::nothing();
        let stamp = self.stamp(stamp);
        done.what = match entry {
            Entry::Schema(table) => {
                self.schema(table);
                What::Schema
            }
            Entry::Drop { table } => {
                self.drop_table(table);
                What::Dropped(table)
            }
            Entry::Loaded { term, rows } => {
                for (id, found) in rows {
                    if term >= self.lease.term {
                        self.loaded(stamp, &id, found);
                    }
                    done.rows.push(id);
                }
                What::Loaded
            }
            Entry::Write(write) => {
                let id = write.id.clone();
                let (outcome, is_new) = self.write(stamp, write);
                done.rows.extend(is_new.then_some(id));
                done.outcome = Some(outcome);
                What::Written
            }
            Entry::Flushed(rows) => {
                for row in rows {
                    self.flushed(&row);
                    done.rows.push(row.id);
                }
                What::Flushed
            }
            Entry::Kick(rows) => {
                for (id, version) in rows {
                    self.kick(&id, version);
                    done.rows.push(id);
                }
                What::Kicked
            }
            Entry::Lease { lease, waited } => {
                self.give_lease(stamp, lease, waited);
                What::Lease
            }
            Entry::Dead(dead) => {
                done.rows.push(dead.id.clone());
                self.bury(dead);
                What::Dead
            }
            Entry::Retry { id, version, over } => {
                let strict = self.retry(&id, version, over);
                done.rows.push(id);
                What::Retried { strict }
            }
            Entry::Discard { id, version } => {
                self.discard(&id, version);
                done.rows.push(id);
                What::Discarded
            }
        };
        done
    }

    /// What counts as this stamp.
    pub(super) fn stamp(&self, stamp: u64) -> u64 {
        stamp.max(self.now).max(1) // 0 is "clean"
    }

    fn put(&mut self, id: &RowId, mut row: Row) {
        self.unsaved.note(id, &mut row);
        self.place(id, Some(row));
    }

    fn schema(&mut self, table: Table) {
        let id = table.id;
        let newer = |tab: &Tab| tab.schema.epoch >= table.epoch;
        if self.dropped.contains(&id) || self.tables.get(&id).is_some_and(newer) {
            return;
        }
        self.unsaved
            .push(Change::Put(Place::Schema(id), table.encode()));
        match self.tables.get_mut(&id) {
            // values of dropped fields go when their row is written next
            Some(tab) => tab.schema = table.into(),
            None => {
                self.tables.insert(id, Tab::new(table));
            }
        }
    }

    fn drop_table(&mut self, table: u32) {
        if self.dropped.contains(&table) {
            return;
        }
        self.unsaved.push(Rows::put_dropped(table));
        if self.remove_table(table) {
            self.unsaved.push(Change::Remove(Place::Schema(table)));
            self.unsaved.push(Change::RemoveRows(table));
        }
    }

    /// Whether there was such a table.
    pub(super) fn remove_table(&mut self, table: u32) -> bool {
        self.dropped.insert(table);
        let Some(tab) = self.tables.remove(&table) else {
            return false;
        };
        self.dirty.retain(|(_, id)| id.table != table);
        self.dead.retain(|id| id.table != table);
        self.unsaved.forget_table(table);
        self.count -= tab.rows.len();
        for (key, row) in tab.rows.iter() {
            let key = key.clone();
            self.bytes -= row.size(&RowId { table, key });
        }
        true
    }

    fn loaded(&mut self, stamp: u64, id: &RowId, found: Found) {
        let (mut state, mut image) = match found {
            Found::Missing => (State::Absent, Image::default()),
            Found::Row(image) if image.is_deleted() => (State::Absent, image),
            Found::Row(image) => (State::Present, image),
        };
        if image.version == i64::MIN || !self.tables.contains_key(&id.table) {
            return; // no version of ours; no table to be cached in
        }
        let row = match self.slot(id) {
            None => Row::clean(state, image),
            Some(old) if old.state != State::Forgotten => return,
            Some(old) if old.version() < image.version.unsigned_abs() => Row::clean(state, image),
            Some(old) => {
                // SQL is older than what was given up. Its contents go on, but above every version a late statement may carry.
                let sql = image.version.unsigned_abs();
                let Ok(next) = i64::try_from(old.version() + 1) else {
                    return;
                };
                match state {
                    State::Present => image.version = next,
                    _ => (state, image) = (State::Absent, Image::deleted(next)),
                }
                Row {
                    sql,
                    since: stamp,
                    ..Row::clean(state, image)
                }
            }
        };
        self.put(id, row);
    }

    fn flushed(&mut self, flushed: &Flushed) {
        let _ = self.change(&flushed.id, (), |_, row| {
            if flushed.version <= row.sql || flushed.version > row.version() {
                return Err(());
            }
            row.sql = flushed.version;
            if row.is_dirty() {
                row.since = row.since.max(flushed.taken);
            } else {
                row.since = 0;
            }
            let sql = row.sql;
            row.dead = row
                .dead
                .take()
                .filter(|dead| dead.version.unsigned_abs() > sql);
            Ok(())
        });
    }

    fn kick(&mut self, id: &RowId, version: i64) {
        let may_go = |row: &Row| row.image.version == version && !row.is_dirty();
        if self.get(id).is_some_and(may_go)
            && let Some(gone) = self.place(id, None)
        {
            self.unsaved.note_gone(id, &gone);
        }
    }

    fn give_lease(&mut self, stamp: u64, lease: Lease, waited: bool) {
        let free = self.lease.holder == lease.holder || stamp >= self.lease.until || waited;
        if lease.term >= self.lease.term && free {
            self.lease = lease;
            self.now = stamp;
            self.unsaved
                .push(Change::Put(Place::Lease, self.encode_lease()));
        }
    }

    fn bury(&mut self, dead: Dead) {
        let Some(row) = self.get(&dead.id) else {
            return;
        };
        // SQL has it or a newer one by now, or it is no version this row had
        let version = dead.version.unsigned_abs();
        if row.dead.is_some() || version <= row.sql || version > row.version() {
            return;
        }
        let id = dead.id.clone();
        let mut row = row.clone();
        row.dead = Some(Box::new(DeadLetter::of(dead)));
        self.put(&id, row);
    }

    /// The row, if it has the dead letter of this version.
    fn letter(&self, id: &RowId, version: i64) -> Option<Row> {
        let row = self.slot(id)?;
        let it = |dead: &DeadLetter| dead.version == version;
        row.dead.as_deref().is_some_and(it).then(|| row.clone())
    }

    /// Whether only what is known of SQL may be written over: so after a conflict, or it would be no conflict.
    fn retry(&mut self, id: &RowId, version: i64, over: Option<u64>) -> bool {
        let Some(mut row) = self.letter(id, version) else {
            return false;
        };
        let refused = |dead: &DeadLetter| dead.kind == DeadKind::Refused;
        let strict = !row.dead.as_deref().is_some_and(refused);
        // what SQL has was no reason to refuse; and it may have what was tried without an answer
        if let Some(over) = over.filter(|_| strict) {
            // above what is there, because versions in SQL never go back
            let above = over.saturating_add(1).max(row.version());
            let Ok(above) = i64::try_from(above) else {
                return false;
            };
            row.image.version = if row.state == State::Present {
                above
            } else {
                -above
            };
            row.sql = over;
        }
        row.dead = None;
        self.put(id, row);
        strict
    }

    fn discard(&mut self, id: &RowId, version: i64) {
        let Some(row) = self.letter(id, version) else {
            return;
        };
        // a deleted row has no fields, and neither has a forgotten one
        let mut image = Image::default();
        image.version = row.image.version.saturating_abs();
        let forgotten = Row {
            sql: 0,
            ..Row::clean(State::Forgotten, image)
        };
        self.put(id, forgotten);
    }
}

//! The cached rows of a region: a state machine that every replica runs over the same log.
//!
//! ```text
//!                  Loaded                         Write                      Flushed
//!   (not cached) ─────────► clean, sql = version ───────► dirty, sql < version ───────► clean
//!        ▲                        │                          │  ▲
//!        └──────── Kick ──────────┘                     Dead ▼  │ Retry
//!                                                        dead letter ──Discard──► forgotten ──Loaded──► …
//! ```
//!
//! The one idea: what the cache owes to SQL is a number per row. `sql` is the version, without sign, that SQL is known to
//! have; a row is *dirty* while that is less than its own. Nothing else decides whether it must be written or may go.
//!
//! **Invariants.** `sql` never exceeds the row's version. A dirty row leaves only with its table, or when somebody discards
//! it by name. `dirty` has exactly the dirty rows that are no dead letters, `dead` those that are. Everything but
//! `heat` is a function of the log: two replicas at the same index are equal, and equal to what is rebuilt from the stored bytes.
//!
//! Rows are read here, changed by [`Rows::apply`], and stored as [`Rows::take_changes`] and [`Rows::save`] say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::entry::{Ask, Fields, Lease, RowId};
use crate::outcome::{Cause, Outcome};
use crate::schema::Table;

mod answers;
mod apply;
mod keyed;
mod row;
mod store;
mod unsaved;
mod write;

pub use answers::{ANSWERS_BYTES_MAX, CLIENT_BYTES_MAX, REQUESTS_KEPT};
pub use apply::{Applied, What};
pub use row::{DeadLetter, Row, State};
pub use store::{Change, Place};

use answers::Answers;
use keyed::Keyed;
use unsaved::Unsaved;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows {
    /// Index of the last entry applied. What is not above it is not applied again.
    applied: u64,
    /// Stamp of the last lease: earlier stamps count as this one, so that a clock that lags makes no row older than it is.
    now: u64,
    tables: BTreeMap<u32, Tab>,
    /// Ids are not used again: what comes late about one of these is for nobody.
    dropped: BTreeSet<u32>,
    /// Dirty rows by the stamp of the first change that SQL lacks.
    dirty: BTreeSet<(u64, RowId)>,
    dead: BTreeSet<RowId>,
    answers: Answers,
    lease: Lease,
    bytes: usize,
    count: usize,
    unsaved: Unsaved,
}

#[derive(Debug, Clone, PartialEq)]
struct Tab {
    schema: Arc<Table>,
    rows: Keyed,
    /// How many of them are in the two indexes.
    dirty: usize,
    dead: usize,
}

impl Tab {
    fn new(schema: Table) -> Tab {
        Tab {
            schema: schema.into(),
            rows: Keyed::default(),
            dirty: 0,
            dead: 0,
        }
    }

    /// Where rows of an index are counted.
    fn count_of(&mut self, owes: Owes) -> Option<&mut usize> {
        match owes {
            Owes::Nothing => None,
            Owes::Since(_) => Some(&mut self.dirty),
            Owes::Dead => Some(&mut self.dead),
        }
    }
}

/// How many rows of a table are cached, and how many of these SQL lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub rows: usize,
    /// Dead letters left out.
    pub dirty: usize,
    pub dead: usize,
}

impl Rows {
    pub fn new() -> Rows {
        Rows::default()
    }

    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The latest stamp a row or lease has, or `clock` if that is later. What waits for rows begins here, because the
    /// clock of the leader before may have been ahead.
    pub fn latest(&self, clock: u64) -> u64 {
        let dirty = self.dirty.last().map_or(0, |(since, _)| *since);
        clock.max(self.now).max(dirty)
    }

    pub fn lease(&self) -> Lease {
        self.lease
    }

    pub fn table(&self, id: u32) -> Option<&Arc<Table>> {
        self.tables.get(&id).map(|tab| &tab.schema)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().map(|tab| &tab.schema)
    }

    /// The row, if it is cached. A forgotten one is not.
    pub fn get(&self, id: &RowId) -> Option<&Row> {
        self.slot(id).filter(|row| row.state != State::Forgotten)
    }

    /// Whether [`Rows::get`] finds it.
    pub fn is_cached(&self, table: u32, key: &str) -> bool {
        let row = self.tables.get(&table).and_then(|tab| tab.rows.get(key));
        row.is_some_and(|row| row.state != State::Forgotten)
    }

    /// Its last changes were discarded, and it was not loaded since.
    pub fn is_forgotten(&self, id: &RowId) -> bool {
        self.slot(id)
            .is_some_and(|row| row.state == State::Forgotten)
    }

    /// The row in whatever state.
    fn slot(&self, id: &RowId) -> Option<&Row> {
        self.tables.get(&id.table)?.rows.get(&id.key)
    }

    /// What a read is answered. `have`: the version the client has, if he has one.
    pub fn read(&self, id: &RowId, ask: &Ask, have: Option<i64>) -> Outcome {
        let Some(table) = self.table(id.table) else {
            return Outcome::error("ERR no such table");
        };
        let Some(row) = self.get(id) else {
            return Outcome::Retry(Cause::NotCached);
        };
        let version = row.image.version;
        if row.state != State::Present {
            return Outcome::NotExist { version };
        }
        if have == Some(version) {
            return Outcome::Unchanged { version };
        }
        match row.shown(table, ask) {
            Ok(values) => Outcome::Ok { version, values },
            Err(refused) => refused,
        }
    }

    /// Cached rows in the order of their keys, from `after` on: what a scan lays over what SQL has. Deleted and missing
    /// ones are among them, because they hide what SQL may still have.
    pub fn range<'a>(
        &'a self,
        table: u32,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Row)> + use<'a> {
        let from = match after {
            Some(key) => Bound::Excluded(Arc::<str>::from(key)),
            None => Bound::Unbounded,
        };
        let rows = self.tables.get(&table).map(|tab| &tab.rows);
        rows.into_iter()
            .flat_map(move |rows| rows.range(from.clone()))
            .filter(|(_, row)| row.state != State::Forgotten)
    }

    /// Every row of a table, whatever its state.
    pub fn ids_of(&self, table: u32) -> impl Iterator<Item = RowId> {
        let rows = self.tables.get(&table).into_iter();
        rows.flat_map(move |tab| {
            tab.rows.iter().map(move |(key, _)| RowId {
                table,
                key: key.clone(),
            })
        })
    }

    /// The row was read: it stays longer. Not replicated, not stored.
    pub fn touch(&self, id: &RowId) {
        if let Some(row) = self.slot(id) {
            row.warm();
        }
    }

    /// One row after the other, round and round, each colder by one: the hand of a clock. `None` when there are no rows.
    pub(crate) fn cool_next(&self, hand: &mut Option<RowId>) -> Option<(RowId, &Row)> {
        let next = self.after(hand.as_ref()).or_else(|| self.after(None))?;
        *hand = Some(next.clone());
        let row = self.slot(&next)?;
        row.heat.set(row.heat.get().saturating_sub(1));
        Some((next, row))
    }

    fn after(&self, hand: Option<&RowId>) -> Option<RowId> {
        let first = hand.map_or(0, |hand| hand.table);
        for (table, tab) in self.tables.range(first..) {
            let from = match hand {
                Some(hand) if hand.table == *table => Bound::Excluded(hand.key.clone()),
                _ => Bound::Unbounded,
            };
            if let Some((key, _)) = tab.rows.range(from).next() {
                return Some(RowId {
                    table: *table,
                    key: key.clone(),
                });
            }
        }
        None
    }

    /// Dirty rows that are no dead letters, longest dirty first, with the stamp of the first change SQL lacks.
    pub fn dirty(&self) -> impl Iterator<Item = (u64, &RowId)> {
        self.dirty.iter().map(|(since, id)| (*since, id))
    }

    pub fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    pub fn dead(&self) -> impl Iterator<Item = (&RowId, &DeadLetter)> {
        let letter = |id| Some((id, self.slot(id)?.dead.as_deref()?));
        self.dead.iter().filter_map(letter)
    }

    pub fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// By table.
    pub fn counts(&self) -> impl Iterator<Item = (u32, Counts)> {
        self.tables.iter().map(|(id, tab)| {
            let counts = Counts {
                rows: tab.rows.len(),
                dirty: tab.dirty,
                dead: tab.dead,
            };
            (*id, counts)
        })
    }

    /// What limits of memory are compared with: rows only. Answers that retries get again have a limit of their own, and evicting rows would
    /// not make them fewer.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of answers that retries get again.
    pub fn answer_bytes(&self) -> usize {
        self.answers.bytes()
    }

    /// Rows that are held, missing and deleted ones included.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts, replaces or takes away a row, and keeps indexes and sums right; what was there before.
    fn place(&mut self, id: &RowId, new: Option<Row>) -> Option<Row> {
        let tab = self.tables.get_mut(&id.table)?;
        let size = |row: Option<&Row>| row.map_or(0, |row| row.size(id));
        let (after, added) = (Owes::of(new.as_ref()), size(new.as_ref()));
        let count = usize::from(new.is_some());
        let old = match new {
            Some(row) => tab.rows.insert(&id.key, row),
            None => tab.rows.remove(&id.key),
        };
        let before = Owes::of(old.as_ref());
        self.bytes = self.bytes + added - size(old.as_ref());
        self.count = self.count + count - usize::from(old.is_some());
        self.index(id, before, after);
        old
    }

    /// Changes a row that is cached where it is; also whether it is new among the dirty ones. `Err`: the row is as it was.
    fn change<T, E>(
        &mut self,
        id: &RowId,
        not_cached: E,
        change: impl FnOnce(&Table, &mut Row) -> Result<T, E>,
    ) -> Result<(T, bool), E> {
        let Some(tab) = self.tables.get_mut(&id.table) else {
            return Err(not_cached);
        };
        let row = match tab.rows.get_mut(&id.key) {
            Some(row) if row.state != State::Forgotten => row,
            _ => return Err(not_cached),
        };
        let (before, size) = (Owes::of(Some(row)), row.size(id));
        let done = change(&tab.schema, row)?;
        let after = Owes::of(Some(row));
        self.bytes = self.bytes + row.size(id) - size;
        self.unsaved.note(id, row);
        self.index(id, before, after);
        Ok((done, before == Owes::Nothing && after != before))
    }

    /// A row is in the index of what it owes.
    fn index(&mut self, id: &RowId, before: Owes, after: Owes) {
        if before == after {
            return; // a row that is changed again and again
        }
        if let Some(tab) = self.tables.get_mut(&id.table) {
            if let Some(count) = tab.count_of(before) {
                *count -= 1;
            }
            if let Some(count) = tab.count_of(after) {
                *count += 1;
            }
        }
        match before {
            Owes::Nothing => {}
            Owes::Since(since) => {
                self.dirty.remove(&(since, id.clone()));
            }
            Owes::Dead => {
                self.dead.remove(id);
            }
        }
        match after {
            Owes::Nothing => {}
            Owes::Since(since) => {
                self.dirty.insert((since, id.clone()));
            }
            Owes::Dead => {
                self.dead.insert(id.clone());
            }
        }
    }
}

/// Which index a row is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owes {
    Nothing,
    Since(u64),
    Dead,
}

impl Owes {
    fn of(row: Option<&Row>) -> Owes {
        match row {
            Some(row) if row.dead.is_some() => Owes::Dead,
            Some(row) if row.is_dirty() => Owes::Since(row.since),
            _ => Owes::Nothing,
        }
    }
}

impl Row {
    /// Values of what is asked for, in the order asked.
    fn shown(&self, table: &Table, ask: &Ask) -> Result<Fields, Outcome> {
        match ask {
            Ask::Nothing => Ok(Fields::new()),
            _ if self.state != State::Present => Ok(Fields::new()),
            Ask::All => {
                let ids = table.fields.iter().map(|field| field.id);
                Ok(ids.zip(self.image.values(table)).collect())
            }
            Ask::Fields(ids) => {
                let one = |id: &u16| Ok((*id, write::value(table, &self.image, *id)?.clone()));
                ids.iter().map(one).collect()
            }
        }
    }
}

//! Rows of SQL tables inside a region: the part of its state that `table::Rows` is.
//!
//! ```text
//!   key "users:alice"  ──row_of──►  table "users" of this region's schema, row "alice"
//!   read_row, write_row, kick_row   commands          ─┐
//!   apply_table_entry               ROW.APPLY         ─┴─► Rows ─► what it changed is stored with everything else of the entry
//! ```
//!
//! The one idea: whether a key is a row is decided by the schemas in the region's own log, never by what a node has heard.
//! So every replica, at whatever time it applies an entry, finds the same rows.
//!
//! Rows are in database 0 only. All of them are in memory; a row that is not cached is in SQL, and only the leader can bring it.
//! A read that misses one is answered with `Retry`, and who runs commands asks for [`Keyspace::take_missing_rows`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::slot::slot_of;
use base::{DbIndex, Refusal, Slot};
use table::entry::{Ask, Write};
use table::rows::{Applied, Change, Place, What};
use table::{Cause, Entry, Outcome, RowId, Rows, Table, name};

use crate::rows::{Family, Tier, layout};
use crate::view::Parts;
use crate::{Keyspace, Txn, View};

/// A row that a key names.
#[derive(Debug, Clone)]
pub struct RowRef {
    pub table: Arc<Table>,
    pub id: RowId,
}

/// What became of a row that was to leave the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kicked {
    Gone,
    NotCached,
    /// SQL does not have it yet: it stays.
    Dirty,
}

#[derive(Default)]
pub(crate) struct Tables {
    rows: Rows,
    by_name: BTreeMap<Box<[u8]>, Arc<Table>>,
    /// Rows that commands looked for and that are not cached.
    missing: RefCell<Vec<RowId>>,
    /// What was done to rows, for the leader; nothing is noted unless somebody listens.
    noted: Option<Vec<Applied>>,
    /// Why nothing is done about rows any more: see [`Keyspace::quarantine_tables`].
    broken: Option<Box<str>>,
}

/// Where it is stored that the rows are in quarantine; no [`Place`] begins so.
const QUARANTINE: &[u8] = b"x";

impl Tables {
    fn of_key(&self, key: &[u8]) -> Option<(&Arc<Table>, usize)> {
        let colon = key
            .iter()
            .take(name::NAME_BYTES_MAX + 1)
            .position(|&it| it == b':')?;
        let table = self.by_name.get(key.get(..colon)?)?;
        Some((table, colon + 1))
    }

    fn find_names(&mut self) {
        let named = |table: &Arc<Table>| (table.name.as_bytes().into(), table.clone());
        self.by_name = self.rows.tables().map(named).collect();
    }

    fn note(&mut self, applied: Applied) {
        if let Some(noted) = &mut self.noted {
            noted.push(applied);
        }
    }
}

/// The slot of a row's key; `room` is for that.
fn slot_of_row(table: &Table, id: &RowId, room: &mut Vec<u8>) -> Slot {
    room.clear();
    room.extend_from_slice(table.name.as_bytes());
    room.push(b':');
    room.extend_from_slice(id.key.as_bytes());
    slot_of(room)
}

impl Keyspace {
    /// Whether any table was ever declared here.
    #[inline]
    pub fn has_tables(&self) -> bool {
        self.tables.is_some()
    }

    /// The rows of this region.
    pub fn table_rows(&self) -> Option<&Rows> {
        self.tables.as_ref().map(|tables| &tables.rows)
    }

    /// Whether a key is a row of a table, well made or not.
    #[inline]
    pub fn names_row(&self, db: DbIndex, key: &[u8]) -> bool {
        match &self.tables {
            Some(tables) => db == 0 && tables.of_key(key).is_some(),
            None => false,
        }
    }

    /// Whether the row that a key names is cached; `None`: it names none.
    pub fn is_row_cached(&self, db: DbIndex, key: &[u8]) -> Option<bool> {
        let tables = self.tables.as_deref().filter(|_| db == 0)?;
        let (table, at) = tables.of_key(key)?;
        let row = std::str::from_utf8(key.get(at..)?).ok()?;
        Some(tables.rows.is_cached(table.id, row))
    }

    /// The row that a key names. `Err`: it is in a table, but no row can have such a key.
    pub fn row_of(&self, db: DbIndex, key: &[u8]) -> Option<Result<RowRef, Refusal>> {
        let tables = self.tables.as_deref().filter(|_| db == 0)?;
        let (table, at) = tables.of_key(key)?;
        if let Some(why) = &tables.broken {
            return Some(Err(quarantined(why)));
        }
        let row = name::check_key(key.get(at..).unwrap_or_default()).map(|row| RowRef {
            table: table.clone(),
            id: RowId::new(table.id, row),
        });
        Some(row)
    }

    /// Runs an entry about rows; what it changed is stored with the running log entry.
    pub fn apply_table_entry(&mut self, stamp_ms: u64, entry: Entry) -> Option<Outcome> {
        if let Entry::Drop { table } = &entry {
            self.remove_rows_of(*table);
        }
        let tables = match &entry {
            Entry::Schema(_) => self.tables.get_or_insert_default(),
            _ => self.tables.as_mut()?,
        };
        if tables.broken.is_some() {
            return None;
        }
        let mut done = tables.rows.run(stamp_ms, entry);
        if matches!(done.what, What::Schema | What::Dropped(_)) {
            tables.find_names();
        }
        let outcome = done.outcome.take();
        tables.note(done);
        self.record_tables();
        outcome
    }

    /// One change of a row.
    fn write_table_row(&mut self, stamp_ms: u64, write: Write) -> Option<Outcome> {
        let tables = self.tables.as_mut().filter(|it| it.broken.is_none())?;
        let (id, has_request) = (write.id.clone(), write.request.is_some());
        let (outcome, is_new) = tables.rows.write(stamp_ms, write);
        if is_new {
            tables.note(Applied {
                what: What::Written,
                rows: vec![id],
                outcome: None,
            });
        }
        if has_request || self.durable.is_none() {
            self.record_tables();
        }
        Some(outcome)
    }

    /// Before a table goes: afterwards nobody knows where its rows are.
    fn remove_rows_of(&mut self, table: u32) {
        self.save_table_rows();
        let (Some(durable), Some(tables)) = (&mut self.durable, &self.tables) else {
            return;
        };
        if let (Some(schema), None) = (tables.rows.table(table), &tables.broken) {
            let mut room = Vec::new();
            for id in tables.rows.ids_of(table) {
                let slot = slot_of_row(schema, &id, &mut room);
                durable.record_table(Some(slot), &Place::Row(id).encode(), None);
            }
        }
    }

    /// What was changed of tables is stored with the running entry; rows at its end.
    fn record_tables(&mut self) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        let changes = tables.rows.take_changes();
        let Some(durable) = &mut self.durable else {
            tables.rows.save(|_, _, _| {});
            return;
        };
        for change in changes {
            match change {
                Change::Put(place, value) => {
                    durable.record_table(None, &place.encode(), Some(&value));
                }
                Change::Remove(place) => durable.record_table(None, &place.encode(), None),
                Change::RemoveRows(_) => {} // one by one: they are in many slots
            }
        }
    }

    /// Rows of tables that the running entry has changed, each once, as they are now.
    pub(crate) fn save_table_rows(&mut self) {
        let (Some(durable), Some(tables)) = (&mut self.durable, &mut self.tables) else {
            return;
        };
        let (mut room, mut place) = (Vec::new(), Vec::new());
        tables.rows.save(|table, id, value| {
            let slot = slot_of_row(table, id, &mut room);
            place.clear();
            Place::push_row(&mut place, id);
            durable.record_table(Some(slot), &place, value);
        });
    }

    /// Whether rows were changed that the running entry has yet to store.
    pub(crate) fn has_unsaved_rows(&self) -> bool {
        let tables = self.tables.as_ref();
        tables.is_some_and(|tables| tables.rows.has_unsaved())
    }

    /// Roughly what they will be.
    pub(crate) fn unsaved_row_bytes(&self) -> usize {
        let tables = self.tables.as_ref();
        tables.map_or(0, |tables| tables.rows.unsaved_bytes())
    }

    /// What was to be done about rows cannot be read: from here on nobody knows what they are, so nothing is done about them any more,
    /// on this replica and after every start. All else goes on.
    pub fn quarantine_tables(&mut self, why: &str) {
        let tables = self.tables.get_or_insert_default();
        if tables.broken.is_none() {
            tables.broken = Some(why.into());
            if let Some(durable) = &mut self.durable {
                durable.record_table(None, QUARANTINE, Some(why.as_bytes()));
            }
        }
    }

    /// Why the rows are in quarantine, if they are.
    pub fn tables_in_quarantine(&self) -> Option<&str> {
        self.tables.as_ref()?.broken.as_deref()
    }

    /// From now on what is done to rows is noted for [`Keyspace::take_applied`], or not any more.
    pub fn note_applied(&mut self, on: bool) {
        if on || self.tables.is_some() {
            let tables = self.tables.get_or_insert_default();
            tables.noted = on.then(|| tables.noted.take().unwrap_or_default());
        }
    }

    /// What was done to rows since the last time, in order.
    pub fn take_applied(&mut self) -> Vec<Applied> {
        let noted = self.tables.as_mut().and_then(|it| it.noted.as_mut());
        noted.map(std::mem::take).unwrap_or_default()
    }

    /// Whether a command looked for rows that are not cached.
    #[inline]
    pub fn has_missing_rows(&self) -> bool {
        match &self.tables {
            Some(tables) => !tables.missing.borrow().is_empty(),
            None => false,
        }
    }

    pub fn take_missing_rows(&mut self) -> Vec<RowId> {
        let tables = self.tables.as_mut();
        let mut missing = tables.map_or_else(Vec::new, |it| std::mem::take(it.missing.get_mut()));
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Reads everything that is stored of tables.
    pub(crate) fn restore_tables(&mut self) -> Result<(), String> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        let (home, source) = (durable.home, durable.source.clone());
        let (from, to) = layout::table_keys(home);
        let mut tables = Box::new(Tables::default());
        let (mut found, mut failure) = (false, None);
        let mut row = |key: &[u8], value: &[u8]| {
            found = true;
            if layout::split_table_key(key).is_some_and(|(_, place)| place == QUARANTINE) {
                failure = Some(String::from_utf8_lossy(value).into_owned());
            } else if failure.is_none() {
                failure = restore_row(&mut tables.rows, key, Some(value)).err();
            }
            true
        };
        source
            .scan(Family::Tables, &from, &to, false, Tier::All, &mut row)
            .map_err(|error| format!("rows of tables cannot be read: {error:?}"))?;
        tables.broken = failure.map(Into::into);
        tables.find_names();
        self.tables = found.then_some(tables);
        Ok(())
    }

    /// Memory follows what an entry has stored.
    pub(crate) fn follow_table_row(&mut self, key: &[u8], value: Option<&[u8]>) {
        if layout::split_table_key(key).is_none_or(|(home, _)| home != self.home()) {
            return;
        }
        let tables = self.tables.get_or_insert_default();
        if tables.broken.is_none() {
            match restore_row(&mut tables.rows, key, value) {
                Ok(Place::Row(_)) => {}
                Ok(_) => tables.find_names(),
                Err(damage) => tables.broken = Some(damage.into()),
            }
        }
    }
}

fn quarantined(why: &str) -> Refusal {
    Refusal::text_of(format!(
        "QUARANTINED the rows of this region cannot be used on this node: {why}. Remove this replica, so that it is made anew from the others"
    ))
}

/// What it is that was restored.
fn restore_row(rows: &mut Rows, key: &[u8], value: Option<&[u8]>) -> Result<Place, String> {
    let damaged = |what: &str| format!("table row {} is damaged: {what}", key.escape_ascii());
    let (_, place) = layout::split_table_key(key).ok_or_else(|| damaged("its key"))?;
    let place = Place::decode(place).map_err(|corrupt| damaged(&corrupt.to_string()))?;
    rows.restore_one(place.clone(), value)
        .map_err(|corrupt| damaged(&corrupt.to_string()))?;
    Ok(place)
}

impl View<'_> {
    /// Whether any of the regions in reach has tables.
    #[inline]
    pub fn has_tables(&self) -> bool {
        match &self.parts {
            Parts::One(space) => space.has_tables(),
            Parts::Many { spaces, .. } => spaces.iter().any(|space| space.has_tables()),
        }
    }

    /// The row that a key names, if a table of that name is declared. `Err`: no row can have such a key.
    pub fn row_of(&self, key: &[u8]) -> Option<Result<RowRef, Refusal>> {
        if !self.has_tables() {
            return None;
        }
        self.space(key).row_of(self.db, key)
    }

    /// What a read of a row is answered; `have` is the version the client has. `Retry` of one that is not cached.
    pub fn read_row(&self, key: &[u8], row: &RowRef, ask: &Ask, have: Option<i64>) -> Outcome {
        let Some(tables) = &self.space(key).tables else {
            return Outcome::Retry(Cause::SchemaBehind);
        };
        let outcome = tables.rows.read(&row.id, ask, have);
        if outcome == Outcome::Retry(Cause::NotCached) {
            tables.missing.borrow_mut().push(row.id.clone());
        } else {
            tables.rows.touch(&row.id);
        }
        outcome
    }
}

impl Txn<'_> {
    /// Makes a change that a client asked for; judged here, against the row as it is now.
    pub fn write_row(&mut self, key: &[u8], write: Write) -> Outcome {
        // Nothing a void command does is to stay.
        if self.is_void() {
            return Outcome::Retry(Cause::NotCached);
        }
        let now_ms = self.now_ms();
        let space = self.space_mut(key);
        let retry = Outcome::Retry(Cause::SchemaBehind);
        let outcome = space.write_table_row(now_ms, write).unwrap_or(retry);
        if outcome.is_ok() {
            space.changed(0, key, 1);
        }
        outcome
    }

    /// Lets a row go from the cache, if SQL has it.
    pub fn kick_row(&mut self, key: &[u8], row: &RowRef) -> Kicked {
        if self.is_void() {
            return Kicked::NotCached;
        }
        let now_ms = self.now_ms();
        let space = self.space_mut(key);
        let found = space.table_rows().and_then(|rows| rows.get(&row.id));
        let (version, kicked) = match found {
            None => (0, Kicked::NotCached),
            Some(found) if found.is_dirty() => (found.image.version, Kicked::Dirty),
            Some(found) => (found.image.version, Kicked::Gone),
        };
        // Also where it does nothing: the leader waits to hear what came of it.
        space.apply_table_entry(now_ms, Entry::Kick(vec![(row.id.clone(), version)]));
        kicked
    }

    /// See [`Keyspace::quarantine_tables`].
    pub fn quarantine_tables(&mut self, why: &str) {
        if let Some(space) = self.any_space_mut() {
            space.quarantine_tables(why);
        }
    }

    /// Runs what the leader of the region has found out or decided.
    pub fn apply_table_entry(&mut self, entry: Entry) {
        let now_ms = self.now_ms();
        if let Some(space) = self.any_space_mut() {
            space.apply_table_entry(now_ms, entry);
        }
    }
}

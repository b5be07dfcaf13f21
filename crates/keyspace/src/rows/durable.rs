//! The durable side of a keyspace: which keys an entry has changed, and the rows that makes.
//!
//! A key is *marked* before its first change in an entry, with the deadline its rows have at that
//! moment; a bit in its entry says that it is. At the end of the log entry each marked key's
//! metadata row is written once, from what is then in memory, and its expiry row corrected.
//! Element rows are recorded change by change.
//!
//! Marks name databases by index id: after SWAPDB they still mean the same rows, and after FLUSHDB
//! none at all.
//!
//! A command that turned out to need keys which are not in memory must change nothing: what it
//! writes from then on goes to the database [`VOID`], which is thrown away.

mod settle;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::DbIndex;
use base::limits::DATABASES;

use super::handle::{Place, WholeJob};
use super::layout;
use super::shared::Shared;
use super::{Changes, DbState, Family, Recorder, RowSource, State};
use crate::memory::db::Db;
use crate::memory::entry::EntryRef;
use crate::memory::table::{AHEAD, Position};
use crate::weighing::Awaited;
use crate::{Keyspace, Kind, Tuning};

/// Where the writes of a command go that has to be run again.
pub(crate) const VOID: usize = DATABASES as usize;
/// Generations of one entry before they run into those of the next (which then begin later).
pub(super) const GENERATION_SHIFT: u32 = 20;

pub(crate) struct Durable {
    pub home: u64,
    pub source: Arc<dyn RowSource>,
    /// How loaded collections are shaped.
    pub tuning: Arc<Tuning>,
    pub applied_index: u64,
    pub stamp_ms: u64,
    /// See [`State`]: of the last entry, and of the running one if it was said.
    pub applied_term: u64,
    pub entry_term: Option<u64>,
    pub descriptor: Box<[u8]>,
    generation: u64,
    pub next_index_id: u64,
    /// Log index of the running entry.
    pub entry: Option<u64>,
    /// How many effects of former entries waited to be taken when it began.
    pub key_changes_before: usize,
    /// The running entry has flushed or swapped databases.
    pub state_changed: bool,
    rows: Changes,
    key: Vec<u8>,
    value: Vec<u8>,
    marks: Vec<Mark>,
    /// The marked keys, one behind the other.
    marked: Vec<u8>,
    pub missing: RefCell<Vec<(DbIndex, Box<[u8]>)>>,
    /// Keys being loaded; see [`super::load::LoadRequest`].
    pub loading: BTreeMap<(u64, Box<[u8]>), u64>,
    /// Keys whose load failed, and why; see [`super::unreadable`].
    pub unreadable: BTreeMap<(u64, Box<[u8]>), String>,
    /// Begins somewhere else in every keyspace: what was asked for the one before may still come.
    pub tickets: u64,
    /// Big collections on their way into memory.
    pub becoming: Vec<Arc<WholeJob>>,
    /// What handles on big collections need to know, and the failures of reads.
    pub shared: Arc<Shared>,
    /// Whether it is known what the rows weigh.
    pub is_weighed: bool,
    /// A thread reads all rows to find that out.
    pub awaited: Option<Awaited>,
}

struct Mark {
    index_id: u64,
    start: usize,
    len: usize,
    before: Before,
}

/// What rows a marked key had.
enum Before {
    /// None: it was made by this entry.
    Nothing,
    Rows {
        deadline_ms: Option<u64>,
    },
}

impl Keyspace {
    /// A region whose data are in `source`; `state` is the value of its state row, if it has one.
    /// `home` is the id of the region that founded it, `seed` keys its hash tables.
    pub fn durable(
        seed: u64,
        home: u64,
        state: Option<&[u8]>,
        source: Arc<dyn RowSource>,
    ) -> Result<Keyspace, String> {
        let state = match state {
            None => State::default(),
            Some(bytes) => State::parse(bytes)
                .ok_or_else(|| format!("the state row of region {home} cannot be read"))?,
        };
        let mut space = Keyspace::new(seed);
        let mut void = Db::new(seed, DATABASES);
        void.index_id = 0;
        space.dbs.push(void);
        space.durable = Some(Box::new(Durable {
            home,
            source,
            tuning: Arc::default(),
            applied_index: 0,
            stamp_ms: 0,
            applied_term: 0,
            entry_term: None,
            descriptor: Box::default(),
            generation: 0,
            next_index_id: 0,
            entry: None,
            key_changes_before: 0,
            state_changed: false,
            rows: Changes::new(),
            key: Vec::new(),
            value: Vec::new(),
            marks: Vec::new(),
            marked: Vec::new(),
            missing: RefCell::default(),
            loading: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            tickets: seed >> 1,
            becoming: Vec::new(),
            shared: Arc::new(Shared::new(seed)),
            // Of a region that has nothing all is known.
            is_weighed: state.dbs.iter().all(|db| db.keys == 0),
            awaited: None,
        }));
        for db in space.dbs.iter_mut().take(VOID) {
            db.is_counted = true;
        }
        space.take_state(&state);
        space.restore_tables()?;
        Ok(space)
    }

    /// Databases and counters as `state` says; what is cached of databases that stay is kept.
    pub(super) fn take_state(&mut self, state: &State) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.applied_index = state.applied_index;
        durable.stamp_ms = state.stamp_ms;
        durable.applied_term = state.applied_term;
        durable.descriptor = state.descriptor.clone();
        durable.generation = state.generation;
        durable.next_index_id = state.next_index_id;
        for (at, wanted) in state.dbs.iter().enumerate() {
            let found = self.dbs[..VOID]
                .iter()
                .position(|db| db.index_id == wanted.index_id);
            match found {
                Some(found) if found >= at => self.dbs.swap(at, found),
                _ => {
                    self.dbs[at].take();
                    self.dbs[at].index_id = wanted.index_id;
                }
            }
            let db = &mut self.dbs[at];
            db.cold_keys = wanted.keys.saturating_sub(db.table.len() as u64);
            db.cold_volatile = wanted
                .with_deadline
                .saturating_sub(db.resident_with_deadline() as u64);
            db.absent.clear();
        }
    }

    /// The state as of the last entry.
    pub fn state(&self) -> State {
        let durable = self.durable.as_deref();
        State {
            applied_index: durable.map_or(0, |it| it.applied_index),
            applied_term: durable.map_or(0, |it| it.applied_term),
            descriptor: durable.map_or_else(Box::default, |it| it.descriptor.clone()),
            stamp_ms: durable.map_or(0, |it| it.stamp_ms),
            generation: durable.map_or(0, |it| it.generation),
            next_index_id: durable.map_or(0, |it| it.next_index_id),
            dbs: self.dbs[..VOID.min(self.dbs.len())]
                .iter()
                .map(|db| DbState {
                    index_id: db.index_id,
                    keys: db.len() as u64,
                    with_deadline: db.with_deadline() as u64,
                })
                .collect(),
        }
    }

    #[inline]
    pub fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// The key of the state row, in [`Family::Info`].
    pub fn state_key(&self) -> Vec<u8> {
        layout::state_key(self.home())
    }

    /// The region that founded this one.
    pub fn home(&self) -> u64 {
        self.durable.as_ref().map_or(0, |durable| durable.home)
    }

    /// The (home, index id) pairs whose rows are alive, for [`super::RowStore::set_alive`]: true on
    /// disk once a checkpoint has come behind the last entry.
    pub fn alive(&self) -> Vec<(u64, u64)> {
        let home = self.home();
        let dbs = self.dbs.iter().take(VOID);
        dbs.map(|db| (home, db.index_id)).collect()
    }

    /// The last log entry applied.
    pub fn applied_index(&self) -> u64 {
        self.durable.as_ref().map_or(0, |it| it.applied_index)
    }

    /// The stamp of the last log entry applied.
    pub fn last_stamp_ms(&self) -> u64 {
        self.durable.as_ref().map_or(0, |it| it.stamp_ms)
    }

    /// A failure of the store, or rows that contradict each other: the region must stop (DESIGN §13).
    pub fn take_failure(&self) -> Option<String> {
        self.durable.as_ref()?.shared.take_failure()
    }

    /// Begins applying a log entry: all changes until [`Keyspace::end_entry`] belong to it.
    pub fn begin_entry(&mut self, index: u64) {
        let key_changes_before = self.key_changes().len();
        if let Some(durable) = &mut self.durable {
            debug_assert!(durable.entry.is_none(), "one entry at a time");
            durable.entry = Some(index);
            durable.key_changes_before = key_changes_before;
            durable.shared.next_epoch();
            durable.shared.read_cached(false);
        }
    }

    /// Ends the entry: the rows of everything it changed and the state row are added to `out`,
    /// which must be written in one batch before anything is uncached or loaded.
    pub fn end_entry(&mut self, stamp_ms: u64, out: &mut Changes) {
        let _all = self.end_entry_within(stamp_ms, usize::MAX, out);
    }

    /// As [`Keyspace::end_entry`], unless `out` becomes larger than `most_bytes`: then false, no more
    /// rows are made, and nothing may follow but [`Keyspace::undo_entry`].
    #[must_use]
    pub fn end_entry_within(
        &mut self,
        stamp_ms: u64,
        most_bytes: usize,
        out: &mut Changes,
    ) -> bool {
        self.save_table_rows();
        let Some(durable) = &mut self.durable else {
            return true;
        };
        if let Some(index) = durable.entry.take() {
            durable.applied_index = index;
        }
        if let Some(term) = durable.entry_term.take() {
            durable.applied_term = term;
        }
        durable.state_changed = false;
        durable.stamp_ms = stamp_ms;
        out.append(&mut durable.rows);
        if !durable.settle_marks(&self.dbs, most_bytes, out) {
            return false;
        }
        durable.marks.clear();
        durable.marked.clear();
        let state = self.state();
        let mut value = Vec::with_capacity(64);
        state.push(&mut value);
        out.put(Family::Info, &self.state_key(), &value);
        self.dbs.iter_mut().for_each(|db| db.absent.tidy());
        self.forget_void();
        out.size_bytes() <= most_bytes
    }

    /// Throws away what void commands wrote.
    pub(super) fn forget_void(&mut self) {
        if let Some(db) = self.dbs.get_mut(VOID)
            && !db.table.is_empty()
        {
            db.take();
        }
    }

    /// Whether changes in this database make rows.
    #[inline]
    pub(crate) fn is_recorded(&self, db: usize) -> bool {
        self.durable.is_some() && db != VOID
    }

    /// Before a change of the entry at a position: its rows will be written.
    #[inline]
    pub(crate) fn mark(&mut self, db: usize, position: Position) {
        if self.durable.is_some() {
            self.mark_slow(db, position);
        }
    }

    fn mark_slow(&mut self, db: usize, position: Position) {
        let (Some(durable), Some(db)) = (&mut self.durable, self.dbs[..VOID].get(db)) else {
            return;
        };
        if let Some(entry) = db.table.at(position)
            && !entry.is_marked()
        {
            entry.set_marked(true);
            let deadline_ms = entry.deadline_ms();
            durable.push_mark(db.index_id, entry.key(), Before::Rows { deadline_ms });
        }
    }

    /// Before an entry is removed.
    #[inline]
    pub(crate) fn mark_gone(&mut self, db: usize, position: Position) {
        if self.durable.is_some() {
            self.mark_slow(db, position);
            let Some(db) = self.dbs[..VOID].get_mut(db) else {
                return;
            };
            if let (Some(durable), Some(entry)) = (&mut self.durable, db.table.at(position)) {
                durable.orphan(db.index_id, entry);
            }
            if db.cold_keys > 0
                && let Some(entry) = db.table.at(position)
            {
                db.absent.insert(entry.key());
            }
        }
    }

    /// The rows of a value that was replaced whole belong to nobody.
    pub(crate) fn orphan_former(&mut self, db: usize, former: EntryRef<'_>) {
        if let (Some(durable), Some(db)) = (&mut self.durable, self.dbs[..VOID].get(db)) {
            durable.orphan(db.index_id, former);
        }
    }

    /// After a value was put whole at a position, `new` if its key was not there before: a
    /// collection gets a generation of its own and all its rows are recorded.
    #[inline]
    pub(crate) fn adopt(&mut self, db: usize, position: Position, new: bool) {
        if self.durable.is_some() {
            self.adopt_slow(db, position, new);
        }
    }

    fn adopt_slow(&mut self, db: usize, position: Position, new: bool) {
        let (Some(durable), Some(db)) = (&mut self.durable, self.dbs[..VOID].get_mut(db)) else {
            return;
        };
        let Some(entry) = db.table.at(position) else {
            return;
        };
        entry.set_marked(true);
        if new {
            durable.push_mark(db.index_id, entry.key(), Before::Nothing);
            db.absent.remove(entry.key());
        }
        if entry.kind() == Kind::String {
            return;
        }
        let generation = durable.next_generation();
        if let Some(entry) = db.entry_mut(position) {
            entry.set_generation(generation);
        }
        let Some(entry) = db.table.at(position) else {
            return;
        };
        let mut recorder = durable.recorder(db.index_id, entry.key(), generation);
        entry.value().record(&mut recorder);
        let place = durable.place(db.index_id, entry.key(), generation);
        let entry = db.entry_mut(position);
        if let Some(handle) = entry.and_then(|entry| entry.handle()) {
            handle.move_to(place);
        }
    }

    /// A database that was flushed gets an index id of its own: the rows of the former are dead.
    pub(crate) fn renew_index_id(&mut self, db: usize) {
        if let Some(durable) = &mut self.durable {
            self.dbs[db].index_id = durable.next_index_id;
            durable.next_index_id += 1;
            durable.state_changed = true;
        }
    }
}

impl Durable {
    /// Adds the rows of all marks; false if that became more than `most_bytes`.
    fn settle_marks(&mut self, dbs: &[Db], most_bytes: usize, out: &mut Changes) -> bool {
        let marks = std::mem::take(&mut self.marks);
        let mut fits = true;
        'all: for marks in marks.chunks(AHEAD) {
            settle::look_ahead(self, dbs, marks);
            for mark in marks {
                settle::settle(self, dbs, mark, out);
                // The value of a string is copied here, and there may be many long ones.
                if out.size_bytes() > most_bytes {
                    fits = false;
                    break 'all;
                }
            }
        }
        self.marks = marks;
        fits
    }

    fn push_mark(&mut self, index_id: u64, key: &[u8], before: Before) {
        debug_assert!(self.entry.is_some(), "a change outside of any log entry");
        self.marks.push(Mark {
            index_id,
            start: self.marked.len(),
            len: key.len(),
            before,
        });
        self.marked.extend_from_slice(key);
    }

    /// The element rows of an entry are left behind.
    fn orphan(&mut self, index_id: u64, entry: EntryRef<'_>) {
        if let Some(elements) = entry.elements() {
            let home = self.home;
            self.rows.orphan(elements as u64, || {
                layout::metadata_key(home, index_id, entry.key())
            });
        }
    }

    /// Unique, and above all earlier ones, however many an entry needs.
    fn next_generation(&mut self) -> u64 {
        let first = self.entry.unwrap_or(self.applied_index) << GENERATION_SHIFT;
        self.generation = (self.generation + 1).max(first);
        self.generation
    }

    /// For element rows of the collection `key` with this generation.
    #[inline]
    pub fn recorder(&mut self, index_id: u64, key: &[u8], generation: u64) -> Recorder<'_> {
        self.key.clear();
        layout::push_base(&mut self.key, self.home, index_id, key, generation);
        Recorder::new(&mut self.rows, &mut self.key)
    }

    /// The keys of a database that the running entry has made or changed.
    pub fn marked_keys(&self, index_id: u64) -> impl Iterator<Item = &[u8]> {
        self.marks
            .iter()
            .filter(move |mark| mark.index_id == index_id)
            .filter_map(|mark| self.marked.get(mark.start..mark.start + mark.len))
    }

    /// Something of a table is stored from now on, or not any more.
    pub fn record_table(&mut self, slot: Option<base::Slot>, place: &[u8], value: Option<&[u8]>) {
        debug_assert!(self.entry.is_some(), "a change outside of any log entry");
        self.key.clear();
        layout::push_table_key(&mut self.key, self.home, slot, place);
        match value {
            Some(value) => self.rows.put(Family::Tables, &self.key, value),
            None => self.rows.delete(Family::Tables, &self.key),
        }
    }

    /// See [`Keyspace::give_back_room`].
    pub fn give_back_room(&mut self) {
        if self.rows.is_empty() {
            self.rows = Changes::new();
        }
        self.key = Vec::new();
        self.value = Vec::new();
        self.marks.shrink_to_fit();
        self.marked.shrink_to_fit();
    }

    /// Whether the running entry has changed anything.
    pub fn has_changes(&self) -> bool {
        self.state_changed || !self.marks.is_empty() || !self.rows.is_empty()
    }

    /// See [`Keyspace::unsettled_bytes`].
    pub fn unsettled_bytes(&self) -> usize {
        self.rows.size_bytes() + self.marked.len() + self.marks.len() * 64
    }

    /// Where the rows of a collection are.
    pub fn place(&self, index_id: u64, key: &[u8], generation: u64) -> Place {
        let mut base = Vec::new();
        layout::push_base(&mut base, self.home, index_id, key, generation);
        Place {
            source: self.source.clone(),
            shared: self.shared.clone(),
            base: base.into(),
        }
    }

    pub fn fail(&self, what: String) {
        self.shared.fail(what);
    }
}

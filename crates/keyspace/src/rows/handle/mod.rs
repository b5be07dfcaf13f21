//! A big collection that stays in its rows: what is in memory of it is this handle.
//!
//! ```text
//!   point reads, walks ──► unwritten (changes of the running log entry) over RowSource
//!   changes            ──► unwritten, and by `Edit` also the Recorder
//!   ranks, random      ──► index: a boundary for every few hundred rows, made when first needed
//! ```
//!
//! The rows an entry changes reach the store when it ends. Until then they are only in the entry's
//! `Changes`, which cannot be searched: hence *unwritten*, a map of the handle's own changes that
//! every read looks at first. It is forgotten when the entry is written or the next has begun
//! ([`Shared::epoch`]).
//!
//! A collection that was moved whole (RENAME, COPY) has all its rows written anew. Until they are
//! in the store it reads those it came from, its *origin*; nobody removes rows of a dead generation
//! before that is on disk.
//!
//! A handle knows bytes, not types: sub keys and values, in `data` or in the order of scores. What
//! they mean is said in `kind`. Reads of a broken store are reported ([`Shared::fail`]) and find
//! nothing.

mod arena;
mod build;
mod index;
mod lent;
mod scan;
mod walk;
mod whole;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use self::arena::Arena;
use self::build::Building;
pub(crate) use self::build::Job;
use self::index::Index;
use self::scan::Cursors;
pub(crate) use self::scan::cursor_in_memory;
pub(crate) use self::walk::Walk;
use self::whole::Uses;
pub use self::whole::WholeJob;
use super::cold::ColdRange;
use super::layout;
use super::shared::{Presence, Shared};
use super::{Family, RowSource, Tier};
use crate::weight::Counted;

/// Rows of a chunk of an index when it is made; it is split at twice as many.
const CHUNK_MOST: usize = 512;

/// Where the rows of a collection are.
#[derive(Clone)]
pub(crate) struct Place {
    pub source: Arc<dyn RowSource>,
    pub shared: Arc<Shared>,
    /// What the keys of all its rows begin with.
    pub base: Box<[u8]>,
}

pub(crate) struct Handle {
    home: Place,
    len: usize,
    counted: Counted,
    /// The family whose order is the collection's.
    order: Family,
    /// Rows of a chunk of the index.
    chunk: usize,
    unwritten: RefCell<Unwritten>,
    arena: Arena,
    index: RefCell<Option<Arc<Index>>>,
    cursors: RefCell<Cursors>,
    /// The index being made.
    building: RefCell<Option<Building>>,
    /// See [`Handle::echo`].
    is_echo: bool,
    presence: Option<Presence>,
    uses: RefCell<Uses>,
    /// The collection is being made whole.
    becoming: Option<Arc<WholeJob>>,
}

type Rows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What a log entry has done to a collection.
#[derive(Clone, Default)]
struct Unwritten {
    /// The entry; see [`Shared::epoch`].
    epoch: u64,
    data: Rows,
    scores: Rows,
    /// Where the rows are read until those of its own place are written.
    origin: Option<Place>,
    /// What to add to a list's positions to have those of the rows that are read.
    shift: i64,
}

impl Unwritten {
    fn of(&self, family: Family) -> &Rows {
        match family {
            Family::Score => &self.scores,
            _ => &self.data,
        }
    }
}

impl Handle {
    /// A collection of `len` elements; `threshold` is from how many on it is one on rows.
    pub fn new(place: Place, len: usize, order: Family, threshold: usize) -> Self {
        let epoch = place.shared.epoch();
        let life = place.shared.next_life();
        let uses = RefCell::new(Uses::from(place.shared.seconds()));
        Handle {
            cursors: RefCell::new(Cursors::new(&place.base, life)),
            presence: Some(Presence::new(&place.shared)),
            home: place,
            len,
            counted: Counted::guessed(len),
            order,
            chunk: (threshold / 8).clamp(2, CHUNK_MOST),
            unwritten: RefCell::new(Unwritten {
                epoch,
                ..Unwritten::default()
            }),
            arena: Arena::default(),
            index: RefCell::default(),
            building: RefCell::default(),
            is_echo: false,
            uses,
            becoming: None,
        }
    }

    /// A handle on the same rows for a dry_run: it reads what the real one would read (but not what
    /// the running entry has changed), and what is done to it is lost.
    pub fn echo(&self) -> Handle {
        self.take_built();
        self.refresh();
        let unwritten = self.unwritten.borrow();
        Handle {
            cursors: RefCell::new(Cursors::new(&self.home.base, 0)),
            home: self.home.clone(),
            len: self.len,
            counted: self.counted,
            order: self.order,
            chunk: self.chunk,
            unwritten: RefCell::new(Unwritten {
                epoch: unwritten.epoch,
                origin: unwritten.origin.clone(),
                shift: unwritten.shift,
                ..Unwritten::default()
            }),
            arena: Arena::default(),
            index: self.index.clone(),
            building: RefCell::default(),
            is_echo: true,
            presence: None,
            uses: RefCell::default(),
            becoming: None,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub fn base(&self) -> &[u8] {
        &self.home.base
    }

    /// See [`crate::weight`].
    #[inline]
    pub fn weight(&self) -> usize {
        self.counted.of(self.len)
    }

    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Whoever has counted otherwise before sees to the difference.
    pub fn set_counted(&mut self, counted: Counted) {
        self.counted = counted;
    }

    /// What a change of so many bytes does to the weight is guessed.
    fn doubt(&self, bytes: usize) {
        if !self.is_echo {
            let element = self.counted.of(1);
            self.home.shared.doubt(bytes.max(element) as u64);
        }
    }

    pub fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Forgets what is written by now.
    fn refresh(&self) {
        let epoch = self.home.shared.epoch();
        if self.unwritten.borrow().epoch != epoch
            && let Ok(mut unwritten) = self.unwritten.try_borrow_mut()
        {
            *unwritten = Unwritten {
                epoch,
                ..Unwritten::default()
            };
        }
    }

    /// Before a change: what was lent to earlier commands is not looked at any more.
    fn change(&mut self) -> &mut Unwritten {
        self.refresh();
        self.arena.clear();
        self.unwritten.get_mut()
    }

    /// Keeps a copy for as long as this is borrowed.
    fn keep(&self, bytes: &[u8]) -> &[u8] {
        if self.arena.is_empty() && !self.is_echo {
            self.home.shared.lend(&self.home.base);
        }
        self.arena.keep(bytes)
    }

    /// Frees what [`Handle::get`] and the walks have handed out.
    pub fn reclaim(&mut self) {
        self.arena.clear();
    }

    /// What `found` makes of the value of a row; `None` if there is no such row.
    pub fn read<R>(&self, family: Family, sub: &[u8], found: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.refresh();
        self.note_use();
        let unwritten = self.unwritten.borrow();
        if let Some(value) = unwritten.of(family).get(sub) {
            return value.as_deref().map(found);
        }
        let place = unwritten.origin.as_ref().unwrap_or(&self.home);
        let row = [&place.base, sub].concat();
        let (mut found, mut result) = (Some(found), None);
        let tier = place.shared.tier();
        let read = place.source.get(family, &row, tier, &mut |value| {
            result = found.take().map(|found| found(value));
        });
        place
            .shared
            .check(read, family, || ColdRange::Row(row.into()))?;
        result
    }

    pub fn get(&self, sub: &[u8]) -> Option<&[u8]> {
        self.read(Family::Data, sub, |value| self.keep(value))
    }

    pub fn contains(&self, sub: &[u8]) -> bool {
        self.read(Family::Data, sub, |_| ()).is_some()
    }

    /// Calls `each` with the rows `from <= sub key < to` (no end if `None`) until it says false.
    pub fn between(
        &self,
        family: Family,
        (from, to): (&[u8], Option<&[u8]>),
        descending: bool,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        self.note_use();
        let tier = self.home.shared.tier();
        self.between_in(tier, family, (from, to), descending, each);
    }

    /// As [`Handle::between`], reading as far as `tier` says.
    fn between_in(
        &self,
        tier: Tier,
        family: Family,
        (from, to): (&[u8], Option<&[u8]>),
        descending: bool,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        if to.is_some_and(|to| from >= to) {
            return;
        }
        self.refresh();
        let unwritten = self.unwritten.borrow();
        let place = unwritten.origin.as_ref().unwrap_or(&self.home);
        let first = [&place.base, from].concat();
        let end = match to {
            Some(to) => [&place.base, to].concat(),
            None => layout::behind(&place.base),
        };
        let end_bound = to.map_or(Bound::Unbounded, Bound::Excluded);
        let changed = unwritten.of(family);
        let mut changed = changed.range::<[u8], _>((Bound::Included(from), end_bound));
        let mut next_changed = || match descending {
            false => changed.next(),
            true => changed.next_back(),
        };
        let mut change = next_changed();
        let mut goes_on = true;
        // Where a read that meets cold rows has come to.
        let mut last: Option<Vec<u8>> = None;
        let read = place
            .source
            .scan(family, &first, &end, descending, tier, &mut |row, value| {
                if tier == Tier::Cache {
                    let last = last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(row);
                }
                let sub = row.get(place.base.len()..).unwrap_or_default();
                while let Some((key, changed)) = change {
                    let order = match descending {
                        false => (**key).cmp(sub),
                        true => sub.cmp(key),
                    };
                    if order == Ordering::Greater {
                        break;
                    }
                    change = next_changed();
                    if let Some(changed) = changed {
                        goes_on = each(key, changed);
                    }
                    if order == Ordering::Equal || !goes_on {
                        return goes_on;
                    }
                }
                goes_on = each(sub, value);
                goes_on
            });
        let rest = || {
            let (mut from, mut to) = (first.clone(), end.clone());
            if let Some(last) = last {
                match descending {
                    false => from = last,
                    true => to = [&last[..], &[0]].concat(),
                }
            }
            ColdRange::Between {
                from: from.into(),
                to: to.into(),
                descending,
            }
        };
        if place.shared.check(read, family, rest).is_none() {
            return;
        }
        while goes_on && let Some((key, changed)) = change {
            if let Some(changed) = changed {
                goes_on = each(key, changed);
            }
            change = next_changed();
        }
    }

    /// Calls `each` with all rows in the collection's order.
    pub fn all(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let order = self.order;
        self.between_in(Tier::All, order, (b"", None), false, &mut |sub, value| {
            each(sub, value);
            true
        });
    }

    /// Notes a row of `data`; neither length nor index.
    pub fn put(&mut self, sub: &[u8], value: &[u8]) {
        self.note_for_whole(sub, Some(value));
        self.doubt(sub.len() + value.len());
        self.change().data.insert(sub.into(), Some(value.into()));
    }

    pub fn delete(&mut self, sub: &[u8]) {
        self.note_for_whole(sub, None);
        self.doubt(sub.len());
        self.change().data.insert(sub.into(), None);
    }

    /// Notes a row in the order of scores, or that it goes.
    pub fn put_in_order(&mut self, sub: &[u8], value: Option<&[u8]>) {
        let value = value.map(Into::into);
        self.change().scores.insert(sub.into(), value);
    }

    /// Puts a row that is an element, in a collection whose order is that of `data`; whether it is new.
    pub fn insert(&mut self, sub: &[u8], value: &[u8]) -> bool {
        let is_new = !self.contains(sub);
        self.put(sub, value);
        if is_new {
            self.count_in(sub);
        }
        is_new
    }

    /// Removes such an element; whether it was there.
    pub fn remove(&mut self, sub: &[u8]) -> bool {
        let was_there = self.contains(sub);
        if was_there {
            self.delete(sub);
            self.count_out(sub);
        }
        was_there
    }

    /// The sub key of a list's position.
    pub fn at(&self, position: i64) -> [u8; 8] {
        self.refresh();
        layout::i64_bytes(position.wrapping_add(self.unwritten.borrow().shift))
    }

    /// A list's positions are counted from another one: all are less by `offset` from now on.
    pub fn shift(&mut self, offset: i64) {
        let unwritten = self.change();
        unwritten.shift = unwritten.shift.wrapping_add(offset);
    }

    /// All rows have been recorded in another place: they are its own from now on.
    pub fn move_to(&mut self, place: Place) {
        self.change();
        self.becoming = None;
        let epoch = place.shared.epoch();
        if !self.is_echo {
            self.presence = Some(Presence::new(&place.shared));
        }
        let former = std::mem::replace(&mut self.home, place);
        let unwritten = self.unwritten.get_mut();
        unwritten.epoch = epoch;
        unwritten.origin.get_or_insert(former);
    }

    /// Rows contradict each other.
    #[cold]
    pub fn fail(&self, what: &str) {
        if self.is_echo || self.home.shared.is_cold() {
            return; // not all of them were seen
        }
        let key = layout::split_sub_key(&self.home.base)
            .and_then(|(row, ..)| layout::parse_metadata_key(row))
            .map_or(&b""[..], |at| at.key);
        let key = key.escape_ascii();
        self.home
            .shared
            .fail(format!("rows of key '{key}' are damaged: {what}"));
    }

    /// Bytes of what is in memory.
    pub fn memory_usage(&self) -> usize {
        let unwritten = self.unwritten.borrow();
        let rows = unwritten.data.iter().chain(&unwritten.scores);
        let rows: usize = rows
            .map(|(sub, value)| 32 + sub.len() + value.as_ref().map_or(0, |value| value.len()))
            .sum();
        let index = self.index.borrow();
        size_of::<Self>()
            + self.home.base.len()
            + rows
            + self.arena.memory_usage()
            + index.as_ref().map_or(0, |index| index.memory_usage())
            + self.cursors.borrow().memory_usage()
    }
}

impl Clone for Handle {
    /// Another reader of the same rows, to be moved to a place of its own.
    fn clone(&self) -> Self {
        let life = self.home.shared.next_life();
        Handle {
            home: self.home.clone(),
            len: self.len,
            counted: self.counted,
            order: self.order,
            chunk: self.chunk,
            unwritten: self.unwritten.clone(),
            arena: Arena::default(),
            index: self.index.clone(),
            cursors: RefCell::new(Cursors::new(&self.home.base, life)),
            building: RefCell::default(),
            is_echo: self.is_echo,
            presence: (!self.is_echo).then(|| Presence::new(&self.home.shared)),
            uses: RefCell::default(),
            becoming: None,
        }
    }
}

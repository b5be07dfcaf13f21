//! What a write command sees: everything a [`View`] shows, and the means to change it.
//!
//! All changes of a key pass through here, so this is where interest is noted ([`KeyChange`]), where
//! the change counter moves, where an empty collection disappears and where a running snapshot
//! saves a value before it changes.

use std::ops::{Deref, DerefMut};

use base::limits::DATABASES;
use base::{DbIndex, Refusal};

use crate::edit::At;
use crate::kind::{Collection, Owned};
use crate::memory::access;
use crate::memory::entry::{Birth, Entry};
use crate::memory::table::Position;
use crate::rows::VOID;
use crate::view::Parts;
use crate::{Edit, Keyspace, Kind, Tuning, Value, View};

/// What happens to a key's deadline when its value is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expire {
    /// No deadline afterwards.
    Clear,
    /// As it was.
    Keep,
    /// At this Unix time in milliseconds.
    At(u64),
}

/// The write side: one command, or one EXEC, on the regions it was routed to.
pub struct Txn<'a> {
    view: View<'a>,
}

/// A key looked up to be changed.
pub(crate) struct Target<'t> {
    pub space: &'t mut Keyspace,
    tuning: &'t Tuning,
    pub db: usize,
    hash: u64,
    now_ms: u64,
    found: Option<Position>,
    /// As [`View::touches`].
    touches: bool,
}

impl<'a> Txn<'a> {
    pub fn new(view: View<'a>) -> Self {
        Txn { view }
    }

    /// The region that has a key.
    pub(crate) fn space_mut(&mut self, key: &[u8]) -> &mut Keyspace {
        match &mut self.view.parts {
            Parts::One(space) => space,
            Parts::Many { spaces, router } => &mut *spaces[router.position(key)],
        }
    }

    /// The only region, or the first: what names no key runs on one.
    pub(crate) fn any_space_mut(&mut self) -> Option<&mut Keyspace> {
        match &mut self.view.parts {
            Parts::One(space) => Some(space),
            Parts::Many { spaces, .. } => spaces.first_mut().map(|space| &mut **space),
        }
    }

    /// Looks a key up to change it; one whose time has come is removed first.
    #[inline]
    pub(crate) fn target(&mut self, key: &[u8]) -> Target<'_> {
        let View {
            parts,
            db,
            now_ms,
            tuning,
            void,
            is_dry_run,
            touches,
            ..
        } = &mut self.view;
        let space: &mut Keyspace = match parts {
            Parts::One(space) => space,
            Parts::Many { spaces, router } => &mut *spaces[router.position(key)],
        };
        let (mut db, now_ms, tuning) = (*db as usize, *now_ms, *tuning);
        let hash = space.hash(key);
        let wanted = db;
        // Nothing a void command does is to stay.
        if space.is_durable() && void.get() {
            db = VOID;
        }
        let mut found = space.find(db, hash, key, now_ms);
        if *is_dry_run && found.is_none() {
            found = space.echo(wanted, hash, key);
        } else if found.is_none() && space.is_durable() && !space.is_resident(db as DbIndex, key) {
            space.note_missing(db as DbIndex, key);
            void.set(true);
            db = VOID;
            found = space.find(db, hash, key, now_ms);
        }
        Target {
            space,
            tuning,
            db,
            hash,
            now_ms,
            found,
            touches: *touches,
        }
    }

    /// The collection at `key` to be changed; `None` if there is none.
    pub(crate) fn collection_mut<T: Collection>(
        &mut self,
        key: &[u8],
    ) -> Result<Option<Edit<'_, T>>, Refusal> {
        Ok(self.target(key).open(T::KIND)?.map(Edit::new))
    }

    /// As [`Txn::collection_mut`], an empty one being made if there is none.
    pub(crate) fn collection_or_new<T: Collection>(
        &mut self,
        key: &[u8],
    ) -> Result<Edit<'_, T>, Refusal> {
        let at = self.target(key).open_or(T::KIND, |birth| {
            Entry::value(key, T::into_value(Box::default()), birth)
        })?;
        Ok(Edit::new(at))
    }

    /// Removes `key`; whether it was there. Big values go to the garbage list, not freed here.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let target = self.target(key);
        let Some(position) = target.found else {
            return false;
        };
        target.space.discard(target.db, position, target.hash);
        target.space.changed(target.db, key, 1);
        true
    }

    /// Sets (`Some`) or clears (`None`) the deadline of an existing key; whether the key exists.
    /// A deadline not after `now_ms` removes the key.
    pub fn set_expire(&mut self, key: &[u8], at_ms: Option<u64>) -> bool {
        let target = self.target(key);
        let Some(position) = target.found else {
            return false;
        };
        let (space, db, hash) = (target.space, target.db, target.hash);
        if at_ms.is_some_and(|at_ms| at_ms <= target.now_ms) {
            space.discard(db, position, hash);
        } else {
            space.preserve(db, position);
            space.mark(db, position);
            space.dbs[db].set_deadline(position, hash, at_ms);
        }
        space.changed(db, key, 1);
        true
    }

    /// Takes value and deadline out (`RENAME`, `MOVE`), leaving nothing.
    pub fn take(&mut self, key: &[u8]) -> Option<Owned> {
        let target = self.target(key);
        let position = target.found?;
        let (space, db) = (target.space, target.db);
        space.preserve(db, position);
        space.mark_gone(db, position);
        let entry = space.dbs[db].remove(position, target.hash)?;
        space.dbs[db].count_out(entry.borrow());
        space.changed(db, key, 1);
        Some(Owned {
            expire_at_ms: entry.borrow().deadline_ms(),
            value: entry.into_value(),
        })
    }

    /// Puts a value at `key`, replacing what is there. An empty collection only removes.
    pub fn put(&mut self, key: &[u8], owned: Owned) {
        if owned.value.is_empty_collection() {
            self.remove(key);
            return;
        }
        let expire = owned.expire_at_ms.map_or(Expire::Clear, Expire::At);
        let target = self.target(key);
        target.put(key, expire, |birth| Entry::value(key, owned.value, birth));
    }

    /// Puts a value without deadline at `key`, replacing what is there (`*STORE`).
    pub fn put_value(&mut self, key: &[u8], value: Value) {
        self.put(
            key,
            Owned {
                value,
                expire_at_ms: None,
            },
        );
    }

    /// Empties the current database; O(1) here, the keys go to the garbage list.
    pub fn flush_db(&mut self) {
        if self.is_void() {
            return;
        }
        let (db, now_ms) = (self.db, self.now_ms);
        self.each_space(|space| space.flush(db, now_ms));
    }

    pub fn flush_all(&mut self) {
        if self.is_void() {
            return;
        }
        let now_ms = self.now_ms;
        self.each_space(|space| (0..DATABASES).for_each(|db| space.flush(db, now_ms)));
    }

    pub fn swap_db(&mut self, a: DbIndex, b: DbIndex) {
        if a != b && a < DATABASES && b < DATABASES && !self.is_void() {
            let now_ms = self.now_ms;
            self.each_space(|space| space.swap(a, b, now_ms));
        }
    }

    fn each_space(&mut self, mut each: impl FnMut(&mut Keyspace)) {
        match &mut self.view.parts {
            Parts::One(space) => each(space),
            Parts::Many { spaces, .. } => spaces.iter_mut().for_each(|space| each(space)),
        }
    }
}

impl<'t> Target<'t> {
    /// Tries to overwrite the value in place by `set`, which is possible if the deadline needs no
    /// more and no less room than before; whether it did.
    #[inline]
    pub fn overwrite(
        &mut self,
        expire: Expire,
        set: impl FnOnce(crate::memory::entry::EntryMut<'_>) -> bool,
    ) -> bool {
        let Some(position) = self.found else {
            return false;
        };
        let db = &self.space.dbs[self.db];
        let Some(entry) = db.table.at(position) else {
            return false;
        };
        let had = entry.deadline_ms().is_some();
        let fits = match expire {
            Expire::Clear => !had,
            Expire::Keep => true,
            Expire::At(at_ms) => had && at_ms > self.now_ms,
        };
        if !fits || entry.kind() != Kind::String {
            return false;
        }
        self.space.preserve(self.db, position);
        self.space.mark(self.db, position);
        let db = &mut self.space.dbs[self.db];
        let before = db.weight_at(position);
        if !db.entry_mut(position).is_some_and(set) {
            return false;
        }
        db.bytes += db.weight_at(position) - before;
        if let Expire::At(at_ms) = expire {
            db.set_deadline(position, self.hash, Some(at_ms));
        }
        if let Some(entry) = db.table.at(position) {
            entry.set_clock(access::born(self.tuning, self.now_ms));
        }
        true
    }

    /// Puts a new entry at the key, replacing what is there.
    pub fn put(self, key: &[u8], expire: Expire, make: impl FnOnce(Birth) -> Entry) {
        let Target {
            space, db, hash, ..
        } = self;
        let deadline_ms = match expire {
            Expire::Clear => None,
            Expire::At(at_ms) => Some(at_ms),
            Expire::Keep => self
                .found
                .and_then(|position| space.dbs[db].table.at(position)?.deadline_ms()),
        };
        if deadline_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
            // Due at birth: the key is as good as removed. Who watches it is told, also if there was none.
            if let Some(position) = self.found {
                space.discard(db, position, hash);
            }
            space.changed(db, key, 1);
            return;
        }
        let entry = make(space.birth(deadline_ms, self.tuning, self.now_ms));
        match self.found {
            Some(position) => {
                space.mark(db, position);
                let before = space.dbs[db].weight_at(position);
                space.swap_entry(db, position, hash, entry);
                space.dbs[db].bytes += space.dbs[db].weight_at(position) - before;
                space.adopt(db, position, false);
            }
            None => {
                let position = space.dbs[db].insert(hash, entry);
                space.dbs[db].count_in(position);
                space.adopt(db, position, true);
            }
        }
        space.changed(db, key, 1);
    }

    /// Opens the value for editing if it is there and of this kind.
    #[inline]
    pub fn open(self, kind: Kind) -> Result<Option<At<'t>>, Refusal> {
        let Some(position) = self.found else {
            return Ok(None);
        };
        let Some(entry) = self.space.dbs[self.db].table.at(position) else {
            return Ok(None);
        };
        if entry.kind() != kind {
            return Err(Refusal::WrongType);
        }
        let random = || fastrand::Rng::with_seed(self.hash ^ self.now_ms).f64();
        if entry.is_on_trial() {
            entry.set_on_trial(!self.touches);
        } else if self.touches {
            entry.set_clock(access::touched(
                entry.clock(),
                self.tuning,
                self.now_ms,
                random,
            ));
        }
        self.space.preserve(self.db, position);
        Ok(Some(self.at(position, false)))
    }

    /// As [`Target::open`], `make` giving the entry if there is none.
    #[inline]
    pub fn open_or(self, kind: Kind, make: impl FnOnce(Birth) -> Entry) -> Result<At<'t>, Refusal> {
        if self.found.is_none() {
            let entry = make(self.space.birth(None, self.tuning, self.now_ms));
            let position = self.space.dbs[self.db].insert(self.hash, entry);
            self.space.dbs[self.db].count_in(position);
            self.space.adopt(self.db, position, true);
            return Ok(self.at(position, true));
        }
        match self.open(kind)? {
            Some(at) => Ok(at),
            None => unreachable!("the key was found"),
        }
    }

    fn at(self, position: Position, fresh: bool) -> At<'t> {
        At {
            weight: self.space.dbs[self.db].weight_at(position),
            space: self.space,
            db: self.db,
            position,
            hash: self.hash,
            tuning: self.tuning,
            fresh,
            changes: 0,
        }
    }
}

impl<'a> Deref for Txn<'a> {
    type Target = View<'a>;

    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl<'a> DerefMut for Txn<'a> {
    fn deref_mut(&mut self) -> &mut View<'a> {
        &mut self.view
    }
}

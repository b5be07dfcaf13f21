//! The data of one region: sixteen databases, the keys somebody is interested in, counters.
//!
//! Here are the steps every change is made of, whoever asks for it: what becomes of an entry that
//! is replaced or removed, what a running snapshot has to keep, who is told. [`crate::Txn`] puts
//! them together for commands; expiry and eviction use them too.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use base::DbIndex;
use base::limits::DATABASES;

use crate::memory::access;
use crate::memory::db::Db;
use crate::memory::entry::{Birth, Entry, EntryRef};
use crate::memory::table::Position;
use crate::memory::{Pool, Snapshot};
use crate::rows::{Durable, VOID};
use crate::tables::Tables;
use crate::{Garbage, KeyChange, Tuning};

/// Values of more elements are freed away from the command path.
const GARBAGE_ELEMENTS: usize = 64;
/// Strings of more bytes are freed away from the command path: one block, so freeing a smaller one takes no time.
const GARBAGE_BYTES: usize = 1024 * 1024;

/// Due keys remembered for [`Keyspace::expire_met`] at most; the rest waits for its turn.
const MET_MOST: usize = 1024;

/// Database, key and deadline of a key whose time has come.
pub type DueKey = (DbIndex, Box<[u8]>, u64);

/// Says which of the regions held together has a key.
pub trait Router {
    /// Position in the slice given to [`crate::View::many`].
    fn position(&self, key: &[u8]) -> usize;
}

/// One region. Plain data: it may be moved to another thread as a whole.
pub struct Keyspace {
    pub(crate) dbs: Vec<Db>,
    /// Watched keys, how often in which database. Usually empty.
    interest: BTreeMap<Box<[u8]>, Vec<(DbIndex, usize)>>,
    key_changes: Vec<KeyChange>,
    pub(crate) garbage: Vec<Garbage>,
    pub(crate) snapshot: Option<Box<Snapshot>>,
    /// See [`crate::memory::Snapshot`].
    pub(crate) parity: bool,
    pub(crate) pool: Pool,
    pub(crate) changes: u64,
    hits: Cell<u64>,
    misses: Cell<u64>,
    expired: u64,
    /// Keys that were due when a read met them; see [`Keyspace::expire_met`].
    met: RefCell<Vec<DueKey>>,
    pub(crate) evicted: u64,
    /// The time last told to [`Keyspace::expire_due`].
    told_ms: u64,
    /// If its data are in rows and memory is their cache.
    pub(crate) durable: Option<Box<Durable>>,
    /// Rows of SQL tables; `None` as long as no table was declared.
    pub(crate) tables: Option<Box<Tables>>,
}

impl Keyspace {
    /// An empty region. `seed` keys its hash tables.
    pub fn new(seed: u64) -> Self {
        Keyspace {
            dbs: (0..DATABASES).map(|db| Db::new(seed, db)).collect(),
            interest: BTreeMap::new(),
            key_changes: Vec::new(),
            garbage: Vec::new(),
            snapshot: None,
            parity: false,
            pool: Pool::default(),
            changes: 0,
            hits: Cell::new(0),
            misses: Cell::new(0),
            expired: 0,
            met: RefCell::default(),
            evicted: 0,
            told_ms: 0,
            durable: None,
            tables: None,
        }
    }

    /// Whether looking ahead pays in this database: a small table is in the cache anyway.
    #[inline]
    pub fn is_worth_prefetching(&self, db: DbIndex) -> bool {
        let db = self.dbs.get(db as usize);
        db.is_some_and(|db| db.table.is_worth_prefetching())
    }

    /// Asks for the part of the table where `key` is looked up; the key's hash, for
    /// [`Keyspace::prefetch_entry`] after other keys have had their turn.
    #[inline]
    pub fn prefetch_place(&self, db: DbIndex, key: &[u8]) -> u64 {
        let Some(db) = self.dbs.get(db as usize) else {
            return 0;
        };
        let hash = db.table.hash(key);
        db.table.prefetch(hash);
        hash
    }

    /// Asks for all that lookups of these keys will touch, if looking ahead pays.
    pub fn prefetch_keys<'k>(&self, db: DbIndex, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(db) = self.dbs.get(db as usize) {
            db.table.prefetch_all(keys);
        }
    }

    /// Asks for members of the collection at a key, if it is a big one: the second and third
    /// arguments of commands on it, one of which is the member.
    pub fn prefetch_members<'k>(
        &self,
        db: DbIndex,
        key: &[u8],
        hash: u64,
        arguments: impl Iterator<Item = [&'k [u8]; 2]>,
    ) {
        let Some(db) = self.dbs.get(db as usize) else {
            return;
        };
        if let Some(entry) = db.table.get(hash, key) {
            entry.value().prefetch(arguments);
        }
    }

    /// Asks for the entry of the key with this hash.
    #[inline]
    pub fn prefetch_entry(&self, db: DbIndex, hash: u64) {
        if let Some(db) = self.dbs.get(db as usize) {
            db.table.prefetch_element(hash);
        }
    }

    /// Starts reporting changes of a key ([`KeyChange`]); calls nest.
    pub fn watch(&mut self, db: DbIndex, key: &[u8]) {
        if !self.interest.contains_key(key) {
            self.interest.insert(key.into(), Vec::new());
        }
        let Some(counts) = self.interest.get_mut(key) else {
            return;
        };
        match counts.iter_mut().find(|(at, _)| *at == db) {
            Some((_, count)) => *count += 1,
            None => counts.push((db, 1)),
        }
    }

    /// Ends one [`Keyspace::watch`].
    pub fn unwatch(&mut self, db: DbIndex, key: &[u8]) {
        let Some(counts) = self.interest.get_mut(key) else {
            return;
        };
        if let Some(at) = counts.iter().position(|(at, _)| *at == db) {
            counts[at].1 -= 1;
            if counts[at].1 == 0 {
                counts.swap_remove(at);
            }
        }
        if counts.is_empty() {
            self.interest.remove(key);
        }
    }

    /// Whether effects wait to be taken; the check made after every write.
    #[inline]
    pub fn has_key_changes(&self) -> bool {
        !self.key_changes.is_empty()
    }

    /// What was not taken yet.
    pub fn key_changes(&self) -> &[KeyChange] {
        &self.key_changes
    }

    pub fn take_key_changes(&mut self) -> Vec<KeyChange> {
        std::mem::take(&mut self.key_changes)
    }

    /// Takes over from a former keyspace of the same region what is no part of its state, and the first
    /// so many of its effects.
    pub(crate) fn succeed(&mut self, former: &mut Keyspace, key_changes: usize) {
        self.interest = std::mem::take(&mut former.interest);
        self.key_changes = std::mem::take(&mut former.key_changes);
        self.key_changes.truncate(key_changes);
        self.garbage = std::mem::take(&mut former.garbage);
        self.changes = former.changes;
        self.hits = former.hits.clone();
        self.misses = former.misses.clone();
        self.expired = former.expired;
        self.evicted = former.evicted;
        self.told_ms = former.told_ms;
        for db in &mut self.dbs {
            let former = former.dbs.iter().find(|it| it.index_id == db.index_id);
            db.bytes = former.map_or(0, |former| former.bytes);
        }
    }

    /// Whether something big waits to be freed away from the command path.
    #[inline]
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Values to be dropped, on another thread or in slices.
    pub fn take_garbage(&mut self) -> Vec<Garbage> {
        std::mem::take(&mut self.garbage)
    }

    /// Removes up to `limit` keys whose deadline is not after `now_ms`; how many were removed.
    /// Fewer than `limit` means nothing due is left. None of a durable keyspace, where only log
    /// entries remove: see [`Keyspace::due`].
    pub fn expire_due(&mut self, now_ms: u64, limit: usize) -> usize {
        self.told_ms = now_ms;
        let mut removed = 0;
        if self.durable.is_some() {
            return removed;
        }
        for db in 0..self.dbs.len() {
            while removed < limit
                && self.dbs[db]
                    .next_deadline_ms()
                    .is_some_and(|at| at <= now_ms)
            {
                let Some((position, hash)) = self.dbs[db].earliest() else {
                    break;
                };
                self.expire(db, position, hash);
                removed += 1;
            }
        }
        removed
    }

    /// Whether reads met keys whose time had come.
    #[inline]
    pub fn has_met_due(&self) -> bool {
        !self.met.borrow().is_empty()
    }

    /// Removes the due keys that reads have met: they were not seen, but a read cannot remove them
    /// itself. Called after the command, so that what was found missing is not counted any more.
    /// Of a durable keyspace they stay; see [`Keyspace::take_met`].
    #[cold]
    pub fn expire_met(&mut self, now_ms: u64) {
        if self.durable.is_some() {
            return;
        }
        for (db, key, _) in self.met.take() {
            let hash = self.hash(&key);
            self.find(db as usize, hash, &key, now_ms);
        }
    }

    /// The due keys that reads have met, each once, with their deadlines: what the server may
    /// propose to expire ([`Keyspace::expire_key`]).
    pub fn take_met(&mut self) -> Vec<DueKey> {
        let mut met = self.met.take();
        met.sort_unstable();
        met.dedup();
        met
    }

    /// Forgets the due keys that reads have met (nothing expires while clients are paused).
    pub fn forget_met(&mut self) {
        self.met.get_mut().clear();
    }

    /// Remembers a key that a read found due.
    #[cold]
    pub(crate) fn meet(&self, db: DbIndex, key: &[u8], deadline_ms: Option<u64>) {
        let mut met = self.met.borrow_mut();
        if met.len() < MET_MOST {
            met.push((db, key.into(), deadline_ms.unwrap_or(0)));
        }
    }

    /// Earliest deadline in any database.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.dbs.iter().filter_map(Db::next_deadline_ms).min()
    }

    /// Changes since creation (`rdb_changes_since_last_save` is a difference of two readings).
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Reads that found their key.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Reads that found no key.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Keys removed because their time had come.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Keys given up for memory.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Starts the four counters anew (`CONFIG RESETSTAT`).
    pub fn reset_counters(&mut self) {
        self.hits.set(0);
        self.misses.set(0);
        self.expired = 0;
        self.evicted = 0;
    }

    /// (keys, keys with a deadline, mean time to live in ms) of a database, for `INFO keyspace`.
    pub fn db_stats(&self, db: DbIndex) -> (usize, usize, u64) {
        let Some(db) = self.dbs.get(db as usize) else {
            return (0, 0, 0);
        };
        let mean_ms = db.mean_deadline_ms().saturating_sub(self.told_ms);
        (db.len(), db.with_deadline(), mean_ms)
    }

    /// Bytes of the tables of a database, without its entries (`MEMORY STATS`).
    pub fn table_bytes(&self, db: DbIndex) -> usize {
        self.dbs
            .get(db as usize)
            .map_or(0, |db| db.table.memory_usage())
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.dbs[0].table.hash(key)
    }

    #[inline]
    pub(crate) fn count_read(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
    }

    #[inline]
    pub(crate) fn get(&self, db: DbIndex, key: &[u8], now_ms: u64) -> Option<EntryRef<'_>> {
        let table = &self.dbs.get(db as usize)?.table;
        let entry = table.get(self.hash(key), key)?;
        if entry.is_due(now_ms) {
            self.meet(db, key, entry.deadline_ms());
            return None;
        }
        Some(entry)
    }

    /// Where a key is that is not due; one that is due is removed.
    #[inline]
    pub(crate) fn find(
        &mut self,
        db: usize,
        hash: u64,
        key: &[u8],
        now_ms: u64,
    ) -> Option<Position> {
        let table = &self.dbs.get(db)?.table;
        let position = table.find(hash, key)?;
        if table.at(position)?.is_due(now_ms) {
            self.expire(db, position, hash);
            return None;
        }
        Some(position)
    }

    /// What a new entry of this moment is born with.
    #[inline]
    pub(crate) fn birth(&self, deadline_ms: Option<u64>, tuning: &Tuning, now_ms: u64) -> Birth {
        Birth {
            deadline_ms,
            clock: access::born(tuning, now_ms),
            parity: self.parity,
            marked: false,
        }
    }

    /// Puts an entry in the place of another of the same key.
    pub(crate) fn swap_entry(&mut self, db: usize, position: Position, hash: u64, entry: Entry) {
        if let Some(former) = self.dbs[db].replace(position, hash, entry) {
            if self.is_durable() {
                self.orphan_former(db, former.borrow());
            }
            self.retire(db, former);
        }
    }

    /// Removes an entry; nobody is told.
    pub(crate) fn discard(&mut self, db: usize, position: Position, hash: u64) {
        self.mark_gone(db, position);
        if let Some(former) = self.dbs[db].remove(position, hash) {
            self.dbs[db].count_out(former.borrow());
            self.retire(db, former);
        }
    }

    /// Removes a due key. Nobody is told: it was gone before for everybody who looked, and whoever
    /// watches it compares what was there with what is.
    pub(crate) fn expire(&mut self, db: usize, position: Position, hash: u64) {
        self.mark_gone(db, position);
        if let Some(former) = self.dbs[db].remove(position, hash) {
            self.expired += 1;
            self.dbs[db].count_out(former.borrow());
            self.retire(db, former);
        }
    }

    /// Frees an entry, elsewhere if it is big.
    #[inline]
    pub(crate) fn dispose(&mut self, entry: Entry) {
        let look = entry.borrow();
        if look.elements().is_some_and(|n| n > GARBAGE_ELEMENTS)
            || look.raw_capacity() > GARBAGE_BYTES
        {
            let bytes = look.freed_bytes();
            self.garbage.push(Garbage::new(entry, bytes));
        }
    }

    /// Counts changes of a key and tells those interested in it.
    #[inline]
    pub(crate) fn changed(&mut self, db: usize, key: &[u8], n: usize) {
        if db == VOID {
            return;
        }
        self.changes += n as u64;
        self.note(db, key);
    }

    /// Tells those interested in a key.
    #[inline]
    pub(crate) fn note(&mut self, db: usize, key: &[u8]) {
        if !self.interest.is_empty() {
            self.note_slow(db as DbIndex, key);
        }
    }

    fn note_slow(&mut self, db: DbIndex, key: &[u8]) {
        let Some(counts) = self.interest.get(key) else {
            return;
        };
        if counts.iter().any(|(at, _)| *at == db) {
            let key = key.into();
            self.key_changes.push(KeyChange { db, key });
        }
    }

    /// As [`Keyspace::note`], for the entry at a position.
    pub(crate) fn note_at(&mut self, db: usize, position: Position, n: usize) {
        if db == VOID {
            return;
        }
        self.changes += n as u64;
        if !self.interest.is_empty()
            && let Some(entry) = self.dbs[db].table.at(position)
        {
            let key: Box<[u8]> = entry.key().into();
            self.note_slow(db as DbIndex, &key);
        }
    }

    /// Watched keys that exist (and are not due) in one of the databases, each with every one of
    /// these it is watched in: what a flush or a swap may change.
    fn watched_in(&self, dbs: &[DbIndex], now_ms: u64) -> Vec<KeyChange> {
        let mut key_changes = Vec::new();
        for (key, counts) in &self.interest {
            let hash = self.hash(key);
            // Of a key that is not in memory, that it may exist.
            let exists = dbs.iter().map(|&db| &self.dbs[db as usize]).any(|db| {
                db.get(hash, key, now_ms).is_some()
                    || (db.cold_keys > 0
                        && db.table.find(hash, key).is_none()
                        && !db.absent.contains(key))
            });
            if exists {
                let watched = counts.iter().filter(|(db, _)| dbs.contains(db));
                key_changes.extend(watched.map(|&(db, _)| KeyChange {
                    db,
                    key: key.clone(),
                }));
            }
        }
        key_changes
    }

    /// Empties a database in O(1); the entries go to the garbage list.
    pub(crate) fn flush(&mut self, db: DbIndex, now_ms: u64) {
        if self.dbs[db as usize].len() == 0 {
            return;
        }
        let key_changes = self.watched_in(&[db], now_ms);
        self.key_changes.extend(key_changes);
        let origin = self.dbs[db as usize].origin;
        self.changes += self.dbs[db as usize].len() as u64;
        let (table, deadlines) = self.dbs[db as usize].take();
        self.renew_index_id(db as usize);
        self.garbage.push(Garbage::new(deadlines, 0));
        self.retire_table(origin, table);
    }

    pub(crate) fn swap(&mut self, a: DbIndex, b: DbIndex, now_ms: u64) {
        let key_changes = self.watched_in(&[a, b], now_ms);
        self.key_changes.extend(key_changes);
        self.dbs.swap(a as usize, b as usize);
        self.changes += 1;
        if let Some(durable) = &mut self.durable {
            durable.state_changed = true;
        }
    }
}

//! What a read command sees: the values of the regions it was routed to, at one moment.
//!
//! Nothing here removes a key whose time has come; it is only not seen, and remembered for
//! [`Keyspace::expire_met`].

use std::borrow::Cow;

use base::{DbIndex, Refusal};

use crate::kind::Collection;
use crate::memory::access;
use crate::memory::entry::EntryRef;
use crate::{Keyspace, Kind, Owned, Router, Tuning, ValueRef};

/// Bytes of table and allocator behind each key, on average (`MEMORY USAGE`).
const TABLE_BYTES_PER_KEY: usize = 16;
/// Bits of a SCAN cursor that belong to the table; the region's number is above them.
pub const CURSOR_BITS: u32 = crate::memory::table::CURSOR_BITS;

/// The read side. `&self` everywhere, so several values may be held at once (`SINTER`).
pub struct View<'a> {
    pub(crate) parts: Parts<'a>,
    pub(crate) db: DbIndex,
    pub(crate) now_ms: u64,
    pub(crate) seed: std::cell::Cell<u64>,
    pub(crate) tuning: &'a Tuning,
    /// A key was needed that is not in memory: nothing this view does counts any more.
    pub(crate) void: std::cell::Cell<bool>,
    /// Nothing ever counts: see `rows/cold.rs`.
    pub(crate) is_dry_run: bool,
    /// Accesses move the clocks of LRU and LFU.
    pub(crate) touches: bool,
}

/// The regions in reach: one (nearly always), or several held together for a multi-key command.
pub(crate) enum Parts<'a> {
    One(&'a mut Keyspace),
    Many {
        spaces: &'a mut [&'a mut Keyspace],
        router: &'a dyn Router,
    },
}

impl<'a> View<'a> {
    /// A view of one region.
    #[inline]
    pub fn one(
        space: &'a mut Keyspace,
        db: DbIndex,
        now_ms: u64,
        seed: u64,
        tuning: &'a Tuning,
    ) -> Self {
        space.reclaim();
        View {
            parts: Parts::One(space),
            db,
            now_ms,
            seed: seed.into(),
            tuning,
            void: false.into(),
            is_dry_run: false,
            touches: true,
        }
    }

    /// A view of several regions; `router` says which of `spaces` (by position) holds a key.
    pub fn many(
        spaces: &'a mut [&'a mut Keyspace],
        router: &'a dyn Router,
        db: DbIndex,
        now_ms: u64,
        seed: u64,
        tuning: &'a Tuning,
    ) -> Self {
        spaces.iter_mut().for_each(|space| space.reclaim());
        View {
            parts: Parts::Many { spaces, router },
            db,
            now_ms,
            seed: seed.into(),
            tuning,
            void: false.into(),
            is_dry_run: false,
            touches: true,
        }
    }

    /// A command on this view finds out what it will read, and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.void.set(true);
        self.is_dry_run = true;
        self
    }

    /// Accesses leave the clocks of LRU and LFU alone (`CLIENT NO-TOUCH`).
    pub fn without_touching(mut self) -> Self {
        self.touches = false;
        self
    }

    /// Whether a key was needed that is not in memory: what the command says does not count, it
    /// has to be run again when the keys of [`Keyspace::take_missing`] are loaded.
    pub fn is_void(&self) -> bool {
        self.void.get()
    }

    /// The command's moment, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The database commands work on.
    pub fn db(&self) -> DbIndex {
        self.db
    }

    /// Works on another database from here on (`MOVE`, `COPY … DB`).
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
    }

    pub fn tuning(&self) -> &Tuning {
        self.tuning
    }

    /// A generator for this command; each call gives another sequence.
    pub fn rng(&self) -> fastrand::Rng {
        let seed = self.seed.get();
        self.seed.set(
            seed.wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407),
        );
        fastrand::Rng::with_seed(seed)
    }

    #[inline]
    pub(crate) fn space(&self, key: &[u8]) -> &Keyspace {
        match &self.parts {
            Parts::One(space) => space,
            Parts::Many { spaces, router } => spaces[router.position(key)],
        }
    }

    #[inline]
    fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let space = self.space(key);
        let found = space.get(self.db, key, self.now_ms);
        if found.is_none() && space.is_durable() {
            self.miss(space, key);
        }
        found
    }

    /// After a key of a durable keyspace was not found: whether it may be in its rows.
    #[cold]
    fn miss(&self, space: &Keyspace, key: &[u8]) -> bool {
        let missing = !space.is_resident(self.db, key);
        if missing {
            space.note_missing(self.db, key);
            self.void.set(true);
        }
        missing
    }

    /// As [`View::find`], counted as an access.
    #[inline]
    pub(crate) fn access(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let space = self.space(key);
        let found = space.get(self.db, key, self.now_ms);
        if found.is_none() && space.is_durable() && self.miss(space, key) {
            return None;
        }
        if self.is_dry_run {
            return found;
        }
        space.count_read(found.is_some());
        if let Some(entry) = found.filter(|_| self.touches) {
            if entry.is_on_trial() {
                entry.set_on_trial(false);
                return found;
            }
            let random = || self.rng().f64();
            let clock = access::touched(entry.clock(), self.tuning, self.now_ms, random);
            if clock != entry.clock() {
                entry.set_clock(clock);
            }
        }
        found
    }

    fn spaces(&self) -> impl Iterator<Item = &Keyspace> {
        (0..).map_while(|position| self.part(position))
    }

    fn part(&self, position: usize) -> Option<&Keyspace> {
        match &self.parts {
            Parts::One(space) => (position == 0).then_some(&**space),
            Parts::Many { spaces, .. } => spaces.get(position).map(|space| &**space),
        }
    }

    /// The collection at `key`; `None` if there is no such key; WRONGTYPE for another type.
    pub(crate) fn collection<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, Refusal> {
        match self.access(key) {
            None => Ok(None),
            Some(entry) => entry.collection().map(Some).ok_or(Refusal::WrongType),
        }
    }

    /// The value at `key` whatever its type. Counts as an access.
    pub fn value(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.access(key).map(EntryRef::value)
    }

    /// As [`View::value`] but leaves clocks and counters alone (`OBJECT`, `TYPE`, `DEBUG`).
    pub fn peek(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        self.find(key).map(EntryRef::value)
    }

    /// The type at `key`, without counting as an access.
    pub fn kind(&self, key: &[u8]) -> Option<Kind> {
        self.find(key).map(EntryRef::kind)
    }

    /// Whether `key` exists: a hit or a miss, which leaves its clock alone.
    pub fn exists(&self, key: &[u8]) -> bool {
        let found = self.find(key).is_some();
        self.count_read(key, found);
        found
    }

    /// Counts a hit or a miss, for commands that looked without counting (`TYPE`, `TTL`, `OBJECT`).
    #[inline]
    pub fn count_read(&self, key: &[u8], found: bool) {
        if !self.is_dry_run {
            self.space(key).count_read(found);
        }
    }

    /// `None`: no such key; `Some(None)`: no deadline; else the deadline in Unix milliseconds.
    pub fn expire_at(&self, key: &[u8]) -> Option<Option<u64>> {
        self.find(key).map(EntryRef::deadline_ms)
    }

    /// A deep copy of the value and its deadline (`COPY`).
    pub fn clone_value(&self, key: &[u8]) -> Option<Owned> {
        self.find(key).map(|entry| Owned {
            value: entry.to_value(),
            expire_at_ms: entry.deadline_ms(),
        })
    }

    /// As `OBJECT ENCODING` names it: int, embstr, raw, listpack, quicklist, intset, hashtable, skiplist.
    pub fn encoding(&self, key: &[u8]) -> Option<&'static str> {
        self.find(key).map(EntryRef::encoding)
    }

    /// Milliseconds since the last access (LRU policies).
    pub fn idle_ms(&self, key: &[u8]) -> Option<u64> {
        self.find(key)
            .map(|entry| access::idle_ms(entry.clock(), self.now_ms))
    }

    /// The logarithmic access counter (LFU policies).
    pub fn frequency(&self, key: &[u8]) -> Option<u8> {
        self.find(key)
            .map(|entry| access::frequency(entry.clock(), self.now_ms, self.tuning))
    }

    /// Bytes of memory behind `key`, its entry included (`MEMORY USAGE`).
    pub fn memory_usage(&self, key: &[u8]) -> Option<usize> {
        self.find(key)
            .map(|entry| entry.memory_usage() + TABLE_BYTES_PER_KEY)
    }

    /// Number of keys in the database (keys past their deadline but not yet removed included,
    /// as in Redis' DBSIZE).
    pub fn len(&self) -> usize {
        let db = self.db as usize;
        self.spaces().map(|space| space.dbs[db].len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that have a deadline.
    pub fn len_with_expiry(&self) -> usize {
        let db = self.db as usize;
        self.spaces()
            .map(|space| space.dbs[db].with_deadline())
            .sum()
    }

    /// A key at random, `None` only if there is none (that is not past its deadline).
    pub fn random_key(&self) -> Option<Cow<'_, [u8]>> {
        let db = self.db as usize;
        let total = self.len();
        if total == 0 {
            return None;
        }
        let mut rng = self.rng();
        for _ in 0..100 {
            let mut at = rng.usize(..total);
            for space in self.spaces() {
                let (len, table) = (space.dbs[db].len(), &space.dbs[db].table);
                if at >= len {
                    at -= len;
                    continue;
                }
                if at >= table.len() {
                    if let Some(key) = space.random_cold_key(db, self.now_ms, &mut rng) {
                        return Some(key.into());
                    }
                    if space.has_missing() {
                        return None;
                    }
                    break;
                }
                match table.random(&mut rng) {
                    Some(entry) if !entry.is_due(self.now_ms) => return Some(entry.key().into()),
                    Some(entry) => space.meet(self.db, entry.key(), entry.deadline_ms()),
                    None => {}
                }
                break;
            }
        }
        // Nearly everything is due: look for one that is not.
        self.spaces()
            .flat_map(|space| space.dbs[db].table.iter())
            .find(|entry| !entry.is_due(self.now_ms))
            .map(|entry| entry.key().into())
    }

    /// Calls `each` for every key of the database not past its deadline. Due keys stay, as they do
    /// in Redis' KEYS.
    pub fn for_each_key(&self, each: &mut dyn FnMut(&[u8])) {
        for space in self.spaces() {
            for entry in space.dbs[self.db as usize].table.iter() {
                if !entry.is_due(self.now_ms) {
                    each(entry.key());
                }
            }
            space.for_each_cold_key(self.db as usize, self.now_ms, each);
        }
    }

    /// One step of a SCAN over all parts: calls `each` with about `count` keys and their types,
    /// returns the next cursor (0: done). Cursor 0 starts.
    ///
    /// ```text
    ///   cursor   [ part: up to 16 bits ][ position in its table: 37 bits, see Table::scan ]
    /// ```
    /// 53 bits at most: JavaScript clients read cursors as doubles. Parts are counted from the
    /// first of this view; a server whose cores walk their own regions adds their first region.
    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(&[u8], Kind)) -> u64 {
        let mut part = (cursor >> CURSOR_BITS) as usize;
        let mut position = cursor & ((1 << CURSOR_BITS) - 1);
        let mut left = count.max(1);
        while let Some(space) = self.part(part) {
            let mut seen = 0;
            if space.is_durable() {
                (position, seen) = space.scan_rows(self.db, self.now_ms, position, left, each);
            } else {
                position = space.dbs[self.db as usize]
                    .table
                    .scan(position, left, |entry| {
                        seen += 1;
                        if entry.is_due(self.now_ms) {
                            space.meet(self.db, entry.key(), entry.deadline_ms());
                        } else {
                            each(entry.key(), entry.kind());
                        }
                    });
            }
            left = left.saturating_sub(seen);
            if position != 0 {
                break;
            }
            part += 1;
            if left == 0 {
                break;
            }
        }
        if self.part(part).is_none() {
            return 0;
        }
        (part as u64) << CURSOR_BITS | position
    }
}

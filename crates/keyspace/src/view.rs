//! What a read command sees: the values of the regions it was routed to, at one moment.
//! (Skeleton: the engine owner completes it; signatures are the contract.)

use base::{Atom, DbIndex, Refusal};

use crate::{Hash, Keyspace, Kind, List, Router, Set, Tuning, Zset};

/// A value of any type, borrowed.
pub enum ValueRef<'a> {
    String(Atom<'a>),
    List(&'a List),
    Set(&'a Set),
    Zset(&'a Zset),
    Hash(&'a Hash),
}

/// A value of any type, owned: made by `*STORE` commands, moved by `RENAME`, read from a file.
#[derive(Clone)]
pub enum Value {
    String(Box<[u8]>),
    List(Box<List>),
    Set(Box<Set>),
    Zset(Box<Zset>),
    Hash(Box<Hash>),
}

/// A value with its deadline, outside any keyspace.
#[derive(Clone)]
pub struct Owned {
    pub value: Value,
    pub expire_at_ms: Option<u64>,
}

/// The read side. `&self` everywhere, so several values may be held at once (`SINTER`).
pub struct View<'a> {
    pub(crate) parts: Parts<'a>,
    pub(crate) db: DbIndex,
    pub(crate) now_ms: u64,
    pub(crate) seed: std::cell::Cell<u64>,
    pub(crate) tuning: &'a Tuning,
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
    pub fn one(
        space: &'a mut Keyspace,
        db: DbIndex,
        now_ms: u64,
        seed: u64,
        tuning: &'a Tuning,
    ) -> Self {
        View {
            parts: Parts::One(space),
            db,
            now_ms,
            seed: seed.into(),
            tuning,
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
        View {
            parts: Parts::Many { spaces, router },
            db,
            now_ms,
            seed: seed.into(),
            tuning,
        }
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

    /// The string at `key`; `None` if there is no such key; WRONGTYPE for another type.
    /// This and its siblings count as an access (LRU/LFU clock, hit and miss counters).
    pub fn string(&self, _key: &[u8]) -> Result<Option<Atom<'_>>, Refusal> {
        todo!()
    }

    pub fn list(&self, _key: &[u8]) -> Result<Option<&List>, Refusal> {
        todo!()
    }

    pub fn set(&self, _key: &[u8]) -> Result<Option<&Set>, Refusal> {
        todo!()
    }

    pub fn zset(&self, _key: &[u8]) -> Result<Option<&Zset>, Refusal> {
        todo!()
    }

    pub fn hash(&self, _key: &[u8]) -> Result<Option<&Hash>, Refusal> {
        todo!()
    }

    /// The value at `key` whatever its type. Counts as an access.
    pub fn value(&self, _key: &[u8]) -> Option<ValueRef<'_>> {
        todo!()
    }

    /// As [`View::value`] but leaves clocks and counters alone (`OBJECT`, `TYPE`, `DEBUG`).
    pub fn peek(&self, _key: &[u8]) -> Option<ValueRef<'_>> {
        todo!()
    }

    /// The type at `key`, without counting as an access.
    pub fn kind(&self, _key: &[u8]) -> Option<Kind> {
        todo!()
    }

    /// Whether `key` exists. Counts as an access.
    pub fn exists(&self, _key: &[u8]) -> bool {
        todo!()
    }

    /// `None`: no such key; `Some(None)`: no deadline; else the deadline in Unix milliseconds.
    pub fn expire_at(&self, _key: &[u8]) -> Option<Option<u64>> {
        todo!()
    }

    /// A deep copy of the value and its deadline (`COPY`).
    pub fn clone_value(&self, _key: &[u8]) -> Option<Owned> {
        todo!()
    }

    /// As `OBJECT ENCODING` names it: int, embstr, raw, listpack, quicklist, intset, hashtable, skiplist.
    pub fn encoding(&self, _key: &[u8]) -> Option<&'static str> {
        todo!()
    }

    /// Milliseconds since the last access (LRU policies).
    pub fn idle_ms(&self, _key: &[u8]) -> Option<u64> {
        todo!()
    }

    /// The logarithmic access counter (LFU policies).
    pub fn frequency(&self, _key: &[u8]) -> Option<u8> {
        todo!()
    }

    /// Bytes of memory behind `key`, its entry included (`MEMORY USAGE`).
    pub fn memory_usage(&self, _key: &[u8]) -> Option<usize> {
        todo!()
    }

    /// Number of keys in the database (keys past their deadline but not yet removed included,
    /// as in Redis' DBSIZE).
    pub fn len(&self) -> usize {
        todo!()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that have a deadline.
    pub fn len_with_expiry(&self) -> usize {
        todo!()
    }

    /// A key at random, `None` only if there is none (that is not past its deadline).
    pub fn random_key(&self) -> Option<&[u8]> {
        todo!()
    }

    /// Calls `each` for every key of the database not past its deadline.
    pub fn for_each_key(&self, _each: &mut dyn FnMut(&[u8])) {
        todo!()
    }

    /// One step of a SCAN over all parts: calls `each` with about `count` keys and their types,
    /// returns the next cursor (0: done). Cursor 0 starts.
    pub fn scan(&self, _cursor: u64, _count: usize, _each: &mut dyn FnMut(&[u8], Kind)) -> u64 {
        todo!()
    }
}

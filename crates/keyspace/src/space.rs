//! The data of one region: sixteen databases, the keys somebody is interested in, counters.
//! (Skeleton: the engine owner completes it; signatures are the contract.)

use base::DbIndex;

use crate::{Effect, Garbage, Tuning};

/// Says which of the regions held together has a key.
pub trait Router {
    /// Position in the slice given to [`crate::View::many`].
    fn position(&self, key: &[u8]) -> usize;
}

/// One region. Plain data: it may be moved to another thread as a whole.
pub struct Keyspace {
    _private: (),
}

impl Keyspace {
    /// An empty region. `seed` keys its hash tables.
    pub fn new(_seed: u64) -> Self {
        todo!()
    }

    /// Starts reporting changes of a key ([`Effect`]); calls nest.
    pub fn watch(&mut self, _db: DbIndex, _key: &[u8]) {
        todo!()
    }

    /// Ends one [`Keyspace::watch`].
    pub fn unwatch(&mut self, _db: DbIndex, _key: &[u8]) {
        todo!()
    }

    /// Whether effects wait to be taken; the check made after every write.
    pub fn has_effects(&self) -> bool {
        todo!()
    }

    pub fn take_effects(&mut self) -> Vec<Effect> {
        todo!()
    }

    /// Whether something big waits to be freed away from the command path.
    pub fn has_garbage(&self) -> bool {
        todo!()
    }

    /// Values to be dropped, on another thread or in slices.
    pub fn take_garbage(&mut self) -> Vec<Garbage> {
        todo!()
    }

    /// Removes up to `limit` keys whose deadline is not after `now_ms`; how many were removed.
    /// Fewer than `limit` means nothing due is left.
    pub fn expire_due(&mut self, _now_ms: u64, _limit: usize) -> usize {
        todo!()
    }

    /// Earliest deadline in any database.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        todo!()
    }

    /// Gives up one key by the policy in `tuning`; false if there is none to give up.
    pub fn evict_one(&mut self, _now_ms: u64, _seed: u64, _tuning: &Tuning) -> bool {
        todo!()
    }

    /// Changes since creation (`rdb_changes_since_last_save` is a difference of two readings).
    pub fn changes(&self) -> u64 {
        todo!()
    }

    /// (keys, keys with a deadline, mean time to live in ms) of a database, for `INFO keyspace`.
    pub fn db_stats(&self, _db: DbIndex) -> (usize, usize, u64) {
        todo!()
    }
}

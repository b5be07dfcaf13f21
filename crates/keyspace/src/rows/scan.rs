//! SCAN over rows, in the order of (slot, short hash of the key).
//!
//! ```text
//!   cursor   [ slot: 14 ][ hash of the key: 23 ]    the first not yet given
//! ```
//!
//! Nothing is remembered between steps. Whatever comes and goes, a key that is there all the time
//! has its place in the order, which is reached once. Keys of equal slot and hash are given together.
//!
//! Rows come by slot but not by hash inside it: a slot is read whole for each step that gives some of
//! its keys. As a slot may hold any number of keys (hash tags), a step gives at least a certain part.

use std::hash::{BuildHasher, Hasher};

use base::DbIndex;
use base::slot::{SLOT_COUNT, slot_of};
use foldhash::quality::FixedState;

use super::walk::{Cold, slot_row};
use crate::memory::db::Db;
use crate::view::CURSOR_BITS;
use crate::{Keyspace, Kind};

const HASH_BITS: u32 = CURSOR_BITS - 14;
/// A step gives at least this part of the keys of a slot it comes to.
const SLOT_PART: usize = 16;

struct Found {
    hash: u64,
    key: Box<[u8]>,
    kind: Kind,
    deadline_ms: Option<u64>,
}

fn short_hash(key: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    hasher.write(key);
    hasher.finish() >> (64 - HASH_BITS)
}

/// One step: keys are gathered slot by slot, and given when their slot is complete.
struct Step<'a> {
    space: &'a Keyspace,
    number: DbIndex,
    db: &'a Db,
    now_ms: u64,
    count: usize,
    /// Keys that the running entry has made or changed, the last slot first: some have no rows yet.
    unwritten: Vec<&'a [u8]>,
    slot: u16,
    from_hash: u64,
    keys: Vec<Found>,
    given: usize,
    /// Where the next step begins, once this one is full.
    next: Option<u64>,
}

impl Keyspace {
    /// Calls `each` with about `count` keys from the cursor on; the next cursor (0: the end) and
    /// how many keys were come by.
    pub(crate) fn scan_rows(
        &self,
        db: DbIndex,
        now_ms: u64,
        cursor: u64,
        count: usize,
        each: &mut dyn FnMut(&[u8], Kind),
    ) -> (u64, usize) {
        let number = db;
        let (Some(durable), Some(db)) = (&self.durable, self.dbs.get(db as usize)) else {
            return (0, 0);
        };
        let slot = (cursor >> HASH_BITS).min(u64::from(SLOT_COUNT) - 1) as u16;
        let marked = durable.marked_keys(db.index_id);
        let mut unwritten: Vec<&[u8]> = marked.filter(|key| slot_of(key) >= slot).collect();
        unwritten.sort_unstable_by_key(|key| std::cmp::Reverse(slot_of(key)));
        let mut step = Step {
            space: self,
            number,
            db,
            now_ms,
            count: count.max(1),
            unwritten,
            slot,
            from_hash: cursor & ((1 << HASH_BITS) - 1),
            keys: Vec::new(),
            given: 0,
            next: None,
        };
        let from = slot_row(durable, db, slot);
        let tier = durable.shared.tier();
        self.walk_cold(durable, db, &from, tier, &mut |slot, key, cold| {
            let goes_on = step.reach(slot, each);
            if goes_on {
                step.gather(key, cold);
            }
            goes_on
        });
        if !step.is_full() {
            step.reach(SLOT_COUNT, each);
        }
        (step.next.unwrap_or(0), step.given)
    }
}

impl Step<'_> {
    fn is_full(&self) -> bool {
        self.next.is_some() || self.given >= self.count
    }

    /// Gives all slots before `slot`, among them those with unwritten keys only; false if the step
    /// is full before it comes there.
    fn reach(&mut self, slot: u16, each: &mut dyn FnMut(&[u8], Kind)) -> bool {
        while let Some(&key) = self.unwritten.last()
            && slot_of(key) < slot
        {
            if !self.enter(slot_of(key), each) {
                return false;
            }
            self.gather(key, None);
            self.unwritten.pop();
        }
        self.enter(slot, each)
    }

    /// Gives the present slot if it is another; false if that fills the step.
    fn enter(&mut self, slot: u16, each: &mut dyn FnMut(&[u8], Kind)) -> bool {
        if slot == self.slot {
            return true;
        }
        self.give(each);
        self.slot = slot;
        !self.is_full()
    }

    fn gather(&mut self, key: &[u8], cold: Option<Cold>) {
        // Of what is not cold, memory knows whether it exists.
        let known = || {
            let entry = self.db.table.get(self.space.hash(key), key)?;
            Some((entry.kind(), entry.deadline_ms()))
        };
        if let Some((kind, deadline_ms)) = cold.or_else(known) {
            self.keys.push(Found {
                hash: short_hash(key),
                key: key.into(),
                kind,
                deadline_ms,
            });
        }
    }

    /// Gives the keys of a slot that is complete, or as many as the step still takes.
    fn give(&mut self, each: &mut dyn FnMut(&[u8], Kind)) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable_by(|a, b| (a.hash, &a.key).cmp(&(b.hash, &b.key)));
        keys.dedup_by(|a, b| a.key == b.key);
        let most = self.count.saturating_sub(self.given);
        let most = most.max(keys.len() / SLOT_PART);
        let (mut given, mut last) = (0, None);
        for found in keys.iter().filter(|found| found.hash >= self.from_hash) {
            if given >= most && last != Some(found.hash) {
                self.next = Some(u64::from(self.slot) << HASH_BITS | found.hash);
                break;
            }
            (given, last) = (given + 1, Some(found.hash));
            match found.deadline_ms {
                Some(at_ms) if at_ms <= self.now_ms => {
                    self.space.meet(self.number, &found.key, Some(at_ms));
                }
                _ => each(&found.key, found.kind),
            }
        }
        self.given += given;
        self.from_hash = 0;
        if self.next.is_none() && self.is_full() && self.slot + 1 < SLOT_COUNT {
            self.next = Some(u64::from(self.slot + 1) << HASH_BITS);
        }
    }
}

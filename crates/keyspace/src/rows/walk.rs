//! Walks over the keys of a durable keyspace, cached or not: KEYS, SCAN, RANDOMKEY, active expiry.
//!
//! The rows say what exists, except for what the running entry has changed; of every key that is
//! in memory or known to be absent, memory has the last word.

use std::hash::{BuildHasher, Hasher};

use base::DbIndex;
use base::slot::{SLOT_COUNT, slot_of};
use foldhash::quality::FixedState;

use super::layout::{self, Metadata};
use super::{Durable, Family, RowError, Tier};
use crate::memory::db::Db;
use crate::view::CURSOR_BITS;
use crate::{DueKey, Keyspace, Kind};

/// Bits of a key's hash in a SCAN cursor, below its slot.
const HASH_BITS: u32 = CURSOR_BITS - 14;
/// A walk step gives at least this part of a slot's keys: a slot may hold any number (hash tags),
/// and all of them are read for every step.
const SLOT_PART: usize = 16;
/// Rows from which RANDOMKEY chooses.
const RANDOM_ROWS: usize = 16;

/// Type and deadline of a key, as its row says.
type Cold = (Kind, Option<u64>);

/// Receives slot and key of a row, and what it says if memory knows nothing of the key.
type EachRow<'a> = dyn FnMut(u16, &[u8], Option<Cold>) -> bool + 'a;

/// A key as a walk finds it.
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

fn slot_row(durable: &Durable, db: &Db, slot: u16) -> Vec<u8> {
    let mut row = Vec::new();
    layout::push_prefix(&mut row, durable.home, db.index_id);
    row.extend_from_slice(&slot.to_be_bytes());
    row
}

/// Behind all metadata rows of a database.
fn end_row(durable: &Durable, db: &Db) -> Vec<u8> {
    let mut row = Vec::new();
    layout::push_prefix(&mut row, durable.home, db.index_id);
    layout::behind(&row)
}

impl Keyspace {
    /// Calls `each` with slot, key, type and deadline of the metadata rows from `from` on, of keys
    /// that memory knows nothing of, until it says false.
    fn walk_cold(&self, durable: &Durable, db: &Db, from: &[u8], each: &mut EachRow<'_>) {
        let to = end_row(durable, db);
        let source = &durable.source;
        let walked = source.scan(
            Family::Metadata,
            from,
            &to,
            false,
            Tier::All,
            &mut |row, value| {
                let parts = layout::parse_metadata_key(row).zip(Metadata::parse(value));
                let Some((at, head)) = parts else {
                    durable.fail("a metadata row that cannot be read".into());
                    return false;
                };
                let hash = self.hash(at.key);
                let known = db.table.find(hash, at.key).is_some() || self.is_gone(db, at.key);
                let cold = (!known).then_some((head.kind, head.expire_at_ms));
                each(at.slot, at.key, cold)
            },
        );
        if let Err(RowError::Failed(what)) = walked {
            durable.fail(what);
        }
    }

    /// Whether a key that has a row and is not in the table does not exist: the running entry has
    /// removed it.
    fn is_gone(&self, db: &Db, key: &[u8]) -> bool {
        db.cold_keys == 0 || db.absent.contains(key)
    }

    /// Calls `each` with every key of a database that is only in rows, unless it is due.
    pub(crate) fn for_each_cold_key(&self, db: usize, now_ms: u64, each: &mut dyn FnMut(&[u8])) {
        let (Some(durable), Some(db)) = (&self.durable, self.dbs.get(db)) else {
            return;
        };
        if db.cold_keys == 0 {
            return;
        }
        let from = slot_row(durable, db, 0);
        self.walk_cold(durable, db, &from, &mut |_, key, cold| {
            if let Some((_, deadline_ms)) = cold
                && deadline_ms.is_none_or(|at| at > now_ms)
            {
                each(key);
            }
            true
        });
    }

    /// One step of SCAN: keys in the order of (slot, short hash), from that of the cursor on.
    ///
    /// ```text
    ///   cursor   [ slot: 14 ][ hash of the key: 23 ]    the first not yet given
    /// ```
    /// Keys of equal slot and hash are given together. Whatever comes and goes between steps, a
    /// key that is there all the time has its place, which is reached once.
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
        let first_slot = (cursor >> HASH_BITS).min(u64::from(SLOT_COUNT) - 1) as u16;
        let mut from_hash = cursor & ((1 << HASH_BITS) - 1);
        // What the running entry has made has no rows yet.
        let mut unwritten: Vec<&[u8]> = durable
            .marked_keys(db.index_id)
            .filter(|key| slot_of(key) >= first_slot)
            .collect();
        unwritten.sort_unstable_by_key(|key| std::cmp::Reverse(slot_of(key)));
        let mut slot = first_slot;
        let mut given = 0;
        let mut next = None;
        let mut keys: Vec<Found> = Vec::new();
        let found = |key: &[u8], cold: Option<Cold>| {
            let (kind, deadline_ms) = match cold {
                Some(it) => it,
                None => {
                    let entry = db.table.get(self.hash(key), key)?;
                    (entry.kind(), entry.deadline_ms())
                }
            };
            Some(Found {
                hash: short_hash(key),
                key: key.into(),
                kind,
                deadline_ms,
            })
        };
        let mut end_slot = |slot: u16, keys: &mut Vec<Found>| {
            keys.sort_unstable_by(|a, b| (a.hash, &a.key).cmp(&(b.hash, &b.key)));
            keys.dedup_by(|a, b| a.key == b.key);
            let least = count.saturating_sub(given).max(keys.len() / SLOT_PART);
            let mut in_slot = 0;
            let mut last = None;
            for it in keys.drain(..) {
                if it.hash < from_hash {
                    continue;
                }
                if in_slot >= least && last != Some(it.hash) {
                    next = Some(u64::from(slot) << HASH_BITS | it.hash);
                    break;
                }
                (in_slot, last) = (in_slot + 1, Some(it.hash));
                match it.deadline_ms {
                    Some(at_ms) if at_ms <= now_ms => self.meet(number, &it.key, Some(at_ms)),
                    _ => each(&it.key, it.kind),
                }
            }
            keys.clear();
            given += in_slot;
            from_hash = 0;
            if next.is_none() && given >= count && slot + 1 < SLOT_COUNT {
                next = Some(u64::from(slot + 1) << HASH_BITS);
            }
            next.is_some() || given >= count
        };
        let mut full = false;
        let mut on_row = |at: u16, key: Option<(&[u8], Option<Cold>)>| {
            // Slots before this one are complete, among them those with unwritten keys only.
            while let Some(it) = unwritten.last()
                && slot_of(it) < at
            {
                if slot_of(it) != slot {
                    full = end_slot(slot, &mut keys);
                    slot = slot_of(it);
                    if full {
                        return false;
                    }
                }
                keys.extend(found(it, None));
                unwritten.pop();
            }
            if at != slot {
                full = end_slot(slot, &mut keys);
                slot = at;
                if full {
                    return false;
                }
            }
            if let Some((key, cold)) = key {
                keys.extend(found(key, cold));
            }
            true
        };
        let from = slot_row(durable, db, first_slot);
        let mut going = true;
        self.walk_cold(durable, db, &from, &mut |slot, key, cold| {
            going = on_row(slot, Some((key, cold)));
            going
        });
        if going {
            on_row(SLOT_COUNT, None);
        }
        (next.unwrap_or(0), given)
    }

    /// A key that is only in rows, roughly at random.
    pub(crate) fn random_cold_key(
        &self,
        db: usize,
        now_ms: u64,
        rng: &mut fastrand::Rng,
    ) -> Option<Vec<u8>> {
        let (durable, db) = (self.durable.as_ref()?, self.dbs.get(db)?);
        let (first, last) = self.slots(durable, db)?;
        let mut chosen = None;
        let mut seen = 0;
        for slot in [rng.u16(first..=last), first] {
            let from = slot_row(durable, db, slot);
            self.walk_cold(durable, db, &from, &mut |_, key, cold| {
                if let Some((_, deadline_ms)) = cold
                    && deadline_ms.is_none_or(|at| at > now_ms)
                {
                    seen += 1;
                    if rng.usize(..seen) == 0 {
                        chosen = Some(key.to_vec());
                    }
                }
                seen < RANDOM_ROWS
            });
            if chosen.is_some() {
                break;
            }
        }
        chosen
    }

    /// The first and the last slot that have rows.
    fn slots(&self, durable: &Durable, db: &Db) -> Option<(u16, u16)> {
        let (from, to) = (slot_row(durable, db, 0), end_row(durable, db));
        let end = |descending| {
            let mut slot = None;
            let source = &durable.source;
            let read = source.scan(
                Family::Metadata,
                &from,
                &to,
                descending,
                Tier::All,
                &mut |row, _| {
                    slot = layout::parse_metadata_key(row).map(|at| at.slot);
                    false
                },
            );
            if let Err(RowError::Failed(what)) = read {
                durable.fail(what);
            }
            slot
        };
        Some((end(false)?, end(true)?))
    }

    /// Up to `limit` keys whose deadline is not after `now_ms`, as the rows say, with database and
    /// deadline: what to propose to expire.
    pub fn due(&self, now_ms: u64, limit: usize, tier: Tier) -> Result<Vec<DueKey>, RowError> {
        let mut due = Vec::new();
        let Some(durable) = &self.durable else {
            return Ok(due);
        };
        for (number, db) in (0..base::limits::DATABASES).zip(&self.dbs) {
            if db.with_deadline() == 0 || due.len() >= limit {
                continue;
            }
            let mut from = Vec::new();
            layout::push_prefix(&mut from, durable.home, db.index_id);
            let mut to = from.clone();
            to.extend_from_slice(&now_ms.saturating_add(1).to_be_bytes());
            let each = &mut |row: &[u8], _: &[u8]| {
                if let Some((deadline_ms, key)) = layout::parse_expiry_key(row) {
                    due.push((number, key.into(), deadline_ms));
                }
                due.len() < limit
            };
            durable
                .source
                .scan(Family::Expiry, &from, &to, false, tier, each)?;
        }
        Ok(due)
    }

    /// Applies what [`Keyspace::due`] led to: removes the key if it still has that deadline;
    /// whether it did. The key must be resident, or it is noted as missing and stays.
    pub fn expire_key(&mut self, db: DbIndex, key: &[u8], deadline_ms: u64) -> bool {
        if !self.is_resident(db, key) {
            self.note_missing(db, key);
            return false;
        }
        let (number, hash) = (db as usize, self.hash(key));
        let Some(db) = self.dbs.get(number) else {
            return false;
        };
        let Some(position) = db.table.find(hash, key) else {
            return false;
        };
        let entry = db.table.at(position);
        if entry.and_then(|entry| entry.deadline_ms()) != Some(deadline_ms) {
            return false;
        }
        self.expire(number, position, hash);
        true
    }
}

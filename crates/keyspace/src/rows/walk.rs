//! Walks over the keys of a durable keyspace, cached or not: KEYS, RANDOMKEY, active expiry; SCAN
//! builds on them in `scan.rs`.
//!
//! The rows say what exists, except for what the running entry has changed; of every key that is
//! in memory or known to be absent, memory has the last word.

use base::DbIndex;

use super::cold::ColdRange;
use super::layout::{self, Metadata};
use super::{Durable, Family, RowError, Tier};
use crate::memory::db::Db;
use crate::{DueKey, Keyspace, Kind};

/// Rows from which RANDOMKEY chooses.
const RANDOM_ROWS: usize = 16;

/// Type and deadline of a key, as its row says.
pub(super) type Cold = (Kind, Option<u64>);

/// Receives slot and key of a row, and what it says if memory knows nothing of the key.
pub(super) type EachRow<'a> = dyn FnMut(u16, &[u8], Option<Cold>) -> bool + 'a;

pub(super) fn slot_row(durable: &Durable, db: &Db, slot: u16) -> Vec<u8> {
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
    /// Calls `each` with the metadata rows from `from` on until it says false.
    pub(super) fn walk_cold(
        &self,
        durable: &Durable,
        db: &Db,
        from: &[u8],
        tier: Tier,
        each: &mut EachRow<'_>,
    ) {
        let to = end_row(durable, db);
        let source = &durable.source;
        let mut last = Vec::new();
        let walked = source.scan(
            Family::Metadata,
            from,
            &to,
            false,
            tier,
            &mut |row, value| {
                if tier == Tier::Cache {
                    last.clear();
                    last.extend_from_slice(row);
                }
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
        durable.shared.check(walked, Family::Metadata, || {
            let from = if last.is_empty() { from } else { &last };
            ColdRange::Between {
                from: from.into(),
                to: to.as_slice().into(),
                descending: false,
            }
        });
    }

    /// Whether a key that has a row and is not in the table does not exist: the running entry has
    /// removed it.
    pub(super) fn is_gone(&self, db: &Db, key: &[u8]) -> bool {
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
        // All rows would not fit into a cache: KEYS makes everybody wait, as it does in Redis.
        self.walk_cold(durable, db, &from, Tier::All, &mut |_, key, cold| {
            if let Some((_, deadline_ms)) = cold
                && deadline_ms.is_none_or(|at| at > now_ms)
            {
                each(key);
            }
            true
        });
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
            let tier = durable.shared.tier();
            self.walk_cold(durable, db, &from, tier, &mut |_, key, cold| {
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
    pub(super) fn slots(&self, durable: &Durable, db: &Db) -> Option<(u16, u16)> {
        let (from, to) = (slot_row(durable, db, 0), end_row(durable, db));
        let end = |descending| {
            let mut slot = None;
            let source = &durable.source;
            let read = source.scan(
                Family::Metadata,
                &from,
                &to,
                descending,
                durable.shared.tier(),
                &mut |row, _| {
                    slot = layout::parse_metadata_key(row).map(|at| at.slot);
                    false
                },
            );
            let range = || ColdRange::Between {
                from: from.as_slice().into(),
                to: to.as_slice().into(),
                descending,
            };
            durable.shared.check(read, Family::Metadata, range);
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

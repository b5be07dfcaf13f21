//! Which keys of a durable keyspace to give up, by `maxmemory-policy`: what its leader proposes to remove
//! (decision 30).
//!
//! A key that is not in memory was not used for longer than any that is: where the policy asks for
//! the least used, such keys go first, in no particular order. They are found in the rows, from a place
//! chosen at random; those with a deadline in the index of deadlines, which also has the earliest.
//!
//! Rows are read as far as [`Keyspace::read_cached`] allows. If that was not far enough, fewer keys are
//! given and [`Keyspace::take_cold`] tells what to warm; the same seed then looks at the same rows.

use std::collections::BTreeSet;

use base::DbIndex;

use super::cold::ColdRange;
use super::walk::slot_row;
use super::{Durable, Family, VOID, layout};
use crate::memory::db::Db;
use crate::{EvictionPolicy, Keyspace, Tuning};

/// Rows looked at for keys that are not in memory, beyond those wanted.
const ROWS_MOST: usize = 1024;
/// Choices in a row that were made before: nearly all there is was chosen.
const IN_VAIN: usize = 16;

/// Receives a key, its deadline and whether it is in rows only; false: that is enough.
type EachDeadline<'a> = dyn FnMut(&[u8], Option<u64>, bool) -> bool + 'a;

/// A key to be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    pub db: DbIndex,
    pub key: Box<[u8]>,
    /// With it the key goes only if it still has this deadline.
    pub deadline_ms: Option<u64>,
    /// What it counts, about.
    pub bytes: u64,
    /// It is in rows only: to be read before it goes.
    pub is_cold: bool,
}

/// How much is to be given up.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub bytes: u64,
    /// No more keys than this.
    pub keys: usize,
    /// Of those in rows only, which are read before they go, no more than this, and about so many bytes.
    pub cold_keys: usize,
    pub cold_bytes: u64,
}

/// The victims found so far.
struct Found {
    wanted: Wanted,
    bytes: u64,
    cold: usize,
    cold_bytes: u64,
    keys: BTreeSet<(DbIndex, Box<[u8]>)>,
    victims: Vec<Victim>,
}

impl Found {
    fn is_enough(&self) -> bool {
        self.bytes >= self.wanted.bytes
            || self.victims.len() >= self.wanted.keys
            || self.cold >= self.wanted.cold_keys
            || self.cold_bytes >= self.wanted.cold_bytes
    }

    /// Whether it was not there yet.
    fn add(&mut self, victim: Victim) -> bool {
        let is_new = self.keys.insert((victim.db, victim.key.clone()));
        if is_new {
            self.bytes += victim.bytes;
            if victim.is_cold {
                self.cold += 1;
                self.cold_bytes += victim.bytes;
            }
            self.victims.push(victim);
        }
        is_new
    }
}

impl EvictionPolicy {
    /// Whether only keys with a deadline may be given up.
    pub fn is_volatile(self) -> bool {
        use EvictionPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(
            self,
            VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl
        )
    }

    fn is_random(self) -> bool {
        use EvictionPolicy::{AllKeysRandom, VolatileRandom};
        matches!(self, AllKeysRandom | VolatileRandom)
    }
}

impl Keyspace {
    /// Chooses keys by the policy in `tuning`; fewer if there are no more, or if rows are not in memory.
    pub fn victims(
        &mut self,
        wanted: Wanted,
        now_ms: u64,
        seed: u64,
        tuning: &Tuning,
    ) -> Vec<Victim> {
        let mut found = Found {
            wanted,
            bytes: 0,
            cold: 0,
            cold_bytes: 0,
            keys: BTreeSet::new(),
            victims: Vec::new(),
        };
        let mut rng = fastrand::Rng::with_seed(seed);
        match tuning.policy {
            EvictionPolicy::NoEviction => {}
            EvictionPolicy::VolatileTtl => self.earliest_victims(&mut found),
            _ => self.sampled_victims(&mut found, now_ms, &mut rng, tuning),
        }
        found.victims
    }

    fn sampled_victims(
        &mut self,
        found: &mut Found,
        now_ms: u64,
        rng: &mut fastrand::Rng,
        tuning: &Tuning,
    ) {
        let volatile = tuning.policy.is_volatile();
        let (cold, resident) = self.counts(volatile);
        let from_rows = match tuning.policy.is_random() {
            true => cold > 0 && rng.u64(..cold + resident) < cold,
            false => cold > 0,
        };
        if from_rows {
            self.cold_victims(found, volatile, rng);
            if self.has_missing() {
                return; // keys in memory are used more
            }
        }
        let mut in_vain = 0;
        while !found.is_enough() && in_vain < IN_VAIN {
            let chosen = match tuning.policy.is_random() {
                true => self.choose_random(volatile, rng),
                false => self.choose_from_pool(volatile, now_ms, rng, tuning),
            };
            let Some((db, key)) = chosen else {
                break;
            };
            let is_new = match self.resident_victim(db, &key, volatile) {
                Some(victim) => found.add(victim),
                None => false,
            };
            in_vain = if is_new { 0 } else { in_vain + 1 };
        }
    }

    /// Keys (with a deadline) that are in rows only, and those in memory.
    fn counts(&self, volatile: bool) -> (u64, u64) {
        let dbs = self.dbs.iter().take(VOID);
        dbs.fold((0, 0), |(cold, resident), db| match volatile {
            true => (
                cold + db.cold_volatile,
                resident + db.resident_with_deadline() as u64,
            ),
            false => (cold + db.cold_keys, resident + db.table.len() as u64),
        })
    }

    fn resident_victim(&self, db: DbIndex, key: &[u8], volatile: bool) -> Option<Victim> {
        if self.names_row(db, key) || db as usize >= VOID {
            return None;
        }
        let table = &self.dbs.get(db as usize)?.table;
        let entry = table.get(self.hash(key), key)?;
        Some(Victim {
            db,
            key: key.into(),
            deadline_ms: entry.deadline_ms().filter(|_| volatile),
            bytes: entry.weight() as u64,
            is_cold: false,
        })
    }

    /// Adds keys that are in rows only, from a place at random on.
    fn cold_victims(&self, found: &mut Found, volatile: bool, rng: &mut fastrand::Rng) {
        let Some(durable) = &self.durable else {
            return;
        };
        let start = rng.usize(..VOID);
        for number in (start..VOID).chain(0..start) {
            let Some(db) = self.dbs.get(number) else {
                continue;
            };
            let cold = if volatile {
                db.cold_volatile
            } else {
                db.cold_keys
            };
            if cold == 0 || found.is_enough() {
                continue;
            }
            // What each counts is not known before it is read.
            let mean = db.mean_weight();
            let mut looked_at;
            let add = |found: &mut Found,
                       looked_at: &mut usize,
                       key: &[u8],
                       deadline_ms: Option<u64>,
                       is_cold: bool| {
                *looked_at += 1;
                if is_cold && !self.names_row(number as DbIndex, key) {
                    found.add(Victim {
                        db: number as DbIndex,
                        key: key.into(),
                        deadline_ms: deadline_ms.filter(|_| volatile),
                        bytes: db.cold_weight(key, mean),
                        is_cold,
                    });
                }
                !found.is_enough() && *looked_at < ROWS_MOST + found.wanted.keys
            };
            if volatile {
                let (first, last) = (
                    self.deadline(durable, db, false),
                    self.deadline(durable, db, true),
                );
                let (Some(first), Some(last)) = (first, last) else {
                    continue;
                };
                // From a place at random there may be nothing but keys in memory: then from the beginning.
                for from_ms in [rng.u64(first..=last.max(first)), 0] {
                    if !found.is_enough() {
                        looked_at = 0;
                        self.walk_deadlines(
                            durable,
                            db,
                            from_ms,
                            false,
                            &mut |key, deadline_ms, is_cold| {
                                add(found, &mut looked_at, key, deadline_ms, is_cold)
                            },
                        );
                    }
                }
                continue;
            }
            let tier = durable.shared.tier();
            if let Some((first, last)) = self.slots(durable, db) {
                for slot in [rng.u16(first..=last), first] {
                    let from = slot_row(durable, db, slot);
                    if !found.is_enough() {
                        looked_at = 0;
                        self.walk_cold(durable, db, &from, tier, &mut |_, key, cold| {
                            let deadline_ms = cold.and_then(|(_, deadline_ms)| deadline_ms);
                            add(found, &mut looked_at, key, deadline_ms, cold.is_some())
                        });
                    }
                }
            }
        }
    }

    /// Adds keys in the order of their deadlines, of all databases.
    fn earliest_victims(&self, found: &mut Found) {
        let Some(durable) = &self.durable else {
            return;
        };
        let mut all = Vec::new();
        for (number, db) in (0..VOID).zip(&self.dbs) {
            let number = number as DbIndex;
            let resident = db.by_deadline().take(found.wanted.keys);
            all.extend(
                resident.filter_map(|(entry, _)| self.resident_victim(number, entry.key(), true)),
            );
            if db.cold_volatile == 0 {
                continue;
            }
            let mean = db.mean_weight();
            let (mut cold, mut looked_at) = (0, 0);
            self.walk_deadlines(durable, db, 0, false, &mut |key, deadline_ms, is_cold| {
                looked_at += 1;
                if is_cold && !self.names_row(number, key) {
                    cold += 1;
                    all.push(Victim {
                        db: number,
                        key: key.into(),
                        deadline_ms,
                        bytes: db.cold_weight(key, mean),
                        is_cold,
                    });
                }
                cold < found.wanted.keys && looked_at < ROWS_MOST + found.wanted.keys
            });
        }
        if self.has_missing() {
            return; // there may be earlier ones
        }
        all.sort_by_key(|victim| victim.deadline_ms);
        for victim in all {
            if found.is_enough() {
                break;
            }
            found.add(victim);
        }
    }

    /// The first or the last deadline in rows.
    fn deadline(&self, durable: &Durable, db: &Db, last: bool) -> Option<u64> {
        let mut deadline = None;
        self.walk_deadlines(durable, db, 0, last, &mut |_, at_ms, _| {
            deadline = at_ms;
            false
        });
        deadline
    }

    /// Calls `each` with the keys of the index of deadlines from `from_ms` on, and whether each is in rows
    /// only, until it says false; whether it never did.
    fn walk_deadlines(
        &self,
        durable: &Durable,
        db: &Db,
        from_ms: u64,
        descending: bool,
        each: &mut EachDeadline<'_>,
    ) -> bool {
        let mut from = Vec::new();
        layout::push_prefix(&mut from, durable.home, db.index_id);
        let to = layout::behind(&from);
        from.extend_from_slice(&from_ms.to_be_bytes());
        let mut more = true;
        let read = durable.source.scan(
            Family::Expiry,
            &from,
            &to,
            descending,
            durable.shared.tier(),
            &mut |row, _| {
                if let Some((deadline_ms, key)) = layout::parse_expiry_key(row) {
                    let known = db.table.find(self.hash(key), key).is_some();
                    let is_cold = !known && !self.is_gone(db, key);
                    more = each(key, Some(deadline_ms), is_cold);
                }
                more
            },
        );
        durable
            .shared
            .check(read, Family::Expiry, || ColdRange::Between {
                from: from.as_slice().into(),
                to: to.as_slice().into(),
                descending,
            });
        more
    }
}

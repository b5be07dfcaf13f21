//! Which key to give up when memory is short.
//!
//! As in Redis: a few keys are sampled, and the best candidates seen lately are kept in a small
//! pool, so that the choice gets close to the true least (recently | frequently) used over time.
//! `volatile-ttl` needs no sampling here: the earliest deadline is known.

use base::DbIndex;

use super::access;
use super::entry::EntryRef;
use crate::{EvictionPolicy, Keyspace, Tuning};

const POOL_MOST: usize = 16;

/// The best candidates seen, the worst first.
#[derive(Default)]
pub(crate) struct Pool(Vec<Candidate>);

struct Candidate {
    /// Higher is better to give up.
    score: u64,
    db: DbIndex,
    key: Box<[u8]>,
}

impl Pool {
    fn offer(&mut self, score: u64, db: DbIndex, key: &[u8]) {
        if self.0.iter().any(|c| c.db == db && *c.key == *key) {
            return;
        }
        let at = self.0.partition_point(|c| c.score < score);
        if self.0.len() == POOL_MOST {
            if at == 0 {
                return;
            }
            self.0.remove(0);
            self.0.insert(at - 1, candidate(score, db, key));
        } else {
            self.0.insert(at, candidate(score, db, key));
        }
    }
}

fn candidate(score: u64, db: DbIndex, key: &[u8]) -> Candidate {
    Candidate {
        score,
        db,
        key: key.into(),
    }
}

impl Keyspace {
    /// Gives up one key by the policy in `tuning`; false if there is none to give up.
    pub fn evict_one(&mut self, now_ms: u64, seed: u64, tuning: &Tuning) -> bool {
        let mut rng = fastrand::Rng::with_seed(seed);
        let chosen = match tuning.policy {
            EvictionPolicy::NoEviction => None,
            EvictionPolicy::AllKeysRandom => self.choose_random(false, &mut rng),
            EvictionPolicy::VolatileRandom => self.choose_random(true, &mut rng),
            EvictionPolicy::VolatileTtl => self.choose_earliest(),
            EvictionPolicy::AllKeysLru | EvictionPolicy::AllKeysLfu => {
                self.choose_from_pool(false, now_ms, &mut rng, tuning)
            }
            EvictionPolicy::VolatileLru | EvictionPolicy::VolatileLfu => {
                self.choose_from_pool(true, now_ms, &mut rng, tuning)
            }
        };
        let Some((db, key)) = chosen else {
            return false;
        };
        let hash = self.hash(&key);
        let Some(position) = self.dbs[db as usize].table.find(hash, &key) else {
            return false;
        };
        self.discard(db as usize, position, hash);
        self.note(db as usize, &key);
        self.evicted += 1;
        true
    }

    /// Removes a key that was given up, by an entry of the log; with a deadline only if it still has that.
    /// Whether it was there and its time had not come: then it goes as it does by expiry. It must be resident,
    /// or it is noted as missing and stays.
    pub fn evict_key(
        &mut self,
        db: DbIndex,
        key: &[u8],
        deadline_ms: Option<u64>,
        now_ms: u64,
    ) -> bool {
        if !self.is_resident(db, key) {
            self.note_missing(db, key);
            return false;
        }
        let (number, hash) = (db as usize, self.hash(key));
        let position = match deadline_ms {
            Some(deadline_ms) if deadline_ms <= now_ms => {
                self.expire_key(db, key, deadline_ms);
                None
            }
            // Another deadline stays, even one that has come: only the entry that names it removes it.
            Some(_) => self.dbs.get(number).and_then(|db| {
                let position = db.table.find(hash, key)?;
                (db.table.at(position)?.deadline_ms() == deadline_ms).then_some(position)
            }),
            None => self.find(number, hash, key, now_ms),
        };
        let Some(position) = position else {
            return false;
        };
        self.discard(number, position, hash);
        self.note(number, key);
        true
    }

    /// Counts a key that [`Keyspace::evict_key`] has removed; only who has chosen it does.
    pub fn count_evicted(&mut self) {
        self.evicted += 1;
    }

    /// Samples one key of a database.
    fn sample(&self, db: usize, volatile: bool, rng: &mut fastrand::Rng) -> Option<EntryRef<'_>> {
        let db = self.dbs.get(db)?;
        if volatile {
            db.random_with_deadline(rng).map(|(entry, _)| entry)
        } else {
            db.table.random(rng)
        }
    }

    pub(crate) fn choose_random(
        &self,
        volatile: bool,
        rng: &mut fastrand::Rng,
    ) -> Option<(DbIndex, Box<[u8]>)> {
        let start = rng.usize(..self.dbs.len());
        (0..self.dbs.len())
            .map(|i| (start + i) % self.dbs.len())
            .find_map(|db| {
                let entry = self.sample(db, volatile, rng)?;
                Some((db as DbIndex, entry.key().into()))
            })
    }

    fn choose_earliest(&mut self) -> Option<(DbIndex, Box<[u8]>)> {
        let (_, number) = (0..self.dbs.len())
            .filter_map(|db| Some((self.dbs[db].next_deadline_ms()?, db)))
            .min()?;
        let db = &mut self.dbs[number];
        let (position, _) = db.earliest()?;
        Some((number as DbIndex, db.table.at(position)?.key().into()))
    }

    pub(crate) fn choose_from_pool(
        &mut self,
        volatile: bool,
        now_ms: u64,
        rng: &mut fastrand::Rng,
        tuning: &Tuning,
    ) -> Option<(DbIndex, Box<[u8]>)> {
        let mut pool = std::mem::take(&mut self.pool);
        let mut chosen = None;
        // Candidates may be gone or no longer fit; after a few rounds there is nothing to find.
        for _ in 0..8 {
            for db in 0..self.dbs.len() {
                for _ in 0..tuning.maxmemory_samples {
                    let Some(entry) = self.sample(db, volatile, rng) else {
                        break;
                    };
                    let score = score(entry, now_ms, tuning);
                    pool.offer(score, db as DbIndex, entry.key());
                }
            }
            while let Some(best) = pool.0.pop() {
                let hash = self.hash(&best.key);
                let entry = self.dbs[best.db as usize].table.get(hash, &best.key);
                if entry.is_some_and(|e| !volatile || e.deadline_ms().is_some()) {
                    chosen = Some((best.db, best.key));
                    break;
                }
            }
            if chosen.is_some() {
                break;
            }
        }
        self.pool = pool;
        chosen
    }
}

fn score(entry: EntryRef<'_>, now_ms: u64, tuning: &Tuning) -> u64 {
    if tuning.policy.is_lfu() {
        255 - u64::from(access::frequency(entry.clock(), now_ms, tuning))
    } else {
        access::idle_ms(entry.clock(), now_ms)
    }
}

//! What of a durable keyspace is in memory.
//!
//! A database knows how many of its keys are *cold*: in rows only. Without any, a key that is not
//! in the table does not exist. Otherwise it may be in the rows unless it is known to be absent, and
//! a command that needs it has to wait: the key is noted as missing, the command runs to its end
//! without effect and without a reply that anybody sees, and again once the key is loaded.

use base::DbIndex;

use super::layout::{self, Body, Metadata, MetadataKey};
use super::{Change, Changes, Family, LoadRequest, Loaded};
use crate::memory::access;
use crate::memory::entry::{Birth, Entry};
use crate::rows::State;
use crate::weight::{self, Counted};
use crate::{Keyspace, Owned, Tuning};

impl Keyspace {
    /// Whether it is in memory what `key` is, or that it does not exist.
    pub fn is_resident(&self, number: DbIndex, key: &[u8]) -> bool {
        let Some(db) = self.dbs.get(number as usize) else {
            return true;
        };
        db.cold_keys == 0
            || db.table.find(self.hash(key), key).is_some()
            || db.absent.contains(key)
            || self.names_row(number, key)
    }

    /// Notes a key that is not resident.
    #[cold]
    pub(crate) fn note_missing(&self, db: DbIndex, key: &[u8]) {
        if let Some(durable) = &self.durable {
            durable.missing.borrow_mut().push((db, key.into()));
        }
    }

    /// Whether a command looked for keys that are not resident, or for rows that are not in memory: its
    /// reply is void.
    #[inline]
    pub fn has_missing(&self) -> bool {
        match &self.durable {
            Some(durable) => !durable.missing.borrow().is_empty() || durable.shared.is_cold(),
            None => false,
        }
    }

    /// The keys commands looked for that are not resident, each once. To be loaded, and the
    /// commands run again.
    pub fn take_missing(&mut self) -> Vec<(DbIndex, Box<[u8]>)> {
        self.forget_void();
        let Some(durable) = &mut self.durable else {
            return Vec::new();
        };
        // Inside an entry, that a key is gone may be known nowhere else.
        if durable.entry.is_none() {
            self.dbs.iter_mut().for_each(|db| db.absent.tidy());
        }
        let mut missing = std::mem::take(durable.missing.get_mut());
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// How collections loaded from now on are to be shaped.
    pub fn set_load_tuning(&mut self, tuning: std::sync::Arc<Tuning>) {
        if let Some(durable) = &mut self.durable {
            durable.tuning = tuning;
        }
    }

    /// All a reader thread needs to load a key.
    pub fn load_request(&mut self, db: DbIndex, key: &[u8]) -> LoadRequest {
        let index_id = self.dbs.get(db as usize).map_or(0, |db| db.index_id);
        let Some(durable) = &mut self.durable else {
            return LoadRequest::nowhere(key);
        };
        let ticket = *durable
            .loading
            .entry((index_id, key.into()))
            .or_insert_with(|| {
                durable.tickets += 1;
                durable.tickets
            });
        LoadRequest {
            home: durable.home,
            index_id,
            key: key.into(),
            ticket,
            tuning: durable.tuning.clone(),
        }
    }

    /// Takes a loaded key in. Nothing happens if its database was flushed meanwhile, or if the same
    /// key was taken in by another request (and may have changed since).
    pub fn insert_loaded(&mut self, request: LoadRequest, loaded: Loaded) {
        let hash = self.hash(&request.key);
        let parity = self.parity;
        let Some(durable) = &mut self.durable else {
            return;
        };
        let place = (request.index_id, request.key);
        if let Loaded::Unreadable(why) = loaded {
            durable.loading.remove(&place);
            durable.unreadable.insert(place, why);
            return;
        }
        if durable.loading.get(&place) != Some(&request.ticket) {
            return;
        }
        durable.loading.remove(&place);
        let (index_id, key) = place;
        let Some(db) = self.dbs.iter_mut().find(|db| db.index_id == index_id) else {
            return;
        };
        if db.table.find(hash, &key).is_some() || db.cold_keys == 0 || db.absent.contains(&key) {
            return;
        }
        let counted = db.counted.remove(&key);
        let mut is_whole = true;
        let Owned {
            value,
            expire_at_ms,
        } = match loaded {
            Loaded::Absent => return db.absent.insert(&key),
            Loaded::Unreadable(_) => return, // see above
            Loaded::Value(owned) => owned,
            Loaded::Rows(rows) => {
                // What was counted for it goes with it. If nobody knows that, nobody knows what the region weighs.
                durable.is_weighed &= counted.is_some();
                is_whole = false;
                let place = durable.place(index_id, &key, rows.generation);
                Owned {
                    value: rows.at(place, counted, &durable.tuning),
                    expire_at_ms: rows.expire_at_ms,
                }
            }
        };
        let birth = Birth {
            deadline_ms: expire_at_ms,
            clock: access::stale(&durable.tuning, durable.stamp_ms),
            parity,
            marked: false,
        };
        let position = db.insert(hash, Entry::value(&key, value, birth));
        if let Some(entry) = db.table.at(position) {
            entry.set_on_trial(true);
        }
        if let Some(counted) = counted.filter(|_| is_whole) {
            db.bytes +=
                db.weight_at(position) - (weight::of_collection(&key) + counted.bytes()) as i64;
        }
        db.cold_keys -= 1;
        if expire_at_ms.is_some() {
            db.cold_volatile = db.cold_volatile.saturating_sub(1);
        }
        if db.cold_keys == 0 {
            db.absent.clear();
        }
    }

    /// Gives up the request of a key whose load failed.
    pub fn forget_load(&mut self, request: &LoadRequest) {
        if let Some(durable) = &mut self.durable {
            let place = (request.index_id, request.key.clone());
            durable.loading.remove(&place);
        }
    }

    /// Drops one entry from memory (its rows stay), the least recently used of a sample; false if
    /// there is none. Not while an entry is applied, nor before its rows are written.
    pub fn uncache_one(&mut self, now_ms: u64, seed: u64, tuning: &Tuning) -> bool {
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some((db, key)) = self.choose_from_pool(false, now_ms, &mut rng, tuning) else {
            return false;
        };
        self.uncache(db, &key)
    }

    /// Drops an entry from memory; whether it was there.
    pub fn uncache(&mut self, db: DbIndex, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let Some(durable) = self.durable.as_ref().filter(|it| it.entry.is_none()) else {
            return false;
        };
        let Some(db) = self.dbs.get_mut(db as usize) else {
            return false;
        };
        let Some(position) = db.table.find(hash, key) else {
            return false;
        };
        let is_on_rows = db
            .entry_mut(position)
            .is_some_and(|it| it.handle().is_some());
        let Some(entry) = db.remove(position, hash) else {
            return false;
        };
        let most = durable.tuning.rows_from_elements;
        let look = entry.borrow();
        if (is_on_rows || look.elements().is_some_and(|n| n > most))
            && let Some(counted) = look.counted()
        {
            db.counted.insert(key.into(), counted);
        }
        db.cold_keys += 1;
        db.cold_volatile += u64::from(entry.borrow().deadline_ms().is_some());
        self.dispose(entry);
        true
    }

    /// Makes memory agree with rows that were written by a log entry of rows (on replay, after
    /// [`super::RowStore::write`]): changed keys leave the cache, the state is taken from its row.
    pub fn apply_rows(&mut self, changes: &Changes) {
        let home = self.home();
        let state_key = self.state_key();
        let mut state = None;
        for Change {
            family,
            key: row,
            value,
            ..
        } in changes.iter()
        {
            match family {
                Family::Metadata => {
                    if let Some(at) = layout::parse_metadata_key(row).filter(|at| at.home == home) {
                        self.follow_row(&at, value);
                    }
                }
                Family::Info if row == state_key => state = value.and_then(State::parse),
                Family::Tables => self.follow_table_row(row, value),
                _ => {}
            }
        }
        if let Some(state) = state {
            self.take_state(&state);
        }
        if let Some(durable) = &mut self.durable {
            durable.loading.clear();
        }
    }

    /// The metadata row of a key was written, or is gone: the key leaves memory, and counts what the row says.
    fn follow_row(&mut self, at: &MetadataKey<'_>, value: Option<&[u8]>) {
        let hash = self.hash(at.key);
        let Some(db) = self.dbs.iter_mut().find(|db| db.index_id == at.index_id) else {
            return;
        };
        let mean = db.mean_weight();
        let former = db.table.find(hash, at.key);
        let former = former.and_then(|position| db.remove(position, hash));
        let metadata = value.and_then(Metadata::parse);
        let weight = metadata.map_or(0, |metadata| weight::of_row(at.key, &metadata));
        db.bytes += weight as i64;
        // The weight of a collection is a guess, and so is that of what the row replaces if it is not here.
        let mut doubtful = 0;
        let counted = db.counted.remove(at.key);
        match (&former, counted) {
            (Some(entry), _) => db.count_out(entry.borrow()),
            (None, Some(counted)) => {
                db.bytes -= (weight::of_collection(at.key) + counted.bytes()) as i64;
            }
            (None, None) if db.cold_keys == 0 || db.absent.contains(at.key) => {}
            (None, None) => {
                doubtful = mean;
                if metadata.is_none() {
                    db.bytes -= mean as i64;
                }
            }
        }
        if let Some(Body::Collection { size, .. }) = metadata.map(|it| it.body) {
            let guessed = Counted::guessed(size as usize);
            db.counted.insert(at.key.into(), guessed);
            doubtful += weight as u64;
        }
        if let Some(durable) = &self.durable {
            durable.shared.doubt(doubtful);
        }
        if let Some(entry) = former {
            self.dispose(entry);
        }
    }
}

//! Rows in a map: the store of tests and of the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Changes, Family, RowError, RowSource, RowStore, StoreStats, Tier, WriteError};

type Rows = BTreeMap<(Family, Vec<u8>), Vec<u8>>;
type Warm = BTreeSet<(Family, Vec<u8>)>;

/// A store that keeps everything in memory. [`Clone`] gives an independent copy of this moment,
/// which is what a crash or an older checkpoint leaves.
#[derive(Debug, Default)]
pub struct MapStore {
    rows: Mutex<Rows>,
    alive: Mutex<Vec<(u64, u64)>>,
    /// Rows read so far.
    reads: AtomicU64,
    /// Those in the cache, if there is a difference.
    warm: Mutex<Option<Warm>>,
    /// Nothing is written at present.
    busy: AtomicBool,
}

impl MapStore {
    pub fn new() -> Self {
        MapStore::default()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While it is busy it takes no rows, as a store whose disk does not keep up.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::SeqCst);
    }

    /// All rows of a family, in order.
    pub fn all(&self, family: Family) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = self.rows();
        let of_family = rows.iter().filter(|((at, _), _)| *at == family);
        of_family
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Rows handed out, and look-ups that found none, so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// All rows are out of the cache; reading one with [`Tier::All`] brings it back.
    pub fn chill(&self) {
        *self.warm() = Some(Warm::new());
    }

    fn warm(&self) -> MutexGuard<'_, Option<Warm>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a row can be read so.
    fn reach(&self, family: Family, key: &[u8], tier: Tier) -> Result<(), RowError> {
        if let Some(warm) = &mut *self.warm() {
            let row = (family, key.to_vec());
            match tier {
                Tier::All => {
                    warm.insert(row);
                }
                Tier::Cache if !warm.contains(&row) => return Err(RowError::Cold),
                Tier::Cache => {}
            }
        }
        Ok(())
    }

    /// What was last told to [`RowStore::set_alive`].
    pub fn alive(&self) -> Vec<(u64, u64)> {
        let alive = self.alive.lock();
        alive.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Clone for MapStore {
    fn clone(&self) -> Self {
        MapStore {
            rows: Mutex::new(self.rows().clone()),
            alive: Mutex::new(self.alive()),
            reads: AtomicU64::new(self.reads()),
            warm: Mutex::default(),
            busy: AtomicBool::new(false),
        }
    }
}

impl RowSource for MapStore {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        self.reach(family, key, tier)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows();
        let value = rows.get(&(family, key.to_vec()));
        Ok(value.map(|value| found(value)).is_some())
    }

    fn scan(
        &self,
        family: Family,
        from: &[u8],
        to: &[u8],
        descending: bool,
        tier: Tier,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), RowError> {
        if from >= to {
            return Ok(());
        }
        let mut from = Bound::Included((family, from.to_vec()));
        let mut to = Bound::Excluded((family, to.to_vec()));
        loop {
            // One at a time, so that `each` may read the store too.
            let row = {
                let rows = self.rows();
                let mut range = rows.range((from.clone(), to.clone()));
                let row = match descending {
                    false => range.next(),
                    true => range.next_back(),
                };
                row.map(|((_, key), value)| (key.clone(), value.clone()))
            };
            self.reads.fetch_add(1, Ordering::Relaxed);
            let Some((key, value)) = row else {
                break;
            };
            self.reach(family, &key, tier)?;
            if !each(&key, &value) {
                break;
            }
            match descending {
                false => from = Bound::Excluded((family, key)),
                true => to = Bound::Excluded((family, key)),
            }
            // An empty range that begins and ends with one excluded key is not allowed.
            if from == to {
                break;
            }
        }
        Ok(())
    }

    fn moment(&self) -> Option<Arc<dyn RowSource>> {
        Some(self.snapshot())
    }
}

impl RowStore for MapStore {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        if self.busy.load(Ordering::SeqCst) {
            return Err(WriteError::Busy);
        }
        let mut rows = self.rows();
        for change in changes.iter().flat_map(|changes| changes.iter()) {
            let row = (change.family, change.key.to_vec());
            let before = match change.value {
                Some(value) => rows.insert(row, value.to_vec()),
                None => rows.remove(&row),
            };
            // This store is for tests: there, who says so wrongly is found out.
            assert!(!change.is_new || before.is_none(), "not new: {change:?}");
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        Arc::new(self.clone())
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = alive.to_vec();
    }

    fn start_compaction(&self) {}

    fn tidy(&self, _everything: bool) {}

    fn stop_tidying(&self) {}

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}

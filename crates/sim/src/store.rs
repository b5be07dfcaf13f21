//! The rows of a simulated disk: a map that may be busy, and that knows the digest of every region.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::cluster::RegionId;
use keyspace::rows::{
    Changes, Family, MapStore, RegionError, RowError, RowSource, RowStore, State, StoreStats, Tier,
    WriteError, layout,
};

use crate::trace::hash_of;

#[derive(Default)]
pub struct Rows {
    map: MapStore,
    /// What a crash leaves: the rows of the last flush.
    flushed: Mutex<MapStore>,
    /// It takes nothing now.
    pub is_busy: AtomicBool,
    /// By region: of all its rows, its state among them.
    digests: Mutex<BTreeMap<u64, u64>>,
}

impl Rows {
    /// Of these rows.
    pub fn of(map: MapStore) -> Rows {
        let rows = Rows {
            flushed: Mutex::new(map.clone()),
            map,
            ..Rows::default()
        };
        let mut digests = BTreeMap::new();
        for family in Family::ALL {
            for (key, value) in rows.map.all(family) {
                if let Some(home) = home_of(family, &key) {
                    *digests.entry(home).or_default() ^= digest_of(family, &key, &value);
                }
            }
        }
        *rows.digests() = digests;
        rows
    }

    /// Everything is on disk.
    pub fn flush(&self) {
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        *flushed = self.map.clone();
    }

    pub fn flushed(&self) -> MapStore {
        let flushed = self.flushed.lock();
        flushed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn digests(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, u64>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn digest(&self, region: u64) -> u64 {
        self.digests().get(&region).copied().unwrap_or(0)
    }

    fn row_digest(&self, family: Family, key: &[u8]) -> u64 {
        let mut digest = 0;
        let _ = self.map.get(family, key, Tier::All, &mut |value| {
            digest = digest_of(family, key, value);
        });
        digest
    }

    /// Every row of a region, its state among them.
    pub fn region_rows(&self, home: u64) -> Vec<(Family, Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        for family in Family::ALL {
            let all = self.map.all(family).into_iter();
            let ours = all.filter(|(key, _)| home_of(family, key) == Some(home));
            rows.extend(ours.map(|(key, value)| (family, key, value)));
        }
        rows
    }

    /// As [`RowStore::write`], whether it is busy or not.
    pub fn put(&self, changes: &Changes) {
        for change in changes.iter() {
            let home = home_of(change.family, change.key);
            // Later changes of a batch see earlier ones: so one at a time.
            let before = self.row_digest(change.family, change.key);
            let mut one = Changes::new();
            one.push(change);
            let _ = self.map.write(&[&one]);
            let after = self.row_digest(change.family, change.key);
            if let Some(home) = home {
                *self.digests().entry(home).or_default() ^= before ^ after;
            }
        }
    }
}

/// The region a row belongs to.
fn home_of(family: Family, key: &[u8]) -> Option<u64> {
    match family {
        Family::Info => layout::home_of_state_key(key),
        _ => {
            let home = u64::from_be_bytes(*key.first_chunk()?) ^ (1 << 63);
            Some(home)
        }
    }
}

fn digest_of(family: Family, key: &[u8], value: &[u8]) -> u64 {
    hash_of(&[&[family as u8], key, value])
}

impl RowSource for Rows {
    fn get(
        &self,
        family: Family,
        key: &[u8],
        tier: Tier,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, RowError> {
        self.map.get(family, key, tier, found)
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
        self.map.scan(family, from, to, descending, tier, each)
    }
}

impl RowStore for Rows {
    fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
        if self.is_busy.load(Ordering::Relaxed) {
            return Err(WriteError::Busy);
        }
        changes.iter().for_each(|changes| self.put(changes));
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), RowError> {
        self.flush();
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn RowSource> {
        self.map.snapshot()
    }

    fn set_alive(&self, alive: &[(u64, u64)]) {
        self.map.set_alive(alive);
    }

    fn start_compaction(&self) {}

    fn tidy(&self, _everything: bool) {}

    fn stop_tidying(&self) {}

    fn stats(&self) -> StoreStats {
        self.map.stats()
    }

    fn create_regions(&self, regions: &[(RegionId, State)]) -> Result<(), RegionError> {
        for (region, state) in regions {
            let key = layout::state_key(*region);
            let is_there = self.map.get(Family::Info, &key, Tier::All, &mut |_| {});
            if is_there != Ok(true) {
                let mut changes = Changes::new();
                let mut row = Vec::new();
                state.push(&mut row);
                changes.put(Family::Info, &key, &row);
                self.put(&changes);
            }
        }
        Ok(())
    }
}

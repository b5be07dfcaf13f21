//! Asking for the memory of keys that are about to be looked up.

use base::DbIndex;

use super::Core;

/// Most keys asked for at once: enough to hide the wait, few enough to be still near when used.
pub const AHEAD_KEYS: usize = 16;

impl Core {
    /// Whether the tables of this core are too large for the cache. Asks one region for all.
    #[inline]
    pub fn is_worth_prefetching(&self, db: DbIndex) -> bool {
        let mut home = self.home.borrow_mut();
        home.present()
            .next()
            .is_some_and(|region| region.space.is_worth_prefetching(db))
    }

    /// Asks for the table places of all keys of this core, then for their entries.
    pub fn prefetch(&self, db: DbIndex, keys: &[&[u8]]) {
        let map = &self.shared.map;
        let mut home = self.home.borrow_mut();
        let mut found = [(0, 0); AHEAD_KEYS];
        let mut count = 0;
        for (key, found) in keys.iter().zip(&mut found) {
            let id = map.region_of(key);
            // A region of another core, or one that is lent, is not there.
            let hash = home
                .region_mut(id)
                .map(|region| region.space.prefetch_place(db, key));
            *found = (id, hash.unwrap_or(0));
            count += 1;
        }
        for &(id, hash) in found.iter().take(count) {
            if let Some(region) = home.region_mut(id) {
                region.space.prefetch_entry(db, hash);
            }
        }
    }
}

//! Asking for the memory of keys that are about to be looked up.

use base::DbIndex;

use super::Core;

/// Most keys asked for at once: enough to hide the wait, few enough to be still near when used.
pub const AHEAD_KEYS: usize = 16;

/// A command that is about to run, as far as memory goes.
#[derive(Clone, Copy, Default)]
pub struct Coming<'a> {
    pub key: &'a [u8],
    /// What follows the key, in case it names members of a collection.
    pub arguments: [&'a [u8]; 2],
}

impl<'a> Coming<'a> {
    /// Of the command with these arguments.
    #[inline]
    pub fn new(argument: impl Fn(usize) -> Option<&'a [u8]>) -> Self {
        let at = |i| argument(i).unwrap_or_default();
        Coming {
            key: at(1),
            arguments: [at(2), at(3)],
        }
    }
}

impl Core {
    /// Whether the tables of this core are too large for the cache. Asks one region for all.
    #[inline]
    pub fn is_worth_prefetching(&self, db: DbIndex) -> bool {
        let mut owned = self.regions.borrow_mut();
        owned
            .present()
            .next()
            .is_some_and(|region| region.space.is_worth_prefetching(db))
    }

    /// Asks for the table places of all keys of this core, then for their entries, then for the
    /// members of collections that several commands in a row are about.
    pub fn prefetch(&self, db: DbIndex, coming: &[Coming<'_>]) {
        let map = &self.shared.map;
        let mut owned = self.regions.borrow_mut();
        let mut found = [(0, 0); AHEAD_KEYS];
        for (command, found) in coming.iter().zip(&mut found) {
            let key = command.key;
            let id = map.region_of(key);
            // A region of another core, or one that is lent, is not there.
            let hash = owned
                .region_mut(id)
                .map(|region| region.space.prefetch_place(db, key));
            *found = (id, hash.unwrap_or(0));
        }
        for &(id, hash) in found.iter().take(coming.len()) {
            if let Some(region) = owned.region_mut(id) {
                region.space.prefetch_entry(db, hash);
            }
        }
        let mut found = found.iter();
        for run in coming.chunk_by(|one, next| one.key == next.key) {
            let Some(&(id, hash)) = found.nth(run.len() - 1) else {
                return;
            };
            if let ([first, _, ..], Some(region)) = (run, owned.region_mut(id)) {
                let arguments = run.iter().map(|command| command.arguments);
                region
                    .space
                    .prefetch_members(db, first.key, hash, arguments);
            }
        }
    }
}

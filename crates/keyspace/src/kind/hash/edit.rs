//! What commands see of a hash, and its changes.

use base::Refusal;

use super::Hash;
use crate::{Edit, Txn, View};

impl View<'_> {
    /// The hash at `key`; as [`View::string`].
    pub fn hash(&self, key: &[u8]) -> Result<Option<&Hash>, Refusal> {
        self.collection(key)
    }
}

impl Txn<'_> {
    /// The hash at `key` to be changed; `None` if there is none.
    pub fn hash_mut(&mut self, key: &[u8]) -> Result<Option<Edit<'_, Hash>>, Refusal> {
        self.collection_mut(key)
    }

    /// As [`Txn::hash_mut`], an empty one being made if there is none.
    pub fn hash_or_new(&mut self, key: &[u8]) -> Result<Edit<'_, Hash>, Refusal> {
        self.collection_or_new(key)
    }
}

impl Edit<'_, Hash> {
    /// Sets a field; whether it is new. Counts as one change.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (hash, tuning) = self.parts();
        let new = hash.insert(field, value, tuning);
        if let Some((mut rows, _)) = self.recorder() {
            rows.put(field, value);
        }
        self.mark(1);
        new
    }

    /// Removes a field; whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.parts().0.remove(field);
        if removed && let Some((mut rows, _)) = self.recorder() {
            rows.delete(field);
        }
        self.mark(usize::from(removed));
        removed
    }
}

//! What commands see of a set, and its changes.

use base::Refusal;

use super::Set;
use crate::{Edit, Txn, View};

impl View<'_> {
    /// The set at `key`; as [`View::string`].
    pub fn set(&self, key: &[u8]) -> Result<Option<&Set>, Refusal> {
        self.collection(key)
    }
}

impl Txn<'_> {
    /// The set at `key` to be changed; `None` if there is none.
    pub fn set_mut(&mut self, key: &[u8]) -> Result<Option<Edit<'_, Set>>, Refusal> {
        self.collection_mut(key)
    }

    /// As [`Txn::set_mut`], an empty one being made if there is none.
    pub fn set_or_new(&mut self, key: &[u8]) -> Result<Edit<'_, Set>, Refusal> {
        self.collection_or_new(key)
    }
}

impl Edit<'_, Set> {
    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let (set, tuning) = self.parts();
        let new = set.insert(member, tuning);
        if new && let Some((mut rows, _)) = self.recorder() {
            rows.put(member, b"");
        }
        self.mark(usize::from(new));
        new
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.parts().0.remove(member);
        if removed && let Some((mut rows, _)) = self.recorder() {
            rows.delete(member);
        }
        self.mark(usize::from(removed));
        removed
    }

    /// Removes and returns a member at random.
    pub fn pop_random(&mut self, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let member = self.random(rng)?.to_vec();
        self.remove(&member);
        Some(member)
    }
}

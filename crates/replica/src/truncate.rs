//! Forgetting the beginning of the log.

use crate::replica::Replica;

impl Replica {
    /// What entries before `index` did is durable elsewhere. Returns the index to hand to
    /// [`LogStore::truncate`](crate::LogStore::truncate): the last applied entry always stays, for
    /// after a restart somebody must know its term (see `start`).
    pub fn truncate_to(&mut self, index: u64) -> u64 {
        let index = index.min(self.applied_index());
        let recent = self.node.mut_store();
        if index > recent.base {
            recent.truncate_to(index);
        }
        recent.base.max(1)
    }

    /// Entries before this one are gone.
    pub fn first_index(&self) -> u64 {
        self.node.store().base + 1
    }
}

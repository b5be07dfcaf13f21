//! Forgetting the beginning of the log.

use crate::replica::Replica;

impl Replica {
    /// What entries before `index` did is durable elsewhere. Returns the index to hand to
    /// [`LogStore::truncate`](crate::LogStore::truncate): the last applied entry always stays, for
    /// after a restart somebody must know its term (see `start`). So do some for members that lag
    /// (`keep_entries`, `keep_bytes`; a leader that sees nobody lag keeps fewer), and all behind a snapshot that
    /// is being made or sent.
    pub fn truncate_to(&mut self, index: u64) -> u64 {
        let mut index = index.min(self.applied_index());
        if !self.is_alone() {
            let by_count = self
                .applied_index()
                .saturating_sub(self.config.keep_entries);
            let by_bytes = self.node.store().sizes.behind(self.config.keep_bytes);
            let mut lagging = by_count.max(by_bytes);
            if self.is_leader() {
                let progress = self.node.raft.prs().iter();
                let slowest = progress.map(|(_, progress)| progress.matched).min();
                lagging = lagging.max(slowest.unwrap_or(0));
            }
            index = index.min(lagging).min(self.held_for_snapshots());
        }
        let recent = self.node.mut_store();
        if index > recent.base {
            recent.truncate_to(index);
        }
        recent.base.max(1)
    }

    /// From the next truncation on; what a node has room for is shared by its regions, and they come and go.
    pub fn set_keep_bytes(&mut self, bytes: u64) {
        self.config.keep_bytes = bytes;
    }

    /// Entries before this one are gone.
    pub fn first_index(&self) -> u64 {
        self.node.store().base + 1
    }
}

//! The state machine has caught up.

use crate::replica::Replica;

impl Replica {
    /// All committed entries up to `index` have been applied; changes of members among them with
    /// `apply_members`.
    pub fn on_applied(&mut self, index: u64) {
        if index <= self.applied_index() || self.snapshots.installing.is_some() {
            // An install has overtaken what was given out before.
            return;
        }
        assert!(
            index <= self.handed_out,
            "region {}: applied {index}, but only {} was given out",
            self.config.region,
            self.handed_out
        );
        self.node.advance_apply_to(index);
        if self.is_leader() && self.serving_term != Some(self.term()) {
            let term = self.node.raft.raft_log.term(index);
            if term.is_ok_and(|term| term == self.term()) {
                self.serving_term = Some(self.term());
                self.begin_round(false);
            }
        }
        // raft-rs gives out only what is on this disk, so these need not stay for that reason. A
        // single voter has nobody to send them to either.
        let keep_bytes = match self.is_alone() {
            true => 0,
            false => self.config.recent_bytes,
        };
        self.node.mut_store().release(index, keep_bytes);
        self.campaign_if_only_voter();
    }
}

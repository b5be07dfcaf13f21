//! When a read may be answered from the state machine as it is.

use crate::replica::Replica;

impl Replica {
    /// Whether this leader knows of every acknowledged write and is surely the only leader: an
    /// entry of its own term is applied (so everything its predecessors acknowledged is, too),
    /// and its lease holds. A single voter's lease always holds; with several voters there is
    /// none yet, so this says no.
    #[inline]
    pub fn may_serve(&self) -> bool {
        self.is_leader() && self.serving_term == Some(self.term()) && self.is_alone()
    }
}

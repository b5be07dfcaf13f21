//! How a replica stands, for whoever reports it or depends on it.

use raft::ProgressState;

use crate::replica::Replica;

/// How far another member is, as the leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub replica: u64,
    /// It has the log up to here.
    pub matched: u64,
    /// It was heard lately.
    pub is_active: bool,
    /// It is being sent a snapshot.
    pub is_in_snapshot: bool,
}

impl Replica {
    /// Leads, and has applied an entry of its own term: it knows all that was acknowledged before.
    /// Whether it still leads only a lease can tell.
    #[inline]
    pub fn is_serving(&self) -> bool {
        self.is_leader() && self.serving_term == Some(self.term())
    }

    /// Of the leader: the other members, ascending.
    pub fn progress(&self) -> Vec<Standing> {
        let me = self.id();
        let members = self.node.raft.prs().iter();
        let mut all: Vec<Standing> = members
            .filter(|&(&replica, _)| replica != me)
            .map(|(&replica, progress)| Standing {
                replica,
                matched: progress.matched,
                is_active: progress.recent_active,
                is_in_snapshot: progress.state == ProgressState::Snapshot,
            })
            .collect();
        all.sort_unstable_by_key(|member| member.replica);
        all
    }
}

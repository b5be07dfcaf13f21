//! How patient and how busy the leader of meta is. All of it may differ between members: nothing
//! here decides what a command does.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A node that is silent this long gets no new replicas and counts for no quorum.
    pub down_after_ms: u64,
    /// A node that is silent this long has its replicas rebuilt elsewhere (`--node-dead-after`).
    pub dead_after_ms: u64,
    /// An operator that takes longer is given up and planned anew.
    pub operator_timeout_ms: u64,
    /// A hand-over of leadership that takes longer is given up.
    pub transfer_timeout_ms: u64,
    /// Operators at once.
    pub operators: usize,
    /// New replicas at once on one node, and at once sent by leaders on one node.
    pub adds_per_node: usize,
    /// Hand-overs of leadership at once.
    pub transfers: usize,
    /// A learner that lacks at most this many entries may vote.
    pub caught_up_lag: u64,
    /// Balance begins when nothing worse happened for this long.
    pub balance_after_ms: u64,
    /// A region is left alone this long after an operator failed, was cancelled or was by hand.
    pub rest_ms: u64,
    /// A region's leader stays at least this long before it is moved for balance again.
    pub leader_rest_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            down_after_ms: 5_000,
            dead_after_ms: 30_000,
            operator_timeout_ms: 600_000,
            transfer_timeout_ms: 10_000,
            operators: 64,
            adds_per_node: 4,
            transfers: 4,
            caught_up_lag: 100,
            balance_after_ms: 10_000,
            rest_ms: 60_000,
            leader_rest_ms: 10_000,
        }
    }
}

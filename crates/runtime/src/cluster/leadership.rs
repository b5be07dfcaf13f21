//! One log line per change of leader, from each replica that takes part in it.
//!
//! The new leader's line and the former one's are `notice`: a failover is one line per region on the
//! node that takes over. What the other replicas hear is `verbose`. raft-rs' own log is compiled out.

use base::cluster::META_REGION;
use replica::{Ready, Replica};

/// Logs what `ready` says about who leads. `node_of` finds the node of a replica.
pub fn log_change(
    node: u64,
    region: u64,
    replica: &Replica,
    ready: &Ready,
    node_of: impl Fn(u64) -> Option<u64>,
) {
    let what = if region == META_REGION {
        "the meta service"
    } else {
        "the region"
    };
    if let Some(term) = ready.became_leader {
        tracing::info!(node, region, term, "this node leads {what}");
        return;
    }
    if !ready.lost_leadership && !ready.leader_changed {
        return;
    }
    let (term, leader) = (replica.term(), replica.leader().and_then(node_of));
    if ready.lost_leadership {
        tracing::info!(
            node,
            region,
            term,
            leader,
            "this node no longer leads {what}"
        );
    } else if leader.is_some() {
        tracing::debug!(node, region, term, leader, "another node leads {what}");
    } else {
        tracing::debug!(node, region, term, "{what} has no leader");
    }
}

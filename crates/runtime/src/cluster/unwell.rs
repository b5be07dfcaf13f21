//! A node that cannot write says so to its peers, for its process is heard and looks well.
//!
//! Quiet followers trust that they hear of it when their leader's node is gone. A node whose disk failed or hangs is not
//! gone, but cannot lead: it says so with every tick, and its peers treat it as one that is not to be heard. Their
//! replicas wake, elect others, and go quiet without it. When it has said nothing of the kind for a while it is one of
//! them again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::cluster::NodeId;
use bytes::Bytes;

use super::Cluster;
use crate::cores::Core;

/// In place of a region in a message: its sender cannot write.
pub(super) const UNWELL: u64 = u64::MAX - 1;
/// A node counts as unable to write for so long after it said so. It says so ten times a second.
const LASTS: Duration = Duration::from_secs(2);

/// Nodes that said that they cannot write, and until when that counts.
#[derive(Default)]
pub(super) struct Unwell(Mutex<BTreeMap<NodeId, Instant>>);

impl Unwell {
    /// Whether that is new.
    fn note(&self, node: NodeId, now: Instant) -> bool {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|_, until| *until > now);
        nodes.insert(node, now + LASTS).is_none()
    }

    /// Whether any node said so lately, and this one did.
    pub fn has(&self, node: NodeId, now: Instant) -> bool {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&node).is_some_and(|until| *until > now)
    }
}

impl Cluster {
    /// A node says that it cannot write; whether that is new.
    pub(super) fn note_unwell(&self, node: NodeId) -> bool {
        let is_new = self.unwell.note(node, Instant::now());
        if is_new {
            tracing::warn!(
                node = self.node,
                peer = node,
                "node {node} says that it cannot write: its regions are led without it"
            );
        }
        is_new
    }
}

impl Core {
    /// Peers hear at every tick that this node cannot write, if that is so.
    pub(super) fn tell_trouble(&self) {
        let durable = self.shared.durable.as_ref();
        let (Some(cluster), Some(_)) = (&self.shared.cluster, durable.and_then(|it| it.trouble()))
        else {
            return;
        };
        for node in cluster.transport.up_nodes() {
            cluster.send(node, vec![(UNWELL, Bytes::new())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_for_a_while() {
        let (unwell, now) = (Unwell::default(), Instant::now());
        assert!(!unwell.has(7, now));
        assert!(unwell.note(7, now));
        assert!(!unwell.note(7, now + LASTS / 2));
        assert!(unwell.has(7, now + LASTS));
        assert!(!unwell.has(8, now));
        assert!(!unwell.has(7, now + 2 * LASTS));
        assert!(unwell.note(7, now + 2 * LASTS));
    }
}

//! Where a replica should be: apart from its siblings first, then on the emptiest node.
//!
//! Two nodes *clash* if they share a `zone`, worse if also the `rack`, worse still if also the
//! `host`: the labels, coarse to fine. A node without a label shares it with nobody. The clash of a
//! node with a set of others is counted per level and compared coarse first, so that three replicas
//! in three zones beat any balance, and with two zones the third replica still gets its own rack.

use std::collections::BTreeMap;

use base::cluster::NodeId;

use crate::state::Node;

/// Coarse to fine.
pub const LEVELS: [&str; 3] = ["zone", "rack", "host"];

/// How many siblings share the zone, the rack, the host. Smaller is better, the first counts most.
pub type Clash = [u32; LEVELS.len()];

/// The clash of `node` with `others`. A finer level counts only below equal coarser ones (rack 1 of
/// zone a is not rack 1 of zone b), except that a level nobody labelled is passed over.
pub fn clash<'a>(node: &Node, others: impl Iterator<Item = &'a Node>) -> Clash {
    let mut clash = Clash::default();
    for other in others {
        for (level, count) in LEVELS.iter().zip(&mut clash) {
            let label = |node: &'a Node| node.profile.labels.get(*level);
            match (node.profile.labels.get(*level), label(other)) {
                (Some(a), Some(b)) if a == b => *count += 1,
                (None, None) => {}
                _ => break,
            }
        }
    }
    clash
}

/// Has a label that decides placement.
pub fn is_labelled(node: &Node) -> bool {
    let labels = &node.profile.labels;
    LEVELS.iter().any(|level| labels.contains_key(*level))
}

/// Nodes with how much they hold, from which the best are taken.
#[derive(Debug, Clone)]
pub struct Placement<'a> {
    nodes: BTreeMap<NodeId, (&'a Node, Held)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    replicas: u64,
    leaders: u64,
}

impl<'a> Placement<'a> {
    /// All of them empty.
    pub fn new(nodes: impl IntoIterator<Item = &'a Node>) -> Placement<'a> {
        let held = |node: &'a Node| (node.id, (node, Held::default()));
        Placement {
            nodes: nodes.into_iter().map(held).collect(),
        }
    }

    /// A node holds `replicas` already. Unknown nodes are passed over.
    pub fn holds(&mut self, node: NodeId, replicas: u64) {
        if let Some((_, held)) = self.nodes.get_mut(&node) {
            held.replicas += replicas;
        }
    }

    /// The best node for one more replica beside `siblings`: `None` if each node has one.
    pub fn best(&self, siblings: &[&Node]) -> Option<NodeId> {
        self.nodes
            .values()
            .filter(|(node, _)| siblings.iter().all(|sibling| sibling.id != node.id))
            .min_by_key(|(node, held)| {
                let clash = clash(node, siblings.iter().copied());
                (clash, held.replicas, node.id)
            })
            .map(|(node, _)| node.id)
    }

    /// Nodes for the `count` replicas of a new region, and which of them should lead.
    pub fn found_region(&mut self, count: usize) -> (Vec<NodeId>, NodeId) {
        let mut chosen: Vec<NodeId> = Vec::with_capacity(count);
        for _ in 0..count {
            let siblings: Vec<&Node> = chosen
                .iter()
                .filter_map(|id| self.nodes.get(id).map(|(node, _)| *node))
                .collect();
            let Some(best) = self.best(&siblings) else {
                break;
            };
            self.holds(best, 1);
            chosen.push(best);
        }
        let leads = |id: &NodeId| self.nodes.get(id).map_or(0, |(_, held)| held.leaders);
        let leader = chosen
            .iter()
            .copied()
            .min_by_key(|id| (leads(id), *id))
            .unwrap_or_default();
        if let Some((_, held)) = self.nodes.get_mut(&leader) {
            held.leaders += 1;
        }
        (chosen, leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: NodeId, labels: &[(&str, &str)]) -> Node {
        let mut node = Node {
            id,
            ..Node::default()
        };
        for (key, value) in labels {
            let labels = &mut node.profile.labels;
            labels.insert((*key).to_owned(), (*value).to_owned());
        }
        node
    }

    #[test]
    fn coarse_labels_count_most() {
        let a1 = node(1, &[("zone", "a"), ("rack", "1")]);
        let a2 = node(2, &[("zone", "a"), ("rack", "2")]);
        let b1 = node(3, &[("zone", "b"), ("rack", "1")]);
        let plain = node(4, &[]);
        assert_eq!(clash(&a1, [&a2].into_iter()), [1, 0, 0]);
        assert_eq!(clash(&a1, [&b1].into_iter()), [0, 0, 0]);
        assert_eq!(clash(&a1, [&a1, &a2].into_iter()), [2, 1, 0]);
        assert_eq!(clash(&plain, [&a1, &plain].into_iter()), [0, 0, 0]);
        // Only hosts are labelled.
        let h1 = node(5, &[("host", "x")]);
        let h2 = node(6, &[("host", "x")]);
        assert_eq!(clash(&h1, [&h2].into_iter()), [0, 0, 1]);

        // Two zones for three replicas: the third is at least in another rack.
        let a3 = node(7, &[("zone", "a"), ("rack", "1")]);
        let mut placement = Placement::new([&a1, &a2, &a3, &b1]);
        placement.holds(2, 10);
        assert_eq!(placement.best(&[&a1, &b1]), Some(2));
        assert_eq!(placement.best(&[&a1]), Some(3));
        assert_eq!(placement.best(&[&a1, &a2, &a3, &b1]), None);
    }
}

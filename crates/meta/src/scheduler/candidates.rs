//! Which nodes may take a replica, and which of them is best.

use std::collections::BTreeMap;

use base::cluster::{META_REGION, NodeId, RegionId, ReplicaId};

use super::Scheduler;
use super::picture::Picture;
use crate::placement::Placement;
use crate::state::{Node, Region};

/// Nodes that may hold replicas of data regions now.
pub(super) fn for_data<'a>(picture: &Picture<'a>) -> Vec<&'a Node> {
    fit(picture, |node| node.profile.stores)
}

/// Nodes that may hold a replica of meta now.
pub(super) fn for_meta<'a>(picture: &Picture<'a>) -> Vec<&'a Node> {
    fit(picture, |node| node.profile.metas)
}

fn fit<'a>(picture: &Picture<'a>, kind: fn(&Node) -> bool) -> Vec<&'a Node> {
    picture
        .state
        .nodes()
        .filter(|node| kind(node) && picture.is_alive(node.id) && !picture.disk_full(node.id))
        .collect()
}

/// How many replicas each node will hold when all operators are done, those just being chosen
/// included. Meta's replicas are counted apart.
#[derive(Debug)]
pub(super) struct Loads {
    data: BTreeMap<NodeId, u64>,
    meta: BTreeMap<NodeId, u64>,
}

impl Loads {
    pub fn new(scheduler: &Scheduler, picture: &Picture) -> Loads {
        let mut loads = Loads {
            data: BTreeMap::new(),
            meta: BTreeMap::new(),
        };
        for region in picture.state.regions() {
            for node in occupied(scheduler, region) {
                loads.add(region.descriptor.region, node);
            }
        }
        loads
    }

    pub fn of(&self, region: RegionId, node: NodeId) -> u64 {
        let counts = match region {
            META_REGION => &self.meta,
            _ => &self.data,
        };
        counts.get(&node).copied().unwrap_or(0)
    }

    fn add(&mut self, region: RegionId, node: NodeId) {
        let counts = match region {
            META_REGION => &mut self.meta,
            _ => &mut self.data,
        };
        *counts.entry(node).or_default() += 1;
    }
}

/// The nodes a region will be on when its operator is done.
pub(super) fn occupied(scheduler: &Scheduler, region: &Region) -> Vec<NodeId> {
    let operator = scheduler.operators.get(&region.descriptor.region);
    let removes =
        |replica: ReplicaId| operator.is_some_and(|operator| operator.removes().contains(&replica));
    let mut nodes: Vec<NodeId> = region
        .descriptor
        .members
        .iter()
        .filter(|member| !removes(member.replica))
        .map(|member| member.node)
        .collect();
    for &node in operator.map_or(&[][..], |operator| operator.adds()) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

/// The best `count` nodes for new replicas of `region` once `leaving` are gone; fewer if there are
/// not so many. Nodes that already have a learner or a plan of the region come first: work begun
/// by an earlier operator is not thrown away. But one that lost what it had begun is no candidate
/// until the rest of it is removed.
pub(super) fn choose(
    loads: &mut Loads,
    picture: &Picture,
    region: &Region,
    leaving: &[ReplicaId],
    count: usize,
) -> Vec<NodeId> {
    let descriptor = &region.descriptor;
    let id = descriptor.region;
    let nodes = match id {
        META_REGION => for_meta(picture),
        _ => for_data(picture),
    };
    let mut siblings: Vec<&Node> = descriptor
        .voters()
        .filter(|member| !leaving.contains(&member.replica))
        .filter_map(|member| picture.state.node(member.node))
        .collect();
    let mut begun = Vec::new();
    let mut free = Vec::new();
    for node in nodes {
        let plan = region.plans.iter().find(|plan| plan.node == node.id);
        match (descriptor.member_on(node.id), plan) {
            (Some(member), _) if member.role().votes() => {}
            (Some(learner), _) if picture.report(id, learner.replica).is_some() => begun.push(node),
            (Some(_), _) => {}
            (None, Some(_)) => begun.push(node),
            (None, None) => free.push(node),
        }
    }
    let mut chosen = Vec::new();
    for group in [begun, free] {
        let mut placement = Placement::new(group.iter().copied());
        for node in &group {
            placement.holds(node.id, loads.of(id, node.id));
        }
        while chosen.len() < count
            && let Some(best) = placement.best(&siblings)
        {
            siblings.extend(picture.state.node(best));
            chosen.push(best);
        }
    }
    for &node in &chosen {
        loads.add(id, node);
    }
    chosen
}

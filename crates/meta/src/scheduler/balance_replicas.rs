//! Replicas move to emptier nodes, and apart from their siblings.
//!
//! Two reasons to move one, in this order: a node where it would clash less with its siblings
//! (see `placement`); a node that holds at least two replicas less, where it clashes no more. Each
//! move makes "clashes, then sum of squared counts" smaller, so moves come to an end.

use std::collections::BTreeMap;

use base::cluster::{Member, NodeId, RegionId};

use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use super::{Scheduler, candidates};
use crate::liveness::Life;
use crate::placement::{Clash, clash, is_labelled};
use crate::state::{Node, Region};

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let nodes = candidates::for_data(picture);
    let mut counts: BTreeMap<NodeId, i64> = nodes.iter().map(|node| (node.id, 0)).collect();
    let mut movable = Vec::new();
    for region in picture.state.data_regions() {
        for node in candidates::occupied(scheduler, region) {
            *counts.entry(node).or_default() += 1;
        }
        if scheduler.is_free(region.descriptor.region, picture)
            && region.plans.is_empty()
            && picture.is_healthy(&region.descriptor)
        {
            movable.push(region);
        }
    }
    // Few at a time: the counts of the next turn see what these will have done.
    let mut found = Vec::new();
    for _ in 0..picture.limits.adds_per_node {
        let apart = || best(&movable, &nodes, &counts, picture, Reason::Apart);
        let Some((at, from, to)) =
            apart().or_else(|| best(&movable, &nodes, &counts, picture, Reason::Emptier))
        else {
            break;
        };
        let region = movable.swap_remove(at);
        *counts.entry(from.node).or_default() -= 1;
        *counts.entry(to).or_default() += 1;
        let task = Task::Reshape {
            add: vec![to],
            remove: vec![from.replica],
        };
        let id = region.descriptor.region;
        found.push(Operator::new(id, Kind::BalanceReplicas, task, picture));
    }
    found
}

/// Another voter died: repair has more urgent use for what was begun.
pub(super) fn unwanted(operator: &Operator, region: &Region, picture: &Picture) -> Option<String> {
    let mut others = region
        .descriptor
        .voters()
        .filter(|member| !operator.removes().contains(&member.replica));
    others
        .any(|member| picture.life(member.node) == Life::Dead)
        .then(|| "another member died".into())
}

#[derive(Clone, Copy, PartialEq)]
enum Reason {
    Apart,
    Emptier,
}

/// Smaller is better: clash, gain, whether it leads, size, and ids so that ties are decided.
type Rank = (Clash, i64, bool, u64, RegionId, NodeId);

/// The best move there is: the largest gain, then not a leader, then the smallest region.
fn best(
    movable: &[&Region],
    nodes: &[&Node],
    counts: &BTreeMap<NodeId, i64>,
    picture: &Picture,
    reason: Reason,
) -> Option<(usize, Member, NodeId)> {
    let worthwhile = match reason {
        Reason::Apart => nodes.iter().any(|node| is_labelled(node)),
        Reason::Emptier => counts.values().max() >= counts.values().min().map(|n| n + 2).as_ref(),
    };
    if !worthwhile {
        return None;
    }
    let count = |node: NodeId| counts.get(&node).copied().unwrap_or(0);
    let mut best: Option<(Rank, usize, Member, NodeId)> = None;
    for (at, region) in movable.iter().enumerate() {
        let descriptor = &region.descriptor;
        let leader = picture.leader(descriptor.region);
        for member in &descriptor.members {
            let Some(here) = picture.state.node(member.node) else {
                continue;
            };
            let clash_at = |node: &Node| -> Clash {
                let siblings = picture.members(descriptor);
                clash(node, siblings.filter(|sibling| sibling.id != member.node))
            };
            let now = clash_at(here);
            for node in nodes {
                if descriptor.member_on(node.id).is_some() {
                    continue;
                }
                let gain = count(member.node) - count(node.id);
                if reason == Reason::Emptier && gain < 2 {
                    continue;
                }
                let then = clash_at(node);
                if then > now || (reason == Reason::Apart && then == now) {
                    continue;
                }
                let leads = leader.is_some_and(|leader| leader.report.replica == member.replica);
                let size = leader.map_or(0, |leader| leader.report.size_bytes);
                let clash = match reason {
                    Reason::Apart => then,
                    Reason::Emptier => Clash::default(),
                };
                let rank = (clash, -gain, leads, size, descriptor.region, node.id);
                if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
                    best = Some((rank, at, *member, node.id));
                }
            }
        }
    }
    best.map(|(_, at, member, node)| (at, member, node))
}

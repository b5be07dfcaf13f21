//! Leaders are spread evenly over the nodes.
//!
//! A leader can only move to where its region has a voter, so the fullest node and the emptiest may
//! have no region in common. Then leaders move along a path: a → b and b → c are one step for the
//! balance of a and c, and b stays as it was. Found by breadth-first search, shortest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::cluster::{NodeId, RegionId, ReplicaId, Role};

use super::Scheduler;
use super::candidates;
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;

/// A hand-over that is possible.
#[derive(Debug, Clone, Copy)]
struct Move {
    region: RegionId,
    to: ReplicaId,
    node: NodeId,
}

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let under_way = scheduler
        .operators()
        .filter(|operator| matches!(operator.task, Task::Transfer { .. }))
        .count();
    let room = picture.limits.transfers.saturating_sub(under_way);
    let fit: BTreeSet<NodeId> = candidates::for_data(picture)
        .iter()
        .map(|node| node.id)
        .collect();
    let mut counts: BTreeMap<NodeId, i64> = fit.iter().map(|&node| (node, 0)).collect();
    let mut moves: BTreeMap<NodeId, Vec<Move>> = BTreeMap::new();
    for region in picture.state.data_regions() {
        let descriptor = &region.descriptor;
        let id = descriptor.region;
        let Some(leader) = picture.leader(id) else {
            continue;
        };
        *counts
            .entry(target(scheduler, picture, id).unwrap_or(leader.node))
            .or_default() += 1;
        if !scheduler.is_free(id, picture)
            || scheduler.leader_rests.contains_key(&id)
            || descriptor.is_joint()
            || descriptor.epoch != leader.report.epoch
        {
            continue;
        }
        for member in &descriptor.members {
            if member.role() == Role::Voter
                && member.node != leader.node
                && fit.contains(&member.node)
                && picture.is_live(id, member)
                && picture.is_level(id, member.replica, descriptor.epoch)
            {
                moves.entry(leader.node).or_default().push(Move {
                    region: id,
                    to: member.replica,
                    node: member.node,
                });
            }
        }
    }

    let mut found: Vec<Operator> = Vec::new();
    while let Some(path) = path(&counts, &moves) {
        // A path is begun whole or not at all, unless it is longer than is ever allowed.
        if found.len() + path.len() > room && (under_way > 0 || !found.is_empty() || room == 0) {
            break;
        }
        for (from, step) in path {
            *counts.entry(from).or_default() -= 1;
            *counts.entry(step.node).or_default() += 1;
            for list in moves.values_mut() {
                list.retain(|other| other.region != step.region);
            }
            let task = Task::Transfer { to: step.to };
            found.push(Operator::new(
                step.region,
                Kind::BalanceLeaders,
                task,
                picture,
            ));
        }
    }
    found
}

/// The node that will lead when the hand-over under way is done.
fn target(scheduler: &Scheduler, picture: &Picture, region: RegionId) -> Option<NodeId> {
    let operator = scheduler.operators.get(&region)?;
    let Task::Transfer { to } = operator.task else {
        return None;
    };
    let descriptor = &picture.state.region(region)?.descriptor;
    descriptor.member(to).map(|member| member.node)
}

/// The shortest way from a node with the most leaders to one with at least two less.
fn path(
    counts: &BTreeMap<NodeId, i64>,
    moves: &BTreeMap<NodeId, Vec<Move>>,
) -> Option<Vec<(NodeId, Move)>> {
    let most = counts.values().copied().max()?;
    let starts = counts.iter().filter(|(_, count)| **count == most);
    for (&start, _) in starts {
        let mut came: BTreeMap<NodeId, (NodeId, Move)> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(node) = open.pop_front() {
            if counts.get(&node).is_some_and(|count| count + 2 <= most) {
                let mut path = Vec::new();
                let mut at = node;
                while let Some(&(from, step)) = came.get(&at) {
                    path.push((from, step));
                    at = from;
                }
                path.reverse();
                return Some(path);
            }
            for step in moves.get(&node).into_iter().flatten() {
                if step.node != start && !came.contains_key(&step.node) {
                    came.insert(step.node, (node, *step));
                    open.push_back(step.node);
                }
            }
        }
    }
    None
}

//! Voters beyond what the cluster wants, and learners nobody waits for, are removed.

use std::cmp::Reverse;

use base::cluster::{META_REGION, Member, ReplicaId};

use super::candidates::Loads;
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use super::{Scheduler, reshape};
use crate::liveness::Life;
use crate::placement::clash;
use crate::state::Region;

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let want = picture.state.settings().replicas as usize;
    let mut found = Vec::new();
    let mut loads = None;
    for region in picture.state.regions() {
        let id = region.descriptor.region;
        if !scheduler.is_free(id, picture) || picture.leader(id).is_none() {
            continue;
        }
        let learner = region.descriptor.learners().next();
        let victim = match learner {
            Some(learner) => Some(learner.replica),
            None if id == META_REGION => None,
            None if region.descriptor.voters().count() <= want => None,
            None => {
                let loads = loads.get_or_insert_with(|| Loads::new(scheduler, picture));
                extra(loads, picture, region, want)
            }
        };
        if let Some(victim) = victim {
            let task = Task::Reshape {
                add: Vec::new(),
                remove: vec![victim],
            };
            found.push(Operator::new(id, Kind::RemoveExtra, task, picture));
        }
    }
    found
}

/// The voter that is missed least: dead ones first, then those closest to their siblings, then
/// those on the fullest node; the leader last.
pub(super) fn extra(
    loads: &Loads,
    picture: &Picture,
    region: &Region,
    want: usize,
) -> Option<ReplicaId> {
    let descriptor = &region.descriptor;
    if descriptor.voters().count() <= want || descriptor.is_joint() {
        return None;
    }
    let leads = |member: &Member| {
        let leader = picture.leader(descriptor.region);
        leader.is_some_and(|leader| leader.report.replica == member.replica)
    };
    descriptor
        .voters()
        .filter(|member| reshape::is_safe(descriptor, &[], &[member.replica], picture).is_ok())
        .min_by_key(|member| {
            let siblings = picture
                .members(descriptor)
                .filter(|node| node.id != member.node);
            let clash = picture
                .state
                .node(member.node)
                .map(|node| clash(node, siblings))
                .unwrap_or_default();
            let dead = picture.life(member.node) == Life::Dead;
            (
                !dead,
                Reverse(clash),
                leads(member),
                Reverse(loads.of(descriptor.region, member.node)),
                Reverse(member.replica),
            )
        })
        .map(|member| member.replica)
}

//! Replicas of dead nodes are rebuilt on others.
//!
//! The dead member stays until its successor is level: both change in one joint step, so the region
//! never has a voter less than it had. Without a free node nothing is done: a member that may come
//! back is better than none.

use base::cluster::ReplicaId;

use super::Scheduler;
use super::candidates::{self, Loads};
use super::operator::{Kind, Operator, Task};
use super::picture::Picture;
use crate::liveness::Life;
use crate::state::Region;

pub(super) fn find(scheduler: &Scheduler, picture: &Picture) -> Vec<Operator> {
    let mut found = Vec::new();
    if !picture.lives.values().any(|&life| life == Life::Dead) {
        return found;
    }
    let mut loads = Loads::new(scheduler, picture);
    for region in picture.state.data_regions() {
        let id = region.descriptor.region;
        if scheduler.is_free(id, picture)
            && picture.leader(id).is_some()
            && let Some(task) = replace_dead(&mut loads, picture, region)
        {
            found.push(Operator::new(id, Kind::Repair, task, picture));
        }
    }
    // Those that are nearest to losing their quorum first.
    found.sort_by_key(|operator| std::cmp::Reverse(operator.removes().len()));
    found
}

/// As many dead voters as there are nodes to replace them. `None` if there is nothing to be done.
pub(super) fn replace_dead(loads: &mut Loads, picture: &Picture, region: &Region) -> Option<Task> {
    let descriptor = &region.descriptor;
    let want = picture.wanted(descriptor.region);
    let mut dead: Vec<ReplicaId> = descriptor
        .voters()
        .filter(|member| picture.life(member.node) == Life::Dead)
        .map(|member| member.replica)
        .collect();
    // More than wanted are not replaced, only removed (`remove_extra`).
    let live = descriptor.voters().count() - dead.len();
    dead.truncate(want.saturating_sub(live));
    if dead.is_empty() || descriptor.is_joint() {
        return None;
    }
    let add = candidates::choose(loads, picture, region, &dead, dead.len());
    dead.truncate(add.len());
    (!add.is_empty()).then_some(Task::Reshape { add, remove: dead })
}

/// A node that came back before its replica was replaced keeps it.
pub(super) fn unwanted(operator: &Operator, region: &Region, picture: &Picture) -> Option<String> {
    let descriptor = &region.descriptor;
    let promoted = operator.adds().iter().all(|&node| {
        let member = descriptor.member_on(node);
        member.is_some_and(|member| member.role().votes())
    });
    let mut members = operator
        .removes()
        .iter()
        .filter_map(|&replica| descriptor.member(replica))
        .peekable();
    let back = members.peek().is_some()
        && members.all(|member| picture.is_live(descriptor.region, member));
    (back && !promoted).then(|| "the node came back".into())
}

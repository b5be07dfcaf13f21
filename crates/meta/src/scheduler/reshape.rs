//! New members in, old members out: the steps shared by repair, growth, balance and the rest.
//!
//! ```text
//!  for each node to add                                                then, for all at once
//!  plan (meta's log) ─► create (its node) ─► add learner (leader) ─► level ─► promote + remove
//!        id given        heartbeat shows it    descriptor has it                 (joint)
//! ```
//!
//! If the leader itself is to go it first hands over; where it is the only voter, the new ones are
//! promoted before that.

use base::cluster::{Descriptor, Member, NodeId, ReplicaId, Role};

use super::operator::{Next, Step};
use super::picture::{Leads, Picture};
use super::transfer;
use crate::liveness::Life;
use crate::state::{Change, Plan, PlanReplica, Purpose, Region, Stage};
use crate::wire::{Action, AddLearner, ChangeMembers, Create, Order};

pub(super) fn step(
    add: &[NodeId],
    remove: &[ReplicaId],
    purpose: Purpose,
    by_hand: bool,
    region: &Region,
    picture: &Picture,
) -> Step {
    let descriptor = &region.descriptor;
    let leaving: Vec<ReplicaId> = remove
        .iter()
        .copied()
        .filter(|&replica| descriptor.member(replica).is_some())
        .collect();
    let votes = |&node: &NodeId| {
        let member = descriptor.member_on(node);
        member.is_some_and(|member| member.role() == Role::Voter)
    };
    if add.iter().all(votes) && leaving.is_empty() && !descriptor.is_joint() {
        return Step::Done;
    }
    for &node in add {
        if picture.life(node) == Life::Dead {
            return Step::Failed(format!("node {node} is dead"));
        }
    }
    let Some(leader) = picture.leader(descriptor.region) else {
        return Step::wait("waits for a leader");
    };
    if descriptor.epoch != leader.report.epoch {
        return Step::wait("waits until meta and the leader agree on the members");
    }
    if descriptor.is_joint() {
        return Step::wait("the members are changing");
    }

    let mut promote = Vec::new();
    let mut pending = Vec::new();
    for (at, &node) in add.iter().enumerate() {
        match descriptor.member_on(node) {
            Some(member) if member.role() == Role::Voter => {}
            Some(member)
                if picture.is_level(region.descriptor.region, member.replica, descriptor.epoch) =>
            {
                promote.push(member.replica);
            }
            Some(member) if is_lost(member.replica, node, descriptor, picture) => {
                return Step::Failed(format!("node {node} has lost replica {}", member.replica));
            }
            Some(member) => pending.push(catching_up(member, &leader)),
            None => {
                let replaces = remove.get(at).copied().filter(|id| leaving.contains(id));
                pending.push(enter(node, replaces, purpose, region, &leader, picture));
            }
        }
    }
    if !pending.is_empty() {
        return together(pending);
    }
    if !by_hand && let Some(why) = is_too_few(&promote, &leaving, descriptor, picture) {
        return Step::Unwanted(why);
    }
    finish(promote, leaving, descriptor, &leader, picture)
}

/// Fewer voters than there are and than there should be: only a hand may ask for that. It happens
/// when a plan made to replace one member was used to replace another, and the next leader of meta
/// goes on with the plan as it was written.
fn is_too_few(
    promote: &[ReplicaId],
    leaving: &[ReplicaId],
    descriptor: &Descriptor,
    picture: &Picture,
) -> Option<String> {
    let before = descriptor.voters().count();
    let go = descriptor
        .voters()
        .filter(|member| leaving.contains(&member.replica))
        .count();
    let after = before + promote.len() - go;
    let want = picture.wanted(descriptor.region);
    (after < before && after < want).then(|| "no voter is to spare".into())
}

/// The node is alive and does not have what it once reported.
fn is_lost(replica: ReplicaId, node: NodeId, descriptor: &Descriptor, picture: &Picture) -> bool {
    picture.is_alive(node) && picture.report(descriptor.region, replica).is_none()
}

fn catching_up(member: &Member, leader: &Leads) -> Next {
    let node = member.node;
    let text = match leader.lag(member.replica) {
        Some(lag) => format!("learner on node {node} catches up (lag {lag})"),
        None => format!("learner on node {node} gets a snapshot"),
    };
    Next {
        text,
        ..Next::default()
    }
}

/// A node that has no member yet.
fn enter(
    node: NodeId,
    replaces: Option<ReplicaId>,
    purpose: Purpose,
    region: &Region,
    leader: &Leads,
    picture: &Picture,
) -> Next {
    let descriptor = &region.descriptor;
    let Some(plan) = region.plans.iter().find(|plan| plan.node == node) else {
        let plan = PlanReplica {
            region: descriptor.region,
            node,
            replaces: replaces.unwrap_or(0),
            purpose: purpose.into(),
        };
        return Next {
            text: format!("asks for an id for a replica on node {node}"),
            proposals: vec![Change::PlanReplica(plan).into()],
            orders: Vec::new(),
        };
    };
    let exists = picture.report(descriptor.region, plan.replica).is_some();
    match (plan.stage(), exists) {
        (Stage::Planned, false) => Next {
            text: format!("node {node} creates replica {}", plan.replica),
            proposals: Vec::new(),
            orders: vec![create(descriptor, plan, false)],
        },
        (Stage::Created, true) => {
            let learner = AddLearner {
                replica: plan.replica,
                node,
            };
            let order = picture.tell_leader(leader, descriptor, Action::AddLearner(learner));
            Next {
                text: format!("adds replica {} on node {node} as a learner", plan.replica),
                proposals: Vec::new(),
                orders: vec![order],
            }
        }
        _ => Next {
            text: format!("waits for replica {} on node {node} to show", plan.replica),
            ..Next::default()
        },
    }
}

pub(super) fn create(descriptor: &Descriptor, plan: &Plan, campaign: bool) -> (NodeId, Order) {
    let create = Action::Create(Create {
        descriptor: descriptor.clone(),
        replica: plan.replica,
        campaign,
    });
    let order = Order::new(descriptor.region, descriptor.epoch, 0, create);
    (plan.node, order)
}

/// All at once, but one order at most to the leader: the second would be for an old epoch.
fn together(pending: Vec<Next>) -> Step {
    let mut all = Next::default();
    let mut told_leader = false;
    for next in pending {
        if !all.text.is_empty() {
            all.text.push_str("; ");
        }
        all.text.push_str(&next.text);
        all.proposals.extend(next.proposals);
        for (node, order) in next.orders {
            let to_leader = order.term != 0;
            if !(to_leader && told_leader) {
                told_leader |= to_leader;
                all.orders.push((node, order));
            }
        }
    }
    Step::Next(all)
}

fn finish(
    promote: Vec<ReplicaId>,
    mut remove: Vec<ReplicaId>,
    descriptor: &Descriptor,
    leader: &Leads,
    picture: &Picture,
) -> Step {
    if remove.contains(&leader.report.replica) {
        if let Some(heir) = transfer::heir(descriptor, &remove, leader, picture) {
            return transfer::hand_over(heir, descriptor, leader, picture);
        }
        remove.retain(|&replica| replica != leader.report.replica);
        if promote.is_empty() && remove.is_empty() {
            return Step::wait("no other voter can lead");
        }
    }
    if let Err(why) = is_safe(descriptor, &promote, &remove, picture) {
        return Step::wait(why);
    }
    let text = match (promote.is_empty(), remove.is_empty()) {
        (false, false) => "promotes and removes",
        (false, true) => "promotes",
        _ => "removes",
    };
    let change = Action::ChangeMembers(ChangeMembers { promote, remove });
    Step::order(text, picture.tell_leader(leader, descriptor, change))
}

/// Whether the region can decide anything before, during and after this change with the members
/// that are alive now. A voter that is alive leaves only if all that stay are alive: one death that
/// is not known yet must not be one too many.
pub(super) fn is_safe(
    descriptor: &Descriptor,
    promote: &[ReplicaId],
    remove: &[ReplicaId],
    picture: &Picture,
) -> Result<(), String> {
    let region = descriptor.region;
    let mut joint = descriptor.clone();
    let mut live_leaves = false;
    for member in &mut joint.members {
        let votes = member.role() == Role::Voter;
        if votes && remove.contains(&member.replica) {
            member.role = Role::Outgoing.into();
            live_leaves |= picture.is_live(region, member);
        } else if !votes && promote.contains(&member.replica) {
            member.role = Role::Incoming.into();
        }
    }
    if !joint.has_quorum(|member| picture.is_live(region, member)) {
        return Err("would leave too few voters alive".into());
    }
    match joint
        .voters()
        .find(|member| !picture.is_live(region, member))
    {
        Some(silent) if live_leaves => Err(format!(
            "node {} is silent: no other voter may leave now",
            silent.node
        )),
        _ => Ok(()),
    }
}

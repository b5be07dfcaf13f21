//! Hand leadership to another voter.

use base::cluster::{Descriptor, ReplicaId, Role};

use super::operator::Step;
use super::picture::{Leads, Picture};
use crate::state::Region;
use crate::wire::{Action, TransferLeader};

pub(super) fn step(to: ReplicaId, region: &Region, picture: &Picture) -> Step {
    let descriptor = &region.descriptor;
    let Some(member) = descriptor.member(to) else {
        return Step::Unwanted("it is no member any more".into());
    };
    let Some(leader) = picture.leader(descriptor.region) else {
        return Step::wait("waits for a leader");
    };
    if leader.report.replica == to {
        return Step::Done;
    }
    if member.role() != Role::Voter || !picture.is_live(descriptor.region, member) {
        return Step::Unwanted("it cannot lead".into());
    }
    if descriptor.epoch != leader.report.epoch {
        return Step::wait("waits until meta and the leader agree on the members");
    }
    hand_over(to, descriptor, &leader, picture)
}

pub(super) fn hand_over(
    to: ReplicaId,
    descriptor: &Descriptor,
    leader: &Leads,
    picture: &Picture,
) -> Step {
    let order = Action::TransferLeader(TransferLeader { to });
    Step::order(
        format!("replica {to} takes over"),
        picture.tell_leader(leader, descriptor, order),
    )
}

/// A voter other than `except` that could lead at once.
pub(super) fn heir(
    descriptor: &Descriptor,
    except: &[ReplicaId],
    leader: &Leads,
    picture: &Picture,
) -> Option<ReplicaId> {
    let region = descriptor.region;
    descriptor
        .members
        .iter()
        .filter(|member| {
            member.role() == Role::Voter
                && member.replica != leader.report.replica
                && !except.contains(&member.replica)
                && picture.is_live(region, member)
                && picture.is_level(region, member.replica, descriptor.epoch)
        })
        .min_by_key(|member| {
            (
                picture.disk_full(member.node),
                leader.lag(member.replica),
                member.replica,
            )
        })
        .map(|member| member.replica)
}

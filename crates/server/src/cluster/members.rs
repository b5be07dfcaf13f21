//! Members of a region change, its leadership is handed over, and meta is told how it stands.

use std::rc::Rc;

use base::cluster::{Member as SeatOf, NodeId, ReplicaId, Role};
use bytes::Bytes;
use meta::wire::{Action, MemberProgress, Order, ReplicaReport, ReplicaRole};
use prost::Message;
use replica::{Committed, MemberChange, Refused, Replica};

use super::clock_ms;
use super::seats::{Seat, with_members};
use crate::cores::{Core, Region, RegionId};
use crate::durable::Unwritten;

/// What a change of members carries beside Raft's own: where the new ones are.
#[derive(Clone, PartialEq, Message)]
pub struct Newcomers {
    #[prost(message, repeated, tag = "1")]
    members: Vec<SeatOf>,
}

impl Newcomers {
    pub fn one(replica: ReplicaId, node: NodeId) -> Newcomers {
        Newcomers {
            members: vec![SeatOf::new(replica, node, Role::Learner)],
        }
    }

    /// What cannot be read names nobody.
    pub fn of(context: &Bytes) -> Newcomers {
        Newcomers::decode(context.clone()).unwrap_or_default()
    }

    pub fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        let newcomer = self.members.iter().find(|it| it.replica == replica);
        newcomer.map(|it| it.node)
    }
}

/// Does what a leader is ordered to. None: that is not for leaders.
pub fn lead(replica: &mut Replica, action: &Action) -> Option<Result<(), Refused>> {
    Some(match action {
        Action::AddLearner(add) => {
            let newcomers = Newcomers::one(add.replica, add.node);
            let change = [MemberChange::AddLearner(add.replica)];
            replica.propose_members(&change, newcomers.encode_to_vec())
        }
        Action::ChangeMembers(change) => {
            let promote = change.promote.iter().map(|&id| MemberChange::Promote(id));
            let remove = change.remove.iter().map(|&id| MemberChange::Remove(id));
            let changes: Vec<MemberChange> = promote.chain(remove).collect();
            replica.propose_members(&changes, Vec::new())
        }
        Action::TransferLeader(transfer) => replica.transfer_leader(transfer.to),
        Action::Create(_) | Action::Destroy(_) => return None,
    })
}

impl Core {
    /// Carries out an order to the leader of a region.
    pub(super) fn on_lead_order(
        self: &Rc<Self>,
        place: RegionId,
        order: &Order,
    ) -> Result<(), String> {
        let done = {
            let mut home = self.home.borrow_mut();
            let member = home.region_mut(place).and_then(|r| r.member.as_deref_mut());
            let Some(member) = member else {
                return Err("the region is busy".into());
            };
            let Some(peers) = member.peers.as_deref() else {
                return Err("the region has no peers".into());
            };
            let replica = &mut member.replica;
            let leads_in = replica.is_leader().then(|| replica.term());
            let epoch = peers.seat.descriptor.epoch;
            let action = order.check(epoch, leads_in).map_err(|e| e.to_string())?;
            lead(replica, action).ok_or("not for a leader")?
        };
        self.drive(place);
        self.end_turn();
        match done {
            Ok(()) | Err(Refused::Busy) => Ok(()),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// Applies a committed change of members: the seat changes in the same write as the applied
    /// index. The rows of what was applied before are settled.
    pub(crate) fn apply_change(
        &self,
        region: &mut Region,
        committed: &Committed,
    ) -> Option<Unwritten> {
        let member = region.member.as_deref_mut()?;
        let change = committed.change.as_deref()?;
        let peers = member.peers.as_deref_mut()?;
        let members = member.replica.apply_members(change);
        let newcomers = Newcomers::of(&change.context);
        let next = with_members(&peers.seat.descriptor, &members, |id| newcomers.node_of(id));
        peers.seat.descriptor = next;
        let seat = peers.seat.clone();
        region.space.begin_entry(committed.index);
        region.space.note_term(committed.term);
        region.space.set_descriptor(&seat.descriptor.to_bytes());
        let mut changes = std::mem::take(&mut member.changes);
        let stamp_ms = region.space.last_stamp_ms();
        region.space.end_entry(stamp_ms, &mut changes);
        if let Some(cluster) = &self.shared.cluster {
            cluster.lead_slots(&seat, region.id);
            cluster.nudge();
        }
        Some(Unwritten {
            changes,
            index: committed.index,
        })
    }

    /// How the replicas of this core stand.
    pub(super) fn report(&self) -> Vec<ReplicaReport> {
        let mut last = self.last_reports.borrow_mut();
        let mut home = self.home.borrow_mut();
        let places: Vec<RegionId> = home.places().collect();
        for place in places {
            let report = home.region_mut(place).and_then(|region| report_of(region));
            if let Some(report) = report {
                last.insert(place, report);
            } else if !home.is_used(place) {
                last.remove(&place);
            } // else it is lent, and as it was a moment ago
        }
        last.values().cloned().collect()
    }

    /// Quiet followers of leaders on this node look after themselves from now on.
    pub(super) fn on_node_down(self: &Rc<Self>, node: u64) {
        let now_ms = clock_ms();
        let mut woken = Vec::new();
        for region in self.home.borrow_mut().present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let Some(peers) = member.peers.as_deref() else {
                continue;
            };
            let is_concerned = peers
                .seat
                .descriptor
                .members
                .iter()
                .any(|member| member.node == node);
            if is_concerned && member.replica.is_quiet() {
                member.replica.wake(now_ms);
                woken.push(region.id);
            }
        }
        woken.into_iter().for_each(|id| self.drive(id));
        self.end_turn();
    }
}

impl Core {
    /// Leaders find out first what the replicas of a node have, before they send more.
    pub(super) fn on_node_broken(&self, node: u64) {
        for region in self.home.borrow_mut().present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let Some(peers) = member.peers.as_deref() else {
                continue;
            };
            if member.replica.is_leader()
                && let Some(there) = peers.seat.descriptor.member_on(node)
            {
                member.replica.report_unreachable(there.replica);
            }
        }
    }
}

fn report_of(region: &Region) -> Option<ReplicaReport> {
    let member = region.member.as_deref()?;
    let peers = member.peers.as_deref()?;
    let mut report = report_of_replica(&member.replica, &peers.seat);
    report.keys = region.space.db_stats(0).0 as u64;
    report.installing = peers.is_installing;
    Some(report)
}

/// What meta is told of any replica.
pub fn report_of_replica(replica: &Replica, seat: &Seat) -> ReplicaReport {
    let leads = replica.is_leader();
    let role = match () {
        () if leads => ReplicaRole::Leader,
        () if !replica.members().is_voter(replica.id()) => ReplicaRole::Learner,
        () if replica.leader().is_none() => ReplicaRole::Candidate,
        () => ReplicaRole::Follower,
    };
    let last = replica.last_index();
    let members = match leads {
        true => replica.progress(),
        false => Vec::new(),
    };
    let members = members.into_iter().map(|it| MemberProgress {
        replica: it.replica,
        lag: last.saturating_sub(it.matched),
        active: it.is_active,
        snapshot: it.is_in_snapshot,
    });
    ReplicaReport {
        region: seat.region(),
        replica: seat.replica,
        role: role.into(),
        term: replica.term(),
        applied: replica.applied_index(),
        epoch: seat.descriptor.epoch,
        leader: replica.leader().unwrap_or(0),
        members: members.collect(),
        descriptor: leads.then(|| seat.descriptor.clone()),
        ..ReplicaReport::default()
    }
}

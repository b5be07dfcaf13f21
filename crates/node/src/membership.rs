//! Members of a region change, its leadership is handed over, its state is replaced by a snapshot, and
//! meta is told how it stands.

use base::cluster::{Member as MemberOf, NodeId, ReplicaId, Role};
use bytes::Bytes;
use keyspace::Keyspace;
use meta::wire::{Action, MemberProgress, Order, ReplicaReport, ReplicaRole};
use prost::Message;
use replica::entry::digest_payload;
use replica::{Committed, MemberChange, Refused, Replica};

use crate::effects::{Effects, Served};
use crate::member::Unwritten;
use crate::replica_record::with_members;
use crate::{Context, Outcome, OwnedRegions, Place, Region, RegionBox, ReplicaRecord, Unserved};

/// What a change of members carries beside Raft's own: where the new ones are.
#[derive(Clone, PartialEq, Message)]
pub struct Newcomers {
    #[prost(message, repeated, tag = "1")]
    members: Vec<MemberOf>,
}

impl Newcomers {
    pub fn one(replica: ReplicaId, node: NodeId) -> Newcomers {
        Newcomers {
            members: vec![MemberOf::new(replica, node, Role::Learner)],
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

impl OwnedRegions {
    /// Carries out an order to the leader of a region.
    pub fn on_lead_order(
        &mut self,
        place: Place,
        order: &Order,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Result<(), String> {
        let Some(member) = self.member_mut(place) else {
            return Err("the region is busy".into());
        };
        let Some(peers) = member.peers.as_deref() else {
            return Err("the region has no peers".into());
        };
        let replica = &mut member.replica;
        let leads_in = replica.is_leader().then(|| replica.term());
        let epoch = peers.record.descriptor.epoch;
        let action = order.check(epoch, leads_in).map_err(|e| e.to_string())?;
        let done = lead(replica, action).ok_or("not for a leader")?;
        self.drive(place, cx, out);
        match done {
            Ok(()) | Err(Refused::Busy) => Ok(()),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// A replica leaves, by an order of meta. Not while it is lent or a snapshot is being installed (a
    /// thread writes its rows), and not if the order was made before the replica became a member.
    pub fn remove_replica(
        &mut self,
        place: Place,
        order: &Order,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<RegionBox> {
        let peers = self.member_mut(place)?.peers.as_deref()?;
        if peers.is_installing || !peers.record.may_go(order) {
            return None;
        }
        let (mut region, mut batches) = self.remove(place)?;
        region.close_write_back(out);
        batches.append(&mut out.requeued);
        for waiter in region.take_interest() {
            if waiter.claim.serve() {
                out.served.push((waiter, Served::LeaderChanged));
            }
        }
        if let Some(member) = region.member.as_deref_mut() {
            for proposal in std::mem::take(&mut member.proposals) {
                region.refuse_proposal(proposal, &Outcome::InDoubt, cx, out);
            }
        }
        let outcome = Outcome::Unserved(Unserved::Elsewhere);
        let batches = batches.into_iter();
        out.finished
            .extend(batches.map(|batch| (batch, outcome.clone())));
        self.refuse_reads(Some(place), out);
        // Those in line for it find it gone.
        self.grant_next(cx, out);
        Some(region)
    }

    /// The leader asks all replicas for a digest, by its log; whether it could.
    pub fn ask_digest(
        &mut self,
        place: Place,
        id: u64,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> bool {
        let asked = self.member_mut(place).is_some_and(|member| {
            let stamp_ms = member.next_stamp(cx.now_ms);
            member.replica.propose(digest_payload(stamp_ms, id)).is_ok()
        });
        self.drive(place, cx, out);
        asked
    }

    /// Quiet followers of leaders on this node look after themselves from now on.
    pub fn on_node_down(&mut self, node: NodeId, cx: &Context<'_>, out: &mut Effects) {
        let mut woken = Vec::new();
        for region in self.present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let Some(peers) = member.peers.as_deref() else {
                continue;
            };
            let mut members = peers.record.descriptor.members.iter();
            let is_concerned = members.any(|member| member.node == node);
            if is_concerned && member.replica.is_quiet() {
                member.replica.wake(cx.clock_ms);
                woken.push(region.id);
            }
        }
        for place in woken {
            self.drive(place, cx, out);
        }
    }

    /// Leaders find out first what the replicas of a node have, before they send more.
    pub fn on_node_broken(&mut self, node: NodeId) {
        for region in self.present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let Some(peers) = member.peers.as_deref() else {
                continue;
            };
            if member.replica.is_leader()
                && let Some(there) = peers.record.descriptor.member_on(node)
            {
                member.replica.report_unreachable(there.replica);
            }
        }
    }
}

impl Region {
    /// Applies a committed change of members: the record changes in the same write as the applied index.
    /// The rows of what was applied before are settled.
    pub(crate) fn apply_change(
        &mut self,
        committed: &Committed,
        cx: &Context<'_>,
    ) -> Option<Unwritten> {
        let member = self.member.as_deref_mut()?;
        let change = committed.change.as_deref()?;
        let peers = member.peers.as_deref_mut()?;
        let members = member.replica.apply_members(change);
        let newcomers = Newcomers::of(&change.context);
        let record = &mut peers.record;
        record.descriptor = with_members(&record.descriptor, &members, |id| newcomers.node_of(id));
        self.space.begin_entry(committed.index);
        self.space.note_term(committed.term);
        self.space.set_descriptor(&record.descriptor.to_bytes());
        let mut changes = std::mem::take(&mut member.changes);
        let stamp_ms = self.space.last_stamp_ms();
        self.space.end_entry(stamp_ms, &mut changes);
        cx.host.on_members(self.id, committed.index, record);
        Some(Unwritten {
            changes,
            index: committed.index,
        })
    }

    /// The region's state is about to be replaced by a snapshot: until that is done there is none.
    pub(crate) fn begin_install(&mut self, cx: &Context<'_>, out: &mut Effects) {
        self.close_write_back(out);
        self.replace_space(Keyspace::new(cx.seed()));
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        member.committed.clear();
        member.open = None;
        member.unwritten = None;
        member.entry_rows = None;
        member.uncommitted = None;
        member.stalled = false;
        (member.damage, member.is_damage_told) = (None, false);
        member.replica.allow_leadership();
        if let Some(peers) = member.peers.as_deref_mut() {
            peers.is_installing = true;
        }
        for proposal in std::mem::take(&mut member.proposals) {
            self.refuse_proposal(proposal, &Outcome::InDoubt, cx, out);
        }
    }

    /// A snapshot is installed: this is the state now.
    pub fn on_installed(&mut self, index: u64, space: Keyspace, cx: &Context<'_>) {
        let state = space.state();
        self.replace_space(space);
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        member.next_stamp(state.stamp_ms);
        member.replica.on_installed(index);
        if let Some(peers) = member.peers.as_deref_mut() {
            peers.is_installing = false;
            peers.record.take_state(&state);
            cx.host.on_members(self.id, index, &peers.record);
        }
        member.note_progress(self.id, index);
    }
}

impl OwnedRegions {
    /// What meta is told of all replicas of this core. Of one that is lent: what was told last, for what is
    /// left out would count as gone.
    pub fn reports(&mut self) -> Vec<ReplicaReport> {
        let places: Vec<Place> = self.places().collect();
        let mut all = Vec::new();
        for place in places {
            let Some(slot) = self.slots.used_mut(place) else {
                continue;
            };
            if let Some(region) = &slot.region {
                slot.last_report = report_of(region);
            }
            all.extend(slot.last_report.clone());
        }
        all
    }
}

/// What meta is told of a region's replica.
pub fn report_of(region: &Region) -> Option<ReplicaReport> {
    let member = region.member.as_deref()?;
    let peers = member.peers.as_deref()?;
    let mut report = report_of_replica(&member.replica, &peers.record);
    report.keys = region.space.db_stats(0).0 as u64;
    report.installing = peers.is_installing;
    Some(report)
}

/// What meta is told of any replica.
pub fn report_of_replica(replica: &Replica, record: &ReplicaRecord) -> ReplicaReport {
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
        region: record.region(),
        replica: record.replica,
        role: role.into(),
        term: replica.term(),
        applied: replica.applied_index(),
        epoch: record.descriptor.epoch,
        leader: replica.leader().unwrap_or(0),
        members: members.collect(),
        descriptor: leads.then(|| record.descriptor.clone()),
        ..ReplicaReport::default()
    }
}

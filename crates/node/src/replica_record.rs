//! What a node keeps of its replicas beside their rows, in the family of states.
//!
//! ```text
//!   "seat" region:u64   ReplicaRecord    members, segments, where the state began
//!   "gone" region:u64   replica:u64      the newest replica that was destroyed here: neither it nor
//!                                        an older one is ever made again
//!   "self"              Identity         cluster, node, how often it was started
//! ```
//!
//! A record changes in the same write as the applied index of the entry that changed it; it is made,
//! and removed, behind a checkpoint.

use base::cluster::{ClusterId, Descriptor, NodeId, RegionId, ReplicaId, Role};
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, WriteError};
use meta::wire::{Action, Create, Order};
use prost::Message;
use replica::{FOUNDED, Members, Position};

const RECORD: &[u8] = b"seat";
const GONE: &[u8] = b"gone";
const SELF: &[u8] = b"self";

/// A replica of this node.
#[derive(Clone, PartialEq, Message)]
pub struct ReplicaRecord {
    #[prost(message, required, tag = "1")]
    pub descriptor: Descriptor,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
    /// What its state began with: the last snapshot, or its founding; zero: nothing yet.
    #[prost(uint64, tag = "3")]
    pub snapshot_index: u64,
    #[prost(uint64, tag = "4")]
    pub snapshot_term: u64,
}

impl ReplicaRecord {
    pub fn region(&self) -> RegionId {
        self.descriptor.region
    }

    pub fn snapshot(&self) -> Position {
        Position {
            index: self.snapshot_index,
            term: self.snapshot_term,
        }
    }

    pub fn set_snapshot(&mut self, at: Position) {
        (self.snapshot_index, self.snapshot_term) = (at.index, at.term);
    }

    /// Of a replica that meta wants to be made. A founder begins with the founding. Any other knows
    /// nothing, even if it is a member by now: the log does not tell from where on it was one.
    pub fn made(create: Create) -> ReplicaRecord {
        let is_founder = create.is_founder();
        let mut record = ReplicaRecord {
            descriptor: create.descriptor,
            replica: create.replica,
            ..ReplicaRecord::default()
        };
        if is_founder {
            record.set_snapshot(FOUNDED);
        }
        record
    }

    /// As Raft counts, for a state as of the index `applied`. Nobody, before the replica is a member
    /// and has a state.
    pub fn members(&self, applied: u64) -> Members {
        let is_empty = applied.max(self.snapshot_index) == 0;
        match self.descriptor.member(self.replica) {
            Some(_) if !is_empty => members_of(&self.descriptor),
            _ => Members::default(),
        }
    }

    /// Whether this is the replica that an order destroys. One made for an older epoch than the
    /// replica knows of is refused: the replica became a member after all.
    pub fn may_go(&self, order: &Order) -> bool {
        match order.check(self.descriptor.epoch, None) {
            Ok(Action::Destroy(destroy)) => destroy.replica == self.replica,
            _ => false,
        }
    }

    pub fn put(&self, changes: &mut Changes) {
        changes.put(
            Family::Info,
            &key(RECORD, self.region()),
            &self.encode_to_vec(),
        );
    }
}

impl ReplicaRecord {
    /// A snapshot replaced the state of the region: members and segments are as it says.
    pub fn take_state(&mut self, state: &keyspace::rows::State) {
        if let Some(descriptor) = descriptor_of(state) {
            self.descriptor = descriptor;
        }
        self.snapshot_index = state.applied_index;
        self.snapshot_term = state.applied_term;
    }
}

/// The members and slots of a region as its state row has them; `None` if it never had any.
pub fn descriptor_of(state: &keyspace::rows::State) -> Option<Descriptor> {
    match state.descriptor.is_empty() {
        true => None,
        false => Descriptor::from_bytes(&state.descriptor).ok(),
    }
}

/// The members of a descriptor as Raft counts them.
pub fn members_of(descriptor: &Descriptor) -> Members {
    let with = |roles: &[Role]| -> Vec<u64> {
        let members = descriptor.members.iter();
        let mut ids: Vec<u64> = members
            .filter(|member| roles.contains(&member.role()))
            .map(|member| member.replica)
            .collect();
        ids.sort_unstable();
        ids
    };
    let is_joint = descriptor.is_joint();
    Members {
        voters: with(&[Role::Voter, Role::Incoming]),
        learners: with(&[Role::Learner]),
        voters_outgoing: match is_joint {
            true => with(&[Role::Voter, Role::Outgoing, Role::Demoting]),
            false => Vec::new(),
        },
        learners_next: with(&[Role::Demoting]),
        auto_leave: is_joint,
    }
}

/// The descriptor after a change, given the members Raft counts from now on and where new ones are.
pub fn with_members(
    descriptor: &Descriptor,
    members: &Members,
    node_of_new: impl Fn(ReplicaId) -> Option<NodeId>,
) -> Descriptor {
    let mut next = descriptor.clone();
    next.epoch.members += 1;
    next.members = members
        .all()
        .into_iter()
        .filter_map(|id| {
            let known = descriptor.member(id).map(|member| member.node);
            let node = known.or_else(|| node_of_new(id))?;
            let (new, old) = (
                members.voters.contains(&id),
                members.voters_outgoing.contains(&id),
            );
            let role = match (new, old) {
                _ if members.learners_next.contains(&id) => Role::Demoting,
                (true, false) if members.is_joint() => Role::Incoming,
                (true, _) => Role::Voter,
                (false, true) => Role::Outgoing,
                (false, false) => Role::Learner,
            };
            Some(base::cluster::Member::new(id, node, role))
        })
        .collect();
    next
}

/// Who a node is.
#[derive(Clone, PartialEq, Message)]
pub struct Identity {
    /// 0: it belongs to no cluster yet.
    #[prost(uint64, tag = "1")]
    pub cluster: ClusterId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    #[prost(uint64, tag = "3")]
    pub start_count: u64,
    /// Drawn before the first join, so that a join that is tried again makes no second node.
    #[prost(uint64, tag = "4")]
    pub token: u64,
    /// Peer addresses of meta's members, as last heard.
    #[prost(string, repeated, tag = "5")]
    pub meta: Vec<String>,
    /// All nodes, `id@peer address`, as last heard.
    #[prost(string, repeated, tag = "6")]
    pub nodes: Vec<String>,
}

impl Identity {
    pub fn read(rows: &dyn RowSource) -> Result<Option<Identity>, String> {
        read(rows, SELF)
    }

    /// Somebody who may know where meta is, for when those that were its members do not answer: of the
    /// other nodes, each in its turn.
    pub fn somebody_else(&self, turn: usize, is_asked: impl Fn(&str) -> bool) -> Option<&str> {
        let others = || {
            let all = self.addresses().filter(|&(node, _)| node != self.node);
            all.map(|(_, address)| address).filter(|it| !is_asked(it))
        };
        others().nth(turn.checked_rem(others().count())?)
    }

    /// Nodes and their peer addresses.
    pub fn addresses(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.nodes.iter().filter_map(|text| {
            let (node, address) = text.split_once('@')?;
            Some((node.parse().ok()?, address))
        })
    }

    /// Durable when it returns. `pause` is called while the store is busy.
    pub fn keep(&self, rows: &dyn RowStore, pause: fn()) -> Result<(), String> {
        let mut changes = Changes::new();
        changes.put(Family::Info, SELF, &self.encode_to_vec());
        write(rows, &changes, pause)?;
        keep(rows)
    }
}

/// The replicas of this node.
pub fn records(rows: &dyn RowSource) -> Result<Vec<ReplicaRecord>, String> {
    let mut records = Vec::new();
    let mut damaged = false;
    let mut end = RECORD.to_vec();
    end.extend([0xff; 9]);
    rows.scan(
        Family::Info,
        RECORD,
        &end,
        false,
        Tier::All,
        &mut |_, value| {
            match ReplicaRecord::decode(value) {
                Ok(record) => records.push(record),
                Err(_) => damaged = true,
            }
            true
        },
    )
    .map_err(|error| format!("the store cannot be read: {error:?}"))?;
    match damaged {
        true => Err("the list of this node's replicas is damaged".into()),
        false => Ok(records),
    }
}

/// The newest replica of a region that was destroyed here.
pub fn gone(rows: &dyn RowSource, region: RegionId) -> Result<ReplicaId, String> {
    let mut found = 0;
    rows.get(Family::Info, &key(GONE, region), Tier::All, &mut |value| {
        found = value.try_into().map_or(u64::MAX, u64::from_be_bytes);
    })
    .map_err(|error| format!("the store cannot be read: {error:?}"))?;
    Ok(found)
}

/// The replica is destroyed: its record is gone, and stays so.
pub fn put_gone(changes: &mut Changes, region: RegionId, replica: ReplicaId) {
    changes.delete(Family::Info, &key(RECORD, region));
    let value = replica.to_be_bytes();
    changes.put(Family::Info, &key(GONE, region), &value);
}

fn key(kind: &[u8], region: RegionId) -> Vec<u8> {
    [kind, &region.to_be_bytes()].concat()
}

fn read<M: Message + Default>(rows: &dyn RowSource, key: &[u8]) -> Result<Option<M>, String> {
    let mut found = None;
    rows.get(Family::Info, key, Tier::All, &mut |value| {
        found = Some(M::decode(value));
    })
    .map_err(|error| format!("the store cannot be read: {error:?}"))?;
    found
        .transpose()
        .map_err(|error| format!("a row of this node is damaged: {error}"))
}

/// Writes; calls `pause` and tries again while the store is busy. Not for cores.
pub fn write(rows: &dyn RowStore, changes: &Changes, pause: fn()) -> Result<(), String> {
    loop {
        match rows.write(&[changes]) {
            Ok(()) => return Ok(()),
            Err(WriteError::Busy) => pause(),
            Err(WriteError::Failed(reason)) => return Err(reason),
        }
    }
}

/// What was written is on disk when it returns.
pub fn keep(rows: &dyn RowStore) -> Result<(), String> {
    rows.keep()
        .map_err(|error| format!("the store cannot flush: {error:?}"))
}

#[cfg(test)]
mod tests {
    use base::cluster::{Epoch, Member};

    use super::*;

    fn descriptor(members: &[(u64, u64, Role)]) -> Descriptor {
        Descriptor {
            region: 1,
            epoch: Epoch::FIRST,
            segments: Vec::new(),
            members: members
                .iter()
                .map(|&(id, node, role)| Member::new(id, node, role))
                .collect(),
        }
    }

    #[test]
    fn every_other_node_is_asked_in_its_turn() {
        let identity = Identity {
            node: 2,
            nodes: ["1@a:1", "2@b:1", "3@c:1", "4@d:1"]
                .map(String::from)
                .into(),
            ..Identity::default()
        };
        let asked = |turn| identity.somebody_else(turn, |address| address == "a:1");
        assert_eq!(
            [0, 1, 2].map(asked),
            [Some("c:1"), Some("d:1"), Some("c:1")]
        );
        assert_eq!(identity.somebody_else(7, |_| true), None);
        assert_eq!(Identity::default().somebody_else(0, |_| false), None);
    }

    #[test]
    fn only_founders_begin_with_the_founding() {
        let create = |epoch, replica| Create {
            descriptor: Descriptor {
                epoch,
                ..descriptor(&[(11, 1, Role::Voter), (12, 2, Role::Voter)])
            },
            replica,
            campaign: false,
        };
        let founder = ReplicaRecord::made(create(Epoch::FIRST, 11));
        assert_eq!(founder.snapshot(), FOUNDED);
        assert_eq!(founder.members(0), Members::of_voters([11, 12]));
        // The others have changed their members since, without it.
        let later = Epoch {
            members: 3,
            segments: 1,
        };
        for (epoch, replica) in [(later, 11), (Epoch::FIRST, 13)] {
            let record = ReplicaRecord::made(create(epoch, replica));
            assert_eq!(record.snapshot(), Position::default());
            assert_eq!(record.members(0), Members::default());
        }
    }

    #[test]
    fn a_replica_that_became_a_member_after_all_stays() {
        let mut record = ReplicaRecord {
            descriptor: descriptor(&[(11, 1, Role::Voter)]),
            replica: 11,
            ..ReplicaRecord::default()
        };
        let action = |replica| Action::Destroy(meta::wire::Destroy { replica });
        let order = Order::new(1, Epoch::FIRST, 0, action(11));
        assert!(record.may_go(&order));
        assert!(!record.may_go(&Order::new(1, Epoch::FIRST, 0, action(10))));
        record.descriptor.epoch.members += 1;
        assert!(!record.may_go(&order));
    }

    #[test]
    fn members_and_descriptors_say_the_same() {
        let three = descriptor(&[
            (11, 1, Role::Voter),
            (12, 2, Role::Voter),
            (13, 3, Role::Voter),
        ]);
        let mut members = members_of(&three);
        assert_eq!(members, Members::of_voters([11, 12, 13]));
        members.learners.push(14);
        let four = with_members(&three, &members, |id| (id == 14).then_some(4));
        assert_eq!(four.epoch.members, 2);
        assert_eq!(four.member(14), Some(&Member::new(14, 4, Role::Learner)));
        assert_eq!(members_of(&four), members);
        let joint = Members {
            voters: vec![11, 12, 14],
            voters_outgoing: vec![11, 12, 13],
            auto_leave: true,
            ..Members::default()
        };
        let moving = with_members(&four, &joint, |_| None);
        assert_eq!(moving.role_of(13), Some(Role::Outgoing));
        assert_eq!(moving.role_of(14), Some(Role::Incoming));
        assert_eq!(moving.role_of(11), Some(Role::Voter));
        assert_eq!(members_of(&moving), joint);
        let moved = with_members(&moving, &Members::of_voters([11, 12, 14]), |_| None);
        assert_eq!(moved.members.len(), 3);
        assert!(!moved.is_joint());
    }
}

//! Who is where: ids of a cluster's parts, and the descriptor of a region.
//!
//! A [`Descriptor`] says which slots a region holds and which replicas are its members. It is
//! decided by the region's own Raft log, stored by every replica beside its data, reported to meta,
//! and pushed to all nodes as the route table. Its [`Epoch`] only grows: of two descriptors of one
//! region the one with the larger epoch is newer, and a request made for an older one is refused.
//!
//! All of it is protobuf on plain structs, so that a field can be added while nodes of two versions
//! talk to each other.

use std::ops::RangeInclusive;

use prost::Message;

use crate::{SLOT_COUNT, Slot};

/// Random, made once by `--cluster-init`. Two clusters never talk to each other.
pub type ClusterId = u64;
/// One process with its data directory; from 1, given by meta, never used again.
pub type NodeId = u64;
/// One Raft group: 0 is meta; data regions from 1, each the home id of its founding segment.
pub type RegionId = u64;
/// One member of one region, and its id inside raft-rs; given by meta, never used again: a replica
/// that is removed and added again is another one.
pub type ReplicaId = u64;

/// The region of meta itself. It has members but no slots.
pub const META_REGION: RegionId = 0;

/// How often a region's members and its segments have changed. Both only grow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub struct Epoch {
    /// Raised by every applied change of members, entering and leaving a joint one alike.
    #[prost(uint64, tag = "1")]
    pub members: u64,
    /// Raised by every split and merge.
    #[prost(uint64, tag = "2")]
    pub segments: u64,
}

impl Epoch {
    pub const FIRST: Epoch = Epoch {
        members: 1,
        segments: 1,
    };

    /// A request made for `self` is out of date at a replica that is at `current`.
    pub fn is_older_than(&self, current: &Epoch) -> bool {
        self.members < current.members || self.segments < current.segments
    }
}

/// A range of slots whose rows bear one home id (DESIGN §6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub struct Segment {
    #[prost(uint64, tag = "1")]
    pub home: RegionId,
    /// First and last slot, both inside. Slots are 16 bits; protobuf has no such type.
    #[prost(uint32, tag = "2")]
    pub first_slot: u32,
    #[prost(uint32, tag = "3")]
    pub last_slot: u32,
}

impl Segment {
    pub fn new(home: RegionId, slots: RangeInclusive<Slot>) -> Segment {
        Segment {
            home,
            first_slot: u32::from(*slots.start()),
            last_slot: u32::from(*slots.end()),
        }
    }

    /// The slots, cut to what exists; empty if the segment makes no sense.
    pub fn slots(&self) -> RangeInclusive<Slot> {
        let last = self.last_slot.min(u32::from(SLOT_COUNT) - 1);
        if self.first_slot > last {
            #[expect(clippy::reversed_empty_ranges, reason = "the empty range")]
            return 1..=0;
        }
        self.first_slot as Slot..=last as Slot
    }

    pub fn contains(&self, slot: Slot) -> bool {
        (self.first_slot..=self.last_slot).contains(&u32::from(slot))
    }
}

/// What a member may do. The last three exist only while a joint change of members is under way.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    prost::Enumeration, // over i32
)]
#[repr(i32)]
pub enum Role {
    /// Gets the log, has no vote. Also what an unknown number means: never count a vote too many.
    Learner = 0,
    Voter = 1,
    /// Votes in the new configuration only.
    Incoming = 2,
    /// Votes in the old configuration only, and then is gone.
    Outgoing = 3,
    /// Votes in the old configuration only, and then is a learner.
    Demoting = 4,
}

impl Role {
    /// Has a vote in at least one of the configurations.
    pub fn votes(self) -> bool {
        self != Role::Learner
    }

    fn votes_in_new(self) -> bool {
        matches!(self, Role::Voter | Role::Incoming)
    }

    fn votes_in_old(self) -> bool {
        matches!(self, Role::Voter | Role::Outgoing | Role::Demoting)
    }

    pub fn name(self) -> &'static str {
        match self {
            Role::Learner => "learner",
            Role::Voter => "voter",
            Role::Incoming => "incoming",
            Role::Outgoing => "outgoing",
            Role::Demoting => "demoting",
        }
    }
}

/// One replica of a region and the node it is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub struct Member {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    /// A [`Role`]; read it with `role()`.
    #[prost(enumeration = "Role", tag = "3")]
    pub role: i32,
}

impl Member {
    pub fn new(replica: ReplicaId, node: NodeId, role: Role) -> Member {
        Member {
            replica,
            node,
            role: role.into(),
        }
    }
}

/// A region: its slots, its members, and how new this word of it is.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Descriptor {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(message, required, tag = "2")]
    pub epoch: Epoch,
    #[prost(message, repeated, tag = "3")]
    pub segments: Vec<Segment>,
    #[prost(message, repeated, tag = "4")]
    pub members: Vec<Member>,
}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<prost::DecodeError> for Malformed {
    fn from(error: prost::DecodeError) -> Malformed {
        Malformed(error.to_string())
    }
}

impl Descriptor {
    /// The same descriptor gives the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Descriptor, Malformed> {
        Ok(Descriptor::decode(bytes)?)
    }

    pub fn member(&self, replica: ReplicaId) -> Option<&Member> {
        self.members.iter().find(|member| member.replica == replica)
    }

    /// A node has at most one replica of a region.
    pub fn member_on(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }

    pub fn role_of(&self, replica: ReplicaId) -> Option<Role> {
        self.member(replica).map(Member::role)
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.segments.iter().any(|segment| segment.contains(slot))
    }

    /// Between the two halves of a joint change: another one has to wait.
    pub fn is_joint(&self) -> bool {
        self.members
            .iter()
            .any(|member| !matches!(member.role(), Role::Voter | Role::Learner))
    }

    /// Members that will vote once a joint change under way is over.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        let votes = |member: &&Member| member.role().votes_in_new();
        self.members.iter().filter(votes)
    }

    pub fn learners(&self) -> impl Iterator<Item = &Member> {
        let learns = |member: &&Member| member.role() == Role::Learner;
        self.members.iter().filter(learns)
    }

    /// Whether the members for which `alive` holds can decide anything: a majority of the voters,
    /// of both configurations while there are two.
    pub fn has_quorum(&self, alive: impl Fn(&Member) -> bool) -> bool {
        let majority = |votes: fn(Role) -> bool| {
            let all = self.members.iter().filter(|m| votes(m.role())).count();
            let up = self
                .members
                .iter()
                .filter(|m| votes(m.role()) && alive(m))
                .count();
            up * 2 > all
        };
        majority(Role::votes_in_new) && majority(Role::votes_in_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(roles: &[Role]) -> Descriptor {
        Descriptor {
            region: 7,
            epoch: Epoch::FIRST,
            segments: vec![Segment::new(7, 100..=199)],
            members: (1..)
                .zip(roles)
                .map(|(id, &role)| Member::new(id, id + 10, role))
                .collect(),
        }
    }

    #[test]
    fn bytes_and_back() {
        let described = region(&[Role::Voter, Role::Learner, Role::Demoting]);
        let bytes = described.to_bytes();
        assert_eq!(Descriptor::from_bytes(&bytes), Ok(described));
        assert!(Descriptor::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        assert!(Descriptor::from_bytes(b"\xff\xff\xff").is_err());
    }

    #[test]
    fn an_epoch_is_older_if_any_part_is() {
        let current = Epoch {
            members: 5,
            segments: 2,
        };
        assert!(!current.is_older_than(&current));
        assert!(Epoch::FIRST.is_older_than(&current));
        let odd = Epoch {
            members: 6,
            segments: 1,
        };
        assert!(odd.is_older_than(&current));
    }

    #[test]
    fn slots_of_a_senseless_segment_are_none() {
        let segment = Segment {
            home: 1,
            first_slot: 70_000,
            last_slot: 80_000,
        };
        assert_eq!(segment.slots().count(), 0);
        assert!(region(&[]).contains(150) && !region(&[]).contains(200));
        let all = Segment {
            home: 1,
            first_slot: 0,
            last_slot: u32::MAX,
        };
        assert_eq!(all.slots().count(), usize::from(SLOT_COUNT));
    }

    #[test]
    fn a_joint_change_needs_both_majorities() {
        use Role::*;
        let three = region(&[Voter, Voter, Voter, Learner]);
        assert!(three.has_quorum(|m| m.replica <= 2));
        assert!(!three.has_quorum(|m| m.replica == 1 || m.replica == 4));
        assert!(!three.is_joint());

        // 1 2 3 becomes 1 2 4.
        let joint = region(&[Voter, Voter, Outgoing, Incoming]);
        assert!(joint.is_joint());
        assert!(joint.has_quorum(|m| m.replica <= 2));
        assert!(joint.has_quorum(|m| m.replica != 1));
        assert!(!joint.has_quorum(|m| m.replica == 1 || m.replica == 3));
        assert!(!joint.has_quorum(|m| m.replica == 1 || m.replica == 4));
        assert_eq!(
            joint.voters().map(|m| m.replica).collect::<Vec<_>>(),
            [1, 2, 4]
        );
        assert!(!region(&[]).has_quorum(|_| true));
    }
}

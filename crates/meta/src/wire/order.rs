//! What meta tells a node to do with one replica.
//!
//! An order is made from meta's word of a region, which may be old by the time it arrives. So it
//! names the epoch it was made for, and orders to a leader also its term; [`Order::check`] is the
//! store's half of the contract. An order comes again with every answer until a heartbeat shows its
//! effect, so carrying one out twice has to do nothing the second time.

use base::cluster::{Descriptor, Epoch, NodeId, RegionId, ReplicaId};
use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Order {
    /// The same order has the same id, also from another leader of meta.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub region: RegionId,
    /// The descriptor this was made for.
    #[prost(message, required, tag = "3")]
    pub epoch: Epoch,
    /// Of the leader this is meant for; 0 for `Create` and `Destroy`.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    #[prost(oneof = "Action", tags = "10, 11, 12, 13, 14")]
    pub action: Option<Action>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Action {
    #[prost(message, tag = "10")]
    Create(Create),
    #[prost(message, tag = "11")]
    Destroy(Destroy),
    #[prost(message, tag = "12")]
    AddLearner(AddLearner),
    #[prost(message, tag = "13")]
    ChangeMembers(ChangeMembers),
    #[prost(message, tag = "14")]
    TransferLeader(TransferLeader),
}

/// Make an empty replica. A founder of a new region starts with the members of the descriptor and an
/// empty log. Any other knows nothing, not even its members, and waits for the leader's snapshot; the
/// descriptor tells it only who the others are.
/// A replica id that this node has ever destroyed is never made again.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Create {
    #[prost(message, required, tag = "1")]
    pub descriptor: Descriptor,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
    /// A founder that should lead: stand for election without waiting.
    #[prost(bool, tag = "3")]
    pub campaign: bool,
}

impl Create {
    /// A member of a region whose members have never changed yet.
    pub fn is_founder(&self) -> bool {
        self.descriptor.epoch == Epoch::FIRST && self.descriptor.member(self.replica).is_some()
    }
}

/// Remove a replica and its rows: it is no member any more (or never became one).
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Destroy {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
}

/// To the leader: propose that this replica becomes a learner.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct AddLearner {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
}

/// To the leader: propose one change, joint if it is more than one replica; the leader also
/// leaves the joint state by itself. Learners in `promote` become voters, all of `remove` are gone.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChangeMembers {
    #[prost(uint64, repeated, tag = "1")]
    pub promote: Vec<ReplicaId>,
    #[prost(uint64, repeated, tag = "2")]
    pub remove: Vec<ReplicaId>,
}

/// To the leader: hand over to this voter.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TransferLeader {
    #[prost(uint64, tag = "1")]
    pub to: ReplicaId,
}

/// Why a store does not carry an order out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderFault {
    /// Made for another epoch than the replica is at.
    Stale { replica_is_at: Epoch },
    /// For a leader of another term, or this replica does not lead.
    NotThatLeader,
    /// No action this version knows.
    Unknown,
}

impl std::fmt::Display for OrderFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OrderFault::Stale { replica_is_at } => write!(
                f,
                "made for another epoch than {}.{}",
                replica_is_at.members, replica_is_at.segments
            ),
            OrderFault::NotThatLeader => write!(f, "this replica does not lead in that term"),
            OrderFault::Unknown => write!(f, "unknown order"),
        }
    }
}

impl Order {
    /// Whether a replica that is at `epoch` and leads in `leads_in` (its term, if it leads) may
    /// carry this out. `Create` has no replica to ask: the store looks whether it has (had) one.
    pub fn check(&self, epoch: Epoch, leads_in: Option<u64>) -> Result<&Action, OrderFault> {
        let action = self.action.as_ref().ok_or(OrderFault::Unknown)?;
        let stale = OrderFault::Stale {
            replica_is_at: epoch,
        };
        match action {
            Action::Create(_) => Ok(action),
            // The replica may be behind, or cut off: it never heard of its own removal. But one
            // that knows of a later epoch than meta did was added after all.
            Action::Destroy(_) if self.epoch.is_older_than(&epoch) => Err(stale),
            Action::Destroy(_) => Ok(action),
            _ if leads_in != Some(self.term) => Err(OrderFault::NotThatLeader),
            _ if self.epoch != epoch => Err(stale),
            _ => Ok(action),
        }
    }

    pub fn name(&self) -> &'static str {
        match self.action {
            None => "unknown",
            Some(Action::Create(_)) => "create",
            Some(Action::Destroy(_)) => "destroy",
            Some(Action::AddLearner(_)) => "add learner",
            Some(Action::ChangeMembers(_)) => "change members",
            Some(Action::TransferLeader(_)) => "transfer leader",
        }
    }

    /// An order whose id follows from all the rest.
    pub fn new(region: RegionId, epoch: Epoch, term: u64, action: Action) -> Order {
        let mut order = Order {
            id: 0,
            region,
            epoch,
            term,
            action: Some(action),
        };
        order.id = crate::checksum(&order.encode_to_vec());
        order
    }
}

//! What a node knows of its replicas, every second, and what it gets back.

use base::cluster::{ClusterId, Descriptor, Epoch, NodeId, RegionId, ReplicaId};
use prost::Message;

use super::{Catalogue, Order, RouteNode, RouteTable};

#[derive(Clone, PartialEq, Message)]
pub struct Heartbeat {
    #[prost(uint64, tag = "1")]
    pub cluster: ClusterId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    #[prost(uint64, tag = "3")]
    pub start_count: u64,
    /// Counts within one start: a late heartbeat does not undo a newer one.
    #[prost(uint64, tag = "4")]
    pub number: u64,
    /// `version` of the newest route table this node has; 0 for none.
    #[prost(uint64, tag = "5")]
    pub route_version: u64,
    /// All of this node's replicas, always: what is not here does not exist. So a node sends its
    /// first heartbeat when it has read its list of regions.
    #[prost(message, repeated, tag = "6")]
    pub replicas: Vec<ReplicaReport>,
    #[prost(message, required, tag = "7")]
    pub capacity: Capacity,
    /// Orders of the last answer that were refused or failed, for the reader of `ctl operators`.
    #[prost(message, repeated, tag = "8")]
    pub orders: Vec<OrderReport>,
    /// `version` of the catalogue of tables that this node serves by; 0 for none.
    #[prost(uint64, tag = "9")]
    pub tables_version: u64,
    /// `version` of the users that this node serves by; 0 for none.
    #[prost(uint64, tag = "17")]
    pub users_version: u64,
    /// What the wall clock of this node shows, without jumps of a moment; 0: not told.
    #[prost(uint64, tag = "16")]
    pub wall_ms: u64,
    /// Why this node cannot write (its disk failed, hangs, is full); empty if it can. Such a heartbeat is no sign of
    /// life: the node is down, and dead when it lasts.
    #[prost(string, tag = "10")]
    pub trouble: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReplicaReport {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
    #[prost(enumeration = "ReplicaRole", tag = "3")]
    pub role: i32,
    #[prost(uint64, tag = "4")]
    pub term: u64,
    #[prost(uint64, tag = "5")]
    pub applied: u64,
    /// As far as this replica has applied.
    #[prost(message, required, tag = "6")]
    pub epoch: Epoch,
    #[prost(uint64, tag = "7")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub keys: u64,
    /// A snapshot is on its way in or being installed.
    #[prost(bool, tag = "9")]
    pub installing: bool,
    /// Of a leader only: how far the others are.
    #[prost(message, repeated, tag = "10")]
    pub members: Vec<MemberProgress>,
    /// Of a leader only, and only if meta does not have it yet (`Routes::meta_knows`).
    #[prost(message, optional, tag = "11")]
    pub descriptor: Option<Descriptor>,
    /// Operations per second, for the reader; later for balance by load.
    #[prost(uint64, tag = "12")]
    pub load: u64,
    /// Who leads in `term`, as far as this replica knows; 0: nobody.
    #[prost(uint64, tag = "13")]
    pub leader: ReplicaId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ReplicaRole {
    Follower = 0,
    Leader = 1,
    Learner = 2,
    /// Stands for election.
    Candidate = 3,
}

impl ReplicaRole {
    pub fn name(self) -> &'static str {
        match self {
            ReplicaRole::Follower => "follower",
            ReplicaRole::Leader => "leader",
            ReplicaRole::Learner => "learner",
            ReplicaRole::Candidate => "candidate",
        }
    }
}

/// One other member as the leader sees it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MemberProgress {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
    /// Entries it lacks.
    #[prost(uint64, tag = "2")]
    pub lag: u64,
    /// Answered within the last election timeout. For the reader: a quiet region asks nobody.
    #[prost(bool, tag = "3")]
    pub active: bool,
    /// Is being sent a snapshot.
    #[prost(bool, tag = "4")]
    pub snapshot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Capacity {
    #[prost(uint64, tag = "1")]
    pub disk_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub disk_free_bytes: u64,
    /// Takes no more replicas, should lead none.
    #[prost(bool, tag = "3")]
    pub disk_full: bool,
    #[prost(uint64, tag = "4")]
    pub memory_bytes: u64,
    #[prost(uint32, tag = "5")]
    pub cores: u32,
    /// Operations per second.
    #[prost(uint64, tag = "6")]
    pub load: u64,
}

/// An order that was not carried out.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OrderReport {
    #[prost(uint64, tag = "1")]
    pub order: u64,
    #[prost(uint64, tag = "2")]
    pub region: RegionId,
    #[prost(string, tag = "3")]
    pub text: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeartbeatAnswer {
    #[prost(enumeration = "Standing", tag = "1")]
    pub standing: i32,
    /// For the log of a node that is told to stop.
    #[prost(string, tag = "2")]
    pub text: String,
    /// The leader of meta (with its address), if it is another node and is known.
    #[prost(message, optional, tag = "3")]
    pub leader: Option<RouteNode>,
    /// To be carried out in any order; they come again until a heartbeat shows their effect.
    #[prost(message, repeated, tag = "4")]
    pub orders: Vec<Order>,
    /// Only if newer than what the node has.
    #[prost(message, optional, tag = "5")]
    pub routes: Option<RouteTable>,
    /// Where meta is: whom to ask when this node does not answer.
    #[prost(message, repeated, tag = "6")]
    pub meta: Vec<RouteNode>,
    /// Format all nodes can read: what leaders may write.
    #[prost(uint32, tag = "7")]
    pub format: u32,
    /// The time of the cluster, the median of its nodes' clocks: no node goes by another. 0: not told.
    #[prost(uint64, tag = "8")]
    pub wall_ms: u64,
    /// The catalogue of tables, only if newer than what the node has.
    #[prost(message, optional, tag = "9")]
    pub tables: Option<Catalogue>,
    /// The users, only if newer than what the node has.
    #[prost(message, optional, tag = "10")]
    pub users: Option<Catalogue>,
}

/// What meta makes of a heartbeat. Only `Accepted` answers carry orders and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Standing {
    /// Ask `leader`, or any of `meta`.
    NotLeader = 0,
    Accepted = 1,
    /// The node has to join (again): this id or this start is not registered.
    Unknown = 2,
    /// A newer start of this node has joined: this process has to stop.
    Superseded = 3,
    /// The node was removed or replaced: stop; wipe the data directory to join as a new node.
    Gone = 4,
    WrongCluster = 5,
}

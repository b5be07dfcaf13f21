//! What `neokv ctl` asks meta's leader: rows for tables, and orders by hand.

use base::cluster::{ClusterId, Descriptor, NodeId, RegionId, ReplicaId};
use prost::Message;

use super::table::http;
use super::{Address, CatalogueAnswer};
use crate::state::{SetTables, SetUsers};

#[derive(Clone, PartialEq, Message)]
pub struct AdminRequest {
    #[prost(oneof = "Ask", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub ask: Option<Ask>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Ask {
    /// All nodes.
    #[prost(bool, tag = "1")]
    Nodes(bool),
    /// All regions.
    #[prost(bool, tag = "2")]
    Regions(bool),
    /// One region.
    #[prost(uint64, tag = "3")]
    Region(RegionId),
    /// Operators under way, and the last ones that ended.
    #[prost(bool, tag = "4")]
    Operators(bool),
    #[prost(message, tag = "5")]
    TransferLeader(ReplicaMove),
    #[prost(message, tag = "6")]
    AddReplica(ReplicaMove),
    #[prost(message, tag = "7")]
    RemoveReplica(ReplicaMove),
    /// The operator of this region.
    #[prost(uint64, tag = "8")]
    Cancel(RegionId),
    /// The node is gone for good.
    #[prost(uint64, tag = "9")]
    RemoveNode(NodeId),
    /// From a node: another catalogue of tables.
    #[prost(message, tag = "10")]
    SetTables(SetTables),
    /// From a node: who has not published this version of it yet, and what is the newest?
    #[prost(uint64, tag = "11")]
    Catalogue(u64),
    /// From a node: other users.
    #[prost(message, tag = "12")]
    SetUsers(SetUsers),
    /// From a node: who has not published this version of them yet, and what is the newest?
    #[prost(uint64, tag = "13")]
    Users(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ReplicaMove {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
}

#[derive(Clone, PartialEq, Message)]
pub struct AdminAnswer {
    /// Not meta's leader: ask there.
    #[prost(message, optional, tag = "1")]
    pub leader: Option<Address>,
    #[prost(oneof = "Reply", tags = "2, 3, 4, 5")]
    pub reply: Option<Reply>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Reply {
    #[prost(message, tag = "2")]
    Tables(Tables),
    /// Why not.
    #[prost(string, tag = "3")]
    Refused(String),
    /// Done, or begun; watch it with `ctl operators`.
    #[prost(string, tag = "4")]
    Done(String),
    #[prost(message, tag = "5")]
    Catalogue(CatalogueAnswer),
}

/// Rows of what was asked for; the other lists are empty.
#[derive(Clone, PartialEq, Message)]
pub struct Tables {
    #[prost(uint64, tag = "1")]
    pub cluster: ClusterId,
    #[prost(uint64, tag = "2")]
    pub route_version: u64,
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<NodeRow>,
    #[prost(message, repeated, tag = "4")]
    pub regions: Vec<RegionRow>,
    #[prost(message, repeated, tag = "5")]
    pub operators: Vec<OperatorRow>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeRow {
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    /// `up`, `down`, `dead`, `removed`, `replaced`; of a node that cannot write with the reason: `down: the log …`.
    #[prost(string, tag = "2")]
    pub state: String,
    #[prost(message, required, tag = "3")]
    pub redis: Address,
    #[prost(message, required, tag = "4")]
    pub peer: Address,
    #[prost(uint32, tag = "5")]
    pub http_port: u32,
    /// `zone=a,rack=7`
    #[prost(string, tag = "6")]
    pub labels: String,
    #[prost(string, tag = "7")]
    pub version: String,
    #[prost(uint64, tag = "8")]
    pub replicas: u64,
    #[prost(uint64, tag = "9")]
    pub leaders: u64,
    #[prost(uint64, tag = "10")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub disk_free_bytes: u64,
    #[prost(bool, tag = "12")]
    pub disk_full: bool,
    /// Since the last heartbeat; nothing if there was none since this leader began.
    #[prost(uint64, optional, tag = "13")]
    pub silent_ms: Option<u64>,
    #[prost(uint64, tag = "14")]
    pub start_count: u64,
    /// `meta leader`, `meta`, or empty.
    #[prost(string, tag = "15")]
    pub meta: String,
    #[prost(uint64, tag = "16")]
    pub load: u64,
    /// How far its wall clock is ahead of the time of the cluster; nothing if it was not heard of.
    #[prost(sint64, optional, tag = "20")]
    pub clock_ahead_ms: Option<i64>,
}

impl NodeRow {
    /// Where it speaks HTTP, if it does.
    pub fn http(&self) -> Option<Address> {
        http(&self.redis, self.http_port)
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegionRow {
    #[prost(message, required, tag = "1")]
    pub descriptor: Descriptor,
    #[prost(uint64, tag = "2")]
    pub leader_node: NodeId,
    #[prost(uint64, tag = "3")]
    pub leader_replica: ReplicaId,
    #[prost(uint64, tag = "4")]
    pub term: u64,
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub keys: u64,
    #[prost(message, repeated, tag = "7")]
    pub members: Vec<MemberRow>,
    /// `ok`, `no leader`, `no quorum`, `degraded`.
    #[prost(string, tag = "8")]
    pub health: String,
    /// The operator at work here, or empty.
    #[prost(string, tag = "9")]
    pub operator: String,
    #[prost(uint64, tag = "10")]
    pub load: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MemberRow {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    /// As in the descriptor: `voter`, `learner`, `incoming` … or `planned`.
    #[prost(string, tag = "3")]
    pub role: String,
    /// As it says itself: `leader`, `follower`, `installing` … or `missing`.
    #[prost(string, tag = "4")]
    pub state: String,
    #[prost(uint64, tag = "5")]
    pub applied: u64,
    /// Entries it lacks, as the leader sees it.
    #[prost(uint64, optional, tag = "6")]
    pub lag: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorRow {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    /// `repair`, `add replica`, `balance leaders` …
    #[prost(string, tag = "2")]
    pub kind: String,
    /// What it wants: `node 4 instead of node 2`.
    #[prost(string, tag = "3")]
    pub aim: String,
    /// Where it is: `learner catches up (lag 311)`; how it ended, if it has.
    #[prost(string, tag = "4")]
    pub step: String,
    /// How long ago it began.
    #[prost(uint64, tag = "5")]
    pub age_ms: u64,
    #[prost(bool, tag = "6")]
    pub ended: bool,
    #[prost(bool, tag = "7")]
    pub by_hand: bool,
}

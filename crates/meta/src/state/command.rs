//! What can be asked of the state: the entries of region 0's log.
//!
//! A new command is a variant here, a file with its `State` method, and a row in `apply`. A member
//! that does not know a command would differ from the others: new ones are proposed only when the
//! cluster's format says that all members know them.

use base::cluster::{ClusterId, Descriptor, Malformed, NodeId, RegionId, ReplicaId};
use prost::Message;

use super::{NodeState, Purpose, Settings};
use crate::wire::Join;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Command {
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub change: Option<Change>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Change {
    #[prost(message, tag = "1")]
    Found(Found),
    #[prost(message, tag = "2")]
    Register(Register),
    #[prost(message, tag = "3")]
    SetNodeState(SetNodeState),
    #[prost(message, tag = "4")]
    Bootstrap(Bootstrap),
    #[prost(message, tag = "5")]
    PlanReplica(PlanReplica),
    #[prost(message, tag = "6")]
    ForgetReplica(ForgetReplica),
    #[prost(message, tag = "7")]
    ReplicasCreated(ReplicasCreated),
    #[prost(message, tag = "8")]
    MembersChanged(MembersChanged),
    #[prost(message, tag = "9")]
    AllocateIds(AllocateIds),
    #[prost(message, tag = "10")]
    ChangeSettings(ChangeSettings),
    #[prost(message, tag = "11")]
    RaiseFormat(RaiseFormat),
    #[prost(message, tag = "12")]
    SetTables(SetTables),
    #[prost(message, tag = "13")]
    SetUsers(SetUsers),
}

impl Command {
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Command, Malformed> {
        Ok(Command::decode(bytes)?)
    }
}

impl From<Change> for Command {
    fn from(change: Change) -> Command {
        Command {
            change: Some(change),
        }
    }
}

/// The first command of a cluster: `--cluster-init`. Node 1 with replica 1 of region 0.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Found {
    /// Random, not 0.
    #[prost(uint64, tag = "1")]
    pub cluster: ClusterId,
    #[prost(message, required, tag = "2")]
    pub settings: Settings,
    /// The founder; its `node` is ignored.
    #[prost(message, required, tag = "3")]
    pub join: Join,
}

/// A node joins, or comes back.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Register {
    #[prost(message, required, tag = "1")]
    pub join: Join,
    /// Nodes that the leader has heard of lately.
    #[prost(uint64, repeated, tag = "2")]
    pub alive: Vec<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetNodeState {
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    #[prost(enumeration = "NodeState", tag = "2")]
    pub state: i32,
    /// Nodes that the leader has heard of lately.
    #[prost(uint64, repeated, tag = "3")]
    pub alive: Vec<NodeId>,
}

/// Make the data regions, as many as the settings say, on some of these nodes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Bootstrap {
    #[prost(uint64, repeated, tag = "1")]
    pub nodes: Vec<NodeId>,
}

/// Give an id to a replica that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PlanReplica {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    /// The member that goes when the new one votes; 0 for none.
    #[prost(uint64, tag = "3")]
    pub replaces: ReplicaId,
    #[prost(enumeration = "Purpose", tag = "4")]
    pub purpose: i32,
}

/// A plan that is given up before its replica became a member.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ForgetReplica {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
}

/// Nodes reported these planned replicas: they exist.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReplicasCreated {
    #[prost(message, repeated, tag = "1")]
    pub replicas: Vec<Created>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Created {
    #[prost(uint64, tag = "1")]
    pub region: RegionId,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
}

/// Leaders reported these descriptors. Those that are not newer are passed over.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MembersChanged {
    #[prost(message, repeated, tag = "1")]
    pub descriptors: Vec<Descriptor>,
}

/// Take the next `count` numbers of a sequence. They are given once, and rise, whatever happens; a
/// retry after a lost answer leaves a gap.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateIds {
    #[prost(string, tag = "1")]
    pub sequence: String,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

/// New settings; those left out stay.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChangeSettings {
    #[prost(uint32, optional, tag = "1")]
    pub replicas: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub meta_replicas: Option<u32>,
}

/// The version barrier: from here on leaders may write this format.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RaiseFormat {
    #[prost(uint32, tag = "1")]
    pub format: u32,
}

/// Another catalogue of tables, made from the one with this version.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetTables {
    #[prost(uint64, tag = "1")]
    pub expected_version: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
}

/// Other users, made from those with this version.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetUsers {
    #[prost(uint64, tag = "1")]
    pub expected_version: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
}

//! The replicated state of region 0: what every member of meta agrees on.
//!
//! `apply` is a function of the state, the command and the entry's stamp, nothing else: same
//! commands, same bytes. What only the leader can know (who is alive) is written into the command
//! by whoever proposes it. A command that cannot be done changes nothing and says why, as data.
//!
//! **Invariants.** Ids are given once. A region's descriptor only moves to a newer epoch. A node
//! holds at most one member or plan of a region. The route version rises with every change of a
//! descriptor, of a node's address or of its standing.

mod bootstrap;
mod command;
mod found;
mod ids;
mod image;
mod members;
mod outcome;
mod plan;
mod register;
mod registry;
mod settings;
mod tables;
mod users;

use std::collections::BTreeMap;

use base::cluster::{ClusterId, Descriptor, META_REGION, NodeId, RegionId, ReplicaId};
use prost::Message;

pub use command::{
    AllocateIds, Bootstrap, Change, ChangeSettings, Command, Created, ForgetReplica, Found,
    MembersChanged, PlanReplica, RaiseFormat, Register, ReplicasCreated, SetNodeState, SetTables,
    SetUsers,
};
pub use image::FORMAT;
pub use outcome::{Outcome, Refused};

use crate::wire::{Catalogue, Profile};

/// Everything meta replicates. The default is a cluster that was not founded yet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct State {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster: ClusterId,
    #[prost(message, required, tag = "2")]
    pub(crate) settings: Settings,
    #[prost(btree_map = "uint64, message", tag = "3")]
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    #[prost(btree_map = "uint64, message", tag = "4")]
    pub(crate) regions: BTreeMap<RegionId, Region>,
    /// Name of a sequence → the next number it gives.
    #[prost(btree_map = "string, uint64", tag = "5")]
    pub(crate) sequences: BTreeMap<String, u64>,
    #[prost(uint64, tag = "6")]
    pub(crate) route_version: u64,
    /// Newest format of entries and rows that leaders may write: every node can read it.
    #[prost(uint32, tag = "7")]
    pub(crate) format: u32,
    /// Nothing before the first table: such a state is as older versions write it.
    #[prost(message, optional, tag = "8")]
    pub(crate) tables: Option<Catalogue>,
    /// The same of users.
    #[prost(message, optional, tag = "9")]
    pub(crate) users: Option<Catalogue>,
}

/// Settings of the whole cluster.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Settings {
    /// Voters of each data region.
    #[prost(uint32, tag = "1")]
    pub replicas: u32,
    /// Data regions made at the start.
    #[prost(uint32, tag = "2")]
    pub regions: u32,
    /// Voters of region 0, once there are enough nodes.
    #[prost(uint32, tag = "3")]
    pub meta_replicas: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Node {
    #[prost(uint64, tag = "1")]
    pub id: NodeId,
    #[prost(message, required, tag = "2")]
    pub profile: Profile,
    #[prost(enumeration = "NodeState", tag = "3")]
    pub state: i32,
    /// Of the join that was accepted last.
    #[prost(uint64, tag = "4")]
    pub token: u64,
    #[prost(uint64, tag = "5")]
    pub start_count: u64,
    #[prost(uint64, tag = "6")]
    pub joined_ms: u64,
    /// The node that came in its place, if any.
    #[prost(uint64, tag = "7")]
    pub replaced_by: NodeId,
}

/// What was decided about a node. Whether it is alive is not decided but seen: `view`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NodeState {
    /// Belongs to the cluster.
    Up = 0,
    /// Was taken out by hand. Its replicas are rebuilt elsewhere; the id never comes back.
    Removed = 1,
    /// Another node with an empty data directory came in its place. With its data it comes back.
    Replaced = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Region {
    /// The newest one a leader of the region reported.
    #[prost(message, required, tag = "1")]
    pub descriptor: Descriptor,
    /// Replicas that are being made.
    #[prost(message, repeated, tag = "2")]
    pub plans: Vec<Plan>,
    /// The founder that should lead at first.
    #[prost(uint64, tag = "3")]
    pub preferred: ReplicaId,
}

/// A replica on its way to become a voter, from the moment its id is given. It is here so that the
/// next leader of meta goes on with it, and so that no empty replica is ever made twice.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Plan {
    #[prost(uint64, tag = "1")]
    pub replica: ReplicaId,
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    #[prost(enumeration = "Stage", tag = "3")]
    pub stage: i32,
    /// The member that goes when this one votes; 0 for none.
    #[prost(uint64, tag = "4")]
    pub replaces: ReplicaId,
    /// One of the founders of the region, which are members from the start.
    #[prost(bool, tag = "5")]
    pub founder: bool,
    #[prost(uint64, tag = "6")]
    pub since_ms: u64,
    /// Why, for the next leader of meta: an `OperatorKind`.
    #[prost(enumeration = "Purpose", tag = "7")]
    pub purpose: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Stage {
    /// The id is given; the node may be told to create it.
    Planned = 0,
    /// The node has it: it must not be created again.
    Created = 1,
    /// It is a learner.
    Joined = 2,
}

/// Which operator a plan belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Purpose {
    Founding = 0,
    Repair = 1,
    Add = 2,
    Balance = 3,
    Meta = 4,
    ByHand = 5,
}

impl State {
    /// Changes the state as `command` says, or not at all.
    pub fn apply(&mut self, command: &Command, stamp_ms: u64) -> Outcome {
        let Some(change) = &command.change else {
            return Refused::UnknownCommand.into();
        };
        if let Change::Found(found) = change {
            return self.found(found, stamp_ms).into();
        }
        if self.cluster == 0 {
            return Refused::NotFounded.into();
        }
        match change {
            Change::Found(_) => Err(Refused::AlreadyFounded(self.cluster)),
            Change::Register(register) => self.register(register, stamp_ms),
            Change::SetNodeState(set) => self.set_node_state(set),
            Change::Bootstrap(bootstrap) => self.bootstrap(bootstrap, stamp_ms),
            Change::PlanReplica(plan) => self.plan_replica(plan, stamp_ms),
            Change::ForgetReplica(forget) => self.forget_replica(forget),
            Change::ReplicasCreated(created) => self.replicas_created(created),
            Change::MembersChanged(changed) => self.members_changed(changed),
            Change::AllocateIds(allocate) => self.allocate_ids(allocate),
            Change::ChangeSettings(settings) => self.change_settings(settings),
            Change::RaiseFormat(raise) => self.raise_format(raise),
            Change::SetTables(set) => self.set_tables(set),
            Change::SetUsers(set) => self.set_users(set),
        }
        .into()
    }

    /// 0 if the cluster was not founded yet.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Also those that are removed or replaced.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    /// All regions, 0 among them.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub fn data_regions(&self) -> impl Iterator<Item = &Region> {
        self.regions
            .values()
            .filter(|region| region.descriptor.region != META_REGION)
    }

    pub fn region(&self, region: RegionId) -> Option<&Region> {
        self.regions.get(&region)
    }

    pub fn route_version(&self) -> u64 {
        self.route_version
    }

    /// What leaders may write.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// The data regions were made.
    pub fn is_bootstrapped(&self) -> bool {
        self.regions.keys().any(|&region| region != META_REGION)
    }

    fn region_mut(&mut self, region: RegionId) -> Result<&mut Region, Refused> {
        self.regions
            .get_mut(&region)
            .ok_or(Refused::UnknownRegion(region))
    }

    fn routes_changed(&mut self) {
        self.route_version += 1;
    }
}

impl Node {
    pub fn is_up(&self) -> bool {
        self.state() == NodeState::Up
    }
}

impl Region {
    pub fn plan(&self, replica: ReplicaId) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.replica == replica)
    }

    /// Has a member or a plan on `node`.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.descriptor.member_on(node).is_some() || self.plans.iter().any(|p| p.node == node)
    }
}

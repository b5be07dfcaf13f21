//! What the heartbeats of a node are given with every event, and what is to be done outside.

use std::sync::Arc;

use base::cluster::{RegionId, ReplicaId};
use keyspace::rows::RowStore;
use meta::route::Routes;
use meta::wire::{Capacity, Catalogue, Order, ReplicaReport};

use crate::{MetaCall, ReplicaRecord};

/// What the heartbeats of a node need to know of the world around them.
pub struct HeartbeatContext<'a> {
    /// The moment of this event, Unix milliseconds, by the wall clock of this node alone, without jumps of a moment.
    pub wall_ms: u64,
    /// The same moment by a clock that never jumps.
    pub clock_ms: u64,
    pub rows: &'a dyn RowStore,
    /// Called while the store is busy.
    pub pause: fn(),
    /// Whether a replica of this region is on this node. Not asked of region 0.
    pub is_here: &'a dyn Fn(RegionId) -> bool,
}

/// Whom a node asks for meta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaTarget {
    /// Itself: it may be a member.
    ThisNode,
    /// Whoever answers at this peer address.
    Address(String),
}

/// How a node stands.
#[derive(Debug, Clone, Default)]
pub struct NodeReport {
    /// All replicas of this node, its member of meta among them: what is left out counts as gone.
    pub replicas: Vec<ReplicaReport>,
    /// Whether the disk is full is decided here.
    pub capacity: Capacity,
    /// Of the catalogue of tables that the node serves by.
    pub tables_version: u64,
    /// Why the node cannot write; empty if it can.
    pub trouble: String,
    /// Of the users.
    pub users_version: u64,
}

/// What is to be done outside, in the order it is given. At most one of them, the last, has an outcome
/// that is reported by an event; before that nothing else happens but heartbeat_triggers.
#[derive(Debug)]
pub enum HeartbeatEffect {
    /// Gather how the node stands; then `on_report`.
    Report,
    /// Send a call; then `on_answer` or `on_no_answer`.
    Ask {
        target: MetaTarget,
        call: Arc<MetaCall>,
    },
    /// The node's cores go by these routes from now on; peers live at the addresses in them.
    PublishRoutes(Routes),
    /// Keep this catalogue of tables, then publish it; then `on_done`.
    TakeTables(Catalogue),
    /// Keep these users, then publish them; then `on_done`.
    TakeUsers(Catalogue),
    /// Meta has said which tables and users there are.
    TablesKnown,
    /// An order for this node's member of meta, or to make one.
    ToMeta(Box<Order>),
    /// Remove a replica, its rows and its log, if the order still holds; then `on_done`.
    Destroy {
        order: Box<Order>,
        replica: ReplicaId,
    },
    /// An order to a leader; then `on_done`.
    Lead(Box<Order>),
    /// Make replicas, their records on disk before they say a word; then `on_done`.
    Create(Vec<ReplicaRecord>),
    /// The time of the cluster: what is added to the clock that never jumps is between these.
    ClusterTime { low_ms: i64, high_ms: i64 },
    /// For the log of the node.
    Notice(HeartbeatNotice),
    /// The node is not wanted any more, for this reason: it has to stop.
    Stop(String),
}

/// What the log of a node says of its heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatNotice {
    /// Meta has not answered for a while.
    MetaSilent,
    /// It answers again.
    MetaAnswers,
    /// The wall clock of this node and the time of the cluster are so far apart.
    ClocksApart { apart_ms: u64, is_ahead: bool },
    /// No more replicas are placed here.
    DiskFull { free_bytes: u64, bytes: u64 },
    /// A catalogue of this version could not be taken over.
    TablesRefused { version: u64, why: String },
    /// Users of this version could not be taken over.
    UsersRefused { version: u64, why: String },
    /// Replicas could not be made.
    NotCreated(String),
}

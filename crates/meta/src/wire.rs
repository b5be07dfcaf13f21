//! What nodes and meta say to each other, and what `neokv ctl` asks: protobuf on plain structs.
//!
//! ```text
//!  node ── Join ───────────────────────────► meta     once per start: who am I, where do I live
//!  node ── Heartbeat ──────────────────────► meta     every second, at once when something changed
//!  node ◄─ HeartbeatAnswer ───────────────── meta     orders, news of routes and tables
//!  ctl  ── AdminRequest / AdminAnswer ─────► meta
//! ```
//!
//! Every message may be lost, doubled or late. Nothing here relies on order: heartbeats are
//! numbered, orders name the epoch (and term) they were made for, news of routes carries epochs and
//! terms and merges by "the newer wins".

mod admin;
mod catalogue;
mod heartbeat;
mod join;
mod order;
mod table;

pub use admin::{
    AdminAnswer, AdminRequest, Ask, MemberRow, NodeRow, OperatorRow, RegionRow, ReplicaMove, Reply,
    Tables,
};
pub use catalogue::{Behind, Catalogue, CatalogueAnswer};
pub use heartbeat::{
    Capacity, Heartbeat, HeartbeatAnswer, MemberProgress, OrderReport, ReplicaReport, ReplicaRole,
    Standing,
};
pub use join::{Address, Join, JoinAnswer, Profile};
pub use order::{
    Action, AddLearner, ChangeMembers, Create, Destroy, Order, OrderFault, TransferLeader,
};
pub use table::{Leadership, RouteNode, RouteRegion, RouteTable};

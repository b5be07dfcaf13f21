//! What a member of meta is given with every event, and what is to be done outside.

use base::cluster::NodeId;
use keyspace::rows::RowStore;
use meta::limits::Limits;
use meta::state::State;
use meta::wire::{
    Address, AdminAnswer, AdminRequest, Heartbeat, HeartbeatAnswer, Join, JoinAnswer,
};
use replica::{LogStore, LogWrite, Message, Ready, Replica, Unfit};

use crate::{Executing, ReplicaRecord};

/// What a member of meta needs to know of the world around it.
pub struct MetaContext<'a> {
    /// The moment of this event, Unix milliseconds.
    pub now_ms: u64,
    /// The same moment by the clock of leases, which never jumps.
    pub clock_ms: u64,
    /// Of the scheduler, for a member that begins to lead.
    pub limits: Limits,
    pub rows: &'a dyn RowStore,
    pub log: &'a dyn LogStore,
    /// Called while the store is busy.
    pub pause: fn(),
    pub observer: &'a dyn MetaObserver,
    /// The disk of the log takes nothing: another member should lead.
    pub is_log_stalled: bool,
}

/// Hears what a member of meta does, at the moment it does it.
pub trait MetaObserver {
    /// The member's role or leader may have changed, as `ready` says.
    fn on_ready(&self, _replica: &Replica, _record: &ReplicaRecord, _ready: &Ready) {}

    /// A message of a node was not taken in, and why.
    fn on_unfit_message(&self, _from: NodeId, _why: &Unfit) {}

    /// The member has executed an entry; `state` is the state behind it.
    fn on_executed(&self, _replica: &Replica, _entry: &Executing<'_>, _state: &State) {}

    /// The members of region 0 changed.
    fn on_members(&self, _replica: &Replica, _index: u64, _record: &ReplicaRecord) {}

    /// A snapshot replaced the state.
    fn on_installed(&self, _replica: &Replica, _index: u64, _state: &State) {}
}

/// Observes nothing.
pub struct Unobserved;

impl MetaObserver for Unobserved {}

/// A call of a node, or of an administrator.
#[derive(Debug, Clone)]
pub enum MetaCall {
    Heartbeat(Heartbeat),
    Join(Join),
    Admin(AdminRequest),
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub enum MetaAnswer {
    Heartbeat(Box<HeartbeatAnswer>),
    Join(Box<JoinAnswer>),
    Admin(Box<AdminAnswer>),
    /// The request of an administrator has to go to the leader, at this address.
    Elsewhere(Address),
    /// The call failed, for this reason.
    Refused(&'static str),
}

/// What is to be done outside, in this order. `T` is how the host names a caller.
pub struct MetaEffects<T> {
    /// To be written to the log and synced; then `on_persisted` with its number.
    pub writes: Vec<LogWrite>,
    pub messages: Vec<(NodeId, Message)>,
    pub answers: Vec<(T, MetaAnswer)>,
    /// Nodes that should send a heartbeat soon.
    pub news: Vec<NodeId>,
    /// The member failed, for this reason: it does nothing any more.
    pub failure: Option<String>,
    /// The member has left, and something of it is still on disk, for this reason.
    pub left_over: Option<String>,
}

impl<T> Default for MetaEffects<T> {
    fn default() -> Self {
        MetaEffects {
            writes: Vec::new(),
            messages: Vec::new(),
            answers: Vec::new(),
            news: Vec::new(),
            failure: None,
            left_over: None,
        }
    }
}

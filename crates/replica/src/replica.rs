//! The struct and what can be asked of it. Behaviour is in one file per operation.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{HardState, Message};
use raft::{RawNode, StateRole};

use crate::config::ReplicaConfig;
use crate::election::Timeouts;
use crate::fetch::Fetch;
use crate::lease::Lease;
use crate::leave::Leaving;
use crate::members::Members;
use crate::persist::Flight;
use crate::promise::Promise;
use crate::quiet::Quiet;
use crate::read::Reads;
use crate::recent::Recent;
use crate::snapshot::Snapshots;

/// One member of a region.
pub struct Replica {
    pub(crate) config: ReplicaConfig,
    pub(crate) node: RawNode<Recent>,
    /// As raft-rs counts them: with the last change applied, or of a snapshot being installed.
    pub(crate) members: Members,
    /// The newest time the owner told.
    pub(crate) now_ms: u64,
    pub(crate) timeouts: Timeouts,
    /// Writes not yet on disk, and messages that wait for them; in order of their numbers.
    pub(crate) in_flight: VecDeque<Flight>,
    /// Messages that waited and may leave now.
    pub(crate) released: Vec<Message>,
    /// The newest hard state, if no write has carried it yet.
    pub(crate) unwritten_state: Option<HardState>,
    /// Last entry given out to be applied.
    pub(crate) handed_out: u64,
    /// A read of the log store under way.
    pub(crate) fetching: Option<Fetch>,
    /// What the last `ready` told: (leads in this term, leader).
    pub(crate) told: (Option<u64>, u64),
    /// Term and vote that the last `ready` gave out to be written.
    pub(crate) written_vote: (u64, u64),
    /// The term in which this replica, as leader, has applied an entry of its own.
    pub(crate) serving_term: Option<u64>,
    /// The newest term known to be on disk.
    pub(crate) persisted_term: u64,
    /// The term this replica led in when `after` last looked.
    pub(crate) led: Option<u64>,
    pub(crate) was_transferring: bool,
    /// It must not lead: its state is not what its log says.
    pub(crate) refuses_leadership: bool,
    /// As a leader whose disk takes nothing.
    pub(crate) leaving: Option<Leaving>,
    pub(crate) promise: Promise,
    pub(crate) lease: Lease,
    pub(crate) reads: Reads,
    pub(crate) snapshots: Snapshots,
    pub(crate) quiet: Quiet,
    pub(crate) leaderless_ticks: usize,
    /// Entry formats that other members understand.
    pub(crate) versions: BTreeMap<u64, u8>,
}

impl Replica {
    pub fn region(&self) -> u64 {
        self.config.region
    }

    /// Of this replica.
    #[inline]
    pub fn id(&self) -> u64 {
        self.config.replica
    }

    #[inline]
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The leader as far as this replica knows.
    pub fn leader(&self) -> Option<u64> {
        let id = self.node.raft.leader_id;
        (id != raft::INVALID_ID).then_some(id)
    }

    #[inline]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Of the log, proposals not yet on disk included. After `propose`: the index it got.
    #[inline]
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    #[inline]
    pub fn committed_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Of the leader: no entry that any leader so far has acknowledged is behind this. Until it has committed one of its own
    /// term, a new leader does not know how much of its log those before it had committed.
    pub fn acknowledged_index(&self) -> u64 {
        match self.node.raft.commit_to_current_term() {
            true => self.committed_index(),
            false => self.last_index(),
        }
    }

    #[inline]
    pub fn applied_index(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// Whether the log holds anything the state machine has not seen: proposed, on its way to
    /// disk, committed or being applied.
    #[inline]
    pub fn has_unapplied(&self) -> bool {
        self.last_index() > self.applied_index()
    }

    /// Its own vote and its own disk decide everything.
    #[inline]
    pub(crate) fn is_only_voter(&self) -> bool {
        self.members.is_only_voter(self.config.replica)
    }

    /// The only voter, and nobody listens.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.members.learners.is_empty() && self.is_only_voter()
    }

    /// Payload and overhead of entries held in memory.
    pub fn memory_bytes(&self) -> usize {
        let recent = self.node.store();
        recent.tail.bytes() + recent.fetched.bytes()
    }
}

/// It moves between threads inside its region's box.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Replica>();
};

//! What a replica is told at its start, and why it may refuse to start or must stop.

use std::fmt;

use crate::log::LogError;
use crate::members::Members;

/// A place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub index: u64,
    pub term: u64,
}

/// Where the log of a region that is founded with several members, or will get some, begins. Not
/// at zero: who is at zero knows nothing, members included, and must get a snapshot; the log of
/// such a region cannot bring it up.
pub const FOUNDED: Position = Position { index: 1, term: 1 };

/// Who this replica is, and its limits. Sizes are bytes of payload unless said otherwise.
#[derive(Debug, Clone)]
pub struct ReplicaConfig {
    pub region: u64,
    /// Its own id: Raft's id, never used by another replica.
    pub replica: u64,
    /// As they were at `applied`: the state machine keeps them. Nobody: created, but the region
    /// has not been heard of; a snapshot will tell.
    pub members: Members,
    /// Index of the last entry whose effects are in the state machine. At a region's founding it
    /// may be zero for `FOUNDED`.
    pub applied: u64,
    /// What this replica's state began with: the head of the last installed snapshot (kept by the
    /// state machine, durable before its log is forgotten), [`FOUNDED`] for founding members, zero
    /// for a region of a single node and for a new replica.
    pub snapshot: Position,
    /// Decides the election timeouts: same seed, same inputs, same run. Another one at every
    /// start, please.
    pub seed: u64,
    /// The owner's clock at the start, see [`Replica::tick`](crate::Replica::tick).
    pub now_ms: u64,
    /// What a tick is meant to last. Together with `election_ticks`: how long a voter keeps its
    /// promise to a leader.
    pub tick_ms: u64,
    /// A follower that hears nothing for this many ticks, up to twice as many, asks for votes.
    pub election_ticks: usize,
    pub heartbeat_ticks: usize,
    /// How far from true a clock's rate may be: see `lease`.
    pub drift_percent: u64,
    /// A leader with nothing to do goes quiet after this many ticks; 0: never.
    pub quiet_ticks: usize,
    /// A larger proposal is refused.
    pub max_entry_bytes: usize,
    /// Proposals are refused (`Busy`) while more than this waits for its commit.
    pub max_uncommitted_bytes: usize,
    /// Most that one append message to a follower carries; one entry may be larger.
    pub message_bytes: usize,
    /// Append messages to one follower that are not acknowledged.
    pub max_inflight_messages: usize,
    /// Most that one `Ready` brings to apply, and one fetch reads; one entry may be larger.
    pub batch_bytes: usize,
    /// Applied entries kept in memory for followers that are a little behind. Entries not yet
    /// applied are always in memory (or, after a start, fetched batch by batch).
    pub recent_bytes: usize,
    /// Applied entries that truncation leaves for members that lag. A region of one keeps none.
    pub keep_entries: u64,
    /// Of these, the newest that are no more bytes than this (and what a start finds: see `sizes`).
    pub keep_bytes: u64,
}

impl Default for ReplicaConfig {
    fn default() -> ReplicaConfig {
        ReplicaConfig {
            region: 1,
            replica: 1,
            members: Members::of_voters([1]),
            applied: 0,
            snapshot: Position::default(),
            seed: 0,
            now_ms: 0,
            tick_ms: 100,
            election_ticks: 10,
            heartbeat_ticks: 2,
            drift_percent: 5,
            quiet_ticks: 30,
            max_entry_bytes: 1 << 30,
            max_uncommitted_bytes: 64 << 20,
            message_bytes: 1 << 20,
            max_inflight_messages: 256,
            batch_bytes: 4 << 20,
            recent_bytes: 4 << 20,
            keep_entries: 10_000,
            keep_bytes: 64 << 20,
        }
    }
}

impl ReplicaConfig {
    /// How long a voter that acknowledged a leader helps no other.
    #[inline]
    pub(crate) fn promise_ms(&self) -> u64 {
        self.tick_ms * self.election_ticks as u64
    }

    /// How long a leader may rely on it, by its own clock (see `lease`).
    #[inline]
    pub(crate) fn lease_ms(&self) -> u64 {
        self.promise_ms() * 100_u64.saturating_sub(2 * self.drift_percent) / 100
    }

    #[inline]
    pub(crate) fn heartbeat_ms(&self) -> u64 {
        self.tick_ms * self.heartbeat_ticks as u64
    }

    pub(crate) fn check(&self) -> Result<(), ReplicaError> {
        let wrong = |text: &str| Err(ReplicaError::Config(text.into()));
        if self.replica == raft::INVALID_ID {
            return wrong("replica 0 is nobody");
        }
        if self.tick_ms == 0 || self.heartbeat_ticks == 0 {
            return wrong("a tick without length");
        }
        if self.election_ticks <= self.heartbeat_ticks {
            return wrong("an election timeout must be longer than a heartbeat");
        }
        if self.drift_percent >= 50 {
            return wrong("clocks this different allow no lease");
        }
        self.members.check().or_else(wrong)
    }
}

/// A replica that cannot start, or cannot go on: the region stops on this node (DESIGN §13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaError {
    Log(LogError),
    /// The configuration makes no sense.
    Config(String),
    /// Log, hard state and applied index do not belong together.
    Inconsistent(String),
}

impl From<LogError> for ReplicaError {
    fn from(error: LogError) -> ReplicaError {
        ReplicaError::Log(error)
    }
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicaError::Log(LogError::Corrupt(text)) => write!(f, "log corrupt: {text}"),
            ReplicaError::Log(LogError::Failed(text)) => write!(f, "log failed: {text}"),
            ReplicaError::Log(LogError::Full(text)) => write!(f, "no room for the log: {text}"),
            ReplicaError::Config(text) => write!(f, "replica configuration: {text}"),
            ReplicaError::Inconsistent(text) => write!(f, "log does not fit its state: {text}"),
        }
    }
}

impl std::error::Error for ReplicaError {}

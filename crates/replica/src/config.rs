//! What a replica is told at its start, and why it may refuse to start or must stop.

use std::fmt;

use crate::log::LogError;

/// Who this replica is, and its limits. Sizes are bytes of payload unless said otherwise.
#[derive(Debug, Clone)]
pub struct ReplicaConfig {
    pub region: u64,
    pub node: u64,
    /// All voting members, this node among them.
    pub voters: Vec<u64>,
    /// Index of the last entry whose effects are in the state machine.
    pub applied: u64,
    /// Decides the election timeouts: same seed, same inputs, same run.
    pub seed: u64,
    /// A follower that hears nothing for this many ticks, up to twice as many, asks for votes.
    pub election_ticks: usize,
    pub heartbeat_ticks: usize,
    /// A larger proposal is refused.
    pub max_entry_bytes: usize,
    /// Proposals are refused (`Busy`) while more than this waits for its commit.
    pub max_uncommitted_bytes: usize,
    /// Most that one `Ready` brings to apply, and one fetch reads; one entry may be larger.
    pub batch_bytes: usize,
    /// Applied entries kept in memory for followers that are a little behind. Entries not yet
    /// applied are always in memory (or, after a start, fetched batch by batch).
    pub recent_bytes: usize,
}

impl Default for ReplicaConfig {
    fn default() -> ReplicaConfig {
        ReplicaConfig {
            region: 1,
            node: 1,
            voters: vec![1],
            applied: 0,
            seed: 0,
            election_ticks: 10,
            heartbeat_ticks: 2,
            max_entry_bytes: 1 << 30,
            max_uncommitted_bytes: 64 << 20,
            batch_bytes: 4 << 20,
            recent_bytes: 4 << 20,
        }
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
            ReplicaError::Config(text) => write!(f, "replica configuration: {text}"),
            ReplicaError::Inconsistent(text) => write!(f, "log does not fit its state: {text}"),
        }
    }
}

impl std::error::Error for ReplicaError {}

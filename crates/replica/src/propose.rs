//! Something new for the log.

use std::fmt;

use raft::Error;

use crate::replica::Replica;

/// A proposal that did not enter the log. Nothing has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    NotLeader {
        leader: Option<u64>,
    },
    TooLarge,
    /// Too much waits for its commit already, or the leadership is being handed over.
    Busy,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotLeader { leader: Some(id) } => write!(f, "not leader, node {id} is"),
            Refused::NotLeader { leader: None } => write!(f, "no leader is known"),
            Refused::TooLarge => write!(f, "entry too large"),
            Refused::Busy => write!(f, "too much waits to be committed"),
        }
    }
}

impl std::error::Error for Refused {}

impl Replica {
    /// Appends to the leader's log. `last_index` is then its index; it comes back from `ready` as
    /// committed under this index and the present term, or never (the leadership was lost).
    /// The payload is moved, not copied. It must not be empty: empty is the mark of the entry a
    /// new leader begins its term with.
    pub fn propose(&mut self, payload: Vec<u8>) -> Result<(), Refused> {
        // raft-rs would forward a follower's proposal to the leader; who proposed could not tell
        // what became of it.
        if !self.is_leader() {
            return Err(Refused::NotLeader {
                leader: self.leader(),
            });
        }
        debug_assert!(!payload.is_empty(), "an empty proposal");
        if payload.len() > self.config.max_entry_bytes {
            return Err(Refused::TooLarge);
        }
        match self.node.propose(Vec::new(), payload) {
            Ok(()) => Ok(()),
            Err(Error::ProposalDropped) => Err(Refused::Busy),
            Err(_) => Err(Refused::NotLeader {
                leader: self.leader(),
            }),
        }
    }
}

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
    /// Too much waits for its commit already, the leadership is being handed over, or a change of
    /// members waits to be applied.
    Busy,
    /// Such a change of members, or successor, cannot be.
    Members(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotLeader { leader: Some(id) } => write!(f, "not leader, replica {id} is"),
            Refused::NotLeader { leader: None } => write!(f, "no leader is known"),
            Refused::TooLarge => write!(f, "entry too large"),
            Refused::Busy => write!(f, "too much waits to be committed"),
            Refused::Members(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}

impl Replica {
    pub(crate) fn only_as_leader(&self) -> Result<(), Refused> {
        match self.is_leader() {
            true => Ok(()),
            // raft-rs would forward a follower's proposal to the leader; who proposed could not
            // tell what became of it.
            false => Err(Refused::NotLeader {
                leader: self.leader(),
            }),
        }
    }

    /// Appends to the leader's log. `last_index` is then its index; it comes back from `ready` as
    /// committed under this index and the present term, or never (the leadership was lost).
    /// The payload is moved, not copied. It must not be empty: empty is the mark of the entry a
    /// new leader begins its term with.
    pub fn propose(&mut self, payload: Vec<u8>) -> Result<(), Refused> {
        self.only_as_leader()?;
        debug_assert!(!payload.is_empty(), "an empty proposal");
        if payload.len() > self.config.max_entry_bytes {
            return Err(Refused::TooLarge);
        }
        self.wake_up();
        match self.node.propose(Vec::new(), payload) {
            Ok(()) => Ok(()),
            Err(Error::ProposalDropped) => Err(Refused::Busy),
            Err(_) => Err(Refused::NotLeader {
                leader: self.leader(),
            }),
        }
    }
}

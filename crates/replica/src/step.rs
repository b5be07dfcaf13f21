//! A message from a peer.
//!
//! raft-rs trusts its peers: some impossible messages make it stop the whole process. They are
//! refused here, so that a peer that is mad harms nobody else.

use std::fmt;

use raft::eraftpb::{EntryType, Message, MessageType};

use crate::replica::Replica;

/// A message that was not taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit(pub &'static str);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unfit message: {}", self.0)
    }
}

impl std::error::Error for Unfit {}

impl Replica {
    /// Takes in what a peer said. Look at `has_ready` afterwards.
    pub fn step(&mut self, message: Message) -> Result<(), Unfit> {
        self.check(&message)?;
        let result = self.node.step(message);
        self.seed_timeout();
        // Raft ignores most of what it does not like; these are the rest.
        result.map_err(|_| Unfit("raft does not take it"))
    }

    fn check(&self, message: &Message) -> Result<(), Unfit> {
        if message.to != self.config.node {
            return Err(Unfit("for another node"));
        }
        if message.from == self.config.node || !self.config.voters.contains(&message.from) {
            return Err(Unfit("from a node that is no member"));
        }
        let last = self.last_index();
        match message.get_msg_type() {
            // Proposals are not forwarded (see `propose`); snapshots are not received.
            MessageType::MsgPropose | MessageType::MsgSnapshot => Err(Unfit("of this kind")),
            MessageType::MsgAppend => {
                let mut index = message.index;
                let mut term = message.log_term;
                for entry in message.get_entries() {
                    if entry.index != index + 1 || entry.term < term || entry.term > message.term {
                        return Err(Unfit("entries that do not follow each other"));
                    }
                    if entry.get_entry_type() != EntryType::EntryNormal {
                        return Err(Unfit("a change of members"));
                    }
                    (index, term) = (entry.index, entry.term);
                }
                let committed = self.committed_index();
                let replaces = |entry: &raft::eraftpb::Entry| {
                    entry.index <= committed
                        && self
                            .node
                            .raft
                            .raft_log
                            .term(entry.index)
                            .is_ok_and(|term| term != 0 && term != entry.term)
                };
                if message.term >= self.term() && message.get_entries().iter().any(replaces) {
                    return Err(Unfit("another history of committed entries"));
                }
                Ok(())
            }
            MessageType::MsgHeartbeat if message.term >= self.term() && message.commit > last => {
                Err(Unfit("a commit beyond this log"))
            }
            MessageType::MsgAppendResponse
                // Not for a follower: it may be a leader that died with its unsynced tail.
                if self.is_leader()
                    && !message.reject
                    && message.term == self.term()
                    && message.index > last =>
            {
                Err(Unfit("acknowledges what was never sent"))
            }
            _ => Ok(()),
        }
    }
}

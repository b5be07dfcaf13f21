//! What is on disk, and what waited for it.
//!
//! Writes carry the number of the raft-rs `Ready` they came from and are reported in that order.
//! A `Ready` without a write gets no report of its own: it counts as persisted when every write
//! before it is (at once, if none is under way). Its messages wait as long, for they may speak of
//! entries of those earlier writes: the second of two identical appends has nothing to write, but
//! its answer must not overtake the disk.
//!
//! Answers to heartbeats do not wait: they speak of no entry, only of a term, and if that is on
//! disk they may go. A leader's lease does not hang on its followers' disks.

use raft::eraftpb::{Message, MessageType};

use crate::replica::Replica;

/// A `Ready` of raft-rs that is not on disk yet.
pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) has_write: bool,
    /// The term that is on disk with it.
    pub(crate) term: u64,
    /// The snapshot behind which the log begins with it.
    pub(crate) snapshot: Option<u64>,
    /// Votes and acknowledgements: promises that must survive a crash before they are given.
    pub(crate) messages: Vec<Message>,
}

impl Replica {
    /// The write of this number, and all before it, is on disk.
    pub fn on_persisted(&mut self, number: u64) {
        let mut until = None;
        let mut snapshot = None;
        while let Some(flight) = self.in_flight.front_mut() {
            if flight.number > number && flight.has_write {
                break;
            }
            self.released.append(&mut flight.messages);
            self.persisted_term = flight.term;
            until = Some(flight.number);
            snapshot = flight.snapshot.or(snapshot);
            self.in_flight.pop_front();
        }
        if let Some(until) = until {
            self.node.on_persist_ready(until);
        }
        if let Some(index) = snapshot {
            self.snapshots.installing = None;
            if index > self.applied_index() {
                self.node.advance_apply_to(index);
            }
        }
        if until.is_some() && !self.reads.is_idle() {
            self.begin_round(false);
        }
    }

    /// Writes handed out and not reported yet.
    pub fn writes_in_flight(&self) -> usize {
        self.in_flight
            .iter()
            .filter(|flight| flight.has_write)
            .count()
    }

    fn is_early(&self, message: &Message) -> bool {
        message.get_msg_type() == MessageType::MsgHeartbeatResponse
            && message.term == self.persisted_term
    }

    /// Whether a follower has an answer that need not wait for its disk.
    pub(crate) fn has_early(&self) -> bool {
        let messages = &self.node.raft.msgs;
        !self.is_leader() && messages.iter().any(|message| self.is_early(message))
    }

    pub(crate) fn take_early(&mut self, out: &mut Vec<Message>) {
        if !self.has_early() {
            return;
        }
        let mut rest = std::mem::take(&mut self.node.raft.msgs);
        rest.retain_mut(|message| {
            let is_early = self.is_early(message);
            if is_early {
                out.push(std::mem::take(message));
            }
            !is_early
        });
        self.node.raft.msgs = rest;
    }
}

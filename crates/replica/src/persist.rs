//! What is on disk, and what waited for it.
//!
//! Writes carry the number of the raft-rs `Ready` they came from and are reported in that order.
//! A `Ready` without a write gets no report of its own: it counts as persisted when every write
//! before it is (at once, if none is under way). Its messages wait as long, for they may speak of
//! entries of those earlier writes: the second of two identical appends has nothing to write, but
//! its answer must not overtake the disk.

use raft::eraftpb::Message;

use crate::replica::Replica;

/// A `Ready` of raft-rs that is not on disk yet.
pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) has_write: bool,
    /// Votes and acknowledgements: promises that must survive a crash before they are given.
    pub(crate) messages: Vec<Message>,
}

impl Replica {
    /// The write of this number, and all before it, is on disk.
    pub fn on_persisted(&mut self, number: u64) {
        let mut until = None;
        while let Some(flight) = self.in_flight.front_mut() {
            if flight.number > number && flight.has_write {
                break;
            }
            self.released.append(&mut flight.messages);
            until = Some(flight.number);
            self.in_flight.pop_front();
        }
        if let Some(until) = until {
            self.node.on_persist_ready(until);
        }
    }

    /// Writes handed out and not reported yet.
    pub fn writes_in_flight(&self) -> usize {
        self.in_flight
            .iter()
            .filter(|flight| flight.has_write)
            .count()
    }
}

//! Handing the leadership over.
//!
//! raft-rs stops taking proposals, brings the successor up to date and tells it to campaign at
//! once (`MsgTimeoutNow`); voters then vote for it though they hear a leader. Everything
//! acknowledged is in a majority's log as always, so nothing is lost. If it does not happen within
//! an election timeout the leader goes on.
//!
//! **The lease is void meanwhile**, for voters no longer keep their promise. Nor is it enough to
//! renew it when the transfer is given up: the word to campaign may still be on its way and find
//! voters that would follow it. So every transfer that came to nothing raises the *generation*
//! that heartbeats carry. The word to campaign, and the votes asked for because of it, carry the
//! generation they come from; a voter that has heard a newer one treats them like any other vote
//! request. And a lease is made only of answers to heartbeats of the newer generation, that is of
//! voters who will do so.

use raft::eraftpb::{Message, MessageType};

use crate::propose::Refused;
use crate::replica::Replica;

impl Replica {
    /// Hands over to `to`, a voter. Watch `ready.lost_leadership`, or `is_transferring`.
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), Refused> {
        self.only_as_leader()?;
        if to == self.id() || !self.members.voters.contains(&to) {
            return Err(Refused::Members("the successor must be another voter"));
        }
        if self.node.raft.lead_transferee.is_some() {
            return Err(Refused::Busy);
        }
        self.wake_up();
        self.node.transfer_leader(to);
        self.was_transferring = self.is_transferring();
        self.after();
        Ok(())
    }

    /// From now on it does not campaign. A leader goes on until it has handed over.
    pub fn refuse_leadership(&mut self) {
        self.refuses_leadership = true;
    }

    pub fn allow_leadership(&mut self) {
        self.refuses_leadership = false;
    }

    /// No proposals are taken, no lease holds.
    pub fn is_transferring(&self) -> bool {
        self.is_leader() && self.node.raft.lead_transferee.is_some()
    }

    /// Called after everything that may have ended a transfer.
    pub(crate) fn notice_end_of_transfer(&mut self) {
        let is = self.is_transferring();
        if std::mem::replace(&mut self.was_transferring, is) && !is && self.is_leader() {
            self.lease.generation += 1;
            self.lease.floor = self.lease.next_beat;
            // What has not left yet would be marked with the new generation.
            let messages = &mut self.node.raft.msgs;
            messages.retain(|message| message.get_msg_type() != MessageType::MsgTimeoutNow);
        }
    }

    /// Whether to campaign because the leader says so.
    pub(crate) fn may_take_over(&mut self, message: &mut Message) -> bool {
        let Ok(generation) = <[u8; 4]>::try_from(&message.context[..]) else {
            return false;
        };
        let generation = u32::from_le_bytes(generation);
        message.context.clear();
        if self.now_ms < self.promise.silent_until_ms
            || self.refuses_leadership
            || self.snapshots.installing.is_some()
            || self.leader() != Some(message.from)
            || self.is_given_up(message.term, generation)
        {
            return false;
        }
        self.promise.taking_over = generation;
        true
    }
}

//! The voter's side of the lease: whom it does not help, and until when.
//!
//! Who acknowledged a leader's heartbeat neither votes for another nor asks for votes itself
//! before an election timeout has passed on its own clock. raft-rs has such a rule, but counts
//! ticks: they come late, they come in a heap after a pause, and a quiet replica has none. So the
//! rule is kept here, by the clock, and raft-rs' own is held to it.
//!
//! **A restarted voter has forgotten whom it acknowledged.** The leader has not: it may still
//! rely on it. So after a start a voter helps nobody, itself included, for as long as the longest
//! promise it can have given. A single voter has nobody to betray; a replica that never had a
//! term never acknowledged anybody.

use raft::StateRole;
use raft::eraftpb::{Message, MessageType};

use crate::replica::Replica;

/// Raft's word in a vote request that the leader itself has asked for.
const TRANSFER: &[u8] = b"CampaignTransfer";

#[derive(Debug, Default)]
pub(crate) struct Promise {
    /// After a start: no votes before this.
    pub(crate) silent_until_ms: u64,
    /// When a leader was last heard.
    heard_ms: Option<u64>,
    /// The newest transfer generation heard from the leader of this term (`transfer`).
    generation: (u64, u32),
    /// The generation of the request to take over that this replica follows.
    pub(crate) taking_over: u32,
}

impl Replica {
    /// Before this time no vote is given, none asked for.
    #[inline]
    pub(crate) fn bound_until_ms(&self) -> u64 {
        let heard = self.promise.heard_ms;
        let promised = heard.map_or(0, |heard| heard + self.config.promise_ms());
        promised.max(self.promise.silent_until_ms)
    }

    /// By its ticks it would campaign; by the clock it may be bound. And raft-rs would look for
    /// entries that an install has overtaken before its log is on disk.
    pub(crate) fn may_campaign(&self) -> bool {
        self.now_ms >= self.bound_until_ms()
            && self.snapshots.installing.is_none()
            && !self.refuses_leadership
    }

    /// A leader's message has been taken in.
    pub(crate) fn on_leader_heard(&mut self) {
        self.promise.heard_ms = Some(self.now_ms);
    }

    pub(crate) fn on_generation(&mut self, term: u64, generation: u32) {
        let known = &mut self.promise.generation;
        *known = (*known).max((term, generation));
    }

    /// Whether a leader that asked for this transfer, in this term, has since given it up: then it
    /// may have a lease again, and this voter's word may be part of it.
    pub(crate) fn is_given_up(&self, term: u64, generation: u32) -> bool {
        self.promise.generation > (term, generation)
    }

    /// Whether raft-rs may see this vote request. What it must not see is dropped, not refused: a
    /// refusal would carry a term.
    pub(crate) fn may_see_vote(&mut self, message: &mut Message) -> bool {
        if self.now_ms < self.promise.silent_until_ms {
            return false;
        }
        if let Some(rest) = message.context.strip_prefix(TRANSFER) {
            // Asked for in the term before the one it campaigns in.
            let asked_in = message.term.saturating_sub(1);
            let generation = rest.try_into().map(u32::from_le_bytes);
            if generation.is_ok_and(|generation| !self.is_given_up(asked_in, generation)) {
                message.context = TRANSFER.into();
                return true;
            }
            message.context.clear();
        }
        self.now_ms >= self.bound_until_ms()
    }

    /// To a vote request that follows from a transfer, the generation is added.
    pub(crate) fn mark_votes(&self, messages: &mut [Message]) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgRequestVote && message.context == TRANSFER
            {
                let generation = self.promise.taking_over.to_le_bytes();
                message.context = [TRANSFER, &generation].concat().into();
            }
        }
    }

    /// Steps a vote request that `may_see_vote`: raft-rs' own rule, by ticks, is set aside.
    pub(crate) fn step_vote(&mut self, message: Message) -> raft::Result<()> {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader {
            // Its own rule: it steps down for a transfer, or when it lost its majority.
            return self.node.step(message);
        }
        let ticks = raft.election_elapsed;
        let waited = raft.election_timeout();
        raft.election_elapsed = ticks.max(waited);
        let result = self.node.step(message);
        let raft = &mut self.node.raft;
        if raft.election_elapsed == ticks.max(waited) {
            raft.election_elapsed = ticks;
        }
        result
    }
}

//! A message from a peer.
//!
//! raft-rs trusts its peers: some impossible messages make it stop the whole process. They are
//! refused here, so that a peer that is mad harms nobody else.
//!
//! Who sends need not be a member as far as this replica knows: a new learner knows nobody, a
//! member may not have heard of the newest one, and one that was removed may still speak. Raft
//! tells by term, log and promise what is to be made of it.

use std::fmt;

use raft::Error;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use crate::mark::Mark;
use crate::membership::decode_change;
use crate::replica::Replica;
use crate::snapshot::snapshot_head;

/// Terms and indices beyond this are no honest member's; adding to them must not overflow.
const MOST: u64 = 1 << 60;
/// Nor are those so far ahead of this replica's own: a term takes an election, an entry a write, and this many take
/// longer than any replica is away. One forged term would otherwise be everybody's for ever.
const FAR: u64 = 1 << 32;

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
    pub fn step(&mut self, mut message: Message, now_ms: u64) -> Result<(), Unfit> {
        self.check(&message)?;
        self.see(now_ms);
        let result = match message.get_msg_type() {
            MessageType::MsgReadIndex => {
                self.on_read_asked(&message);
                Ok(())
            }
            MessageType::MsgReadIndexResp => {
                self.on_read_answered(&message);
                Ok(())
            }
            MessageType::MsgHeartbeat => self.step_heartbeat(message),
            MessageType::MsgHeartbeatResponse => self.step_heartbeat_answer(message),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                // A leader knows who is no member any more: that one wakes nobody.
                if !self.is_leader() || self.members.contains(message.from) {
                    self.wake_up();
                }
                match self.may_see_vote(&mut message) {
                    true => self.step_vote(message),
                    false => Ok(()),
                }
            }
            MessageType::MsgTimeoutNow => match self.may_take_over(&mut message) {
                true => {
                    self.wake_up();
                    self.on_campaign();
                    self.node.step(message)
                }
                false => Ok(()),
            },
            // They come again; what is being installed must not change meanwhile.
            MessageType::MsgAppend | MessageType::MsgSnapshot if self.is_installing() => Ok(()),
            MessageType::MsgAppend | MessageType::MsgSnapshot => {
                self.wake_up();
                let term = message.term;
                let result = self.node.step(message);
                if term == self.term() && !self.is_leader() {
                    self.on_leader_heard();
                }
                self.take_members_of_snapshot();
                result
            }
            _ => {
                self.wake_up();
                self.node.step(message)
            }
        };
        self.after();
        match result {
            // An answer of somebody who is no member any more.
            Ok(()) | Err(Error::StepPeerNotFound) => Ok(()),
            // Raft ignores most of what it does not like; these are the rest.
            Err(_) => Err(Unfit("raft does not take it")),
        }
    }

    fn step_heartbeat(&mut self, message: Message) -> raft::Result<()> {
        let (term, from) = (message.term, message.from);
        let mark = Mark::decode(&message.context);
        let result = self.node.step(message);
        if term == self.term() && !self.is_leader() && self.leader() == Some(from) {
            self.on_leader_heard();
            match mark {
                Some(mark) => {
                    self.on_generation(term, mark.generation);
                    self.on_heartbeat_mark(mark);
                }
                None => self.wake_up(),
            }
        }
        result
    }

    fn step_heartbeat_answer(&mut self, mut message: Message) -> raft::Result<()> {
        let mark = Mark::decode(&message.context);
        // To raft-rs it would be the answer to a read of its own.
        message.context.clear();
        let (term, from) = (message.term, message.from);
        let result = self.node.step(message);
        if let Some(mark) = mark
            && self.is_leader()
            && term == self.term()
        {
            self.on_beat_answered(from, mark.beat);
            self.end_confirmed_round();
            self.begin_round(true);
            self.on_quiet_answer(from, mark);
        }
        result
    }

    fn check(&self, message: &Message) -> Result<(), Unfit> {
        let terms = [message.term, message.log_term, message.commit_term];
        let term_max = MOST.min(self.term().saturating_add(FAR));
        if terms.iter().any(|&term| term > term_max) {
            return Err(Unfit("a term far beyond that of this replica"));
        }
        let indices = [message.index, message.commit, message.reject_hint];
        if indices.iter().any(|&index| index > self.index_max()) {
            return Err(Unfit("an index far beyond this log"));
        }
        if message.to != self.id() {
            return Err(Unfit("for another replica"));
        }
        if message.from == self.id() || message.from == raft::INVALID_ID {
            return Err(Unfit("from nobody else"));
        }
        // raft-rs takes a message without a term for one of its own.
        if message.term == 0 {
            return Err(Unfit("of no term"));
        }
        let last = self.last_index();
        match message.get_msg_type() {
            // Proposals are not forwarded (see `propose`), nor are wishes who should lead.
            MessageType::MsgPropose | MessageType::MsgTransferLeader => Err(Unfit("of this kind")),
            MessageType::MsgAppend => self.check_append(message),
            MessageType::MsgSnapshot => self.check_snapshot(message),
            MessageType::MsgHeartbeat if message.term >= self.term() && message.commit > last => {
                Err(Unfit("a commit beyond this log"))
            }
            MessageType::MsgAppendResponse if message.request_snapshot != raft::INVALID_INDEX => {
                Err(Unfit("asks for a snapshot"))
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

    fn index_max(&self) -> u64 {
        MOST.min(self.last_index().saturating_add(FAR))
    }

    fn check_append(&self, message: &Message) -> Result<(), Unfit> {
        if (message.index == 0) != (message.log_term == 0) {
            return Err(Unfit("an entry without a term"));
        }
        if message.index == 0 && self.members.is_empty() {
            return Err(Unfit("the founding members are in no log"));
        }
        let mut index = message.index;
        let mut term = message.log_term.max(1);
        for entry in message.get_entries() {
            if entry.index != index + 1 || entry.term < term || entry.term > message.term {
                return Err(Unfit("entries that do not follow each other"));
            }
            let fits = match entry.get_entry_type() {
                EntryType::EntryNormal => true,
                EntryType::EntryConfChangeV2 => decode_change(&entry.data).is_some(),
                EntryType::EntryConfChange => false,
            };
            if !fits {
                return Err(Unfit("a change of members that is none"));
            }
            (index, term) = (entry.index, entry.term);
        }
        let committed = self.committed_index();
        let replaces = |entry: &Entry| {
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

    fn check_snapshot(&self, message: &Message) -> Result<(), Unfit> {
        let Some(head) = snapshot_head(message) else {
            return Err(Unfit("no snapshot"));
        };
        if head.index == 0
            || head.index > self.index_max()
            || head.term == 0
            || head.term > message.term
        {
            return Err(Unfit("a snapshot of nothing"));
        }
        if head.members.is_empty() || !head.members.contains(self.id()) {
            return Err(Unfit("a snapshot without this replica"));
        }
        head.members.check().map_err(Unfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FOUNDED, ReplicaConfig};
    use crate::map_log::MapLog;
    use crate::members::Members;

    fn follower() -> Replica {
        let config = ReplicaConfig {
            region: 3,
            replica: 1,
            members: Members::of_voters([1, 2, 3]),
            applied: 1,
            snapshot: FOUNDED,
            tick_ms: 10,
            ..ReplicaConfig::default()
        };
        Replica::new(config, &MapLog::new()).unwrap()
    }

    fn message(kind: MessageType, term: u64) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (2, 1, term);
        message
    }

    const KINDS: [MessageType; 8] = [
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgTimeoutNow,
    ];

    #[test]
    fn a_forged_term_changes_nothing() {
        let mut replica = follower();
        let term = replica.term();
        for kind in KINDS {
            for forged in [1 << 60, (1 << 60) + 1, u64::MAX, term + FAR + 1] {
                let refused = replica.step(message(kind, forged), 10);
                assert!(refused.is_err(), "{kind:?} of term {forged}");
                let mut other = message(kind, term.max(1));
                other.log_term = forged;
                assert!(replica.step(other, 10).is_err(), "{kind:?}");
                let mut other = message(kind, term.max(1));
                other.commit_term = forged;
                assert!(replica.step(other, 10).is_err(), "{kind:?}");
            }
        }
        assert_eq!(replica.term(), term);
        assert_eq!(replica.leader(), None);
    }

    #[test]
    fn a_forged_index_changes_nothing() {
        let mut replica = follower();
        let (term, last) = (replica.term().max(1), replica.last_index());
        for kind in KINDS {
            for forged in [1 << 60, u64::MAX, last + FAR + 1] {
                let mut of_index = message(kind, term);
                (of_index.index, of_index.log_term) = (forged, 1);
                let mut of_commit = message(kind, term);
                of_commit.commit = forged;
                let mut of_hint = message(kind, term);
                of_hint.reject_hint = forged;
                for forged in [of_index, of_commit, of_hint] {
                    assert!(replica.step(forged, 10).is_err(), "{kind:?}");
                }
            }
        }
        assert_eq!(replica.last_index(), last);
    }

    /// A replica that was away for years, in a cluster that elects a leader every second.
    #[test]
    fn a_replica_that_was_away_for_long_still_hears() {
        let mut replica = follower();
        let later = replica.term() + 10 * 366 * 86_400;
        replica
            .step(message(MessageType::MsgHeartbeat, later), 10)
            .unwrap();
        assert_eq!(replica.term(), later);
        assert_eq!(replica.leader(), Some(2));
    }
}

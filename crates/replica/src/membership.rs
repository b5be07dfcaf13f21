//! Members come and go.
//!
//! A change is an entry of the log. It counts, on each replica, from when that replica applies it:
//!
//! ```text
//!  propose_members ─► log ─► committed, with `change` set ─► apply_members ─► on_applied
//!                                                                │
//!                         members as they are now, to be kept with the applied index
//! ```
//!
//! One member at a time changes simply; several together in two steps (joint consensus), the
//! second of which the leader proposes by itself as soon as the first is applied. One change at a
//! time: the next is refused until this one, and its second step, is applied here. Raft's safety
//! rests on two more things, both kept elsewhere:
//! - The commit index goes to disk with the entries that come after it, and with the change itself
//!   when it is given out to be applied (`ready`), so whoever has the entry of the next change knows
//!   that the one before is committed, and
//! - raft-rs does not campaign while a committed change waits to be applied.
//!
//! A new member begins as a learner that knows nothing and gets a snapshot, never the log from its
//! beginning: the founding members are in no entry ([`FOUNDED`](crate::FOUNDED)).

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};

use crate::members::Members;
use crate::propose::Refused;
use crate::replica::Replica;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberChange {
    AddLearner(u64),
    /// A learner becomes a voter.
    Promote(u64),
    /// For when there is nothing to catch up on; else a learner first.
    AddVoter(u64),
    Remove(u64),
}

impl MemberChange {
    pub fn replica(self) -> u64 {
        match self {
            MemberChange::AddLearner(id)
            | MemberChange::Promote(id)
            | MemberChange::AddVoter(id)
            | MemberChange::Remove(id) => id,
        }
    }

    fn kind(self) -> ConfChangeType {
        match self {
            MemberChange::AddLearner(_) => ConfChangeType::AddLearnerNode,
            MemberChange::Promote(_) | MemberChange::AddVoter(_) => ConfChangeType::AddNode,
            MemberChange::Remove(_) => ConfChangeType::RemoveNode,
        }
    }
}

/// A committed change of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As given to `propose_members`. Empty for the second step of a change of several.
    pub context: Bytes,
    /// How raft-rs writes it.
    pub(crate) data: Bytes,
}

pub(crate) fn decode_change(data: &[u8]) -> Option<ConfChangeV2> {
    let mut change = ConfChangeV2::default();
    change.merge_from_bytes(data).ok().map(|()| change)
}

impl Replica {
    /// Members as of what has been applied.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Puts a change into the log. `context` comes back with it when it is committed, and not
    /// with the second step of a change of several.
    pub fn propose_members(
        &mut self,
        changes: &[MemberChange],
        context: Vec<u8>,
    ) -> Result<(), Refused> {
        self.only_as_leader()?;
        let raft = &self.node.raft;
        if raft.has_pending_conf() || self.members.is_joint() || raft.lead_transferee.is_some() {
            return Err(Refused::Busy);
        }
        self.check_changes(changes)?;
        if context.len() > self.config.max_entry_bytes {
            return Err(Refused::TooLarge);
        }
        let mut change = ConfChangeV2::default();
        let single = |change: &MemberChange| ConfChangeSingle {
            node_id: change.replica(),
            change_type: change.kind(),
            ..ConfChangeSingle::default()
        };
        change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
        self.wake_up();
        let proposed = self.node.propose_conf_change(context, change);
        proposed.map_err(|_| Refused::Busy)
    }

    fn check_changes(&self, changes: &[MemberChange]) -> Result<(), Refused> {
        let wrong = |text| Err(Refused::Members(text));
        let members = &self.members;
        let mut ids: Vec<u64> = changes.iter().map(|change| change.replica()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != changes.len() || changes.is_empty() || ids.contains(&raft::INVALID_ID) {
            return wrong("each member once, and at least one");
        }
        for &change in changes {
            let id = change.replica();
            match change {
                MemberChange::AddLearner(_) if members.contains(id) => {
                    return wrong("it is a member already");
                }
                MemberChange::AddVoter(_) if members.is_voter(id) => {
                    return wrong("it is a voter already");
                }
                MemberChange::Promote(_) if !members.learners.contains(&id) => {
                    return wrong("only a learner is promoted");
                }
                MemberChange::Remove(_) if !members.contains(id) => {
                    return wrong("it is no member");
                }
                MemberChange::Remove(_) if id == self.id() => {
                    return wrong("the leader must hand over first");
                }
                MemberChange::AddLearner(_) | MemberChange::AddVoter(_)
                    if self.node.store().base == 0 =>
                {
                    return wrong("a log from zero cannot bring up a new member");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A committed change is being applied. Answers the members from now on: to be kept by the
    /// state machine together with the index of the entry, then `on_applied`.
    pub fn apply_members(&mut self, change: &Change) -> Members {
        // What cannot be read or makes no sense changes nothing, on any replica.
        if let Some(change) = decode_change(&change.data)
            && let Ok(state) = self.node.apply_conf_change(&change)
        {
            self.members = Members::from_raft(&state);
        }
        if self.is_leader() && !self.members.is_voter(self.id()) {
            // Removed while it led (somebody else proposed it). raft-rs would go on, and panic.
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        self.confirm_beats();
        self.forget_removed();
        self.after();
        self.members.clone()
    }
}

//! What is to be done now: to write, to send, to apply, to fetch.
//!
//! raft-rs is driven in its asynchronous way: `ready`, `advance_append_async` at once, and
//! `on_persist_ready` when the disk has it. Three things need care:
//!
//! - Entries count as stable for raft-rs from `advance_append_async` on, so they must be readable
//!   from [`Recent`](crate::recent::Recent) by then: they are put there first.
//! - There is no `LightReady` in this way: what an acknowledgement of the disk commits comes with
//!   the next `ready`.
//! - A leader's messages leave at once, parallel to its own disk (Raft thesis 10.2.1); everybody
//!   else's wait for it (`persist`).
//!
//! The commit index is not worth a write of its own: Raft finds it again after a restart. It goes
//! along with the next write that has entries, a term or a vote.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::Message;

use crate::fetch::Fetch;
use crate::log::LogWrite;
use crate::persist::Flight;
use crate::replica::Replica;

/// An entry a majority has on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty: a leader began its term. Nothing to do but to note the index.
    pub payload: Bytes,
}

/// Filled by [`Replica::ready`]; kept and used again, so that it costs no allocation.
#[derive(Debug, Default)]
pub struct Ready {
    /// To be written and synced; then `on_persisted` with its number. Writes of one region must
    /// be done in the order they came out.
    pub write: Option<LogWrite>,
    /// To be sent now. They may be lost, doubled and reordered.
    pub messages: Vec<Message>,
    /// To be applied in this order; then `on_applied`.
    pub committed: Vec<Committed>,
    /// To be read from the log store; then `on_fetched`. One at a time.
    pub fetch: Option<Fetch>,
    /// This replica leads now, in this term.
    pub became_leader: Option<u64>,
    /// It led in an earlier term and does not any more (or not without a gap): proposals that
    /// were not committed by then may never be.
    pub lost_leadership: bool,
    /// The leader this replica knows is another one than before, or none.
    pub leader_changed: bool,
}

impl Ready {
    fn clear(&mut self) {
        self.write = None;
        self.messages.clear();
        self.committed.clear();
        self.fetch = None;
        self.became_leader = None;
        self.lost_leadership = false;
        self.leader_changed = false;
    }
}

impl Replica {
    /// Whether `ready` would bring anything.
    pub fn has_ready(&self) -> bool {
        !self.released.is_empty() || self.wants_fetch() || self.raft_has_ready()
    }

    /// Like raft-rs' own `has_ready`, but a commit index alone is nothing (see above), and
    /// committed entries that are still being fetched are nothing yet.
    fn raft_has_ready(&self) -> bool {
        let raft = &self.node.raft;
        !raft.raft_log.unstable_entries().is_empty()
            || !raft.msgs.is_empty()
            || (raft.term, raft.vote) != self.written_vote
            || self.role() != self.told
            || !raft.read_states.is_empty()
            || (self.fetching.is_none() && raft.raft_log.has_next_entries_since(self.handed_out))
    }

    /// The term this replica leads in, and the leader it knows.
    #[inline]
    fn role(&self) -> (Option<u64>, u64) {
        let raft = &self.node.raft;
        let leads = (raft.state == StateRole::Leader).then_some(raft.term);
        (leads, raft.leader_id)
    }

    pub fn ready(&mut self, out: &mut Ready) {
        out.clear();
        if self.raft_has_ready() {
            self.raft_ready(out);
        }
        out.messages.append(&mut self.released);
        out.fetch = self.next_fetch();
    }

    fn raft_ready(&mut self, out: &mut Ready) {
        let role = self.role();
        if role != self.told {
            out.lost_leadership = self.told.0.is_some() && role.0 != self.told.0;
            out.became_leader = role.0.filter(|_| role.0 != self.told.0);
            out.leader_changed = role.1 != self.told.1;
            self.told = role;
        }

        let mut ready = self.node.ready();
        let number = ready.number();
        let entries = ready.take_entries();
        if let Some(hard_state) = ready.hs() {
            self.unwritten_state = Some(hard_state.clone());
        }
        // Entries, or a term or vote: a commit index alone is not synced, and not written.
        let has_write = ready.must_sync();
        for entry in ready.take_committed_entries() {
            self.handed_out = entry.index;
            out.committed.push(Committed {
                index: entry.index,
                term: entry.term,
                payload: entry.data,
            });
        }
        out.messages.append(&mut ready.take_messages());
        let mut after = ready.take_persisted_messages();

        self.node.mut_store().append(&entries);
        self.node.advance_append_async(ready);

        if has_write {
            let raft = &self.node.raft;
            self.written_vote = (raft.term, raft.vote);
            out.write = Some(LogWrite {
                region: self.config.region,
                number,
                entries,
                hard_state: self.unwritten_state.take(),
            });
        } else if self.in_flight.is_empty() {
            self.node.on_persist_ready(number);
            out.messages.append(&mut after);
            return;
        } else if after.is_empty() {
            // raft-rs forgets this number together with that of a later write.
            return;
        }
        self.in_flight.push_back(Flight {
            number,
            has_write,
            messages: after,
        });
    }
}

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
//!   else's wait for it (`persist`). So do those of a leader whose term is not on disk: a single voter
//!   leads before that, and its learners must not hear of a term that may come again with other entries.
//!
//! The commit index is not worth a write of its own: Raft finds it again after a restart. It goes
//! along with the next write that has entries, a term or a vote (and must: see `membership`). A
//! change of members is the exception: Raft finds its commit again only by asking the members of
//! before it, who may be gone by then. So the commit index is written when a change is given out.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{EntryType, Message};

use crate::fetch::Fetch;
use crate::log::LogWrite;
use crate::membership::Change;
use crate::persist::Flight;
use crate::read::Confirmed;
use crate::replica::Replica;
use crate::snapshot::SnapshotHead;

/// An entry a majority has on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// Empty: a leader began its term, or members change. Nothing to do but to note the index.
    pub payload: Bytes,
    /// To be given to `apply_members`.
    pub change: Option<Box<Change>>,
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
    /// To be installed in place of the whole state, before anything else of this region is
    /// applied; then `on_installed`. Nothing else is committed meanwhile.
    pub install: Option<SnapshotHead>,
    /// Members that need a snapshot; then `on_snapshot_made`, or `report_snapshot(id, false)`.
    /// Told again while it is needed and nothing was heard.
    pub snapshots_wanted: Vec<u64>,
    /// Reads that may be served once their index is applied.
    pub reads: Vec<Confirmed>,
    /// Numbers of reads that will not be confirmed: somebody else leads, or nobody answered.
    pub reads_failed: Vec<u64>,
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
        self.install = None;
        self.snapshots_wanted.clear();
        self.reads.clear();
        self.reads_failed.clear();
        self.became_leader = None;
        self.lost_leadership = false;
        self.leader_changed = false;
    }
}

impl Replica {
    /// Whether `ready` would bring anything.
    pub fn has_ready(&self) -> bool {
        !self.released.is_empty()
            || self.wants_fetch()
            || !self.reads.confirmed.is_empty()
            || !self.reads.failed.is_empty()
            || !self.snapshots.wanted.is_empty()
            || match self.is_installing() {
                true => self.snapshots.installing.is_none() || self.has_early(),
                false => self.raft_has_ready(),
            }
    }

    /// Like raft-rs' own `has_ready`, but a commit index alone is nothing (see above), and
    /// committed entries that are still being fetched are nothing yet.
    fn raft_has_ready(&self) -> bool {
        let raft = &self.node.raft;
        !raft.raft_log.unstable_entries().is_empty()
            || !raft.msgs.is_empty()
            || (raft.term, raft.vote) != self.written_vote
            || self.role() != self.told
            || raft.snap().is_some()
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
        self.take_early(&mut out.messages);
        if self.is_installing() {
            out.install = self.next_install();
        } else if self.raft_has_ready() {
            self.raft_ready(out);
        }
        out.messages.append(&mut self.released);
        if self.is_silent() {
            out.messages.clear();
        }
        self.mark_messages(&mut out.messages);
        std::mem::swap(&mut out.reads, &mut self.reads.confirmed);
        std::mem::swap(&mut out.reads_failed, &mut self.reads.failed);
        std::mem::swap(&mut out.snapshots_wanted, &mut self.snapshots.wanted);
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
        // Entries, or a term or vote: a commit index alone is not synced, and not written,
        let mut has_write = ready.must_sync();
        for entry in ready.take_committed_entries() {
            self.handed_out = entry.index;
            out.committed.push(match entry.get_entry_type() {
                EntryType::EntryNormal => Committed {
                    index: entry.index,
                    term: entry.term,
                    payload: entry.data,
                    change: None,
                },
                _ => {
                    // unless it is that of a change.
                    has_write |= self.unwritten_state.is_some();
                    Committed {
                        index: entry.index,
                        term: entry.term,
                        payload: Bytes::new(),
                        change: Some(Box::new(Change {
                            context: entry.context,
                            data: entry.data,
                        })),
                    }
                }
            });
        }
        let mut after = ready.take_persisted_messages();
        match self.persisted_term < self.node.raft.term {
            true => after.append(&mut ready.take_messages()),
            false => out.messages.append(&mut ready.take_messages()),
        }

        let snapshot = match ready.snapshot().is_empty() {
            true => None,
            false => {
                let metadata = ready.snapshot().get_metadata();
                let (index, term) = (metadata.index, metadata.term);
                self.node.mut_store().begin_behind(index, term);
                self.void_fetch();
                self.snapshots.is_installed = false;
                // A new log needs the whole of it, whatever of it was written before.
                self.unwritten_state = Some(self.node.raft.hard_state());
                Some(index)
            }
        };
        self.node.mut_store().append(&entries);
        self.node.advance_append_async(ready);

        if has_write {
            let raft = &self.node.raft;
            self.written_vote = (raft.term, raft.vote);
            out.write = Some(LogWrite {
                region: self.config.region,
                replica: self.config.replica,
                number,
                reset: snapshot,
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
            term: self.written_vote.0,
            snapshot,
            messages: after,
        });
    }
}

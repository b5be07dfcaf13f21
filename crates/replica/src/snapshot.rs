//! A follower that needs entries the log has forgotten.
//!
//! ```text
//!  leader                                              follower
//!  ready.snapshots_wanted: to
//!  the owner exports the region and sends the files ─────► keeps them aside
//!  on_snapshot_made(to, head) ─► MsgSnapshot ────────────► step: ready.install
//!                                                          the owner installs the files, keeps
//!                                                          head and members durable with them
//!  acknowledged  ◄── the log is forgotten, on disk ◄────── on_installed
//! ```
//!
//! `MsgSnapshot` is small: position, members and the owner's manifest. It goes out when the files
//! are there. If it is lost it is sent again after a while, and then another snapshot is asked for; `report_snapshot(to, false)` says that
//! the files did not get there, and another snapshot is asked for.
//!
//! **Order at the follower.** First the state (with `Position` and members, in one durable step),
//! then the log, then the acknowledgement. A crash in between leaves a state that is ahead of its
//! log, exactly at the position it was installed with: a start sees that and forgets the log
//! (`start`). The owner that cannot install must not have taken the message in
//! ([`snapshot_head`] looks into it), or must start the replica anew.
//!
//! While a snapshot is made or on its way the leader's log is not truncated behind it (`truncate`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use raft::eraftpb::{Message, MessageType, Snapshot};
use raft::{ProgressState, SnapshotStatus};

use crate::config::Position;
use crate::members::Members;
use crate::replica::Replica;

/// What a snapshot is a snapshot of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHead {
    pub index: u64,
    pub term: u64,
    /// As of `index`.
    pub members: Members,
    /// The owner's, opaque here: which files.
    pub data: Bytes,
}

impl SnapshotHead {
    pub fn position(&self) -> Position {
        Position {
            index: self.index,
            term: self.term,
        }
    }

    fn from_raft(snapshot: &Snapshot) -> SnapshotHead {
        let metadata = snapshot.get_metadata();
        SnapshotHead {
            index: metadata.index,
            term: metadata.term,
            members: Members::from_raft(metadata.get_conf_state()),
            data: snapshot.data.clone(),
        }
    }

    fn to_raft(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            data: self.data.clone(),
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.index, self.term);
        metadata.set_conf_state(self.members.to_raft());
        snapshot
    }
}

/// The head of the snapshot this message announces, if it is one. Whoever has not got the files
/// does not `step` it.
pub fn snapshot_head(message: &Message) -> Option<SnapshotHead> {
    (message.get_msg_type() == MessageType::MsgSnapshot)
        .then(|| SnapshotHead::from_raft(message.get_snapshot()))
}

#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Members the owner was asked to make one for: when, and what was applied then.
    asked: BTreeMap<u64, (u64, u64)>,
    /// To be told with the next `ready`.
    pub(crate) wanted: Vec<u64>,
    /// Since when one is on its way to a member.
    sent_ms: BTreeMap<u64, u64>,
    /// Announced a second time.
    repeated: BTreeSet<u64>,
    /// Receiver: what the owner was given to install.
    pub(crate) installing: Option<u64>,
    pub(crate) is_installed: bool,
}

impl Replica {
    fn retry_ms(&self) -> u64 {
        3 * self.config.promise_ms()
    }

    /// Leader: what raft-rs missed becomes a question to the owner.
    pub(crate) fn ask_for_snapshots(&mut self) {
        let missed = std::mem::take(&mut self.node.mut_store().wants.get_mut().snapshots);
        for to in missed {
            let again_ms = self.retry_ms();
            let asked = self.snapshots.asked.get(&to);
            let waits = asked.is_some_and(|&(at_ms, _)| self.now_ms < at_ms + again_ms);
            if self.is_leader() && !waits {
                let applied = asked.map_or(self.applied_index(), |&(_, applied)| applied);
                self.snapshots.asked.insert(to, (self.now_ms, applied));
                self.snapshots.wanted.push(to);
            }
        }
    }

    /// The files of a snapshot are with `to`: it is announced. Ignored if it is too old, or if
    /// this replica does not lead any more; then it is asked for again, by whoever leads.
    pub fn on_snapshot_made(&mut self, to: u64, head: &SnapshotHead) {
        self.snapshots.asked.remove(&to);
        let fits = self.is_leader()
            && head.index >= self.node.store().base
            && head.index <= self.applied_index()
            && head.members.contains(to);
        if !fits {
            return;
        }
        let Some(progress) = self.node.raft.mut_prs().get_mut(to) else {
            return;
        };
        progress.resume();
        // It would not be sent to a member that said nothing lately; the owner just spoke to it.
        progress.recent_active = true;
        self.node.mut_store().offers.insert(to, head.to_raft());
        self.wake_up();
        self.node.raft.send_append(to);
        self.after();
    }

    /// What became of the snapshot for `to`: `false` asks for another one.
    pub fn report_snapshot(&mut self, to: u64, ok: bool) {
        self.snapshots.asked.remove(&to);
        if !ok {
            self.node.mut_store().offers.remove(&to);
        }
        self.snapshots.sent_ms.remove(&to);
        let status = match ok {
            true => SnapshotStatus::Finish,
            false => SnapshotStatus::Failure,
        };
        self.node.report_snapshot(to, status);
    }

    /// Messages to `to` get lost: it is probed before more is sent.
    pub fn report_unreachable(&mut self, to: u64) {
        self.node.report_unreachable(to);
    }

    /// Leader, at every tick: a snapshot that was not acknowledged is announced again, and then
    /// another one is asked for; one that was is let go. (raft-rs does not see it if the
    /// acknowledgement was there before the announcement left a second time, and would wait for
    /// ever.)
    pub(crate) fn tick_snapshots(&mut self) {
        if !self.is_leader() {
            return;
        }
        let (now_ms, retry_ms) = (self.now_ms, self.retry_ms());
        let mut ended = Vec::new();
        for (&to, progress) in self.node.raft.prs().iter() {
            if progress.state != ProgressState::Snapshot {
                self.snapshots.sent_ms.remove(&to);
                continue;
            }
            let since = *self.snapshots.sent_ms.entry(to).or_insert(now_ms);
            if progress.matched >= progress.pending_snapshot {
                ended.push((to, SnapshotStatus::Finish));
            } else if now_ms >= since + retry_ms {
                ended.push((to, SnapshotStatus::Failure));
            }
        }
        for (to, status) in ended {
            self.snapshots.sent_ms.remove(&to);
            let is_repeated = self.snapshots.repeated.remove(&to);
            if status == SnapshotStatus::Failure {
                if is_repeated {
                    // Not the message but the files are lost, with a crash over there.
                    self.node.mut_store().offers.remove(&to);
                } else {
                    self.snapshots.repeated.insert(to);
                }
            }
            self.node.report_snapshot(to, status);
        }
        if !self.node.store().offers.is_empty() {
            let mut offers = std::mem::take(&mut self.node.mut_store().offers);
            let prs = self.node.raft.prs();
            offers.retain(|&to, offer| {
                let matched = prs.get(to).map_or(u64::MAX, |progress| progress.matched);
                matched < offer.get_metadata().index
            });
            self.node.mut_store().offers = offers;
        }
    }

    /// Another term, or no leadership.
    pub(crate) fn forget_snapshots(&mut self) {
        self.snapshots.asked.clear();
        self.snapshots.wanted.clear();
        self.snapshots.sent_ms.clear();
        self.snapshots.repeated.clear();
        self.node.mut_store().offers.clear();
    }

    pub(crate) fn forget_removed(&mut self) {
        let members = &self.members;
        self.snapshots.asked.retain(|&to, _| members.contains(to));
        self.snapshots.wanted.retain(|&to| members.contains(to));
        let offers = &mut self.node.mut_store().offers;
        offers.retain(|&to, _| members.contains(to));
        self.versions.retain(|&id, _| members.contains(id));
    }

    /// Entries behind this one must stay for snapshots under way.
    pub(crate) fn held_for_snapshots(&self) -> u64 {
        let asked = self.snapshots.asked.values().map(|&(_, applied)| applied);
        let offers = self.node.store().offers.values();
        let made = offers.map(|offer| offer.get_metadata().index);
        asked.chain(made).min().unwrap_or(u64::MAX)
    }

    /// Receiver: raft-rs counts with a snapshot's members from when it takes it in.
    pub(crate) fn take_members_of_snapshot(&mut self) {
        if let Some(snapshot) = self.node.raft.snap() {
            self.members = Members::from_raft(snapshot.get_metadata().get_conf_state());
        }
    }

    /// Receiver: what is to be installed, if the owner has not been told.
    pub(crate) fn next_install(&mut self) -> Option<SnapshotHead> {
        if self.snapshots.installing.is_some() {
            return None;
        }
        let head = SnapshotHead::from_raft(self.node.raft.snap()?);
        self.snapshots.installing = Some(head.index);
        Some(head)
    }

    /// An install waits for the owner: nothing else is given out before it is done.
    pub(crate) fn is_installing(&self) -> bool {
        self.node.raft.snap().is_some() && !self.snapshots.is_installed
    }

    /// The state is that of the snapshot, durable with its position and members. Entries that
    /// were given out before and not applied must not be applied any more.
    pub fn on_installed(&mut self, index: u64) {
        if self.snapshots.installing == Some(index) {
            self.snapshots.is_installed = true;
            self.handed_out = index;
        }
    }
}

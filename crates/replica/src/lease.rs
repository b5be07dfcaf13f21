//! The leader's lease: until when it is surely the only one.
//!
//! Every round of heartbeats has a number, the *beat*, and the time it was **sent**; followers
//! send the number back (`mark`). When a majority (both majorities, in a joint state) has
//! answered a beat or a later one, they have promised to help no other leader for an election
//! timeout from when they **received** it (`promise`), which was after it was sent:
//!
//! ```text
//!  leader    sent ├────────────── lease ──────────────┤
//!  voter        received ├──────────────── promise ───────────────┤
//! ```
//!
//! **Clocks.** The two spans are measured by different clocks, of which only the rate counts.
//! With `drift_percent` = r, any clock may run r % too fast or too slow: a promise of P lasts at
//! least P / (1 + r), a lease of L at most L / (1 - r), so L = P (1 - 2r) is short enough (as
//! (1 - 2r)(1 + r) < 1 - r). r is 5, a hundred times what a disciplined clock does. A clock must
//! not stand still while the machine sleeps (on Linux: CLOCK_BOOTTIME).
//!
//! Judged by the clock alone, whatever ticks did: a leader that was stopped for ten seconds and
//! goes on has no lease. Void before an entry of the own term is applied, while the leadership is
//! being handed over, and while quiet.

use std::collections::{BTreeMap, VecDeque};

use raft::eraftpb::{Message, MessageType};

use crate::mark::{self, Mark};
use crate::replica::Replica;

/// Beats whose time is remembered. An answer to an older one is worth nothing.
const MOST_BEATS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Number of the next round of heartbeats. Never starts again, so that no answer of an
    /// earlier term can be mistaken.
    pub(crate) next_beat: u64,
    /// (beat, when it was sent).
    sent: VecDeque<(u64, u64)>,
    /// The newest beat each member has answered.
    answered: BTreeMap<u64, u64>,
    /// The newest beat a majority has answered, and when that was sent.
    pub(crate) confirmed: u64,
    confirmed_ms: Option<u64>,
    /// Answers to beats before this one make no lease (`transfer`).
    pub(crate) floor: u64,
    /// Transfers of this term that came to nothing.
    pub(crate) generation: u32,
}

impl Lease {
    /// Another term, or no leadership.
    pub(crate) fn clear(&mut self) {
        let next_beat = self.next_beat.max(1);
        *self = Lease {
            next_beat,
            floor: next_beat,
            ..Lease::default()
        };
    }
}

impl Replica {
    /// Whether this leader knows of every acknowledged write and is surely the only leader: an
    /// entry of its own term is applied (so everything its predecessors acknowledged is, too),
    /// and its lease holds at `now_ms`. A single voter's lease always holds.
    #[inline]
    pub fn may_serve(&self, now_ms: u64) -> bool {
        self.is_leader() && self.serving_term == Some(self.term()) && self.has_lease(now_ms)
    }

    /// Surely no other leader now, whatever this one has applied.
    #[inline]
    pub(crate) fn has_lease(&self, now_ms: u64) -> bool {
        if !self.is_leader() || self.node.raft.lead_transferee.is_some() {
            return false;
        }
        if self.is_only_voter() {
            return true;
        }
        let lease = &self.lease;
        !self.quiet.is_quiet
            && lease.confirmed >= lease.floor
            && lease
                .confirmed_ms
                .is_some_and(|sent| now_ms.max(self.now_ms) < sent + self.config.lease_ms())
    }

    /// Numbers the heartbeats that are about to leave, and marks what a transfer sends.
    pub(crate) fn mark_messages(&mut self, messages: &mut [Message]) {
        self.mark_votes(messages);
        let mut beat = None;
        for message in messages {
            match message.get_msg_type() {
                MessageType::MsgHeartbeat if message.term == self.term() => {
                    let number = *beat.get_or_insert(self.lease.next_beat);
                    let mark = Mark {
                        flags: if self.quiet.asks { mark::ASKS_QUIET } else { 0 },
                        beat: number,
                        generation: self.lease.generation,
                        last_index: self.last_index(),
                    };
                    message.context = mark.encode().into();
                }
                MessageType::MsgTimeoutNow => {
                    message.context = self.lease.generation.to_le_bytes().to_vec().into();
                }
                _ => {}
            }
        }
        if let Some(beat) = beat {
            let lease = &mut self.lease;
            // The time of the last call that told it, which is not later than now: the lease may
            // be shorter for it, never longer.
            lease.sent.push_back((beat, self.now_ms));
            if lease.sent.len() > MOST_BEATS {
                lease.sent.pop_front();
            }
            lease.next_beat = beat + 1;
        }
    }

    /// A member has answered a beat of this term.
    pub(crate) fn on_beat_answered(&mut self, from: u64, beat: u64) {
        if beat >= self.lease.next_beat {
            return;
        }
        let newest = self.lease.answered.entry(from).or_default();
        if beat > *newest {
            *newest = beat;
            self.confirm_beats();
        }
    }

    /// After an answer, and after a change of members.
    pub(crate) fn confirm_beats(&mut self) {
        let me = self.id();
        let lease = &mut self.lease;
        let answered = |id: u64| match id == me {
            true => u64::MAX,
            false => lease.answered.get(&id).copied().unwrap_or(0),
        };
        let confirmed = self.members.reached(answered);
        let at = lease
            .sent
            .binary_search_by_key(&confirmed, |&(beat, _)| beat);
        let sent = at.ok().and_then(|at| lease.sent.get(at));
        lease.confirmed_ms = sent.map(|&(_, sent_ms)| sent_ms);
        lease.confirmed = confirmed;
    }
}

//! Linearizable reads: at once under the lease, else by a round that proves the leadership.
//!
//! ```text
//!  read ──► lease holds, all that is committed is applied ──► Now
//!     └───► Wait(number) ─► one round of heartbeats, a majority answers ─► ready.reads
//!                            (number, index): servable once applied ≥ index
//! ```
//!
//! **Rounds are shared.** A round proves that this was the leader when its heartbeats left, so it
//! serves every read that came before that. Reads that come while one is under way wait for the
//! next, all under one number. Every later beat counts as an answer too, so a round whose messages
//! were lost is repeated by the ordinary heartbeats.
//!
//! **A follower** asks the leader for an index, which the leader answers under its lease or with
//! the next round; then the follower serves the read when it has applied that far. Its question is
//! repeated, to whoever leads, until it is answered or its time is over. This is why also the
//! leader must have applied all it committed before it answers `Now`: a follower may have shown
//! that much already.
//!
//! raft-rs has rounds of its own; they cannot be shared, nor told apart from a lease's.

use bytes::Bytes;
use raft::eraftpb::{Entry, Message, MessageType};

use crate::replica::Replica;

/// Followers' questions that wait for one round; more are dropped and come again.
const MOST_ASKING: usize = 4096;

/// How a read may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Serve it from the state machine as it is.
    Now,
    /// [`Ready::reads`](crate::Ready::reads) will bring this number with an index, or
    /// [`Ready::reads_failed`](crate::Ready::reads_failed) will.
    Wait(u64),
    NotLeader {
        leader: Option<u64>,
    },
}

/// Reads of this number may be served once `index` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    pub number: u64,
    pub index: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    next_number: u64,
    under_way: Option<Round>,
    waiting: Waiting,
    pub(crate) confirmed: Vec<Confirmed>,
    pub(crate) failed: Vec<u64>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Of reads here.
    number: Option<u64>,
    /// Followers and what they want to hear back.
    asking: Vec<(u64, Bytes)>,
}

#[derive(Debug)]
struct Round {
    for_whom: Waiting,
    /// Leader: confirmed with this beat. Follower: 0.
    beat: u64,
    index: u64,
    began_ms: u64,
    sent_ms: u64,
}

impl Reads {
    pub(crate) fn from(next_number: u64) -> Reads {
        Reads {
            next_number,
            ..Reads::default()
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_none() && self.waiting.number.is_none() && self.waiting.asking.is_empty()
    }

    /// The role or the term is another one: nothing under way can end well. Followers ask again.
    pub(crate) fn fail_all(&mut self) {
        let under_way = self.under_way.take();
        let waiting = std::mem::take(&mut self.waiting);
        let numbers = [
            under_way.and_then(|round| round.for_whom.number),
            waiting.number,
        ];
        self.failed.extend(numbers.into_iter().flatten());
    }
}

impl Replica {
    /// A read of the leader. Look at `has_ready` afterwards.
    pub fn read(&mut self, now_ms: u64) -> Read {
        self.see(now_ms);
        if !self.is_leader() {
            return Read::NotLeader {
                leader: self.leader(),
            };
        }
        if self.may_serve(now_ms) && self.has_shown_all() {
            return Read::Now;
        }
        self.wake_up();
        let number = self.join_round();
        self.begin_round(true);
        Read::Wait(number)
    }

    /// A read of whoever this is; a follower asks the leader. As linearizable as `read`.
    pub fn read_here(&mut self, now_ms: u64) -> Read {
        if self.is_leader() {
            return self.read(now_ms);
        }
        self.see(now_ms);
        if self.leader().is_none() {
            return Read::NotLeader { leader: None };
        }
        self.wake_up();
        let number = self.join_round();
        self.begin_asking();
        Read::Wait(number)
    }

    /// Nobody else can have seen more than this state machine has.
    fn has_shown_all(&self) -> bool {
        self.applied_index() >= self.committed_index() || self.is_alone()
    }

    fn join_round(&mut self) -> u64 {
        let reads = &mut self.reads;
        *reads.waiting.number.get_or_insert_with(|| {
            reads.next_number += 1;
            reads.next_number
        })
    }

    /// Leader: begins the next round if none is under way and somebody waits. `fresh`: the clock
    /// was read for this call, so that the lease can be judged.
    pub(crate) fn begin_round(&mut self, fresh: bool) {
        if !self.is_leader() || !self.node.raft.commit_to_current_term() {
            return; // what earlier leaders committed is not all known yet
        }
        while self.reads.under_way.is_none() {
            let waiting = &self.reads.waiting;
            if waiting.number.is_none() && waiting.asking.is_empty() {
                return;
            }
            let round = Round {
                for_whom: std::mem::take(&mut self.reads.waiting),
                beat: self.lease.next_beat,
                index: self.committed_index(),
                began_ms: self.now_ms,
                sent_ms: self.now_ms,
            };
            if self.is_only_voter() || (fresh && self.has_lease(self.now_ms)) {
                self.end_round(round);
            } else {
                self.reads.under_way = Some(round);
                // Marked with the next beat when they leave (`mark_messages`).
                self.node.raft.ping();
            }
        }
    }

    /// Leader: beats were confirmed.
    pub(crate) fn end_confirmed_round(&mut self) {
        let confirmed = self.lease.confirmed;
        let done = |round: &mut Round| round.beat <= confirmed;
        if let Some(round) = self.reads.under_way.take_if(done) {
            self.end_round(round);
        }
    }

    fn end_round(&mut self, round: Round) {
        let index = round.index;
        if let Some(number) = round.for_whom.number {
            self.reads.confirmed.push(Confirmed { number, index });
        }
        for (to, context) in round.for_whom.asking {
            // It may not have heard yet that so much is committed.
            if self.node.raft.prs().get(to).is_some() {
                self.node.raft.send_append(to);
            }
            let mut answer = self.read_message(MessageType::MsgReadIndexResp, to, context);
            answer.index = index;
            self.released.push(answer);
        }
    }

    fn read_message(&self, kind: MessageType, to: u64, context: Bytes) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (self.id(), to, self.term());
        let entry = Entry {
            data: context,
            ..Entry::default()
        };
        message.set_entries(vec![entry].into());
        message
    }

    /// Leader: a follower asks.
    pub(crate) fn on_read_asked(&mut self, message: &Message) {
        let Some(entry) = message.get_entries().first() else {
            return;
        };
        if !self.is_leader() || self.node.raft.prs().get(message.from).is_none() {
            return;
        }
        self.wake_up();
        let asking = &mut self.reads.waiting.asking;
        let question = (message.from, entry.data.clone());
        if asking.len() >= MOST_ASKING || asking.contains(&question) {
            return;
        }
        asking.push(question);
        self.begin_round(true);
    }

    /// Follower: asks the leader, if somebody waits.
    pub(crate) fn begin_asking(&mut self) {
        if self.reads.under_way.is_some() || self.reads.waiting.number.is_none() {
            return;
        }
        let mut for_whom = std::mem::take(&mut self.reads.waiting);
        for_whom.asking.clear();
        self.reads.under_way = Some(Round {
            for_whom,
            beat: 0,
            index: 0,
            began_ms: self.now_ms,
            sent_ms: self.now_ms,
        });
        self.ask_leader();
    }

    fn ask_leader(&mut self) {
        let (leader, now_ms) = (self.leader(), self.now_ms);
        let Some(round) = self.reads.under_way.as_mut() else {
            return;
        };
        round.sent_ms = now_ms;
        if let (Some(to), Some(number)) = (leader, round.for_whom.number) {
            let context = Bytes::copy_from_slice(&number.to_le_bytes());
            let question = self.read_message(MessageType::MsgReadIndex, to, context);
            self.released.push(question);
        }
    }

    /// A question that waits for no answer: it wakes a quiet leader.
    pub(crate) fn ping(&mut self, to: u64) {
        let question = self.read_message(MessageType::MsgReadIndex, to, Bytes::new());
        self.released.push(question);
    }

    /// Follower: the leader has answered. True whoever leads by now: the index was proven after
    /// the question was put, and numbers are not used twice.
    pub(crate) fn on_read_answered(&mut self, message: &Message) {
        let Some(data) = message.get_entries().first().map(|entry| &entry.data) else {
            return;
        };
        let answers = |round: &mut Round| {
            let number = round.for_whom.number.map(u64::to_le_bytes);
            round.beat == 0 && number.is_some_and(|number| number[..] == data[..])
        };
        if let Some(mut round) = self.reads.under_way.take_if(answers) {
            round.index = message.index;
            self.end_round(round);
            self.begin_asking();
        }
    }

    /// Follower: asks again, and gives up in the end.
    pub(crate) fn tick_reads(&mut self) {
        if self.is_leader() {
            self.begin_round(true);
            return;
        }
        let Some(round) = &self.reads.under_way else {
            return;
        };
        if self.now_ms >= round.began_ms + 2 * self.config.promise_ms() {
            self.reads.fail_all();
        } else if self.now_ms >= round.sent_ms + self.config.heartbeat_ms() {
            self.ask_leader();
        }
    }
}

//! Regions nobody uses cost nothing: no heartbeats, no ticks.
//!
//! ```text
//!  leader                              followers
//!  idle for quiet_ticks,
//!  everybody has everything
//!     ── heartbeat "let us be quiet" ──►  has all of the log applied, waits for nothing:
//!     ◄── answer "I am quiet" ──────────  quiet, does not campaign
//!  all have said so: quiet
//! ```
//!
//! Anything wakes: a proposal, a read, a message, [`Replica::wake`]. A quiet leader has no lease;
//! its first read after the wake is a round. A quiet follower trusts that somebody tells it when
//! its leader's node is gone: the owner must `wake` it then, and it campaigns after its normal
//! timeout, with pre-vote. Before that it pings the leader, which, if it is there after all,
//! wakes and calms everybody.
//!
//! A leader with a member that does not answer stays awake: it cannot know what that one missed. Unless
//! its owner says that the member is *absent*, its node not to be heard ([`Replica::set_absent`]): then those
//! who are there become quiet without it, if they are a majority and have everything. The owner
//! owes its word that the member is back, which wakes the leader; what it missed is sent then.

use std::collections::BTreeSet;

use raft::StateRole;
use raft::eraftpb::MessageType;

use crate::mark::{self, Mark};
use crate::replica::Replica;

#[derive(Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) is_quiet: bool,
    /// Leader: ticks with nothing to do.
    idle_ticks: usize,
    /// Leader: heartbeats ask for quiet.
    pub(crate) asks: bool,
    /// Leader: the first beat that asks.
    asks_since: u64,
    /// Leader: members that are quiet.
    agreed: BTreeSet<u64>,
    /// Leader: members that are not there; ascending.
    absent: Vec<u64>,
    /// Follower: the beat that made it quiet; earlier ones do not wake it.
    beat: u64,
}

impl Replica {
    /// Needs no ticks until something happens.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_quiet || (self.is_alone() && self.is_leader())
    }

    /// The owner suspects that the leader's node is gone, or wants the region awake.
    pub fn wake(&mut self, now_ms: u64) {
        self.see(now_ms);
        let asks = self.quiet.is_quiet && !self.is_leader();
        self.wake_up();
        if let Some(leader) = self.leader().filter(|_| asks) {
            self.ping(leader);
        }
    }

    /// The owner, before every tick of a leader, and as often while one [`lacks`](Replica::lacks_members)
    /// members though it is quiet: the nodes of these members (ascending) are not to be heard.
    /// Whoever is on the list no more may have missed something; if there are more of them, those
    /// who are left may be no majority. Either way it wakes.
    pub fn set_absent(&mut self, absent: Vec<u64>) {
        if self.is_leader() && self.quiet.absent != absent {
            self.wake_up();
            self.quiet.absent = absent;
        }
    }

    /// Leader: somebody is absent, by the owner's last word.
    #[inline]
    pub fn lacks_members(&self) -> bool {
        !self.quiet.absent.is_empty()
    }

    /// Not leader, at every tick: who knows of no leader tells all that it is there, for they may be
    /// quiet. A learner, which never asks for votes, would not be heard of otherwise; a voter that
    /// comes back would find votes, and move the leadership for nothing.
    pub(crate) fn tick_without_leader(&mut self) {
        if self.leader().is_some() {
            self.leaderless_ticks = 0;
            return;
        }
        if self
            .leaderless_ticks
            .is_multiple_of(self.config.election_ticks)
        {
            for id in self.members.all() {
                if id != self.id() {
                    self.ping(id);
                }
            }
        }
        self.leaderless_ticks += 1;
    }

    pub(crate) fn wake_up(&mut self) {
        let was_quiet = self.quiet.is_quiet;
        if was_quiet || self.quiet.asks || self.quiet.idle_ticks > 0 {
            self.start_over();
        }
        if was_quiet {
            // Its ticks begin now: a full timeout, a full period of the quorum check.
            self.node.raft.election_elapsed = 0;
            self.node.raft.ping();
        }
    }

    /// Begins again on the way to be quiet. Who is absent stays so.
    fn start_over(&mut self) {
        self.quiet = Quiet {
            absent: std::mem::take(&mut self.quiet.absent),
            ..Quiet::default()
        };
    }

    /// Leader, at every tick.
    pub(crate) fn tick_quiet(&mut self) {
        if self.config.quiet_ticks == 0 || !self.is_leader() {
            return;
        }
        if !self.is_idle() {
            self.start_over();
            return;
        }
        self.quiet.idle_ticks += 1;
        if self.quiet.idle_ticks >= self.config.quiet_ticks && !self.quiet.asks {
            self.quiet.asks = true;
            self.quiet.asks_since = self.lease.next_beat;
        }
    }

    fn is_idle(&self) -> bool {
        let raft = &self.node.raft;
        let last = self.last_index();
        let idle = last == self.applied_index()
            && self.serving_term == Some(self.term())
            && self.in_flight.is_empty()
            && self.reads.is_idle()
            && raft.lead_transferee.is_none()
            && !self.members.is_joint();
        idle && self.present_are_majority()
            && raft
                .prs()
                .iter()
                .all(|(&id, progress)| progress.matched == last || self.is_absent(id))
    }

    fn is_absent(&self, id: u64) -> bool {
        self.quiet.absent.binary_search(&id).is_ok()
    }

    /// Without a majority a leader must notice that it is none any more, and for that it needs ticks.
    fn present_are_majority(&self) -> bool {
        let is_present = |id: u64| u64::from(!self.is_absent(id));
        self.quiet.absent.is_empty() || self.members.reached(is_present) == 1
    }

    /// Follower: a heartbeat was taken in. Answers whether it stays, or becomes, quiet.
    pub(crate) fn on_heartbeat_mark(&mut self, mark: Mark) {
        let is_old = self.quiet.is_quiet && mark.beat < self.quiet.beat;
        let agrees = mark.flags & mark::ASKS_QUIET != 0
            && self.node.raft.state == StateRole::Follower
            && self.last_index() == mark.last_index
            && self.applied_index() == mark.last_index
            && self.in_flight.is_empty()
            && self.reads.is_idle()
            && self.node.raft.snap().is_none();
        if agrees {
            self.quiet.is_quiet = true;
            self.quiet.beat = self.quiet.beat.max(mark.beat);
        } else if !is_old {
            self.wake_up();
        }
        // The answer raft-rs has made carries the question: it says what came of it instead.
        let messages = self.node.raft.msgs.iter_mut().rev();
        let mut answers =
            messages.filter(|m| m.get_msg_type() == MessageType::MsgHeartbeatResponse);
        if let Some(answer) = answers.next() {
            let flags = if agrees { mark::IS_QUIET } else { 0 };
            answer.context = Mark { flags, ..mark }.encode().into();
        }
    }

    /// Leader: a member has answered a heartbeat.
    pub(crate) fn on_quiet_answer(&mut self, from: u64, mark: Mark) {
        if !self.quiet.asks || mark.beat < self.quiet.asks_since {
            return;
        }
        if mark.flags & mark::IS_QUIET == 0 {
            self.quiet.agreed.remove(&from);
            return;
        }
        self.quiet.agreed.insert(from);
        let (me, agreed) = (self.id(), &self.quiet.agreed);
        let mut others = self.node.raft.prs().iter().map(|(&id, _)| id);
        let is_done = |id: u64| id == me || agreed.contains(&id) || self.is_absent(id);
        if self.is_idle() && others.all(is_done) {
            self.quiet.is_quiet = true;
        }
    }
}

//! Time, as far as Raft needs it: heartbeats and election timeouts are counted in ticks, promises
//! and leases by the clock.
//!
//! The clock is the owner's: milliseconds since some moment, never back, running at the same rate
//! everywhere within `drift_percent`, also while the machine sleeps. Calls that take `now_ms` get
//! it freshly read; whoever keeps an old reading keeps an old lease.

use crate::replica::Replica;

impl Replica {
    /// One tick has passed. Look at `has_ready` afterwards. A replica that [`is_quiet`] needs none.
    ///
    /// [`is_quiet`]: Replica::is_quiet
    pub fn tick(&mut self, now_ms: u64) {
        self.see(now_ms);
        if self.quiet.is_quiet {
            return;
        }
        if self.is_only_voter() && !self.is_leader() {
            self.campaign_if_only_voter();
            return;
        }
        if self.is_alone() {
            return; // nobody to send heartbeats to, nobody to lose the leadership to
        }
        self.tick_quiet();
        self.tick_snapshots();
        self.tick_reads();
        let was_leader = self.is_leader();
        if !was_leader {
            self.tick_without_leader();
        }
        if !was_leader && self.is_due() && !self.may_campaign() {
            return; // at the first tick that it may
        }
        if self.node.tick() && !was_leader {
            self.on_campaign();
        }
        self.after();
    }

    fn is_due(&self) -> bool {
        let raft = &self.node.raft;
        raft.promotable() && raft.election_elapsed + 1 >= raft.randomized_election_timeout()
    }

    /// What the clock says; it never goes back.
    #[inline]
    pub(crate) fn see(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// After everything that may have changed role, term or members.
    pub(crate) fn after(&mut self) {
        self.seed_timeout();
        let leads = self.is_leader().then(|| self.term());
        if leads != self.led {
            self.led = leads;
            self.was_transferring = false;
            self.leaving = None;
            self.lease.clear();
            self.reads.fail_all();
            self.quiet = Default::default();
            self.forget_snapshots();
        }
        self.notice_end_of_transfer();
        self.ask_for_snapshots();
    }
}

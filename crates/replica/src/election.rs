//! Who leads. raft-rs decides; what is ours is when it asks for votes.
//!
//! raft-rs draws its election timeout from the thread's generator whenever it changes role or
//! term, which no run could repeat. So after every call that may have done so the timeout is put
//! back to ours: a function of seed, region, replica, term and number of attempts. A function, not
//! the next number of a generator: whether raft-rs has drawn cannot be seen from outside (it may
//! draw the value that was there). It compares the timeout only in `tick`, so nothing it drew is
//! ever used.

use raft::StateRole;

use crate::config::ReplicaConfig;
use crate::replica::Replica;

pub(crate) struct Timeouts {
    seed: u64,
    election_ticks: usize,
    /// Campaigns begun; a new one gets a new timeout even if the term stays (pre-vote).
    attempts: u64,
    of: (u64, u64),
    ticks: usize,
}

impl Timeouts {
    pub(crate) fn new(config: &ReplicaConfig) -> Timeouts {
        let mut seed = config.seed;
        for word in [config.region, config.replica] {
            seed = fastrand::Rng::with_seed(seed ^ word).u64(..);
        }
        Timeouts {
            seed,
            election_ticks: config.election_ticks,
            attempts: 0,
            of: (u64::MAX, 0),
            ticks: config.election_ticks,
        }
    }

    fn at(&mut self, term: u64) -> usize {
        if self.of != (term, self.attempts) {
            self.of = (term, self.attempts);
            let seed = self.seed ^ term.rotate_left(32) ^ self.attempts;
            let mut rng = fastrand::Rng::with_seed(seed);
            self.ticks = rng.usize(self.election_ticks..2 * self.election_ticks);
        }
        self.ticks
    }
}

impl Replica {
    /// To be called after everything that may make raft-rs change its role or term.
    #[inline]
    pub(crate) fn seed_timeout(&mut self) {
        let ticks = self.timeouts.at(self.node.raft.term);
        self.node.raft.set_randomized_election_timeout(ticks);
    }

    pub(crate) fn on_campaign(&mut self) {
        self.timeouts.attempts += 1;
    }

    /// A single voter asks nobody, so it need not wait for a timeout. But raft-rs makes it leader
    /// in the same call, and a leader's log must be on disk. raft-rs declines by itself while
    /// committed entries wait to be applied that are not in memory: they might change the members.
    pub(crate) fn campaign_if_only_voter(&mut self) {
        if self.is_only_voter()
            && self.node.raft.state != StateRole::Leader
            && self.in_flight.is_empty()
            && self.node.raft.snap().is_none()
        {
            // It fails for nobody who is a voter.
            let _ = self.node.campaign();
            self.after();
        }
    }
}

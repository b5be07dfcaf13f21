//! Time, as far as Raft needs it: heartbeats and election timeouts are counted in ticks.

use crate::replica::Replica;

impl Replica {
    /// One tick has passed. Look at `has_ready` afterwards.
    pub fn tick(&mut self) {
        if self.is_alone() {
            // Nobody to send heartbeats to, nobody to lose the leadership to.
            self.campaign_if_alone();
            return;
        }
        let was_leader = self.is_leader();
        if self.node.tick() && !was_leader {
            self.on_campaign();
        }
        self.seed_timeout();
    }
}

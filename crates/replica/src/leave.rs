//! A leader whose disk takes nothing leaves: another member is to lead.
//!
//! It hands over ([`crate::transfer`]), which needs no disk, to one successor after the other. If nobody takes over
//! within two election timeouts it falls silent: nothing it says leaves any more. Then its followers elect another
//! as if it were dead, and it notices itself that nobody answers. Its answers would keep them waiting for ever.
//!
//! Nothing of this touches terms, votes or entries: it is as safe as a transfer and a lost message.

use crate::replica::Replica;

/// Of a leader that is to leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    since_ms: u64,
    /// Successors asked so far.
    asked: usize,
}

impl Replica {
    /// The owner's disk takes nothing: call it at every tick while that is so. `can_lead`: whether the node of a
    /// member can be heard, and its disk is well.
    pub fn leave(&mut self, can_lead: impl Fn(u64) -> bool, now_ms: u64) {
        self.see(now_ms);
        if !self.is_leader() {
            self.leaving = None;
            return;
        }
        let begin = Leaving {
            since_ms: self.now_ms,
            asked: 0,
        };
        let leaving = *self.leaving.get_or_insert(begin);
        if self.is_silent() || self.is_transferring() {
            return;
        }
        let mut successors = self.progress();
        successors.retain(|member| {
            let id = member.replica;
            self.members.voters.contains(&id) && !member.is_in_snapshot && can_lead(id)
        });
        // The nearest to the end of the log first.
        successors.sort_by_key(|member| (std::cmp::Reverse(member.matched), member.replica));
        let count = successors.len().max(1);
        let Some(next) = successors.get(leaving.asked % count).map(|it| it.replica) else {
            return;
        };
        if self.transfer_leader(next).is_ok() {
            let asked = leaving.asked + 1;
            self.leaving = Some(Leaving { asked, ..leaving });
        }
    }

    /// The disk is well again.
    pub fn stay(&mut self) {
        self.leaving = None;
    }

    /// Whether nothing it says leaves, because nobody took over.
    pub fn is_silent(&self) -> bool {
        let silent_ms = 2 * self.config.tick_ms * self.config.election_ticks as u64;
        let is_over = |it: Leaving| self.now_ms.saturating_sub(it.since_ms) >= silent_ms;
        self.is_leader() && self.leaving.is_some_and(is_over)
    }
}

//! The lease on writing back: asked for, renewed, and given up a little early.
//!
//! It bounds how many leaders write the same rows, no more: what makes late statements harmless is the guard on versions.
//! Hence clocks may differ, and nothing breaks when they differ by more than the margin. A clock that was an hour ahead does not stop
//! writing back for an hour: nobody renews an old lease once a new leader is in office, so after the length of a lease it is over.

use crate::entry::{Entry, Lease};
use crate::rows::Rows;

use super::{Action, Limits};

#[derive(Debug)]
pub struct Tenure {
    me: u64,
    term: u64,
    /// When the office began.
    since: u64,
    /// When it was last asked for, so that one entry is under way and not one per turn.
    asked: Option<u64>,
}

impl Tenure {
    pub(super) fn new(me: u64, term: u64, now: u64) -> Tenure {
        Tenure {
            me,
            term,
            since: now,
            asked: None,
        }
    }

    pub(super) fn is_ours(&self, limits: &Limits, rows: &Rows, now: u64) -> bool {
        let lease = rows.lease();
        lease.holder == self.me
            && lease.term == self.term
            && now.saturating_add(limits.lease_margin) <= lease.until
    }

    /// `has_work`: a region where there is nothing to write or to evict lets its lease run out, and stays quiet.
    pub(super) fn tick(
        &mut self,
        limits: &Limits,
        rows: &Rows,
        now: u64,
        has_work: bool,
        out: &mut Vec<Action>,
    ) {
        let lease = rows.lease();
        let full = limits.lease.saturating_add(limits.lease_margin);
        let waited = now >= self.since.saturating_add(full);
        let wanted = if lease.holder == self.me && lease.term == self.term {
            // a third has passed
            has_work && now.saturating_add(limits.lease / 3 * 2) >= lease.until
        } else {
            // its own of an earlier term it takes over at once
            let over = now >= lease.until.saturating_add(limits.lease_margin);
            lease.until == 0 || lease.holder == self.me || over || waited
        };
        let asked = |at: u64| now < at.saturating_add(limits.lease / 6);
        if wanted && !self.asked.is_some_and(asked) {
            self.asked = Some(now);
            let lease = Lease {
                holder: self.me,
                term: self.term,
                until: now.saturating_add(limits.lease),
            };
            out.push(Action::Propose(Entry::Lease { lease, waited }));
        }
    }
}

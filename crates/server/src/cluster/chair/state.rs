//! What entries and snapshots change: meta's state machine, the members of region 0, and what is kept
//! of both.
//!
//! Invariant: `applied` and the state move together, and what is kept is kept before the log is cut
//! behind it.

use base::cluster::META_REGION;
use meta::state::Outcome;
use prost::Message;
use replica::{Committed, SnapshotHead};

use super::super::Newcomers;
use super::super::seats::with_members;
use super::{Chair, Minutes, Motion};

impl Chair {
    pub(super) fn apply(&mut self, committed: Committed) {
        let Committed {
            index,
            term,
            payload,
            change,
        } = committed;
        let mut outcome = Outcome::Unchanged;
        if let Some(change) = change {
            let members = self.replica.apply_members(&change);
            let newcomers = Newcomers::of(&change.context);
            let next = with_members(&self.seat.descriptor, &members, |id| newcomers.node_of(id));
            self.seat.descriptor = next;
        } else if !payload.is_empty() {
            match Motion::decode(payload) {
                Ok(motion) => {
                    self.stamp_ms = self.stamp_ms.max(motion.stamp_ms);
                    outcome = self.state.apply(&motion.command, motion.stamp_ms);
                }
                Err(error) => {
                    let text = format!("entry {index} of the log cannot be read: {error}");
                    return self.fail(&text);
                }
            }
        }
        self.replica.on_applied(index);
        (self.applied, self.applied_term) = (index, term);
        if let Some((of, asked)) = self.asked.remove(&index) {
            match of == term {
                true => self.on_outcome(asked, outcome),
                false => self.give_up(asked),
            }
        }
    }

    /// Everything as of now, as another member gets it.
    pub(super) fn head(&self) -> SnapshotHead {
        self.minutes().into_head(self.replica.members().clone())
    }

    fn minutes(&self) -> Minutes {
        Minutes {
            seat: self.seat.clone(),
            applied: self.applied,
            applied_term: self.applied_term,
            state: self.state.encode().into(),
        }
    }

    /// Another member's state takes the place of ours.
    pub(super) fn install(&mut self, head: &SnapshotHead) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        let installed = Minutes::of_head(head, self.seat.replica).and_then(|(minutes, state)| {
            minutes.keep(&*durable.stores.rows)?;
            Ok((minutes, state))
        });
        match installed {
            Ok((minutes, state)) => {
                self.seat = minutes.seat;
                self.state = state;
                (self.applied, self.applied_term) = (head.index, head.term);
                self.kept = head.index;
                self.replica.on_installed(head.index);
            }
            Err(reason) => self.fail(&reason),
        }
    }

    /// Keeps the state and cuts the log behind it.
    pub(super) fn keep(&mut self) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        if let Err(reason) = self.minutes().keep(&*durable.stores.rows) {
            return self.fail(&reason);
        }
        self.kept = self.applied;
        let index = self.replica.truncate_to(self.applied);
        if let Err(error) = durable.stores.log.truncate(META_REGION, index) {
            self.fail(&error.to_string());
        }
    }
}

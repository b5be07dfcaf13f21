//! What entries and snapshots change: meta's state machine, the members of region 0, and what is kept
//! of both.
//!
//! Invariant: `applied` and the state move together, and the state is kept before the log is cut
//! behind it.

use base::clock;
use base::cluster::META_REGION;
use meta::state::Outcome;
use prost::Message;
use replica::{Committed, SnapshotHead};

use super::MetaMember;
use crate::replica_record::with_members;
use crate::{Executing, MetaContext, MetaEffects, MetaEntry, MetaRecord, Newcomers};

impl<T> MetaMember<T> {
    pub(super) fn apply(
        &mut self,
        committed: Committed,
        cx: &MetaContext<'_>,
        out: &mut MetaEffects<T>,
    ) -> Result<(), String> {
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
            let record = &mut self.record;
            record.descriptor =
                with_members(&record.descriptor, &members, |id| newcomers.node_of(id));
            cx.observer.on_members(&self.replica, index, &self.record);
        } else if !payload.is_empty() {
            let entry = MetaEntry::decode(payload.clone())
                .map_err(|error| format!("entry {index} of the log cannot be read: {error}"))?;
            self.stamp_ms = clock::next_stamp(self.stamp_ms, entry.stamp_ms);
            outcome = self.state.apply(&entry.command, entry.stamp_ms);
        }
        self.replica.on_applied(index);
        (self.applied, self.applied_term) = (index, term);
        let executed = Executing {
            index,
            term,
            payload: &payload,
        };
        cx.observer
            .on_executed(&self.replica, &executed, &self.state);
        if let Some((of, waiting)) = self.waiting.remove(&index) {
            match of == term {
                true => self.answer(waiting, &outcome, out),
                false => self.give_up(waiting, out),
            }
        }
        Ok(())
    }

    /// Everything as of now, as another member gets it.
    pub(super) fn snapshot(&self) -> SnapshotHead {
        let members = self.replica.members().clone();
        self.kept_record().into_snapshot(members)
    }

    fn kept_record(&self) -> MetaRecord {
        MetaRecord {
            record: self.record.clone(),
            applied: self.applied,
            applied_term: self.applied_term,
            state: self.state.encode().into(),
        }
    }

    /// Another member's state replaces ours.
    pub(super) fn install(
        &mut self,
        head: &SnapshotHead,
        cx: &MetaContext<'_>,
    ) -> Result<(), String> {
        let (received, state) = MetaRecord::of_snapshot(head, self.record.replica)?;
        received.keep(cx.rows, cx.pause)?;
        self.record = received.record;
        self.state = state;
        (self.applied, self.applied_term) = (head.index, head.term);
        self.kept = head.index;
        self.replica.on_installed(head.index);
        let observer = cx.observer;
        observer.on_installed(&self.replica, head.index, &self.state);
        observer.on_members(&self.replica, head.index, &self.record);
        Ok(())
    }

    /// Keeps the state and cuts the log behind it, if enough was applied since the last time. Slow: it
    /// waits for the store.
    pub fn keep_when_due(&mut self, cx: &MetaContext<'_>, out: &mut MetaEffects<T>) {
        if self.is_failed || self.applied < self.kept + self.keep_after {
            return;
        }
        if let Err(reason) = self.kept_record().keep(cx.rows, cx.pause) {
            return self.fail(reason, out);
        }
        self.kept = self.applied;
        let index = self.replica.truncate_to(self.applied);
        if let Err(error) = cx.log.truncate(META_REGION, index) {
            self.fail(error.to_string(), out);
        }
    }
}

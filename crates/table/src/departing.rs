//! Rows that entries on their way into the log may let go.
//!
//! The one idea: a row is counted on until an entry that may let it go is proposed, and again when that entry is applied
//! or the log did not take it. Between the two no write that names the row may be proposed: it would find the row gone
//! when it is applied, and what is applied cannot wait for SQL.
//!
//! Invariant: a row is in here as often as there are such entries. Kept by the leader's bench, of the server and of
//! the simulator; it ends with the term.

use std::collections::BTreeMap;

use crate::entry::{Entry, RowId};
use crate::rows::{Applied, What};

#[derive(Debug, Default)]
pub struct Departing {
    /// How many entries on their way.
    rows: BTreeMap<RowId, u32>,
}

impl Departing {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn contains(&self, id: &RowId) -> bool {
        self.rows.contains_key(id)
    }

    /// One entry more may let the row go.
    pub fn note(&mut self, id: &RowId) {
        *self.rows.entry(id.clone()).or_default() += 1;
    }

    /// One entry less: it was applied, or the log did not take it.
    pub fn forget(&mut self, id: &RowId) {
        if let Some(count) = self.rows.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                self.rows.remove(id);
            }
        }
    }

    pub fn on_proposed(&mut self, entry: &Entry) {
        each(entry, |id| self.note(id));
    }

    /// The log did not take an entry that was proposed.
    pub fn on_refused(&mut self, entry: &Entry) {
        each(entry, |id| self.forget(id));
    }

    pub fn on_applied(&mut self, applied: &Applied) {
        if matches!(applied.what, What::Kicked | What::Discarded) {
            applied.rows.iter().for_each(|id| self.forget(id));
        }
    }
}

fn each(entry: &Entry, mut each: impl FnMut(&RowId)) {
    match entry {
        Entry::Kick(rows) => rows.iter().for_each(|(id, _)| each(id)),
        Entry::Discard { id, .. } => each(id),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_counted_on_again_after_the_last_entry() {
        let id = RowId {
            table: 1,
            key: "k".into(),
        };
        let kick = Entry::Kick(vec![(id.clone(), 1)]);
        let mut departing = Departing::default();
        departing.on_proposed(&kick);
        departing.note(&id); // a client's, in an entry of commands
        departing.on_refused(&kick);
        assert!(departing.contains(&id));
        departing.on_applied(&Applied {
            what: What::Kicked,
            rows: vec![id.clone()],
            outcome: None,
        });
        assert!(departing.is_empty());
        departing.forget(&id);
        assert!(departing.is_empty());
    }
}

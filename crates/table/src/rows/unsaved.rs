//! What was changed and is not stored yet.
//!
//! The one idea: of a row only its last image counts. So a row that is changed is only noted, once, and encoded when the owner
//! stores; all else (schemas, the lease, answers) is a [`Change`] at once. No two of these are about the same place, but the removal of a
//! table's rows, which takes what was noted of them with it.

use crate::entry::RowId;
use crate::schema::Table;

use super::store::Change;
use super::{Row, Rows};

/// What a row costs in a batch beside its key and image.
const OVERHEAD: usize = 32;

/// Not part of the state: replicas that store at different times are equal.
#[derive(Debug, Clone, Default)]
pub(super) struct Unsaved {
    rows: Vec<RowId>,
    /// Roughly, of these rows when stored.
    bytes: usize,
    rest: Vec<Change>,
}

impl PartialEq for Unsaved {
    fn eq(&self, _: &Unsaved) -> bool {
        true
    }
}

impl Unsaved {
    /// A change of something that is no row.
    pub(super) fn push(&mut self, change: Change) {
        self.rest.push(change);
    }

    /// After the row was changed.
    pub(super) fn note(&mut self, id: &RowId, row: &mut Row) {
        if !row.unsaved {
            row.unsaved = true;
            self.bytes += id.key.len() + row.image.size() + OVERHEAD;
            self.rows.push(id.clone());
        }
    }

    /// After the row was taken out of memory.
    pub(super) fn note_gone(&mut self, id: &RowId, gone: &Row) {
        if !gone.unsaved {
            self.bytes += id.key.len() + OVERHEAD;
            self.rows.push(id.clone());
        }
    }

    pub(super) fn forget_table(&mut self, table: u32) {
        self.rows.retain(|id| id.table != table);
    }
}

impl Rows {
    /// Whether rows wait for [`Rows::save`].
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.rows.is_empty()
    }

    /// Rows that were changed since they were last stored.
    pub fn unsaved(&self) -> impl Iterator<Item = &RowId> {
        self.unsaved.rows.iter()
    }

    /// Roughly what [`Rows::save`] gives.
    pub fn unsaved_bytes(&self) -> usize {
        self.unsaved.bytes
    }

    /// Changes of all that is no row, in order: to be stored in one batch with what [`Rows::save`] gives, and the applied index.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.unsaved.rest)
    }

    /// Every row that was changed since the last time, as it is to be stored now; `None`: not any more. A row may come twice if it is gone.
    pub fn save(&mut self, mut each: impl FnMut(&Table, &RowId, Option<&[u8]>)) {
        let mut ids = std::mem::take(&mut self.unsaved.rows);
        let mut bytes = Vec::new();
        for id in &ids {
            let Some(tab) = self.tables.get_mut(&id.table) else {
                continue;
            };
            match tab.rows.get_mut(&id.key) {
                None => each(&tab.schema, id, None),
                Some(row) if row.unsaved => {
                    row.unsaved = false;
                    row.encode_to(&mut bytes);
                    each(&tab.schema, id, Some(&bytes));
                }
                Some(_) => {} // it left and came again: stored as it is now, above
            }
        }
        ids.clear();
        self.unsaved.rows = ids;
        self.unsaved.bytes = 0;
    }
}

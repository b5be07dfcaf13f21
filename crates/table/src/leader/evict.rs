//! Making room: above the soft limit cold rows are kicked, until there is a little less than that.
//!
//! A clock: the hand goes round over all rows, each gets colder by one as it passes, a read makes it hot again, and a cold
//! clean row is kicked. The hand takes a bounded number of steps per turn. Only called while the lease is ours, by when everything dirty is queued
//! (the *kick lock* of a new leader); that a row is clean is checked again when the kick is applied.

use std::collections::BTreeMap;

use crate::entry::{Entry, RowId};
use crate::rows::Rows;

use super::{Action, Limits};

#[derive(Debug, Default)]
pub struct Evict {
    hand: Option<RowId>,
    /// Kicks in the log that are not applied yet, with the bytes they will free.
    under_way: BTreeMap<RowId, usize>,
    freed_soon: usize,
    kicked: u64,
}

impl Evict {
    pub(super) fn tick(&mut self, limits: &Limits, rows: &Rows, out: &mut Vec<Action>) {
        if rows.bytes() <= limits.soft_bytes {
            return;
        }
        let enough = limits.soft_bytes - limits.soft_bytes / 16;
        let mut kicks = Vec::new();
        for _ in 0..limits.evict_looks {
            let left = rows.bytes().saturating_sub(self.freed_soon);
            if left <= enough || kicks.len() >= limits.entry_rows {
                break;
            }
            let Some((id, row)) = rows.cool_next(&mut self.hand) else {
                break;
            };
            if row.heat.get() > 0 || !row.may_be_kicked() || self.under_way.contains_key(&id) {
                continue;
            }
            let size = row.size(&id);
            kicks.push((id.clone(), row.image.version));
            self.under_way.insert(id, size);
            self.freed_soon += size;
        }
        if !kicks.is_empty() {
            out.push(Action::Propose(Entry::Kick(kicks)));
        }
    }

    pub(super) fn on_kicked(&mut self, rows: &Rows, ids: &[RowId]) {
        for id in ids {
            self.kicked += u64::from(rows.get(id).is_none());
            if let Some(size) = self.under_way.remove(id) {
                self.freed_soon -= size;
            }
        }
    }

    pub(super) fn kicked(&self) -> u64 {
        self.kicked
    }
}

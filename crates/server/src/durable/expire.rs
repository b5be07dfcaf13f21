//! Keys whose time has come, removed by entries of the log, so that every replica removes them at
//! the same place.
//!
//! The rows have an index by deadline; its head is looked at every 100 ms, and as long as much is
//! due one entry follows the other. Reads do not see due keys in the meantime.

use std::rc::Rc;

use keyspace::DueKey;
use keyspace::rows::Tier;
use replica::entry::ExpireWriter;

use super::Flight;
use crate::cores::{Core, RegionId};

/// Keys removed by one entry.
pub(super) const KEYS: usize = 512;

impl Core {
    /// Proposes the removal of keys that are due by the index of deadlines.
    pub(crate) fn expire_rows(self: &Rc<Self>, id: RegionId) {
        let due = {
            let mut home = self.home.borrow_mut();
            let Some(region) = home.region_mut(id) else {
                return;
            };
            let Some(member) = region.member.as_deref_mut() else {
                return;
            };
            if !member.replica.is_leader() || member.is_expiring() {
                return; // another replica sees to it, or the former entry is on its way
            }
            match region.space.due(self.now_ms(), KEYS, Tier::All) {
                Ok(due) => due,
                Err(_) => return,
            }
        };
        self.propose_due(id, due);
    }

    /// Proposes the removal of these keys, as far as they still have these deadlines then. Not if
    /// the region is lent or wanted: they are found again.
    pub(crate) fn propose_due(self: &Rc<Self>, id: RegionId, due: Vec<DueKey>) {
        if due.is_empty() {
            return;
        }
        {
            let mut home = self.home.borrow_mut();
            if home.is_wanted(id) {
                return;
            }
            let Some(member) = home.region_mut(id).and_then(|r| r.member.as_deref_mut()) else {
                return;
            };
            let stamp_ms = member.next_stamp(self.now_ms());
            let mut entry = ExpireWriter::new();
            for (db, key, deadline_ms) in &due {
                entry.push(*db, *deadline_ms, key);
            }
            if member.replica.propose(entry.finish(stamp_ms, 0)).is_err() {
                return;
            }
            let index = member.replica.last_index();
            member.expiring = index;
            member.take_off(Flight {
                due,
                ..Flight::new(index, member.replica.term(), stamp_ms)
            });
        }
        self.drive(id);
    }
}

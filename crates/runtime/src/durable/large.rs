//! Changes that are too large for the log: undone, and refused.
//!
//! What runs on held regions is in memory before anybody knows how many rows it makes: RENAME or COPY to
//! another region writes a whole collection anew, SUNIONSTORE adds up several, an EXEC may do all of that.
//! Memory is a cache of rows (decision 6), so undoing is forgetting it, as on a cluster node (decision 18,
//! [`super::quorum`]):
//!
//! ```text
//!   lent      only when all rows of former entries are in the store   (`node::OwnedRegions`)
//!   run       memory is ahead of the log; nobody else sees it
//!   too much  memory dropped, the region opened again from the store; nothing was proposed
//!   home      the desk of its tables is closed: it may know of rows that never were
//! ```
//!
//! It is done where the region is, by whoever holds it. Nothing has happened then, exactly: who watches a key
//! is not told, who waits for one goes on waiting. (On a cluster node another leader may have gone on, so there
//! they are.) All of the region's memory goes, not only what was changed: that is the one thing that is right
//! whatever the commands did (flushes, swaps, rows of tables), and a client who does this pays with a cold cache.
//!
//! If several commands ran together, it is the rows of all that were too many: [`super::effect_groups`] runs each
//! again, alone, and refuses those that are too large by themselves.

use base::Refusal;
use node::{begin_entry, state_row};
use stats::reaper;

use crate::cores::Held;

/// Rows that commands on held regions may make, in all. An entry of the log is no larger (`ReplicaConfig`);
/// the entries of all regions are one record, and raft-engine takes none beyond 2 GiB.
const MOST_CHANGE_BYTES: usize = (1 << 30) - HEAD_BYTES;
/// Room for what an entry has besides rows.
const HEAD_BYTES: usize = 1024;

/// [`MOST_CHANGE_BYTES`], or `NEOKV_TEST_CHANGE_BYTES` in builds for tests.
pub(super) fn most_change_bytes() -> usize {
    let given = match cfg!(debug_assertions) {
        true => std::env::var("NEOKV_TEST_CHANGE_BYTES").ok(),
        false => None,
    };
    let given = given.and_then(|text| text.parse().ok());
    given.unwrap_or(MOST_CHANGE_BYTES)
}

/// Why changes were not kept.
pub enum Unkept {
    /// They are undone; the node goes on.
    TooLarge,
    /// They are undone, and nothing is kept any more.
    Failed(Refusal),
}

impl Unkept {
    pub fn into_refusal(self) -> Refusal {
        match self {
            Unkept::TooLarge => node::too_large(),
            Unkept::Failed(refusal) => refusal,
        }
    }
}

impl Held {
    /// Takes back what was done to the regions at these positions since they were lent, or since the last
    /// commit.
    pub(super) fn undo(&mut self, dirty: &[usize]) -> Unkept {
        let core = self.core().clone();
        let Some(durable) = &core.shared.durable else {
            return Unkept::TooLarge;
        };
        for &at in dirty {
            let Some(region) = self.regions_mut().get_mut(at) else {
                continue;
            };
            let state = state_row(&*durable.stores.rows, region.space.home());
            let undone = state.and_then(|state| {
                let space = &mut region.space;
                space.undo_entry(core.next_seed(), state.as_deref())
            });
            match undone {
                Ok(garbage) => reaper::send(vec![garbage]),
                Err(reason) => {
                    // The store cannot be read: what is in memory stays ahead of the log.
                    durable.fail(&reason);
                    return durable.refusal().map_or(Unkept::TooLarge, Unkept::Failed);
                }
            }
            region.is_undone = true;
            begin_entry(region);
        }
        Unkept::TooLarge
    }

    /// Roughly the rows that were made since the last commit, values of strings left out.
    pub(super) fn unsettled_bytes(&mut self) -> usize {
        self.spaces().map(|space| space.unsettled_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use replica::ReplicaConfig;
    use replica::entry::rows_payload;

    use super::*;

    /// Otherwise a region would have an entry that another of the same record cannot follow.
    #[test]
    fn what_is_taken_here_the_log_takes() {
        let head_bytes = rows_payload(1, 1, &[]).len();
        let largest = MOST_CHANGE_BYTES + head_bytes;
        assert!(largest <= ReplicaConfig::default().max_entry_bytes);
    }
}

//! Which entry formats every member can read.
//!
//! A replica that meets an entry of a newer version stops (see [`entry`](crate::entry)). So a
//! newer kind of entry is proposed only when all members understand it. Their versions are told by
//! the owner, who hears them from the nodes; of whom nothing is known is taken to read the first
//! version only. A member of an older version must not be added once newer entries are in use:
//! the owner does not order it.

use crate::entry;
use crate::replica::Replica;

/// What a member nothing is known about understands.
const FIRST: u8 = 1;

impl Replica {
    /// A member's program reads entries up to this version.
    pub fn set_version(&mut self, replica: u64, version: u8) {
        self.versions.insert(replica, version);
    }

    /// The newest version that all members, learners included, understand.
    pub fn common_version(&self) -> u8 {
        let others = self.members.all().into_iter().filter(|&id| id != self.id());
        let versions = others.map(|id| self.versions.get(&id).copied().unwrap_or(FIRST));
        versions.min().unwrap_or(entry::VERSION).min(entry::VERSION)
    }
}

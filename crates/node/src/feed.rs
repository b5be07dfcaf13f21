//! Entries for the change feed (`--binlog`), kept until the rows they made are written: both go to the
//! store in one write.

use keyspace::rows::{Changes, feed};

use crate::Member;

impl Member {
    /// Notes an entry that is being applied.
    #[inline]
    pub fn note(&mut self, home: u64, index: u64, payload: &[u8]) {
        if let Some(noted) = &mut self.feed {
            feed::note(noted, home, index, payload);
        }
    }

    /// Adds what was noted to the rows that are about to be written.
    #[inline]
    pub fn take_feed(&mut self, changes: &mut Changes) {
        if let Some(noted) = &mut self.feed {
            changes.append(noted);
        }
    }

    #[inline]
    pub fn noted_bytes(&self) -> usize {
        self.feed.as_ref().map_or(0, Changes::size_bytes)
    }
}

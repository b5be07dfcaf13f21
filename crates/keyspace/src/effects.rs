//! What a write leaves for the server to act on: changed keys that somebody watches or waits for.
//!
//! Nothing is recorded for keys without interest, so the usual write pays one branch.

use base::DbIndex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The key's value, existence or time to live changed.
    Changed { db: DbIndex, key: Box<[u8]> },
}

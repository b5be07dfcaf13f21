//! What a write leaves for the server to act on: changed keys that somebody watches or waits for.
//!
//! Nothing is recorded for keys without interest, so the usual write pays one branch.

use base::DbIndex;

#[derive(Debug, Clone, PartialEq, Eq)]
/// The key's value, existence or time to live changed.
pub struct KeyChange {
    pub db: DbIndex,
    pub key: Box<[u8]>,
}

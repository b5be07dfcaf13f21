//! The memory engine: native structures, one allocation per small key.
//!
//! ```text
//!   Keyspace ─► Db ─► Table ─► Segment        words: tag + address
//!                │       └───► Entry          head, deadline, key, value
//!                └─► deadlines                (deadline, hash), ordered
//! ```
//!
//! All `unsafe` code of the crate is below this module, in `segment`, `table`, `entry` and `db`;
//! what they offer to the rest is safe. [`access`] is the clock arithmetic of LRU and LFU,
//! [`snapshot`] the state of a save that runs while writes go on, [`evict`] the choice of what to
//! give up.

pub(crate) mod access;
pub(crate) mod db;
pub(crate) mod entry;
mod evict;
mod segment;
mod snapshot;
#[allow(dead_code, reason = "collections use what the keyspace does not")]
pub(crate) mod table;

pub(crate) use evict::Pool;
pub use snapshot::SaveEntry;
pub(crate) use snapshot::Snapshot;

/// Something big that is to be dropped away from the command path.
pub struct Garbage {
    #[allow(dead_code, reason = "held to be dropped")]
    value: Box<dyn Send>,
    bytes: usize,
}

impl Garbage {
    /// `bytes`: about how much memory dropping `value` gives back; 0 if nobody knows.
    pub(crate) fn new(value: impl Send + 'static, bytes: usize) -> Self {
        Garbage {
            value: Box::new(value),
            bytes,
        }
    }

    /// About how much memory dropping it gives back.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

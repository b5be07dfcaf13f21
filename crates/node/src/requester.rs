//! Who sent a command, as far as regions need to know.

use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Debug)]
pub struct Requester {
    /// Of the client's session.
    pub id: u64,
    /// CLIENT NO-TOUCH: its commands do not count as use of a key.
    pub no_touch: AtomicBool,
    /// The last span of time, and the last job for the log, in which it was counted as writing.
    pub wrote_in: AtomicU64,
    pub wrote_with: AtomicU64,
}

impl Requester {
    pub fn new(id: u64) -> Self {
        Requester {
            id,
            no_touch: AtomicBool::new(false),
            wrote_in: AtomicU64::new(0),
            wrote_with: AtomicU64::new(u64::MAX),
        }
    }
}

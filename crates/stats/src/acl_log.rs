//! What was denied to whom (`ACL LOG`): the newest first, equal ones counted together.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries so far apart are not counted together.
const TOGETHER_MS: u64 = 60_000;
/// So many of the newest are looked through for an equal one.
const LOOKED_AT: usize = 10;

pub struct AclEntry {
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    pub in_multi: bool,
    /// The command or the key.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// Of the last time.
    pub at_ms: u64,
    /// The line of CLIENT LIST, of the last time.
    pub client: String,
}

#[derive(Default)]
pub struct AclLog(Mutex<VecDeque<AclEntry>>);

impl AclLog {
    pub fn add(&self, entry: AclEntry, max_len: usize) {
        let mut all = self.lock();
        let is_same = |known: &AclEntry| {
            known.reason == entry.reason
                && known.in_multi == entry.in_multi
                && known.at_ms.abs_diff(entry.at_ms) <= TOGETHER_MS
                && known.object == entry.object
                && known.user == entry.user
        };
        let same = all.iter().take(LOOKED_AT).position(is_same);
        let count = same.and_then(|at| all.remove(at)).map_or(0, |it| it.count);
        all.push_front(AclEntry {
            count: count + 1,
            ..entry
        });
        all.truncate(max_len);
    }

    /// The entries, locked; hold it briefly.
    pub fn lock(&self) -> MutexGuard<'_, VecDeque<AclEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

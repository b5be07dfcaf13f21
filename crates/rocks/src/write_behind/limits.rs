//! How much may wait, and for how long.

use std::time::Duration;

/// When batches are folded into one, and when they go to the store below.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Fresh batches are folded when they have this many bytes,
    pub fold_bytes: usize,
    /// or this long after the first of them came.
    pub fold_after: Duration,
    /// All that waits goes below when it has this many bytes,
    pub write_bytes: usize,
    /// or this long after the oldest of it came.
    pub write_after: Duration,
    /// or this long after the last of it came: nothing follows that it could be written with.
    pub quiet_after: Duration,
    /// When this much waits nothing more is taken. What is taken may be of any size: a large write
    /// that had to wait for room of its size would never get it from many small ones.
    pub most_bytes: usize,
}

impl Limits {
    /// For a store whose memtables have this size: rows that fill an empty one in their order cost little, and a file of
    /// so many bytes is as large as the flush of one.
    pub fn for_memtables(bytes: usize) -> Self {
        Limits {
            fold_bytes: 2 << 20,
            fold_after: Duration::from_millis(100),
            write_bytes: bytes,
            write_after: Duration::from_secs(5),
            quiet_after: Duration::from_secs(1),
            most_bytes: bytes * 2,
        }
    }
}

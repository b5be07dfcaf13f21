//! The change feed: what every log entry did, in the order of its region, beside the rows.
//!
//! ```text
//!   key    = i64(home region)  index:u64      bin_log; big-endian, so that it sorts as it counts
//!   value  = the entry's payload              its first byte is the version of its format;
//!                                             nothing at all: a leader began its term
//! ```
//!
//! A record is written in the same batch as the rows of its entry and the applied index: it is there
//! exactly if the entry is applied, also after a crash, and running an entry again writes the same
//! record. Indices have no holes, so a consumer that finds one knows that it has missed something:
//! the feed was off, its oldest part has gone, or the data came from a dump (as of entry 1).

use super::layout::{i64_bytes, i64_from};
use super::{Changes, Family, RowError, RowSource, Tier};

pub fn key(home: u64, index: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let (first, second) = key.split_at_mut(8);
    first.copy_from_slice(&i64_bytes(home as i64));
    second.copy_from_slice(&index.to_be_bytes());
    key
}

/// Home region and log index.
pub fn parse_key(key: &[u8]) -> Option<(u64, u64)> {
    let (home, index) = key.split_first_chunk()?;
    let index = u64::from_be_bytes(index.try_into().ok()?);
    Some((i64_from(*home) as u64, index))
}

/// Adds the record of an entry to the changes it makes.
pub fn note(changes: &mut Changes, home: u64, index: u64, payload: &[u8]) {
    changes.put(Family::Feed, &key(home, index), payload);
}

/// Calls `each` with the entries of a region from index `from` on, until it says false.
pub fn read(
    rows: &dyn RowSource,
    home: u64,
    from: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> Result<(), RowError> {
    let behind = key(home.saturating_add(1), 0);
    let from = key(home, from);
    let mut record = |key: &[u8], payload: &[u8]| match parse_key(key) {
        Some((_, index)) => each(index, payload),
        None => false,
    };
    rows.scan(Family::Feed, &from, &behind, false, Tier::All, &mut record)
}

/// The regions the feed has anything of, and the first index it has of each.
pub fn regions(rows: &dyn RowSource) -> Result<Vec<(u64, u64)>, RowError> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut next = key(0, 0);
    loop {
        let mut first = None;
        let mut record = |key: &[u8], _: &[u8]| {
            first = parse_key(key);
            false
        };
        let behind = [0xff; 16];
        rows.scan(Family::Feed, &next, &behind, false, Tier::All, &mut record)?;
        let Some((home, index)) = first else {
            return Ok(found);
        };
        found.push((home, index));
        next = key(home.saturating_add(1), 0);
    }
}

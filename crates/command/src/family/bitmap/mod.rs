//! Bitmaps: strings seen as bits. Bit 0 is the highest bit of byte 0.
//!
//! - [`bit`] sets, reads, counts and finds single bits;
//! - [`bitop`] combines whole strings;
//! - [`bitfield`] treats runs of bits as integers.

use base::{Refusal, limits, number};

pub mod bit;
pub mod bitfield;
pub mod bitop;

/// A bit position from its text; positions beyond the longest string are refused.
fn parse_offset(text: &[u8]) -> Result<u64, Refusal> {
    number::parse_i64(text)
        .and_then(in_reach)
        .ok_or(OFFSET_REFUSED)
}

fn in_reach(offset: i64) -> Option<u64> {
    let offset = u64::try_from(offset).ok()?;
    (offset >> 3 < limits::MAX_BULK_BYTES as u64).then_some(offset)
}

const OFFSET_REFUSED: Refusal = Refusal::new("ERR bit offset is not an integer or out of range");

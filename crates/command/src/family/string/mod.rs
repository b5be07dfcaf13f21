//! Strings: one value per key, whole or in part, as bytes or as a number.
//!
//! - [`value`] reads and replaces whole strings, with their deadlines;
//! - [`counter`] adds to numbers;
//! - [`range`] works on parts;
//! - [`lcs`] compares two strings.

use base::{Refusal, limits, number};

pub mod counter;
pub mod lcs;
pub mod range;
pub mod value;

/// How a time argument is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    seconds: bool,
    absolute: bool,
}

impl Moment {
    const EX: Moment = Moment::new(true, false);
    const PX: Moment = Moment::new(false, false);
    const EXAT: Moment = Moment::new(true, true);
    const PXAT: Moment = Moment::new(false, true);

    const fn new(seconds: bool, absolute: bool) -> Moment {
        Moment { seconds, absolute }
    }

    /// The deadline `text` means for `command`, in Unix milliseconds. Zero, negative and
    /// overflowing times are refused.
    fn deadline(self, text: &[u8], now_ms: u64, command: &str) -> Result<u64, Refusal> {
        let value = number::parse_i64(text).ok_or(Refusal::NotInteger)?;
        let base = if self.absolute { 0 } else { now_ms as i64 };
        (value > 0)
            .then_some(value)
            .and_then(|value| value.checked_mul(if self.seconds { 1000 } else { 1 }))
            .and_then(|value| value.checked_add(base))
            .map(|value| value as u64)
            .ok_or_else(|| invalid_expire_time(command))
    }
}

pub(super) fn invalid_expire_time(command: &str) -> Refusal {
    Refusal::text_of(format!("ERR invalid expire time in '{command}' command"))
}

/// Refuses a string that would be longer than a client could ever send.
fn check_length(len: usize) -> Result<(), Refusal> {
    if len > limits::MAX_BULK_BYTES {
        return Err(Refusal::new(
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        ));
    }
    Ok(())
}

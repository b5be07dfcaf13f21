//! Keys whatever they hold.
//!
//! - [`key`] asks about, removes, renames, copies and moves single keys;
//! - [`database`] works on all keys of a database;
//! - [`object`] tells how a value is kept.

use base::{DbIndex, Refusal, limits, number};

pub mod database;
pub mod key;
pub mod object;

/// A database number; `refused` is the line for what is no number.
pub fn parse_db(text: &[u8], refused: Option<&'static str>) -> Result<DbIndex, Refusal> {
    let refuse = |other: Refusal| refused.map_or(other, Refusal::new);
    let number = number::parse_i64(text).ok_or_else(|| refuse(Refusal::NotInteger))?;
    if i32::try_from(number).is_err() {
        return Err(refuse(Refusal::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        )));
    }
    DbIndex::try_from(number)
        .ok()
        .filter(|&db| db < limits::DATABASES)
        .ok_or(Refusal::new("ERR DB index is out of range"))
}

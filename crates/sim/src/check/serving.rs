//! At any moment of true time at most one replica of a region may answer reads from its lease.
//!
//! Two that may would both believe that nobody writes without them, and one is wrong. This is seen
//! before any client reads a stale value, and also if none does.

use super::Broken;

/// Who may answer from its lease right now: replica and term.
pub fn check(region: u64, holders: &[(u64, u64)]) -> Result<(), Broken> {
    match holders {
        [(one, term), (other, later), ..] => Err(Broken::new(
            "serving",
            format!(
                "region {region}: replica {one} (term {term}) and replica {other} (term {later}) \
                 both hold the lease"
            ),
        )),
        _ => Ok(()),
    }
}

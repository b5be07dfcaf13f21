//! Whether the log has anything of a replica, and how that is removed.

use base::cluster::RegionId;
use replica::{LogStore, LogWrite};

/// Removes everything of a region from the log.
pub fn forget_log(log: &dyn LogStore, region: RegionId) -> Result<(), String> {
    let write = LogWrite {
        region,
        reset: Some(0),
        ..LogWrite::default()
    };
    log.write(&[write], true).map_err(|error| error.to_string())
}

/// Whether anything of a region is in the log.
pub fn has_log(log: &dyn LogStore, region: RegionId) -> Result<bool, String> {
    let hard_state = log.hard_state(region).map_err(|error| error.to_string())?;
    Ok(hard_state.is_some() || log.span(region).is_some())
}

//! Tables: SQL rows as records of the regions, loaded on a miss and written back.
//!
//! | part | file |
//! |---|---|
//! | the write-back of regions meets SQL and time | `write_back.rs` |
//! | waiting for rows that commands need | `bring.rs` |
//! | questions to the leader of a region | `ask.rs` |
//! | all regions of a node asked at once | `status.rs` |
//! | changing which tables there are | `catalogue_change.rs` |
//!
//! What a row is and when it is written is the crate `table`'s; how SQL is spoken, and on which thread, the crate `sqldb`'s.

mod ask;
pub mod catalogue_change;
mod load_rows;
pub mod status;
mod write_back;

pub use ::node::catalogue;
pub use ask::{Ask, Asked, RegionNumbers, TableAnswer};
pub use write_back::SqlAnswer;

use settings::Settings;
use table::leader::Limits;

use crate::Shared;

/// What the leader of one region may use of what the node may.
pub(crate) fn limits(shared: &Shared, settings: &Settings) -> Limits {
    let regions = shared.map.regions().max(1);
    Limits {
        soft_bytes: settings.tables.soft_bytes / regions,
        hard_bytes: settings.tables.hard_bytes / regions,
        linger: settings.tables.flush_linger_ms,
        ..Limits::default()
    }
}

//! Tables: SQL rows as records of the regions, loaded on a miss and written back.
//!
//! | part | file |
//! |---|---|
//! | what the leader of a region does about its rows | `desk.rs` |
//! | rows that commands need before they run | `needs.rs` |
//! | questions to the leader of a region | `ask.rs` |
//! | all regions of a node asked at once | `status.rs` |
//! | which tables there are, and changing that | `catalogue.rs`, `catalogue_change.rs` |
//! | how a region follows that | `follow.rs` |
//! | the databases, off the cores | `sql.rs` |
//!
//! What a row is and when it is written is the crate `table`'s; how SQL is spoken, the crate `sqldb`'s.

mod ask;
pub mod catalogue;
pub mod catalogue_change;
mod desk;
mod follow;
mod needs;
pub mod sql;
pub mod status;

pub use ask::{Ask, Asked, RegionNumbers, Told};
pub use desk::{Desk, Word};
pub use sql::answer;

use table::leader::Limits;

use crate::Shared;
use crate::settings::Settings;

/// What the leader of one region may use of what the node may.
fn limits(shared: &Shared, settings: &Settings) -> Limits {
    let regions = shared.map.regions().max(1);
    Limits {
        soft_bytes: settings.tables.soft_bytes / regions,
        hard_bytes: settings.tables.hard_bytes / regions,
        linger: settings.tables.flush_linger_ms,
        ..Limits::default()
    }
}

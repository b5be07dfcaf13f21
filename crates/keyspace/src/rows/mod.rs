//! Rows: how a keyspace lies in an ordered store, and what it asks of that store.
//!
//! A durable keyspace keeps in memory what fits and everything in rows. This module has the bytes
//! of the rows (DESIGN §6), the changes a log entry makes to them, and the contract of the store;
//! the store itself is an edge matter (`rocks`), or a map in tests and in the simulator.
//!
//! ```text
//!   begin_entry ─► commands change values ─► marks (keys) and Recorder (elements)
//!   end_entry   ─► Changes: element rows, metadata and expiry rows, state row ─► RowStore::write
//!   a read that misses ─► take_missing ─► load_request ─► load (any thread) ─► insert_loaded
//! ```
//!
//! A collection above a threshold is not loaded whole but stays in its rows: see `handle`.

mod absent;
mod changes;
mod cold;
mod digest;
mod durable;
pub mod feed;
mod handle;
mod held;
mod import;
pub mod layout;
mod load;
mod manifest;
mod map;
mod reach;
mod record;
mod regions;
mod residency;
mod scan;
mod shared;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod unreadable;
mod victims;
mod walk;
mod whole;

pub(crate) use absent::Absent;
pub use changes::{Change, Changes, Orphans};
pub use cold::{ColdRows, warm};
pub use digest::digest;
pub(crate) use durable::{Durable, VOID};
pub use handle::WholeJob;
pub(crate) use handle::{Handle, Walk, cursor_in_memory};
pub use import::{Import, Write};
pub use load::{LoadRequest, Loaded, for_each_value, load};
pub use manifest::{Manifest, RegionFile};
pub use map::MapStore;
pub use reach::{EachReached, Reached, range, reach};
pub use record::Recorder;
pub use regions::{Installing, regions, state_of, state_row};
pub use state::{DbState, State};
pub use store::{
    Family, Gauge, Pace, Redone, RegionError, RowError, RowSource, RowStore, StoreStats, Tier,
    WriteError,
};
pub use victims::{Victim, Wanted};

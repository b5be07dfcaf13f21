//! Dumps of a whole node, in Redis' format: written while it serves, loaded when it starts, imported into a new data directory.
//!
//! ```text
//!   snapshotting   the moment of a save, who may begin one, how it ends; SHUTDOWN
//!   walk           a core's part of a save           saving      the file
//!   loading        a dump into memory                importing   a dump into the rows of a store
//! ```
//!
//! How keys are encoded is `keyspace::rdb`.

pub mod importing;
pub mod loading;
pub mod saving;
pub mod snapshotting;
mod walk;

pub use snapshotting::{run_save_points, shut_down};

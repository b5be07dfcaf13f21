//! Dumps of a whole node, in Redis' format: written while it serves, loaded when it starts, imported into a new data directory.
//!
//! ```text
//!   snapshotting   the moment of a save, who may begin one, how it ends; SHUTDOWN
//!   walk           a core's part of a save           saving      the file
//!   loading        a dump into memory                importing   a dump into the rows of a store
//!   reader, writer   the format, from the first byte to the last
//! ```
//!
//! How a value is written is its kind's (`keyspace::dumped`); lengths, strings and checksums are in crate `rdb`.

pub mod importing;
pub mod loading;
mod reader;
pub mod saving;
pub mod snapshotting;
mod walk;
mod writer;

pub use rdb::Error;
pub use reader::{Skipped, Summary, read, read_parts};
pub use snapshotting::{run_save_points, shut_down};
pub use writer::{Encoder, Header, append_db_size, append_header, trailer};

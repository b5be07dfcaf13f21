//! What is on disk: the rows of all regions in one RocksDB, and the Raft logs of all regions in one
//! append-only store beside it. The only crate that links RocksDB.
//!
//! ```text
//!   <data-dir>/LOCK      held while a node runs on it          directory.rs
//!              FORMAT    version of everything below
//!              IMPORTING, IMPORTED   which dump the data came from   imports.rs
//!              rows/     RocksDB, one column family per kind   store.rs, families.rs, filter.rs, regions/
//!              rows/coming-in/   files of a write that is on its way   files/
//!              log/      raft-engine: the log of all regions   log.rs, records.rs, preallocate.rs, direct.rs
//!              log.synced   how far the log was synced         watermark.rs
//!              lost-log-1/  what was given up of a damaged log   accept.rs, aside.rs
//! ```
//!
//! **The one idea: the log is the only thing that is ever synced for a client.** Rows are written
//! without a write-ahead log of their own; RocksDB flushes all families together (atomic flush), and takes in the files
//! of a large write together, so after a crash it opens at one moment of the past, and the Raft log behind that moment
//! is applied again. The log is truncated only behind a finished flush ([`keyspace::rows::RowStore::checkpoint`]).
//!
//! Invariants
//! - A write is in every family or in none, after any crash.
//! - The compaction filter never drops a row that a replay from the flushed state still needs
//!   (`filter.rs`).
//! - After a failed write or sync the log says so for ever: nothing is tried again (`log.rs`).
//! - Neither damage nor a stranger's files make this crate panic; they are an [`OpenError`].
//!
//! - Rows wait for RocksDB on a thread of their own, and are seen by reads meanwhile (`write_behind/`).
//!
//! Deliberately absent: commands, keys as clients see them, Raft. Those are above.

mod accept;
mod aside;
mod background;
mod db;
mod direct;
mod directory;
mod families;
mod faulty;
mod files;
mod filter;
mod imports;
mod log;
mod order;
mod orphans;
mod preallocate;
mod records;
mod regions;
mod settings;
mod snapshot;
mod steps;
mod store;
mod told;
mod watermark;
mod write_behind;

pub use accept::Accepted;
pub use aside::Rejoin;
pub use directory::{DataDir, OpenError};
pub use faulty::{Cut, FaultyFile, FaultyFiles};
pub use imports::Import;
pub use log::Log;
pub use regions::read_manifest;
pub use settings::{LogSettings, StoreSettings};
pub use store::Store;
pub use write_behind::{Limits, WriteBehind};

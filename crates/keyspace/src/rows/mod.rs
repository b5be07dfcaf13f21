//! Rows: how a keyspace lies in an ordered store, and what it asks of that store.
//!
//! A durable keyspace keeps in memory what fits and everything in rows. This module has the bytes
//! of the rows (DESIGN §6), the changes a log entry makes to them, and the contract of the store;
//! the store itself is an edge matter (`rocks`), or a map in tests and in the simulator.

mod changes;
mod store;

pub use changes::Changes;
pub use store::{Family, RowError, RowSource, RowStore, StoreStats, Tier, WriteError};

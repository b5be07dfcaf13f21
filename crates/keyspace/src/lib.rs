//! Typed values, what a command may do to them, and the memory engine that holds them.
//!
//! ```text
//!   command ──► View / Txn ──► Keyspace (one region: 16 databases) ──► memory::Db ──► Entry
//!                 │  ▲                                                      (table)   key + value
//!                 │  └── Edit<Hash> … : a value being changed
//!                 └───── effects: keys changed that somebody watches or waits for
//! ```
//!
//! [`View`] is all a read command sees, [`Txn`] all a write command sees. Both carry the time and
//! the random seed of the command as values: same inputs, same state, same reply (DESIGN §3).
//! A key whose time has come is missing to every method of both.
//!
//! A *durable* keyspace ([`rows`]) is the same structures as a cache of rows in a store below: changes
//! are also recorded as rows, and a key that is not in memory is loaded before the command runs.
//!
//! Deliberately absent: clocks, threads, files, sockets; slots but for the keys of rows. Which region a
//! key belongs to is decided by [`Router`], given from above.

mod collection;
pub mod dumped;
mod edit;
mod key_change;
mod kind;
mod memory;
pub mod rows;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod tuning;
mod txn;
mod view;
mod weighing;
mod weight;

pub use edit::Edit;
pub use key_change::KeyChange;
pub use kind::*;
pub use memory::{Garbage, SaveEntry};
pub use space::{DueKey, Keyspace, Router};
pub use tables::{Kicked, RowRef};
pub use tuning::{EvictionPolicy, Tuning};
pub use txn::{Expire, Txn};
pub use view::{CURSOR_BITS, View};
pub use weighing::Weighing;

//! The threads of a node: cores that own regions, the log writer, readers, peers, SQL; they carry out what `node` decides.
//!
//! ```text
//!   cores      threads with regions; messages between them; regions that are lent
//!   durable    the log writer, recovery, loads, commits over several regions
//!   cluster    peers, meta, snapshots, where a slot is led
//!   tables     SQL behind tables
//!   open       regions as a node finds them when it starts
//!   clock      the time of day, without jumps of the wall clock
//!   shared     what all cores share          shutdown   the wish to stop
//! ```
//!
//! What a core owns, only that core touches; cores talk by message. What all cores share ([`Shared`]) is either read-mostly
//! (settings, specifications) or off the hot path (client registry, slow log).
//!
//! Crates above (sessions, commands about the server, dumps) get a [`Core`]; where one of them has to act on another core,
//! it sends a function there ([`Core::call_on`]).

pub mod clock;
pub mod cluster;
pub mod cores;
pub mod durable;
pub mod open;
mod shared;
pub mod shutdown;
pub mod tables;
pub mod users;

pub use clock::now_ms;
pub use cores::Core;
pub use durable::Stores;
pub use shared::{Shared, UNHEARD, random_id, random_seed};

//! What every layer shares: slots, ids and descriptors of regions, limits, the refusal told to clients, numbers as Redis
//! reads and writes them, glob patterns, the time a node goes by, a hint to the CPU, panics that harm nobody.
//!
//! Pure, and free of anything that belongs to one layer only. If a thing is used by a single
//! crate, it lives there, not here.

mod atom;
pub mod clock;
pub mod cluster;
mod contained;
pub mod extended;
pub mod glob;
pub mod limits;
mod milestone;
pub mod number;
mod prefetch;
mod refusal;
pub mod slot;

pub use atom::{Atom, IntText};
pub use contained::{Contained, contained, is_contained};
pub use milestone::{Observer, milestone, observe_milestones};
pub use prefetch::prefetch;
pub use refusal::{Moved, NotRun, Refusal};
pub use slot::{SLOT_COUNT, Slot};

/// A database number, 0 to 15, as `SELECT` takes it.
pub type DbIndex = u8;

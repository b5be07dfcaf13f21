//! Collections as the memory engine keeps them: packed while small, indexed once they grow.
//! (Skeleton: the collections owner completes it; public signatures are the contract.)
//!
//! Reading methods are on the types; changing methods on `Edit<'_, T>`. Each type also has
//! building methods that take the [`crate::Tuning`], for results that are not yet in a keyspace.

mod hash;
mod list;
mod set;
mod zset;

pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use zset::{LexBound, ScoreBound, Zset};

//! Collections as the memory engine keeps them: packed while small, indexed once they grow.
//!
//! ```text
//!   Hash, Set, Zset   small: Packed (a run of elements) or IntSet     big: Table of Cells; Zset: + Order
//!   List              a Chunk, then a deque of Chunks
//!   all of them       a Handle on their rows, if they are loaded when they are big already (durable)
//! ```
//!
//! Reading methods are on the types; changing methods on `Edit<'_, T>`. Each type also has
//! building methods that take the [`crate::Tuning`], for results that are not yet in a keyspace.

mod bounds;
mod cell;
mod chunk;
mod chunks;
mod element;
mod hash;
mod intset;
mod list;
mod on_rows;
mod order;
mod packed;
mod positions;
mod ranked;
mod records;
mod scored;
mod set;
mod shape;
mod sorted;
mod zset;

pub use bounds::{LexBound, ScoreBound};
pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use zset::Zset;

#[cfg(test)]
mod tests;

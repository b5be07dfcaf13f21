//! The types a key can have.

mod hash;
mod list;
mod set;
#[cfg(test)]
mod tests;
mod zset;

pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use zset::{LexBound, ScoreBound, Zset};

/// The type of a value, as `TYPE` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    String,
    List,
    Set,
    Zset,
    Hash,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Zset => "zset",
            Kind::Hash => "hash",
        }
    }
}

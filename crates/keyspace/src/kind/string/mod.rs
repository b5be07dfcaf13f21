//! Strings: bytes or a number in the entry of their key (`memory/entry.rs`), so they have no type of their
//! own and do not implement the traits of the contract. Here is what they do instead.

pub(super) mod digest;
mod edit;
pub(crate) mod rdb;
pub(super) mod rows;

use base::Atom;

/// Longest string `OBJECT ENCODING` calls embstr.
const EMBSTR_MOST: usize = 44;
/// What an integer counts that is kept as one.
const INT_WEIGHT: usize = 8;

/// Says of an [`crate::Edit`] that it changes a string.
pub enum StringSlot {}

/// As `OBJECT ENCODING` names it.
pub(crate) fn encoding(atom: Atom<'_>, is_inline: bool) -> &'static str {
    match atom {
        Atom::Int(_) => "int",
        Atom::Bytes(bytes) if is_inline && bytes.len() <= EMBSTR_MOST => "embstr",
        Atom::Bytes(_) => "raw",
    }
}

/// See [`crate::weight`].
#[inline]
pub(crate) fn weight(atom: Atom<'_>) -> usize {
    match atom {
        Atom::Int(_) => INT_WEIGHT,
        Atom::Bytes(bytes) => bytes.len(),
    }
}

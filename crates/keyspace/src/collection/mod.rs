//! Structures that several kinds of collections are made of; the kinds themselves are in [`crate::kind`].
//!
//! ```text
//!   Packed    a run of small elements ([`element`]), one block
//!   Cell      one element of a big collection, in a table
//!   Shape     packed, indexed, or a handle on the collection's rows
//! ```

pub(crate) mod cell;
pub(crate) mod element;
pub(crate) mod packed;
pub(crate) mod shape;

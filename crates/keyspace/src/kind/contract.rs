//! What a kind of value has to be able to do.
//!
//! Strings do not implement these traits: what they do instead is in `string/`.
//!
//! | trait            | about                                          | file in the kind's folder |
//! |------------------|------------------------------------------------|---------------------------|
//! | [`InMemory`]     | its size and its names                         | `mod.rs`                  |
//! | [`InRows`]       | how it is written to rows and made of rows     | `rows.rs`                 |
//! | [`Digested`]     | `DEBUG DIGEST`                                 | `digest.rs`               |
//! | `Dumped`         | dump files                                     | `rdb.rs`                  |
//! | [`Collection`]   | the enums; implemented by the list of kinds    |                           |
//!
//! No kind has parts that expire. The first one that has (hash fields with a deadline) adds a method to
//! [`InMemory`] that says when its next part is due.

use super::digest::Digested;
use super::{Kind, Value, ValueRef};
use crate::Tuning;
use crate::rows::{Family, Handle, Recorder};
use crate::weight::{ELEMENT, PACKED, PACKED_MOST};

/// A collection that an entry can hold in a box.
pub(crate) trait Collection: InMemory + InRows + Digested {
    const KIND: Kind;

    fn into_value(this: Box<Self>) -> Value;

    fn as_value(&self) -> ValueRef<'_>;
}

/// A value in memory: [`Default`] makes an empty one, [`Clone`] a deep copy.
pub(crate) trait InMemory: Default + Clone + Send + 'static {
    /// Number of elements. A key whose collection has none is removed.
    fn len(&self) -> usize;

    /// As `OBJECT ENCODING` names it.
    fn encoding(&self) -> &'static str;

    /// Bytes of memory it takes (`MEMORY USAGE`).
    fn memory_usage(&self) -> usize;

    /// What its elements count in the size of the data set, see [`crate::weight`]. Takes constant time.
    fn weight(&self) -> usize;

    /// Blocks of memory to free: how long dropping it takes.
    fn allocations(&self) -> usize;

    /// Asks for the memory that commands with these second and third arguments will touch.
    fn prefetch<'k>(&self, arguments: impl Iterator<Item = [&'k [u8]; 2]>) {
        let _ = arguments;
    }
}

/// A value in rows (`rows/layout.rs`): a metadata row with its generation, its size and *extra* bytes
/// that only the kind understands; a row of `data` for each element.
pub(crate) trait InRows: Sized {
    /// The family whose order of rows is the order of the elements. If it is not `Data`, each element
    /// has a row there as well.
    const ORDER: Family = Family::Data;

    /// Whether a big one that is used a lot is read into memory. Possible if it has no extra bytes and
    /// the last row written about an element says all about it.
    const COMES_WHOLE: bool = true;

    /// Which of the key's lives its rows belong to; 0 if it has none.
    fn generation(&self) -> u64;

    /// All its rows are written anew, with this generation.
    fn set_generation(&mut self, generation: u64);

    /// What is in memory of a collection that stays in its rows.
    fn handle_mut(&mut self) -> Option<&mut Handle>;

    /// Whether these may be the extra bytes of a metadata row.
    fn is_extra(extra: &[u8]) -> bool {
        extra.is_empty()
    }

    /// Appends the extra bytes of its metadata row.
    fn push_extra(&self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// An empty one, as its metadata row says; its elements are added next. `extra` has passed
    /// [`InRows::is_extra`].
    fn of_metadata(generation: u64, extra: &[u8]) -> Self;

    /// The same, with its elements in the rows of a handle.
    fn with_handle(&self, handle: Handle) -> Self;

    /// Adds the element of a row of `data`; they come in the order of their keys. False if it cannot be
    /// part of this collection.
    fn add_row(&mut self, sub: &[u8], value: &[u8], tuning: &Tuning) -> bool;

    /// Removes the element of a row of `data`.
    fn remove_row(&mut self, sub: &[u8]);

    /// Writes the rows of all elements.
    fn record(&self, rows: &mut Recorder<'_>);

    /// Writes the rows of element `index` of a value that is imported, and brings the extra bytes of its
    /// metadata row up to date.
    fn import(part: Part<'_>, index: u64, rows: &mut Recorder<'_>, extra: &mut Vec<u8>);

    /// What an element of a collection of `size` counts beside the bytes of its row of `data`.
    fn overhead(size: u64) -> i64 {
        if size <= PACKED_MOST {
            PACKED as i64
        } else {
            ELEMENT as i64
        }
    }
}

/// A piece of a value that comes from elsewhere (a dump), mostly one element: what it is called and what
/// it is. Which of the two a kind uses, and how, its folder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

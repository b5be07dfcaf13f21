//! One file per family: for each command its function, and its row in the family's `ROWS`.

use crate::Command;

mod bitmap;
mod expiry;
mod generic;
mod hash;
mod list;
mod many_pop;
pub mod row;
mod sample;
mod scan;
mod set;
mod sort;
mod stretch;
mod string;
mod zset;

pub use generic::parse_db;

/// The rows of all families.
pub const ALL: &[&[Command]] = &[
    bitmap::bit::ROWS,
    bitmap::bitfield::ROWS,
    bitmap::bitop::ROWS,
    expiry::ROWS,
    generic::database::ROWS,
    generic::key::ROWS,
    generic::object::ROWS,
    hash::ROWS,
    list::blocking::ROWS,
    list::element::ROWS,
    list::ends::ROWS,
    list::movement::ROWS,
    row::internal::ROWS,
    row::single::ROWS,
    scan::ROWS,
    set::ROWS,
    sort::ROWS,
    string::counter::ROWS,
    string::lcs::ROWS,
    string::range::ROWS,
    string::value::ROWS,
    zset::algebra::ROWS,
    zset::member::ROWS,
    zset::pop::ROWS,
    zset::range::ROWS,
];

//! One file per family: for each command its function, and its row in the family's `ROWS`.

use crate::CommandSpec;

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
pub const ALL: &[&[CommandSpec]] = &[
    bitmap::bit::SPECS,
    bitmap::bitfield::SPECS,
    bitmap::bitop::SPECS,
    expiry::SPECS,
    generic::database::SPECS,
    generic::key::SPECS,
    generic::object::SPECS,
    hash::SPECS,
    list::blocking::SPECS,
    list::element::SPECS,
    list::ends::SPECS,
    list::movement::SPECS,
    row::internal::SPECS,
    row::single::SPECS,
    scan::SPECS,
    set::SPECS,
    sort::SPECS,
    string::counter::SPECS,
    string::lcs::SPECS,
    string::range::SPECS,
    string::value::SPECS,
    zset::algebra::SPECS,
    zset::member::SPECS,
    zset::pop::SPECS,
    zset::range::SPECS,
];

//! What a command would set in a row, before it is run: whoever has to know whether there is room for it asks here.

use base::Refusal;
use resp::Args;
use table::entry::Fields;
use table::{Kind, Table, Value};

use super::options::{Options, parse_pairs};
use super::single::{CAS, SET};

/// HSET and HMSET.
pub fn pairs(table: &Table, args: &Args<'_>) -> Result<Fields, Refusal> {
    parse_pairs(table, args, 2, args.len().saturating_sub(2) / 2)
}

/// ROW.SET and ROW.SETNX.
pub fn set(table: &Table, args: &Args<'_>) -> Result<Fields, Refusal> {
    of_options(table, args, SET)
}

/// ROW.CAS and ROW.CASNX.
pub fn cas(table: &Table, args: &Args<'_>) -> Result<Fields, Refusal> {
    of_options(table, args, CAS)
}

fn of_options(
    table: &Table,
    args: &Args<'_>,
    takes: super::options::Takes,
) -> Result<Fields, Refusal> {
    Options::parse(args, 2, takes)?.set(table)
}

/// Commands that add to a field.
pub fn number(table: &Table, args: &Args<'_>) -> Result<Fields, Refusal> {
    let field = table.field_or_refuse(args.at(2))?;
    Ok(match field.kind {
        Kind::Int64 | Kind::Uint64 | Kind::Float64 => vec![(field.id, Value::Int(0))],
        Kind::String | Kind::Blob => Fields::new(), // refused
    })
}

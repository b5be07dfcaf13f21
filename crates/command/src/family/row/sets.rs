//! What a command would set in a row, before it is run: whoever has to know whether there is room for it asks here.

use base::Refusal;
use resp::Args;
use table::entry::Fields;
use table::{Kind, Table, Value};

use super::options::{Options, parse_pairs};
use super::single::{CAS, SET};

/// The fields that a command on one row sets, with values at least as large as those it will set; `None`: it is not known.
/// What cannot be parsed sets nothing.
pub fn sets(name: &str, table: &Table, args: &Args<'_>) -> Option<Fields> {
    let parsed = match name {
        "hset" | "hmset" => parse_pairs(table, args, 2, args.len().saturating_sub(2) / 2),
        "row.set" | "row.setnx" => of_options(table, args, SET),
        "row.cas" | "row.casnx" => of_options(table, args, CAS),
        "hincrby" | "hincrbyfloat" | "row.incrby" | "row.decrby" => number(table, args),
        "del" | "unlink" | "row.del" => Ok(Fields::new()),
        _ => return None,
    };
    Some(parsed.unwrap_or_default())
}

fn of_options(
    table: &Table,
    args: &Args<'_>,
    takes: super::options::Takes,
) -> Result<Fields, Refusal> {
    Options::parse(args, 2, takes)?.set(table)
}

fn number(table: &Table, args: &Args<'_>) -> Result<Fields, Refusal> {
    let field = table.field_or_refuse(args.at(2))?;
    Ok(match field.kind {
        Kind::Int64 | Kind::Uint64 | Kind::Float64 => vec![(field.id, Value::Int(0))],
        Kind::String | Kind::Blob => Fields::new(), // refused
    })
}

//! Hash commands on a row: a row is a hash whose fields are those of its table.
//!
//! Where a row differs from a hash: it has all its fields or is not there; a field that the table does not have is an
//! error; `HSET` answers 0 for a row that was there and the number of fields given for a new one; single fields
//! cannot be removed. One `HSET` is one change, one version.

use base::{Refusal, glob};
use keyspace::{RowRef, Txn, View};
use resp::{Args, Reply};
use table::entry::{Ask, Expect, Fields, Op, Write};
use table::{Kind, Outcome, Value};

use super::options::parse_pairs;
use super::single::amount;
use super::{change, not_for_rows, unanswered, write_value};
use crate::family::scan;
use crate::table::wrong_arity;

/// What was asked for of a row that is there.
fn found(outcome: Outcome) -> Result<Option<Fields>, Refusal> {
    match outcome {
        Outcome::Ok { values, .. } => Ok(Some(values)),
        Outcome::Retry(cause) => Err(unanswered(cause)),
        Outcome::Error(text) => Err(Refusal::text_of(text.into())),
        _ => Ok(None),
    }
}

fn read(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    ask: &Ask,
) -> Result<Option<Fields>, Refusal> {
    found(view.read_row(args.at(1), row, ask, None))
}

/// One field of a row that is there.
fn read_field(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    field: u16,
) -> Result<Option<Value>, Refusal> {
    let values = read(view, row, args, &Ask::Fields(vec![field]))?;
    Ok(values.and_then(|values| values.into_iter().next().map(|(_, value)| value)))
}

pub fn hget(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let field = row.table.field_or_refuse(args.at(2))?;
    match read_field(view, row, args, field.id)? {
        Some(value) => write_value(&value, reply),
        None => reply.null(),
    }
    Ok(())
}

pub fn hmget(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let id = |name| Ok(row.table.field_or_refuse(name)?.id);
    let ids: Result<Vec<u16>, Refusal> = args.iter_from(2).map(id).collect();
    let values = read(view, row, args, &Ask::Fields(ids?))?;
    reply.array(args.len() - 2);
    match values {
        Some(values) => values
            .iter()
            .for_each(|(_, value)| write_value(value, reply)),
        None => (2..args.len()).for_each(|_| reply.null()),
    }
    Ok(())
}

/// All fields of a row that is there, in the order of their declaration, with their names.
fn read_all<'r>(
    view: &View<'_>,
    row: &'r RowRef,
    args: &Args<'_>,
) -> Result<Vec<(&'r str, Value)>, Refusal> {
    let values = read(view, row, args, &Ask::All)?.unwrap_or_default();
    let named = |(id, value)| Some((row.table.field_by_id(id)?.name.as_str(), value));
    Ok(values.into_iter().filter_map(named).collect())
}

pub fn hgetall(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let fields = read_all(view, row, args)?;
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        write_value(&value, reply);
    }
    Ok(())
}

pub fn hkeys(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let is_there = read(view, row, args, &Ask::Nothing)?.is_some();
    let fields = if is_there { &row.table.fields[..] } else { &[] };
    reply.array(fields.len());
    fields
        .iter()
        .for_each(|field| reply.bulk(field.name.as_bytes()));
    Ok(())
}

pub fn hvals(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let fields = read_all(view, row, args)?;
    reply.array(fields.len());
    fields
        .iter()
        .for_each(|(_, value)| write_value(value, reply));
    Ok(())
}

pub fn hlen(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let is_there = read(view, row, args, &Ask::Nothing)?.is_some();
    reply.int(if is_there { row.table.fields.len() } else { 0 } as i64);
    Ok(())
}

/// A field the table does not have is not an error here: it is the question.
pub fn hexists(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let is_there = read(view, row, args, &Ask::Nothing)?.is_some();
    reply.int_bool(is_there && row.table.field(args.at(2)).is_some());
    Ok(())
}

pub fn hstrlen(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let field = row.table.field_or_refuse(args.at(2))?;
    let value = read_field(view, row, args, field.id)?;
    reply.int(value.map_or(0, |value| match value {
        Value::Text(text) => text.len() as i64,
        Value::Blob(bytes) => bytes.len() as i64,
        number => number.shown().len() as i64,
    }));
    Ok(())
}

/// A row is one page.
pub fn hscan(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let cursor = scan::parse_cursor(args.at(2))?;
    let options = scan::Options::parse(args, 3)?;
    let mut fields = read_all(view, row, args)?;
    fields.retain(|(name, _)| {
        cursor == 0
            && options
                .pattern
                .is_none_or(|pattern| glob::matches(pattern, name.as_bytes()))
    });
    reply.array(2);
    reply.bulk(b"0");
    reply.array(fields.len() * 2);
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        write_value(&value, reply);
    }
    Ok(())
}

pub fn hset(
    txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let added = set_pairs(txn, row, args, "hset")?;
    reply.int(added);
    Ok(())
}

pub fn hmset(
    txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    set_pairs(txn, row, args, "hmset")?;
    reply.ok();
    Ok(())
}

/// Sets the pairs from argument 2 on; how many there were, if the row is new.
fn set_pairs(txn: &mut Txn<'_>, row: &RowRef, args: &Args<'_>, name: &str) -> Result<i64, Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let key = args.at(1);
    let fields = parse_pairs(&row.table, args, 2, args.len() / 2 - 1)?;
    let mut ids: Vec<u16> = fields.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    // Mostly the row is there, and then this is all.
    let merge = Write {
        expect: Expect::Present,
        ..change(row, Op::Set(fields.clone()))
    };
    if found(txn.write_row(key, merge))?.is_some() {
        return Ok(0);
    }
    found(txn.write_row(key, change(row, Op::SetNx(fields))))?;
    Ok(ids.len() as i64)
}

pub fn hincrby(
    txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let field = row.table.field_or_refuse(args.at(2))?;
    if field.kind == Kind::Float64 {
        let text = format!("ERR field '{}' is float64: use HINCRBYFLOAT", field.name);
        return Err(Refusal::text_of(text));
    }
    let by = amount(field, args.at(3))?;
    if field.kind == Kind::Uint64 {
        let now = read_field(txn, row, args, field.id)?;
        let sum = now.unwrap_or(field.default.clone()).incr(&field.name, by)?;
        if matches!(sum, Value::Uint(sum) if i64::try_from(sum).is_err()) {
            return Err(Refusal::text_of(format!(
                "ERR field '{}' would be greater than HINCRBY can answer: use HINCRBYFLOAT or ROW.INCRBY",
                field.name
            )));
        }
    }
    let op = Op::Incr {
        field: field.id,
        by,
    };
    match add(txn, row, args, op, field.id)? {
        Some(Value::Int(sum)) => reply.int(sum),
        Some(Value::Uint(sum)) => reply.int(i64::try_from(sum).unwrap_or(i64::MAX)),
        _ => reply.null(),
    }
    Ok(())
}

/// Integer fields take integers.
pub fn hincrbyfloat(
    txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let field = row.table.field_or_refuse(args.at(2))?;
    let by = amount(field, args.at(3)).map_err(|refusal| match refusal {
        Refusal::NotInteger => Refusal::NotFloat,
        other => other,
    })?;
    let op = Op::Incr {
        field: field.id,
        by,
    };
    match add(txn, row, args, op, field.id)? {
        Some(sum) => write_value(&sum, reply),
        None => reply.null(),
    }
    Ok(())
}

/// The field after the change.
fn add(
    txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    op: Op,
    field: u16,
) -> Result<Option<Value>, Refusal> {
    let write = Write {
        ask: Ask::Fields(vec![field]),
        ..change(row, op)
    };
    let values = found(txn.write_row(args.at(1), write))?;
    Ok(values.and_then(|values| values.into_iter().next().map(|(_, value)| value)))
}

pub fn hdel(
    _txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    _reply: &mut Reply,
) -> Result<(), Refusal> {
    let rule = "its fields cannot be removed: set them by HSET, or delete the row by DEL";
    Err(not_for_rows(args.at(1), &row.table, rule))
}

pub fn hsetnx(
    _txn: &mut Txn<'_>,
    row: &RowRef,
    args: &Args<'_>,
    _reply: &mut Reply,
) -> Result<(), Refusal> {
    let rule =
        "its fields always have values: use ROW.SETNX to make a row, ROW.CAS to compare first";
    Err(not_for_rows(args.at(1), &row.table, rule))
}

//! Rows of SQL tables: `ROW.*`, and other families' commands on keys that name rows.
//!
//! ```text
//!   users:alice ──View::row_of──► table 'users' by the region's schema, row 'alice'
//!   words ──options──► Write { op, expect, ask, request } ──Txn::write_row──► Outcome ──answer──► [status, version, [field, value …]]
//! ```
//!
//! The one idea: names end here. Fields become ids and texts become values by the schema the region has when the
//! command is applied; below there are only ids. Versions, expectations, requests that come again and limits are
//! judged by `table::Rows`, not here.
//!
//! - [`single`] is `ROW.GET` and the changes of one row, [`options`] their words;
//! - [`hash`] is the hash commands on a row, [`keys`] `DEL`, `EXISTS`, `TYPE` among tables;
//! - [`sets`] tells what a command would set;
//! - [`internal`] is what the leader of a region says to all replicas.

use base::{NotRun, Refusal};
use keyspace::{RowRef, View};
use resp::Reply;
use table::entry::{Ask, Expect, Fields, Op, Write};
use table::{Cause, Outcome, ROW_BYTES_MAX, Table, Value};

pub mod hash;
pub mod internal;
pub mod keys;
mod options;
pub mod sets;
pub mod single;
#[cfg(test)]
mod tests;

/// The row a `ROW.*` command names.
fn named(view: &View<'_>, key: &[u8]) -> Result<RowRef, Refusal> {
    if view.db() != 0 {
        return Err(Refusal::text_of(format!(
            "ERR rows are in database 0; this connection uses database {} (SELECT 0)",
            view.db()
        )));
    }
    match view.row_of(key) {
        Some(row) => row,
        None => Err(no_table(key)),
    }
}

#[cold]
fn no_table(key: &[u8]) -> Refusal {
    let mut parts = key.splitn(2, |&byte| byte == b':');
    let name = shown(parts.next().unwrap_or_default());
    Refusal::text_of(match parts.next() {
        Some(_) => format!(
            "ERR no such table '{name}'; declare it with ROW.TABLE CREATE or neokv table create"
        ),
        None => format!("ERR '{name}' names no row: the key of a row is table:key"),
    })
}

/// Refuses a command that knows nothing of rows, if `key` names one.
pub fn refuse_row(view: &View<'_>, key: &[u8]) -> Result<(), Refusal> {
    let Some(row) = view.row_of(key) else {
        return Ok(());
    };
    Err(match row {
        Ok(row) => not_for_rows(key, &row.table, RULE),
        // No row has such a key, and nothing else has: the table has the name.
        Err(refusal) => refusal,
    })
}

const RULE: &str = "rows take hash commands, DEL, EXISTS, TYPE and ROW.*, and do not expire";

#[cold]
fn not_for_rows(key: &[u8], table: &Table, rule: &str) -> Refusal {
    Refusal::text_of(format!(
        "WRONGTYPE {} is a row of table '{}'; {rule}",
        shown(key),
        table.name
    ))
}

/// Words of a client in an error line: short, on one line.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut line = String::new();
    for (nth, letter) in text.chars().enumerate() {
        match letter {
            _ if nth == 64 => {
                line.push_str("...");
                break;
            }
            letter if letter.is_control() => line.extend(letter.escape_default()),
            letter => line.push(letter),
        }
    }
    line
}

/// A change without conditions.
fn change(row: &RowRef, op: Op) -> Write {
    Write {
        id: row.id.clone(),
        op,
        expect: Expect::Any,
        ask: Ask::Nothing,
        request: None,
        epoch: 0,
        row_max: ROW_BYTES_MAX as u64,
    }
}

/// Refusals that the server may wait out for its client.
pub const NOT_LOADED: &str = "TRYAGAIN the row is not loaded yet";
pub const SCHEMA_BEHIND: &str = "TRYAGAIN the schema of the request is not known here yet";

/// Why there is no answer about the row.
fn unanswered(cause: Cause) -> Refusal {
    Refusal::new(match cause {
        Cause::NotCached => return NotRun::Unready(NOT_LOADED).into(),
        Cause::SchemaBehind => return NotRun::Unready(SCHEMA_BEHIND).into(),
        Cause::Closed => {
            "TRYAGAIN the table takes no changes while it, or a field of it, is being dropped; ROW.TABLE OPEN takes that back"
        }
        Cause::Full => "TRYAGAIN the cache of rows is full and SQL does not have enough of it yet",
    })
}

/// Writes the answer of a `ROW.*` command about one row.
fn answer(table: &Table, outcome: Outcome, reply: &mut Reply) -> Result<(), Refusal> {
    let (status, version, values) = match outcome {
        Outcome::Ok { version, values } => ("ok", version, values),
        Outcome::VersionMismatch { version, values } => ("version_mismatch", version, values),
        Outcome::Exist { version, values } => ("exist", version, values),
        Outcome::NotExist { version } => ("not_exist", version, Fields::new()),
        Outcome::Unchanged { version } => ("unchanged", version, Fields::new()),
        Outcome::CasNotEqual { version, values } => ("cas_not_equal", version, values),
        Outcome::Retry(cause) => return Err(unanswered(cause)),
        Outcome::Error(text) => return Err(Refusal::text_of(text.into())),
    };
    reply.array(3);
    reply.simple(status);
    reply.int(version);
    // An answer that is given again may know fields that were dropped since.
    let known = values
        .iter()
        .filter_map(|(id, value)| Some((table.field_by_id(*id)?, value)));
    reply.array(known.clone().count() * 2);
    for (field, value) in known {
        reply.bulk(field.name.as_bytes());
        write_value(value, reply);
    }
    Ok(())
}

/// The value as `HGET` gives it.
fn write_value(value: &Value, reply: &mut Reply) {
    match value {
        Value::Int(number) => reply.bulk_int(*number),
        Value::Text(text) => reply.bulk(text.as_bytes()),
        Value::Blob(bytes) => reply.bulk(bytes),
        Value::Uint(_) | Value::Float(_) => reply.bulk(&value.shown()),
    }
}

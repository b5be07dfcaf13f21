//! SQLite: connecting, binding, reading, and what its result codes mean.
//!
//! An integer of SQLite is signed. A uint64 that does not fit is kept as text of twenty digits in a column
//! that converts nothing (`ANY` of a STRICT table): lossless, and in order, because texts sort after
//! integers and these among themselves as their numbers (decision 19).

use sqlx::error::DatabaseError;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, Row, Sqlite, TypeInfo, ValueRef};

use crate::conn::{Cell, Param, Want};
use crate::database::Limits;
use crate::error::{Fault, Sort, fault};
use crate::wire::{Wire, cell};

pub(crate) async fn connect(
    options: &SqliteConnectOptions,
    limits: &Limits,
) -> Result<Wire, Fault> {
    let options = options
        .clone()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // "SQL has it" shall mean on disk; `Extra` also where the file system has no shared memory for WAL and SQLite
        // keeps its rollback journal.
        .synchronous(SqliteSynchronous::Extra)
        .busy_timeout(limits.statement)
        .statement_cache_capacity(32)
        .disable_statement_logging();
    let connected = options.connect().await;
    let wire = connected.map_err(|error| fault(error, sort))?;
    Ok(Wire::Sqlite(Box::new(wire)))
}

type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

pub(crate) fn bound<'q>(sql: &'q str, params: Vec<Param<'q>>) -> Query<'q> {
    // Texts differ with the number of rows: long ones are not worth keeping prepared.
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(params.len() < 64);
    let bind = |query: Query<'q>, param| match param {
        Param::Int(number) => query.bind(number),
        Param::Uint(number) => match i64::try_from(number) {
            Ok(small) => query.bind(small),
            Err(_) => query.bind(format!("{number:020}")),
        },
        Param::Float(number) => query.bind(number),
        Param::Text(text) => query.bind(text),
        Param::Owned(text) => query.bind(text),
        Param::Bytes(bytes) => query.bind(bytes),
        // whole columns are PostgreSQL's alone
        Param::Null
        | Param::Ints(_)
        | Param::Floats(_)
        | Param::Texts(_)
        | Param::Numbers(_)
        | Param::Blobs(_) => query.bind(None::<i64>),
    };
    params.into_iter().fold(query, bind)
}

/// Each value has its own type here: it is read as what it is.
pub(crate) fn read(row: &SqliteRow, at: usize, _: Want) -> Cell {
    let class = match row.try_get_raw(at) {
        Ok(value) if value.is_null() => return Cell::Null,
        Ok(value) => value.type_info().name().to_owned(),
        Err(error) => return Cell::Odd(error.to_string()),
    };
    match class.as_str() {
        "INTEGER" => cell(row.try_get_unchecked(at), Cell::Int),
        "REAL" => cell(row.try_get_unchecked(at), Cell::Float),
        "TEXT" => cell(row.try_get_unchecked(at), Cell::Text),
        "BLOB" => cell(row.try_get_unchecked(at), Cell::Bytes),
        other => Cell::Odd(format!("of type {other}")),
    }
}

/// By result code; what is above the low byte says more than we need, except of constraints.
pub(crate) fn sort(error: &dyn DatabaseError) -> Sort {
    let code: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
    match (code, code & 0xff) {
        // primary key, unique
        (1555 | 2067, _) => Sort::Taken,
        // constraint, too big, mismatch
        (_, 18..=20) => Sort::Row,
        // no such table or column, permission, corrupt, not a database
        (_, 1 | 3 | 11 | 23 | 26) => Sort::Unfit,
        // busy, locked, out of memory, read-only, interrupted, I/O, full, cannot open, …
        _ => Sort::Transient,
    }
}

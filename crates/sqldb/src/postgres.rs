//! PostgreSQL: connecting, binding, reading, and what its error codes mean.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Postgres, Row};
use table::Kind;

use crate::conn::{Cell, Param, Want};
use crate::database::Limits;
use crate::error::{Fault, Sort, fault};
use crate::wire::{Wire, cell};

/// "SQL has it" shall mean on disk. With `off` a commit is answered before that; every other value waits at least for the
/// disk of this server, and how many standbys it waits for besides is the operator's choice: it stays.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";

pub(crate) async fn connect(options: &PgConnectOptions, limits: &Limits) -> Result<Wire, Fault> {
    let options = options.clone().application_name("neokv");
    let options = options.disable_statement_logging();
    let connected = options.connect().await;
    let mut wire = Wire::Postgres(Box::new(connected.map_err(|error| fault(error, sort))?));
    // A process that is stopped inside a transaction must not hold its rows for ever.
    let limit = limits.statement.as_millis().max(1);
    let settings = format!(
        "SET statement_timeout = {limit}; \
         SET idle_in_transaction_session_timeout = {limit}; \
         SET default_transaction_isolation = 'read committed'; \
         SET default_transaction_read_only = off; \
         {DURABLE}"
    );
    wire.say(&settings).await?;
    Ok(wire)
}

type Query<'q> = sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>;

pub(crate) fn bound<'q>(sql: &'q str, params: Vec<Param<'q>>) -> Query<'q> {
    let bind = |query: Query<'q>, param| match param {
        Param::Null => query.bind(None::<String>),
        Param::Int(number) => query.bind(number),
        // numeric has no binary form here: it goes as text and is cast in the statement
        Param::Uint(number) => query.bind(number.to_string()),
        Param::Float(number) => query.bind(number),
        Param::Text(text) => query.bind(text),
        Param::Owned(text) => query.bind(text),
        Param::Bytes(bytes) => query.bind(bytes),
        Param::Ints(column) => query.bind(column),
        Param::Floats(column) => query.bind(column),
        Param::Texts(column) => query.bind(column),
        Param::Numbers(column) => query.bind(column),
        Param::Blobs(column) => query.bind(column),
    };
    params
        .into_iter()
        .fold(sqlx::query(AssertSqlSafe(sql)), bind)
}

pub(crate) fn read(row: &PgRow, at: usize, want: Want) -> Cell {
    match want {
        Want::Int | Want::Field(Kind::Int64) => cell(row.try_get(at), Cell::Int),
        Want::Key | Want::Text | Want::Field(Kind::String | Kind::Uint64) => {
            cell(row.try_get(at), Cell::Text)
        }
        Want::Field(Kind::Float64) => cell(row.try_get(at), Cell::Float),
        Want::Field(Kind::Blob) => cell(row.try_get(at), Cell::Bytes),
    }
}

/// By SQLSTATE: the first two letters are its class.
pub(crate) fn sort(error: &dyn DatabaseError) -> Sort {
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        "23505" => return Sort::Taken,
        // took too long, most likely because of a lock
        "55P03" | "57014" => return Sort::Locked,
        // shut down, crashed, starting; idle for too long inside a transaction
        "57P01" | "57P02" | "57P03" | "25P03" => return Sort::Lost,
        // "cannot execute in a read-only transaction": a standby, until it is promoted
        "25006" => return Sort::Transient,
        // a cached plan of a table that has changed: a new connection makes a new one, the others have the same
        "0A000" => return Sort::Lost,
        _ => {}
    }
    match code.get(..2).unwrap_or_default() {
        // data, constraints, views' checks, limits of a row, triggers
        "21" | "22" | "23" | "44" | "54" | "P0" | "38" | "39" => Sort::Row,
        // names, permissions, log-in, no such database or schema
        "42" | "28" | "3D" | "3F" => Sort::Unfit,
        "08" => Sort::Lost,
        _ => Sort::Transient,
    }
}

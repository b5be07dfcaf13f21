//! MySQL and MariaDB: connecting, binding, reading, and what their error numbers mean.
//!
//! By default these truncate what is too long, lock gaps between rows, and compare texts without case or trailing spaces. The
//! session is set to strict mode and READ COMMITTED; keys are `VARBINARY`.

use sqlx::error::DatabaseError;
use sqlx::mysql::{MySql, MySqlConnectOptions, MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};
use table::Kind;

use crate::conn::{Cell, Param, Want};
use crate::database::Limits;
use crate::error::{Fault, Sort, fault};
use crate::wire::{Wire, cell};

pub(crate) async fn connect(options: &MySqlConnectOptions, limits: &Limits) -> Result<Wire, Fault> {
    let options = options
        .clone()
        .charset("utf8mb4")
        .statement_cache_capacity(32);
    let options = options.disable_statement_logging();
    let connected = options.connect().await;
    let mut wire = Wire::MySql(Box::new(connected.map_err(|error| fault(error, sort))?));
    let mut settings = format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
         SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}",
        seconds = limits.statement.as_secs().max(1)
    );
    let version = wire.fetch("SELECT VERSION()", Vec::new(), &[Want::Text]);
    let version = version.await?;
    let mariadb = version
        .iter()
        .flatten()
        .any(|cell| matches!(cell, Cell::Text(text) if text.contains("MariaDB")));
    // A process that is stopped inside a transaction must not hold its rows for ever. MySQL has no such limit but
    // that of an idle connection, which is longer than ours (`pool::IDLE_MAX`).
    settings += &if mariadb {
        format!(
            ", SESSION max_statement_time = {}, SESSION idle_transaction_timeout = {}",
            limits.statement.as_secs_f64(),
            limits.statement.as_secs().max(1)
        )
    } else {
        format!(
            ", SESSION max_execution_time = {}, SESSION wait_timeout = 60",
            limits.statement.as_millis().max(1)
        )
    };
    wire.say(&settings).await?;
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    wire.say(isolation).await?;
    Ok(wire)
}

/// Whether an answered commit is on disk. It depends on settings of the whole server that no session can change, so rows are
/// not written there until they are right, unless the URL says `durability=relaxed`.
pub(crate) async fn weakness(wire: &mut Wire) -> Result<Option<String>, Fault> {
    let sql = "SELECT CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS SIGNED), \
               CAST(@@GLOBAL.log_bin AS SIGNED), CAST(@@GLOBAL.sync_binlog AS SIGNED)";
    let told = wire.fetch(sql, Vec::new(), &[Want::Int; 3]).await?;
    let mut numbers = told.into_iter().flatten().map(Cell::into_int);
    let mut number = || numbers.next().unwrap_or(Ok(0)).map_err(Fault::Unfit);
    let (flush, binlog, sync) = (number()?, number()?, number()?);
    let set = if flush != 1 {
        format!(
            "innodb_flush_log_at_trx_commit is {flush}: SET GLOBAL innodb_flush_log_at_trx_commit = 1"
        )
    } else if binlog != 0 && sync != 1 {
        // A crash rolls back a transaction whose events the log has lost.
        format!("sync_binlog is {sync}: SET GLOBAL sync_binlog = 1")
    } else {
        return Ok(None);
    };
    Ok(Some(format!(
        "this server answers commits before they are on disk, so rows are not written to it. Its {set}, and in its \
         configuration file; or accept that its crash loses rows: add durability=relaxed to the URL of the backend"
    )))
}

type Query<'q> = sqlx::query::Query<'q, MySql, sqlx::mysql::MySqlArguments>;

pub(crate) fn bound<'q>(sql: &'q str, params: Vec<Param<'q>>) -> Query<'q> {
    // Texts differ with the number of rows: long ones are not worth keeping prepared.
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(params.len() < 64);
    let bind = |query: Query<'q>, param| match param {
        Param::Int(number) => query.bind(number),
        Param::Uint(number) => query.bind(number),
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

pub(crate) fn read(row: &MySqlRow, at: usize, want: Want) -> Cell {
    match want {
        Want::Int | Want::Field(Kind::Int64) => cell(row.try_get(at), Cell::Int),
        Want::Field(Kind::Uint64) => cell(row.try_get(at), Cell::Uint),
        Want::Field(Kind::Float64) => cell(row.try_get(at), Cell::Float),
        Want::Field(Kind::Blob) => cell(row.try_get_unchecked(at), Cell::Bytes),
        // Keys are binary, and so are some texts of the catalogue.
        Want::Key | Want::Text | Want::Field(Kind::String) => {
            let text = |bytes: Vec<u8>| match String::from_utf8(bytes) {
                Ok(text) => Cell::Text(text),
                Err(_) => Cell::Odd("not valid utf-8".into()),
            };
            cell(row.try_get_unchecked(at), text)
        }
    }
}

pub(crate) fn sort(error: &dyn DatabaseError) -> Sort {
    let Some(error) = error.try_downcast_ref::<MySqlDatabaseError>() else {
        return Sort::Transient;
    };
    match error.number() {
        // duplicates; 1048 is also how the guard of an upsert speaks (`statement.rs`)
        1022 | 1048 | 1062 | 1169 | 1586 | 1761 | 1762 | 1859 => Sort::Taken,
        // waited for a lock, or took too long, most likely because of one
        1205 | 1969 | 3024 => Sort::Locked,
        // foreign keys, checks of MySQL and of MariaDB, no default, no partition
        1216 | 1217 | 1451 | 1452 | 3819 | 4025 | 1364 | 1526 => Sort::Row,
        // out of range, truncated, not a value of the column, too long, row or packet too large
        1264 | 1265 | 1292 | 1366 | 1367 | 1406 | 1690 | 1118 | 1153 | 1301 | 3140 => Sort::Row,
        // SIGNAL of a trigger
        1644 => Sort::Row,
        // no such database, table, column; no permission; syntax
        1044 | 1045 | 1049 | 1054 | 1064 | 1136 | 1142 | 1143 | 1146 | 1176 | 1227 | 1370
        | 1698 => Sort::Unfit,
        // changes of tables that cannot be: exists already, no such column, one column left
        1050 | 1051 | 1060 | 1061 | 1090 | 1091 | 1117 => Sort::Unfit,
        // shut down, killed, idle for too long
        1053 | 1927 | 4031 => Sort::Lost,
        _ if error.code() == Some("45000") => Sort::Row,
        _ => Sort::Transient,
    }
}

//! One connection to any of the three: text and parameters in, cells out.
//!
//! Everything above speaks in [`Param`] and [`Cell`]; what each database calls these is in `postgres.rs`, `mysql.rs`,
//! `sqlite.rs`. Every statement has a time limit on this side as well, because a database that is stopped in mid-air does
//! not keep its own.

use std::time::Duration;

use table::{Kind, Value};

use crate::database::Limits;
use crate::error::Fault;
use crate::statement::Dialect;
use crate::wire::{Boxed, Wire};

/// Where to connect to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Postgres(Box<sqlx::postgres::PgConnectOptions>),
    MySql(Box<sqlx::mysql::MySqlConnectOptions>),
    Sqlite(Box<sqlx::sqlite::SqliteConnectOptions>),
}

pub(crate) struct Conn {
    wire: Wire,
    /// Why what is committed here may be lost, and what to do about it.
    weakness: Option<String>,
    /// For one statement, on this side.
    pub(crate) timeout: Duration,
    /// Statements with parameters so far.
    pub(crate) sent: u64,
}

/// A parameter. PostgreSQL takes whole columns, the others single values.
#[derive(Debug)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(&'a str),
    Owned(String),
    Bytes(&'a [u8]),
    Ints(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Texts(Vec<Option<&'a str>>),
    Numbers(Vec<Option<String>>),
    Blobs(Vec<Option<&'a [u8]>>),
}

/// What a column of a result is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Key,
    Int,
    Field(Kind),
    Text,
}

/// One column of one row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Something that cannot be read as what was wanted.
    Odd(String),
}

impl Target {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Target::Postgres(_) => Dialect::Postgres,
            Target::MySql(_) => Dialect::MySql,
            Target::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub(crate) async fn connect(&self, limits: &Limits) -> Result<Conn, Fault> {
        let connecting: Boxed<'_, Wire> = match self {
            Target::Postgres(options) => Box::pin(crate::postgres::connect(options, limits)),
            Target::MySql(options) => Box::pin(crate::mysql::connect(options, limits)),
            Target::Sqlite(options) => Box::pin(crate::sqlite::connect(options, limits)),
        };
        let connecting = async {
            let mut wire = connecting.await?;
            let weakness = match self {
                Target::MySql(_) if limits.durable => crate::mysql::weakness(&mut wire).await?,
                _ => None,
            };
            Ok((wire, weakness))
        };
        match tokio::time::timeout(limits.connect, connecting).await {
            Ok(connected) => connected.map(|(wire, weakness)| Conn {
                wire,
                weakness,
                // The database's own limit comes first, and says more.
                timeout: limits.statement + limits.statement / 4 + Duration::from_millis(200),
                sent: 0,
            }),
            Err(_) => {
                let why = format!("no connection within {:?}", limits.connect);
                Err(Fault::Silent(why))
            }
        }
    }
}

impl Conn {
    /// Before anything is written: whether a commit that is answered is on disk.
    pub(crate) fn require_durable(&self) -> Result<(), Fault> {
        match &self.weakness {
            Some(why) => Err(Fault::Unfit(why.clone())),
            None => Ok(()),
        }
    }

    /// A statement with parameters, for its effect: how many rows it touched, as the database counts.
    pub(crate) async fn execute(
        &mut self,
        sql: &str,
        params: Vec<Param<'_>>,
    ) -> Result<u64, Fault> {
        self.sent += 1;
        bounded(self.timeout, self.wire.execute(sql, params)).await
    }

    /// A statement with parameters, for its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        params: Vec<Param<'_>>,
        wants: &[Want],
    ) -> Result<Vec<Vec<Cell>>, Fault> {
        self.sent += 1;
        bounded(self.timeout, self.wire.fetch(sql, params, wants)).await
    }

    /// Text without parameters: transactions, settings, changes of tables.
    pub(crate) async fn say(&mut self, sql: &str) -> Result<(), Fault> {
        bounded(self.timeout, self.wire.say(sql)).await
    }
}

async fn bounded<T>(timeout: Duration, running: Boxed<'_, T>) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, running).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Silent(format!("no answer within {timeout:?}"))),
    }
}

impl Cell {
    /// The value of a field; NULL is its default.
    pub(crate) fn into_value(self, field: &table::Field) -> Result<Value, String> {
        let name = field.name.as_str();
        let clean = |value: Result<Value, base::Refusal>| value.map_err(|told| told.to_string());
        match (field.kind, self) {
            (_, Cell::Null) => Ok(field.default.clone()),
            (Kind::Int64, Cell::Int(number)) => Ok(Value::Int(number)),
            (Kind::Uint64, Cell::Uint(number)) => Ok(Value::Uint(number)),
            (Kind::Uint64, Cell::Int(number)) => u64::try_from(number)
                .map(Value::Uint)
                .map_err(|_| format!("column {name}: {number} is not a uint64")),
            // PostgreSQL's numeric as text; SQLite's with leading zeros.
            (Kind::Uint64, Cell::Text(text)) => text
                .parse()
                .map(Value::Uint)
                .map_err(|_| format!("column {name}: '{}' is not a uint64", text.escape_default())),
            (Kind::Float64, Cell::Float(number)) => clean(Value::float(name, number)),
            (Kind::Float64, Cell::Int(number)) => Ok(Value::Float(number as f64)),
            (Kind::String, Cell::Text(text)) => clean(Value::text(name, &text)),
            (Kind::Blob, Cell::Bytes(bytes)) => Ok(Value::Blob(bytes.into())),
            (kind, Cell::Odd(why)) => Err(format!("column {name} is no {kind}: {why}")),
            (kind, other) => Err(format!("column {name} is no {kind}: {}", other.name())),
        }
    }

    pub(crate) fn into_int(self) -> Result<i64, String> {
        match self {
            Cell::Int(number) => Ok(number),
            other => Err(format!("an integer was expected, not {}", other.name())),
        }
    }

    pub(crate) fn into_text(self) -> Result<String, String> {
        match self {
            Cell::Text(text) => Ok(text),
            Cell::Null => Ok(String::new()),
            other => Err(format!("a text was expected, not {}", other.name())),
        }
    }

    fn name(&self) -> String {
        match self {
            Cell::Null => "NULL".into(),
            Cell::Int(_) | Cell::Uint(_) => "an integer".into(),
            Cell::Float(_) => "a float".into(),
            Cell::Text(_) => "a text".into(),
            Cell::Bytes(_) => "bytes".into(),
            Cell::Odd(why) => why.clone(),
        }
    }
}

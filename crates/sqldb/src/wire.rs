//! A bare connection to one of the three, and the three things that are said over it.
//!
//! What a database is asked and how its answer is taken apart is the same for all; a driver knows only how to bind a
//! parameter, how to read a column and what an error code means (`postgres.rs`, `mysql.rs`, `sqlite.rs`). No time
//! limit here: that is `Conn`'s.
//!
//! sqlx takes a text that is not a constant only as `AssertSqlSafe`. That holds here: texts consist of this crate's words and the
//! quoted names of declared tables and fields; values always travel as parameters.

use std::pin::Pin;

use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, PgConnection, SqliteConnection};

use crate::conn::{Cell, Param, Want};
use crate::error::{Fault, Sort, fault};
use crate::{mysql, postgres, sqlite};

/// Boxed, so that the compiler sees that it can be sent (it cannot see it through sqlx's own futures).
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Boxed: they are large, and moved in and out of the pool.
pub(crate) enum Wire {
    Postgres(Box<PgConnection>),
    MySql(Box<MySqlConnection>),
    Sqlite(Box<SqliteConnection>),
}

impl Wire {
    /// A statement with parameters, for its effect: how many rows it touched, as the database counts.
    pub(crate) fn execute<'a>(
        &'a mut self,
        sql: &'a str,
        params: Vec<Param<'a>>,
    ) -> Boxed<'a, u64> {
        match self {
            Wire::Postgres(wire) => {
                let running = postgres::bound(sql, params).execute(&mut **wire);
                heard(running, |done| done.rows_affected(), postgres::sort)
            }
            Wire::MySql(wire) => {
                let running = mysql::bound(sql, params).execute(&mut **wire);
                heard(running, |done| done.rows_affected(), mysql::sort)
            }
            Wire::Sqlite(wire) => {
                let running = sqlite::bound(sql, params).execute(&mut **wire);
                heard(running, |done| done.rows_affected(), sqlite::sort)
            }
        }
    }

    /// A statement with parameters, for its rows.
    pub(crate) fn fetch<'a>(
        &'a mut self,
        sql: &'a str,
        params: Vec<Param<'a>>,
        wants: &'a [Want],
    ) -> Boxed<'a, Vec<Vec<Cell>>> {
        match self {
            Wire::Postgres(wire) => {
                let running = postgres::bound(sql, params).fetch_all(&mut **wire);
                heard(running, cells(wants, postgres::read), postgres::sort)
            }
            Wire::MySql(wire) => {
                let running = mysql::bound(sql, params).fetch_all(&mut **wire);
                heard(running, cells(wants, mysql::read), mysql::sort)
            }
            Wire::Sqlite(wire) => {
                let running = sqlite::bound(sql, params).fetch_all(&mut **wire);
                heard(running, cells(wants, sqlite::read), sqlite::sort)
            }
        }
    }

    /// Text without parameters: transactions, settings, changes of tables.
    pub(crate) fn say<'a>(&'a mut self, sql: &'a str) -> Boxed<'a, ()> {
        let sql = AssertSqlSafe(sql);
        match self {
            Wire::Postgres(wire) => heard(wire.execute(sql), drop, postgres::sort),
            Wire::MySql(wire) => heard(wire.execute(sql), drop, mysql::sort),
            Wire::Sqlite(wire) => heard(wire.execute(sql), drop, sqlite::sort),
        }
    }
}

/// What is wanted of an answer, or what its error means.
fn heard<'a, A: 'a, T>(
    running: impl Future<Output = Result<A, sqlx::Error>> + Send + 'a,
    take: impl FnOnce(A) -> T + Send + 'a,
    sort: fn(&dyn DatabaseError) -> Sort,
) -> Boxed<'a, T> {
    Box::pin(async move { running.await.map(take).map_err(|error| fault(error, sort)) })
}

/// Takes rows apart, column by column.
fn cells<R>(
    wants: &[Want],
    read: fn(&R, usize, Want) -> Cell,
) -> impl FnOnce(Vec<R>) -> Vec<Vec<Cell>> {
    move |rows| {
        let one = |row: &R| {
            let wants = wants.iter().enumerate();
            wants.map(|(at, want)| read(row, at, *want)).collect()
        };
        rows.iter().map(one).collect()
    }
}

/// One column, as a driver read it.
pub(crate) fn cell<T>(read: Result<Option<T>, sqlx::Error>, make: fn(T) -> Cell) -> Cell {
    match read {
        Ok(Some(value)) => make(value),
        Ok(None) => Cell::Null,
        Err(error) => Cell::Odd(error.to_string()),
    }
}

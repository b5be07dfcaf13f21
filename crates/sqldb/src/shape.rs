//! Making and changing SQL tables. Everything may be done twice: what is already so is fine.
//!
//! Texts without parameters, because databases take none here; all that is put into them is checked names.
//! Defaults of fields stay out of SQL for this reason: a column may be NULL, and NULL is read as the default.

use std::time::Duration;

use table::{Field, Table};

use crate::adopt::{self, Column};
use crate::conn::Conn;
use crate::database::Database;
use crate::error::{Error, Fault};
use crate::statement::{Dialect, Names, checked};

pub(crate) async fn create_table(database: &Database, table: &Table) -> Result<(), Error> {
    table
        .check()
        .map_err(|refusal| Error::Unfit(refusal.to_string()))?;
    let names = Names::of(database.pool.target.dialect(), table)?;
    let sql = names.create(table);
    let made = alter(database, &sql).await;
    if let Err(error @ Error::Transient(_)) = made {
        return Err(error);
    }
    // Made, there before, or made by somebody else at the same time: if it fits, all is well.
    match (database.check_table(table).await, made) {
        (Ok(()), _) => Ok(()),
        (Err(Error::Unfit(_)), Err(told)) => Err(told),
        (Err(unfit), _) => Err(unfit),
    }
}

pub(crate) async fn add_field(
    database: &Database,
    table: &Table,
    field: &Field,
) -> Result<(), Error> {
    checked("field", &field.name)?;
    let names = Names::of(database.pool.target.dialect(), table)?;
    if let Some(column) = column(database, table, &field.name).await? {
        return fits(database, table, field, &column);
    }
    let (name, column_text) = (&names.table, names.column(field));
    let sql = format!("ALTER TABLE {name} ADD COLUMN {column_text}");
    let added = alter(database, &sql).await;
    match (&added, column(database, table, &field.name).await?) {
        (_, Some(column)) => fits(database, table, field, &column),
        (_, None) => added,
    }
}

pub(crate) async fn drop_field(
    database: &Database,
    table: &Table,
    name: &str,
) -> Result<(), Error> {
    checked("field", name)?;
    if column(database, table, name).await?.is_none() {
        return Ok(());
    }
    let dialect = database.pool.target.dialect();
    let names = Names::of(dialect, table)?;
    let (whole, part) = (&names.table, dialect.quote(name));
    let sql = format!("ALTER TABLE {whole} DROP COLUMN {part}");
    let dropped = alter(database, &sql).await;
    match column(database, table, name).await? {
        None => Ok(()),
        Some(_) => dropped,
    }
}

pub(crate) async fn drop_table(database: &Database, table: &Table) -> Result<(), Error> {
    let names = Names::of(database.pool.target.dialect(), table)?;
    let sql = format!("DROP TABLE IF EXISTS {}", names.table);
    alter(database, &sql).await
}

/// The column of this name; an error if there is no table. Names differ by case in PostgreSQL only.
async fn column(database: &Database, table: &Table, name: &str) -> Result<Option<Column>, Error> {
    let columns = database.columns(table).await?;
    if columns.is_empty() {
        return Err(Error::Unfit(format!(
            "there is no table {}",
            table.sql_name
        )));
    }
    let dialect = database.pool.target.dialect();
    let same = |column: &Column| adopt::same_name(dialect, &column.name, name);
    Ok(columns.into_iter().find(same))
}

fn fits(database: &Database, table: &Table, field: &Field, column: &Column) -> Result<(), Error> {
    let dialect = database.pool.target.dialect();
    match adopt::field_flaw(dialect, field, column) {
        None => Ok(()),
        Some(flaw) => Err(Error::Unfit(format!("table {}: {flaw}", table.sql_name))),
    }
}

/// Runs a change of a table on a connection of its own, with time enough to copy one; waiting for others to let go of
/// the table stays as short as any statement.
async fn alter(database: &Database, sql: &str) -> Result<(), Error> {
    let mut lease = database.pool.make(&database.limits).await?;
    patient(database, &mut lease.conn).await?;
    lease.conn.say(sql).await?;
    Ok(()) // not settled: closed, as its limits are not the usual ones
}

async fn patient(database: &Database, conn: &mut Conn) -> Result<(), Fault> {
    let limits = &database.limits;
    conn.timeout = limits.shape + Duration::from_secs(1);
    let (long, short) = (limits.shape, limits.statement);
    match database.pool.target.dialect() {
        Dialect::Postgres => {
            let (long, short) = (long.as_millis().max(1), short.as_millis().max(1));
            conn.say(&format!(
                "SET statement_timeout = {long}; SET lock_timeout = {short}"
            ))
            .await
        }
        // MariaDB's limit for any statement; MySQL has one for SELECT only. lock_wait_timeout is set already.
        Dialect::MySql => {
            let long = long.as_secs().max(1);
            conn.say(&format!("/*M! SET SESSION max_statement_time = {long} */"))
                .await
        }
        Dialect::Sqlite => Ok(()),
    }
}

//! Loading rows: many keys, one SELECT.

use std::collections::BTreeMap;

use table::{Table, Value};

use crate::conn::{Cell, Conn, Want};
use crate::database::Database;
use crate::error::Fault;
use crate::statement::Names;

/// What the database has of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Loaded {
    Missing,
    Found {
        /// Negative: deleted. 0: put there by somebody else, and never written by us.
        version: i64,
        /// One per field of the table, in their order; NULL is the default. None of a deleted row.
        values: Vec<Value>,
    },
    /// The row is there, but holds what no table of ours holds: put there by somebody else.
    Unreadable {
        why: String,
    },
}

pub(crate) async fn load(
    database: &Database,
    conn: &mut Conn,
    table: &Table,
    keys: &[&str],
) -> Result<Vec<Loaded>, Fault> {
    let names = Names::of(database.pool.target.dialect(), table)?;
    let wants = wants(table);
    let mut found = BTreeMap::new();
    let most = database.limits.rows.clamp(1, names.dialect.params_max());
    for some in keys.chunks(most) {
        let (sql, params) = names.load(some.iter().copied());
        for row in conn.fetch(&sql, params, &wants).await? {
            if let (Ok(key), loaded) = read(table, row) {
                found.insert(key, loaded);
            }
        }
    }
    let row = |key: &&str| found.get(*key).cloned().unwrap_or(Loaded::Missing);
    Ok(keys.iter().map(row).collect())
}

/// How the columns of `Names::load` and `Names::scan` are read.
pub(crate) fn wants(table: &Table) -> Vec<Want> {
    let fields = table.fields.iter().map(|field| Want::Field(field.kind));
    [Want::Key, Want::Int].into_iter().chain(fields).collect()
}

/// A row of those columns; the key only if it is text.
pub(crate) fn read(table: &Table, row: Vec<Cell>) -> (Result<String, String>, Loaded) {
    let mut cells = row.into_iter();
    let key = match cells.next() {
        Some(Cell::Text(key)) => Ok(key),
        other => Err(format!("{other:?}")),
    };
    let version = cells.next().unwrap_or(Cell::Null).into_int();
    let version = match version {
        Ok(version) => version,
        Err(why) => {
            let why = format!("column __version__: {why}");
            return (key, Loaded::Unreadable { why });
        }
    };
    if version < 0 {
        let values = Vec::new();
        return (key, Loaded::Found { version, values });
    }
    let values: Result<Vec<Value>, String> = table
        .fields
        .iter()
        .zip(cells)
        .map(|(field, cell)| cell.into_value(field))
        .collect();
    match values {
        Ok(values) => (key, Loaded::Found { version, values }),
        Err(why) => (key, Loaded::Unreadable { why }),
    }
}

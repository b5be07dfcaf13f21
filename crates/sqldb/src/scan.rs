//! Walking through a table in the order of its keys.

use std::ops::RangeInclusive;

use table::Table;

use crate::conn::Conn;
use crate::database::Database;
use crate::error::Fault;
use crate::load::{Loaded, read, wants};
use crate::statement::Names;

/// A row met on the way. Deleted ones are there too, with their negative version: they may be newer than what a cache has.
#[derive(Debug, Clone, PartialEq)]
pub struct Scanned {
    pub key: String,
    /// Never `Missing`.
    pub row: Loaded,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    pub rows: Vec<Scanned>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// Rows whose key no client can name (empty, too long, with a NUL): put there by somebody else.
    pub skipped: usize,
}

pub(crate) async fn scan(
    database: &Database,
    conn: &mut Conn,
    table: &Table,
    after: Option<&str>,
    limit: usize,
    slots: Option<RangeInclusive<u16>>,
) -> Result<Page, Fault> {
    let names = Names::of(database.pool.target.dialect(), table)?;
    let limit = limit.clamp(1, database.limits.rows.max(1));
    let slots = slots.map(|range| (*range.start(), *range.end()));
    let (sql, params) = names.scan(after, limit, slots);
    let rows = conn.fetch(&sql, params, &wants(table)).await?;
    let full = rows.len() == limit;
    let mut page = Page::default();
    let mut last = None;
    for row in rows {
        let (key, row) = read(table, row);
        let key = key.map_err(|why| {
            let table = &table.sql_name;
            Fault::Unfit(format!(
                "a row of {table} has a key that is not text: {why}"
            ))
        })?;
        if table::name::check_key(key.as_bytes()).is_ok() {
            page.rows.push(Scanned {
                key: key.clone(),
                row,
            });
        } else {
            page.skipped += 1;
        }
        last = Some(key);
    }
    if full {
        page.next = last;
    }
    Ok(page)
}

//! A walk through a table, hot and cold rows exactly once, in the order of their keys.
//!
//! ```text
//!   1. Overlay::new      what the cache has after the cursor
//!   2. SELECT            what SQL has after the cursor, as many
//!   3. Overlay::page     the cache hides SQL; up to where both are known; the cursor moves there
//! ```
//!
//! The one idea is the order of the first two. A row that is not in the cache *before* the SELECT is in SQL, because only what SQL has leaves the cache;
//! one that is in the cache is shown from there, wherever it goes meanwhile. The other way round, a row that is written back and kicked in between
//! would be in neither.
//!
//! A page ends after so many rows, or so many bytes ([`PAGE_BYTES`]): rows may have a megabyte each.
//!
//! One region's rows only. Who walks through several asks each for its own slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rows::{Rows, State};
use crate::value::Value;

/// With so many bytes a page is full, and the same of what SQL gives for it; one row may be more.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A row as a scan shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scanned {
    pub key: Arc<str>,
    /// Negative: deleted. Only of what SQL has; a page shows none.
    pub version: i64,
    /// One per field of the table, in their order.
    pub values: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub rows: Vec<Scanned>,
    /// Where to go on; `None` at the end. A page may be empty and not the last.
    pub next: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct Overlay {
    limit: usize,
    /// `None`: no such row.
    cached: BTreeMap<Arc<str>, Option<Scanned>>,
    /// The last key of the cache that was looked at, if there are more.
    upto: Option<Arc<str>>,
}

impl Overlay {
    /// At most `limit` cached rows after the cursor. `None` if there is no such table.
    pub fn new(rows: &Rows, table: u32, after: Option<&str>, limit: usize) -> Option<Overlay> {
        let schema = rows.table(table)?;
        let limit = limit.max(1);
        let mut left = rows.range(table, after);
        let mut bytes = 0;
        let mut cached = BTreeMap::new();
        while cached.len() < limit
            && bytes < PAGE_BYTES
            && let Some((key, row)) = left.next()
        {
            bytes += key.len() + row.image.size();
            let shown = (row.state == State::Present).then(|| Scanned {
                key: key.clone(),
                version: row.image.version,
                values: row.image.values(schema),
            });
            cached.insert(key.clone(), shown);
        }
        let last = cached.last_key_value().map(|(key, _)| key.clone());
        Some(Overlay {
            limit,
            upto: last.filter(|_| left.next().is_some()),
            cached,
        })
    }

    /// How many rows to ask SQL for, after the same cursor and in the order of keys, deleted ones included.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// `sql`: what it had, and whether there may be more behind that.
    pub fn page(mut self, sql: Vec<Scanned>, more: bool) -> Page {
        let last = sql.last().filter(|_| more).map(|row| row.key.clone());
        let next = match (self.upto.take(), last) {
            (Some(cache), Some(sql)) => Some(cache.min(sql)),
            (cache, sql) => cache.or(sql),
        };
        for row in sql {
            let shown = (row.version >= 0).then(|| row.clone());
            self.cached.entry(row.key).or_insert(shown);
        }
        let known = |key: &Arc<str>| next.as_ref().is_none_or(|next| key <= next);
        let rows = self.cached.into_iter().filter(|(key, _)| known(key));
        Page {
            rows: rows.filter_map(|(_, row)| row).collect(),
            next,
        }
    }
}

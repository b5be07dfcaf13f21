//! What the cache and SQL say of a row, as it happens: who is told what, and in which order.
//!
//! - A version of a row means the same on every replica, and in SQL.
//! - A version in SQL never goes back, whoever's statement arrives how late.
//! - What leaves the cache is in SQL: nothing that SQL lacks is ever evicted.
//! - Nothing becomes a dead letter: nobody edits rows by hand here, so a conflict would be of our own making.
//! - In the end SQL has exactly the last version of every row.

use std::collections::BTreeMap;

use table::entry::RowId;

use super::Broken;
use crate::database::{Contents, Database, Wrote1};

/// What a replica holds of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Cached {
    pub version: i64,
    pub contents: Contents,
    pub sql: u64,
    pub dead: Option<String>,
}

#[derive(Debug, Default)]
pub struct Written {
    /// Of every version of a row that was seen.
    known: BTreeMap<(RowId, u64), (i64, Contents)>,
    /// What each replica held when it was last heard of.
    held: BTreeMap<u64, BTreeMap<RowId, i64>>,
    pub evicted: u64,
}

fn broken(what: String) -> Broken {
    Broken::new("written", what)
}

impl Written {
    /// SQL had this before all began.
    pub fn on_found(&mut self, id: &RowId, version: i64, contents: Contents) {
        let at = (id.clone(), version.unsigned_abs());
        self.known.insert(at, (version, contents));
    }

    /// A replica begins with these rows, after a start or an install.
    pub fn on_begun(&mut self, replica: u64) {
        self.held.remove(&replica);
    }

    /// A replica has applied an entry about this row.
    pub fn on_cached(
        &mut self,
        replica: u64,
        id: &RowId,
        cached: Option<Cached>,
        sql: &Database,
    ) -> Result<(), Broken> {
        let held = self.held.entry(replica).or_default();
        let Some(cached) = cached else {
            let Some(version) = held.remove(id) else {
                return Ok(());
            };
            self.evicted += 1;
            let in_sql = sql.version(id);
            if in_sql.unsigned_abs() < version.unsigned_abs() {
                return Err(broken(format!(
                    "replica {replica} let {id:?} go at version {version}; SQL has {in_sql}"
                )));
            }
            return Ok(());
        };
        if let Some(why) = &cached.dead {
            return Err(broken(format!(
                "replica {replica} has a dead letter of {id:?} at {}: {why}",
                cached.version
            )));
        }
        held.insert(id.clone(), cached.version);
        let in_sql = sql.version(id).unsigned_abs();
        if cached.sql > in_sql {
            return Err(broken(format!(
                "replica {replica} believes that SQL has {id:?} at {}; it has {in_sql}",
                cached.sql
            )));
        }
        self.compare(
            &format!("replica {replica}"),
            id,
            cached.version,
            cached.contents,
        )
    }

    /// The first who shows a version says what it means.
    fn compare(
        &mut self,
        who: &str,
        id: &RowId,
        version: i64,
        contents: Contents,
    ) -> Result<(), Broken> {
        let at = (id.clone(), version.unsigned_abs());
        let (other, known) = self
            .known
            .entry(at)
            .or_insert_with(|| (version, contents.clone()));
        match (*other, &*known) == (version, &contents) {
            true => Ok(()),
            false => Err(broken(format!(
                "{who} has {id:?} at {version} as {contents:?}; elsewhere {other} is {known:?}"
            ))),
        }
    }

    /// A statement has changed this row.
    pub fn on_written(&mut self, wrote: Wrote1) -> Result<(), Broken> {
        let Wrote1 {
            id,
            before,
            version,
            contents,
        } = wrote;
        if version.unsigned_abs() <= before.unsigned_abs() {
            return Err(broken(format!(
                "SQL had {id:?} at {before} and has {version} now"
            )));
        }
        if !self
            .known
            .contains_key(&(id.clone(), version.unsigned_abs()))
        {
            return Err(broken(format!(
                "SQL has {id:?} at {version}, which nobody has applied"
            )));
        }
        self.compare("SQL", &id, version, contents)
    }

    /// Everything was written back: what SQL lacks, or has otherwise.
    pub fn on_drained(&mut self, sql: &Database) -> Result<(), Broken> {
        let known = std::mem::take(&mut self.known);
        let mut last: BTreeMap<&RowId, &(i64, Contents)> = BTreeMap::new();
        for ((id, _), row) in &known {
            last.insert(id, row);
        }
        for (id, (version, contents)) in last {
            let missing = (0, Contents::new());
            let (has, in_sql) = sql.rows.get(id).unwrap_or(&missing);
            if (has, in_sql) != (version, contents) {
                return Err(broken(format!(
                    "after all was written back SQL has {id:?} at {has} as {in_sql:?}; it should \
                     be {version}, {contents:?}"
                )));
            }
        }
        Ok(())
    }
}

//! A database that keeps its promises (guards, whole statements) and nothing else: statements run late, and hands edit rows.

use std::collections::{BTreeMap, BTreeSet};

use table::entry::{Found, RowId};
use table::leader::{Flush, Read, Wrote};
use table::{Image, Table, Value};

pub const POISON: i64 = 666;

#[derive(Default)]
pub struct Sql {
    pub rows: BTreeMap<RowId, (i64, BTreeMap<u16, Value>)>,
    /// Edited by hand, and nobody has said what to do about it.
    pub edited: BTreeSet<RowId>,
    pub down: bool,
    /// Planted: no guards.
    pub careless: bool,
}

impl Sql {
    pub fn version(&self, id: &RowId) -> i64 {
        self.rows.get(id).map_or(0, |(version, _)| *version)
    }

    pub fn load(&self, table: &Table, id: &RowId) -> Read {
        Read::Found(match self.rows.get(id) {
            None => Found::Missing,
            Some((version, _)) if *version < 0 => Found::Row(Image::deleted(*version)),
            Some((version, values)) => {
                let value = |field: &table::Field| {
                    let value = values.get(&field.id);
                    value.unwrap_or(&field.default).clone()
                };
                let values = table.fields.iter().map(value).collect();
                Found::Row(Image::of_values(table, *version, values))
            }
        })
    }

    pub fn flush(&mut self, table: &Table, row: &Flush) -> Wrote {
        let id = RowId {
            table: table.id,
            key: row.key.clone(),
        };
        assert!(row.low <= row.high && row.high < row.version.unsigned_abs());
        let has = self.version(&id);
        if has == row.version {
            return Wrote::Already;
        }
        if !(row.low..=row.high).contains(&has.unsigned_abs()) && !self.careless {
            return Wrote::Conflict { sql_version: has };
        }
        if row.values.contains(&Value::Int(POISON)) {
            return Wrote::Refused { why: "evil".into() };
        }
        assert!(
            !self.edited.contains(&id),
            "an edit by hand was overwritten: {id:?}"
        );
        assert!(
            row.version.unsigned_abs() > has.unsigned_abs(),
            "SQL went back: {has} to {}",
            row.version
        );
        let (version, values) = self.rows.entry(id).or_default();
        *version = row.version;
        if row.version < 0 {
            values.clear();
        }
        let ids = table.fields.iter().map(|field| field.id);
        values.extend(ids.zip(row.values.iter().cloned()));
        Wrote::Written
    }
}

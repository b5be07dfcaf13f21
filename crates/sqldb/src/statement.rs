//! The SQL texts, in three dialects.
//!
//! MySQL and SQLite take one parameter per value, so their texts grow with the batch; PostgreSQL takes one array per
//! column (`unnest`), so its texts are the same for any number of rows and stay prepared.
//!
//! Names come from a [`Table`] and are checked again here before they are quoted into a text. Nothing else is.

use std::fmt::Write;

use table::{Field, Kind, Table};

use crate::conn::Param;
use crate::error::Error;
use crate::flush::Flush;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    MySql,
    Sqlite,
}

pub(crate) const KEY: &str = "__key__";
pub(crate) const VERSION: &str = "__version__";
pub(crate) const SLOT: &str = "__slot__";

/// The names of a table, quoted.
pub(crate) struct Names {
    pub(crate) dialect: Dialect,
    pub(crate) table: String,
    /// Key, version, slot, then the fields in their order.
    columns: Vec<String>,
    kinds: Vec<Kind>,
}

impl Dialect {
    /// Most parameters of one statement.
    pub(crate) fn params_max(self) -> usize {
        match self {
            Dialect::Postgres | Dialect::MySql => 65535,
            Dialect::Sqlite => 32766,
        }
    }

    /// For names that were checked: none of them contains a quote. SQLite understands both kinds, but takes "name" as a text
    /// when there is no such column, and would answer with it.
    pub(crate) fn quote(self, name: &str) -> String {
        match self {
            Dialect::MySql | Dialect::Sqlite => format!("`{name}`"),
            Dialect::Postgres => format!("\"{name}\""),
        }
    }

    /// The type of a field's column as we make it. Nullable, without default: decision 19.
    pub(crate) fn column_type(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Dialect::Postgres, Kind::Int64) => "bigint",
            (Dialect::Postgres, Kind::Uint64) => "numeric(20,0)",
            (Dialect::Postgres, Kind::Float64) => "double precision",
            (Dialect::Postgres, Kind::String) => "text",
            (Dialect::Postgres, Kind::Blob) => "bytea",
            (Dialect::MySql, Kind::Int64) => "BIGINT",
            (Dialect::MySql, Kind::Uint64) => "BIGINT UNSIGNED",
            (Dialect::MySql, Kind::Float64) => "DOUBLE",
            (Dialect::MySql, Kind::String) => "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            (Dialect::MySql, Kind::Blob) => "LONGBLOB",
            (Dialect::Sqlite, Kind::Int64) => "INTEGER",
            (Dialect::Sqlite, Kind::Uint64) => "ANY",
            (Dialect::Sqlite, Kind::Float64) => "REAL",
            (Dialect::Sqlite, Kind::String) => "TEXT",
            (Dialect::Sqlite, Kind::Blob) => "BLOB",
        }
    }

    /// The transaction of a flush. SQLite has no row locks: the one writer is who began.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Dialect::Postgres => "BEGIN",
            Dialect::MySql => "START TRANSACTION",
            Dialect::Sqlite => "BEGIN IMMEDIATE",
        }
    }

    /// A key as a parameter: `VARBINARY` in MySQL, text in the others.
    pub(crate) fn key(self, key: &str) -> Param<'_> {
        match self {
            Dialect::MySql => Param::Bytes(key.as_bytes()),
            Dialect::Postgres | Dialect::Sqlite => Param::Text(key),
        }
    }
}

pub(crate) fn checked(what: &str, name: &str) -> Result<(), Error> {
    table::name::check(what, name).map_err(|refusal| Error::Unfit(refusal.to_string()))
}

impl Names {
    pub(crate) fn of(dialect: Dialect, table: &Table) -> Result<Names, Error> {
        checked("SQL table", &table.sql_name)?;
        let mut columns: Vec<String> = [KEY, VERSION, SLOT]
            .into_iter()
            .map(|name| dialect.quote(name))
            .collect();
        for field in &table.fields {
            checked("field", &field.name)?;
            columns.push(dialect.quote(&field.name));
        }
        Ok(Names {
            dialect,
            table: dialect.quote(&table.sql_name),
            columns,
            kinds: table.fields.iter().map(|field| field.kind).collect(),
        })
    }

    fn key(&self) -> String {
        self.dialect.quote(KEY)
    }

    fn version(&self) -> String {
        self.dialect.quote(VERSION)
    }

    /// `… = any of these keys`, and the parameters for it.
    fn keys<'a>(&self, keys: impl Iterator<Item = &'a str>) -> (String, Vec<Param<'a>>) {
        match self.dialect {
            Dialect::Postgres => {
                let all: Vec<Option<&str>> = keys.map(Some).collect();
                (
                    format!("{} = ANY($1::text[])", self.key()),
                    vec![Param::Texts(all)],
                )
            }
            Dialect::MySql | Dialect::Sqlite => {
                let all: Vec<Param<'a>> = keys.map(|key| self.dialect.key(key)).collect();
                let marks = vec!["?"; all.len()].join(",");
                (format!("{} IN ({marks})", self.key()), all)
            }
        }
    }

    /// Key, version, fields. PostgreSQL's numeric is read as text.
    fn selected(&self) -> String {
        let mut list = format!("{}, {}", self.key(), self.version());
        for (column, kind) in self.columns.iter().skip(3).zip(&self.kinds) {
            let cast = self.dialect == Dialect::Postgres && *kind == Kind::Uint64;
            let _ = write!(list, ", {column}{}", if cast { "::text" } else { "" });
        }
        list
    }

    /// Key, version and fields of some rows.
    pub(crate) fn load<'a>(&self, keys: impl Iterator<Item = &'a str>) -> (String, Vec<Param<'a>>) {
        let (these, params) = self.keys(keys);
        let (list, table) = (self.selected(), &self.table);
        (format!("SELECT {list} FROM {table} WHERE {these}"), params)
    }

    /// Key and version of some rows, which stay as they are until the transaction ends. Taken in the order
    /// of keys, so that two who want the same rows wait for each other instead of both.
    pub(crate) fn lock<'a>(&self, keys: impl Iterator<Item = &'a str>) -> (String, Vec<Param<'a>>) {
        let (these, params) = self.keys(keys);
        let (key, version, table) = (self.key(), self.version(), &self.table);
        let sql = match self.dialect {
            Dialect::Postgres => format!(
                "SELECT {key}, {version} FROM {table} WHERE {these} ORDER BY {key} COLLATE \"C\" FOR UPDATE"
            ),
            Dialect::MySql => format!(
                "SELECT {key}, {version} FROM {table} FORCE INDEX (PRIMARY) WHERE {these} ORDER BY {key} FOR UPDATE"
            ),
            Dialect::Sqlite => format!("SELECT {key}, {version} FROM {table} WHERE {these}"),
        };
        (sql, params)
    }

    /// The same, without waiting: rows that others have locked are left out. SQLite has no such rows.
    pub(crate) fn lock_free<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
    ) -> (String, Vec<Param<'a>>) {
        let (sql, params) = self.lock(keys);
        (format!("{sql} SKIP LOCKED"), params)
    }

    /// Key and version of some rows, locked or not.
    pub(crate) fn look<'a>(&self, keys: impl Iterator<Item = &'a str>) -> (String, Vec<Param<'a>>) {
        let (these, params) = self.keys(keys);
        let (key, version, table) = (self.key(), self.version(), &self.table);
        let sql = format!("SELECT {key}, {version} FROM {table} WHERE {these}");
        (sql, params)
    }

    /// Rows in the order of their keys.
    pub(crate) fn scan<'a>(
        &self,
        after: Option<&'a str>,
        limit: usize,
        slots: Option<(u16, u16)>,
    ) -> (String, Vec<Param<'a>>) {
        let mut params = Vec::new();
        let mut conditions = Vec::new();
        let order = match self.dialect {
            Dialect::Postgres => format!("{} COLLATE \"C\"", self.key()),
            Dialect::MySql | Dialect::Sqlite => self.key(),
        };
        let mut mark = |param| {
            params.push(param);
            match self.dialect {
                Dialect::Postgres => format!("${}", params.len()),
                Dialect::MySql | Dialect::Sqlite => "?".to_owned(),
            }
        };
        if let Some(after) = after {
            conditions.push(format!("{order} > {}", mark(self.dialect.key(after))));
        }
        if let Some((first, last)) = slots {
            let slot = self.dialect.quote(SLOT);
            let first = mark(Param::Int(i64::from(first)));
            let last = mark(Param::Int(i64::from(last)));
            conditions.push(format!("{slot} BETWEEN {first} AND {last}"));
        }
        let mut sql = format!("SELECT {} FROM {}", self.selected(), self.table);
        if !conditions.is_empty() {
            let _ = write!(sql, " WHERE {}", conditions.join(" AND "));
        }
        let _ = write!(sql, " ORDER BY {order} LIMIT {limit}");
        (sql, params)
    }

    /// Rows that are not there yet. One that is there after all fails the statement.
    pub(crate) fn insert<'a>(&self, rows: &[&'a Flush]) -> (String, Vec<Param<'a>>) {
        let (table, columns) = (&self.table, self.columns.join(", "));
        let (values, params) = self.values(rows);
        (format!("INSERT INTO {table} ({columns}) {values}"), params)
    }

    /// Rows that are there and locked, over older versions only.
    pub(crate) fn overwrite<'a>(&self, rows: &[&'a Flush]) -> (String, Vec<Param<'a>>) {
        let (mut sql, params) = self.insert(rows);
        let (table, key, version) = (&self.table, self.key(), self.version());
        match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => {
                let assigned: Vec<String> = self
                    .columns
                    .iter()
                    .skip(1)
                    .map(|column| format!("{column} = excluded.{column}"))
                    .collect();
                let _ = write!(
                    sql,
                    " ON CONFLICT ({key}) DO UPDATE SET {} WHERE abs({table}.{version}) < abs(excluded.{version})",
                    assigned.join(", ")
                );
            }
            Dialect::MySql => {
                // Any unique index can bring a row here, also another row than ours: then, and if the version is not
                // older, the slot becomes NULL, which it may not be, and the statement fails as a whole.
                // Assignments see those before them, so the version comes last.
                let slot = self.dialect.quote(SLOT);
                let _ = write!(
                    sql,
                    " ON DUPLICATE KEY UPDATE {slot} = IF({key} = VALUES({key}) AND ABS({version}) < ABS(VALUES({version})), VALUES({slot}), NULL)"
                );
                for column in self.columns.iter().skip(3).chain([&version]) {
                    let _ = write!(sql, ", {column} = VALUES({column})");
                }
            }
        }
        (sql, params)
    }

    fn values<'a>(&self, rows: &[&'a Flush]) -> (String, Vec<Param<'a>>) {
        if self.dialect == Dialect::Postgres {
            return self.unnest(rows);
        }
        let one = format!("({})", vec!["?"; self.columns.len()].join(","));
        let mut params = Vec::with_capacity(rows.len() * self.columns.len());
        for row in rows {
            params.push(self.dialect.key(&row.key));
            params.push(Param::Int(row.version));
            params.push(Param::Int(i64::from(row.slot)));
            for at in 0..self.kinds.len() {
                params.push(match row.value(at) {
                    None => Param::Null,
                    Some(table::Value::Int(number)) => Param::Int(*number),
                    Some(table::Value::Uint(number)) => Param::Uint(*number),
                    Some(table::Value::Float(number)) => Param::Float(*number),
                    Some(table::Value::Text(text)) => Param::Text(text),
                    Some(table::Value::Blob(bytes)) => Param::Bytes(bytes),
                });
            }
        }
        (
            format!("VALUES {}", vec![one; rows.len()].join(",")),
            params,
        )
    }

    /// The rows by columns, as PostgreSQL takes them.
    fn unnest<'a>(&self, rows: &[&'a Flush]) -> (String, Vec<Param<'a>>) {
        use table::Value;
        let mut arrays = vec!["$1::text[]", "$2::bigint[]", "$3::bigint[]"]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let mut picked = vec!["c1".to_owned(), "c2".into(), "c3::integer".into()];
        let mut params = vec![
            Param::Texts(rows.iter().map(|row| Some(row.key.as_str())).collect()),
            Param::Ints(rows.iter().map(|row| Some(row.version)).collect()),
            Param::Ints(rows.iter().map(|row| Some(i64::from(row.slot))).collect()),
        ];
        for (at, kind) in self.kinds.iter().enumerate() {
            let number = at + 4;
            let values = rows.iter().map(|row| row.value(at));
            let (array, cast, column) = match kind {
                Kind::Int64 => {
                    let column = values.map(|value| match value {
                        Some(Value::Int(number)) => Some(*number),
                        _ => None,
                    });
                    ("bigint", "", Param::Ints(column.collect()))
                }
                Kind::Uint64 => {
                    let column = values.map(|value| match value {
                        Some(Value::Uint(number)) => Some(number.to_string()),
                        _ => None,
                    });
                    ("text", "::numeric", Param::Numbers(column.collect()))
                }
                Kind::Float64 => {
                    let column = values.map(|value| match value {
                        Some(Value::Float(number)) => Some(*number),
                        _ => None,
                    });
                    ("double precision", "", Param::Floats(column.collect()))
                }
                Kind::String => {
                    let column = values.map(|value| match value {
                        Some(Value::Text(text)) => Some(&**text),
                        _ => None,
                    });
                    ("text", "", Param::Texts(column.collect()))
                }
                Kind::Blob => {
                    let column = values.map(|value| match value {
                        Some(Value::Blob(bytes)) => Some(&**bytes),
                        _ => None,
                    });
                    ("bytea", "", Param::Blobs(column.collect()))
                }
            };
            arrays.push(format!("${number}::{array}[]"));
            picked.push(format!("c{number}{cast}"));
            params.push(column);
        }
        let names: Vec<String> = (1..=arrays.len())
            .map(|number| format!("c{number}"))
            .collect();
        let sql = format!(
            "SELECT {} FROM unnest({}) AS given({})",
            picked.join(", "),
            arrays.join(", "),
            names.join(", ")
        );
        (sql, params)
    }

    /// The table as we make it.
    pub(crate) fn create(&self, table: &Table) -> String {
        let (key, version, slot) = (self.key(), self.version(), self.dialect.quote(SLOT));
        let fields: String = table
            .fields
            .iter()
            .map(|field| format!(", {}", self.column(field)))
            .collect();
        let name = &self.table;
        match self.dialect {
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {name} ({key} text COLLATE \"C\" NOT NULL PRIMARY KEY, {version} bigint NOT NULL, {slot} integer NOT NULL{fields})"
            ),
            Dialect::MySql => format!(
                "CREATE TABLE IF NOT EXISTS {name} ({key} VARBINARY(255) NOT NULL PRIMARY KEY, {version} BIGINT NOT NULL, {slot} INT NOT NULL{fields}) ENGINE=InnoDB"
            ),
            Dialect::Sqlite => format!(
                "CREATE TABLE IF NOT EXISTS {name} ({key} TEXT NOT NULL PRIMARY KEY, {version} INTEGER NOT NULL, {slot} INTEGER NOT NULL{fields}) STRICT"
            ),
        }
    }

    /// A field's column, name and type.
    pub(crate) fn column(&self, field: &Field) -> String {
        let name = self.dialect.quote(&field.name);
        format!("{name} {}", self.dialect.column_type(field.kind))
    }
}

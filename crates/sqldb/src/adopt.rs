//! Whether an SQL table can hold the rows of a table: everything that is in the way, said precisely.
//!
//! A column fits if what is written comes back the same. A text or blob column may be shorter than ours would be: a row
//! that is too long is then refused alone, as by any constraint.
//!
//! Columns may be NULL, because a deleted row stays without its values; columns we do not know must do without us.

use table::{Field, Kind, Table};

use crate::conn::{Cell, Conn, Param, Want};
use crate::database::Database;
use crate::error::Fault;
use crate::statement::{Dialect, KEY, Names, SLOT, VERSION};

/// A column as the database's catalogue describes it.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// In lower case, as the database writes it.
    kind: String,
    not_null: bool,
    has_default: bool,
    generated: bool,
    collation: String,
    /// Of SQLite: types are kept to.
    strict: bool,
}

pub(crate) fn same_name(dialect: Dialect, a: &str, b: &str) -> bool {
    match dialect {
        Dialect::Postgres => a == b,
        Dialect::MySql | Dialect::Sqlite => a.eq_ignore_ascii_case(b),
    }
}

pub(crate) async fn check(
    database: &Database,
    conn: &mut Conn,
    table: &Table,
) -> Result<(), Fault> {
    conn.require_durable()?;
    let dialect = database.pool.target.dialect();
    let columns = columns(database, conn, table).await?;
    let name = &table.sql_name;
    if columns.is_empty() {
        return Err(Fault::Unfit(format!("there is no table {name}")));
    }
    let mut flaws = Vec::new();
    let find = |wanted: &str| {
        let same = |column: &&Column| same_name(dialect, &column.name, wanted);
        columns.iter().find(same)
    };
    for ours in [KEY, VERSION, SLOT] {
        match find(ours) {
            None => flaws.push(format!("column {ours} is missing")),
            Some(column) => flaws.extend(own_flaw(dialect, ours, column)),
        }
    }
    for field in &table.fields {
        match find(&field.name) {
            None => flaws.push(format!("column {} is missing", field.name)),
            Some(column) => flaws.extend(field_flaw(dialect, field, column)),
        }
    }
    for column in &columns {
        let ours = [KEY, VERSION, SLOT].into_iter();
        let mut known = ours.chain(table.fields.iter().map(|field| field.name.as_str()));
        let stranger = !known.any(|known| same_name(dialect, known, &column.name));
        if stranger && column.not_null && !column.has_default && !column.generated {
            flaws.push(format!(
                "column {} is no field, NOT NULL and without default: no row could be inserted",
                column.name
            ));
        }
    }
    if find(KEY).is_some() && !key_is_unique(dialect, conn, table).await? {
        flaws.push(format!("{KEY} is not the primary key"));
    }
    flaws.extend(house_flaw(dialect, conn, table).await?);
    if flaws.is_empty() {
        return Ok(());
    }
    Err(Fault::Unfit(format!("table {name}: {}", flaws.join("; "))))
}

/// All columns; none if there is no such table.
pub(crate) async fn columns(
    database: &Database,
    conn: &mut Conn,
    table: &Table,
) -> Result<Vec<Column>, Fault> {
    let dialect = database.pool.target.dialect();
    let names = Names::of(dialect, table)?; // checks them
    let (sql, name) = match dialect {
        Dialect::Postgres => (
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)::text, a.attnotnull::int::bigint, \
             (a.atthasdef OR a.attidentity <> '')::int::bigint, (a.attgenerated <> '')::int::bigint, \
             coalesce(c.collname::text, ''), 0::bigint \
             FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation \
             WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            Param::Owned(names.table.clone()),
        ),
        Dialect::MySql => (
            "SELECT column_name, column_type, CAST(is_nullable = 'NO' AS SIGNED), \
             CAST(column_default IS NOT NULL OR extra LIKE '%auto_increment%' AS SIGNED), \
             CAST(extra LIKE '%GENERATED' AS SIGNED), coalesce(collation_name, ''), CAST(0 AS SIGNED) \
             FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? ORDER BY ordinal_position",
            Param::Text(&table.sql_name),
        ),
        Dialect::Sqlite => (
            "SELECT c.name, lower(c.type), c.\"notnull\", c.dflt_value IS NOT NULL, c.hidden <> 0, '', t.strict \
             FROM pragma_table_xinfo(?1) c JOIN pragma_table_list t ON t.name = ?1 COLLATE NOCASE AND t.schema = 'main' ORDER BY c.cid",
            Param::Text(&table.sql_name),
        ),
    };
    let wants = [
        Want::Text,
        Want::Text,
        Want::Int,
        Want::Int,
        Want::Int,
        Want::Text,
        Want::Int,
    ];
    let rows = conn.fetch(sql, vec![name], &wants).await?;
    rows.into_iter()
        .map(|row| column(row).map_err(Fault::Unfit))
        .collect()
}

fn column(row: Vec<Cell>) -> Result<Column, String> {
    let mut cells = row.into_iter();
    let mut next = || cells.next().unwrap_or(Cell::Null);
    Ok(Column {
        name: next().into_text()?,
        kind: next().into_text()?.to_ascii_lowercase(),
        not_null: next().into_int()? != 0,
        has_default: next().into_int()? != 0,
        generated: next().into_int()? != 0,
        collation: next().into_text()?,
        strict: next().into_int()? != 0,
    })
}

/// What is wrong with `__key__`, `__version__` or `__slot__`.
fn own_flaw(dialect: Dialect, name: &str, column: &Column) -> Option<String> {
    let kind = column.kind.as_str();
    let needs = match (dialect, name) {
        (Dialect::Postgres, KEY) => {
            if !long_enough(kind, "character varying", 255) && kind != "text" {
                "text COLLATE \"C\""
            } else if !matches!(column.collation.as_str(), "C" | "POSIX" | "ucs_basic") {
                let told = &column.collation;
                return Some(format!(
                    "column {name} has collation \"{told}\", needs \"C\""
                ));
            } else {
                return null_flaw(name, column);
            }
        }
        (Dialect::MySql, KEY) if !long_enough(kind, "varbinary", 255) => "varbinary(255)",
        (Dialect::Sqlite, KEY) if affinity(column) != Affinity::Text => "TEXT",
        (Dialect::Postgres | Dialect::MySql, VERSION) if !is_int(kind, &["bigint"]) => "bigint",
        (Dialect::Postgres | Dialect::MySql, SLOT)
            if !is_int(kind, &["integer", "int", "bigint"]) =>
        {
            "integer"
        }
        (Dialect::Sqlite, VERSION | SLOT) if affinity(column) != Affinity::Integer => "INTEGER",
        _ => return null_flaw(name, column),
    };
    Some(format!("column {name} is {kind}, needs {needs}"))
}

fn null_flaw(name: &str, column: &Column) -> Option<String> {
    (!column.not_null).then(|| format!("column {name} may be NULL, needs NOT NULL"))
}

/// What is wrong with the column of a field.
pub(crate) fn field_flaw(dialect: Dialect, field: &Field, column: &Column) -> Option<String> {
    let (name, kind) = (&field.name, column.kind.as_str());
    let starts = |types: &[&str]| {
        let bare = kind.split('(').next().unwrap_or_default();
        types.contains(&bare.trim_end())
    };
    let fits = match (dialect, field.kind) {
        (Dialect::Postgres, Kind::Int64) => kind == "bigint",
        (Dialect::Postgres, Kind::Uint64) => wide_numeric(kind),
        (Dialect::Postgres, Kind::Float64) => kind == "double precision",
        (Dialect::Postgres, Kind::String) => starts(&["text", "character varying"]),
        (Dialect::Postgres, Kind::Blob) => kind == "bytea",
        (Dialect::MySql, Kind::Int64) => is_int(kind, &["bigint"]),
        (Dialect::MySql, Kind::Uint64) => {
            starts(&["bigint"]) && kind.ends_with(" unsigned") || kind == "bigint unsigned"
        }
        (Dialect::MySql, Kind::Float64) => kind == "double",
        (Dialect::MySql, Kind::String) => {
            starts(&["longtext", "mediumtext", "text", "tinytext", "varchar"])
                && column.collation.starts_with("utf8mb4")
        }
        (Dialect::MySql, Kind::Blob) => {
            starts(&["longblob", "mediumblob", "blob", "tinyblob", "varbinary"])
        }
        (Dialect::Sqlite, kind) => match (kind, affinity(column)) {
            (Kind::Int64, Affinity::Integer) => true,
            (Kind::Uint64, Affinity::Any | Affinity::Text) => true,
            (Kind::Uint64, Affinity::Blob) => !column.strict,
            (Kind::Float64, Affinity::Real) => true,
            (Kind::String, Affinity::Text) => true,
            (Kind::Blob, Affinity::Blob) => true,
            _ => false,
        },
    };
    let declared = field.kind;
    if !fits {
        let needs = dialect.column_type(field.kind);
        let collation = match column.collation.as_str() {
            "" => String::new(),
            told => format!(" ({told})"),
        };
        return Some(format!(
            "column {name} is {kind}{collation}, a field of {declared} needs {needs}"
        ));
    }
    if column.generated {
        return Some(format!("column {name} is generated and cannot be written"));
    }
    column.not_null.then(|| {
        format!(
            "column {name} is NOT NULL, but a deleted row stays without values: drop the NOT NULL"
        )
    })
}

/// `varbinary(300)` is long enough for 255.
fn long_enough(kind: &str, bare: &str, least: u32) -> bool {
    let Some(rest) = kind.strip_prefix(bare) else {
        return false;
    };
    let length = rest.trim().trim_start_matches('(').trim_end_matches(')');
    length.is_empty() || length.parse::<u32>().is_ok_and(|length| length >= least)
}

/// MariaDB writes `bigint(20)`.
fn is_int(kind: &str, types: &[&str]) -> bool {
    let bare = kind.split('(').next().unwrap_or_default();
    types.contains(&bare) && !kind.contains("unsigned")
}

/// `numeric`, or `numeric(20,0)` and wider.
fn wide_numeric(kind: &str) -> bool {
    if kind == "numeric" {
        return true;
    }
    let inner = kind
        .strip_prefix("numeric(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some((digits, scale)) = inner.and_then(|inner| inner.split_once(',')) else {
        return false;
    };
    scale == "0" && digits.parse::<u32>().is_ok_and(|digits| digits >= 20)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affinity {
    Integer,
    Text,
    Blob,
    Real,
    Numeric,
    Any,
}

/// What SQLite converts the values of a column to (datatype3.html, 3.1).
fn affinity(column: &Column) -> Affinity {
    let kind = column.kind.as_str();
    let has = |part: &str| kind.contains(part);
    if kind == "any" && column.strict {
        Affinity::Any
    } else if has("int") {
        Affinity::Integer
    } else if has("char") || has("clob") || has("text") {
        Affinity::Text
    } else if has("blob") || kind.is_empty() {
        Affinity::Blob
    } else if has("real") || has("floa") || has("doub") {
        Affinity::Real
    } else {
        Affinity::Numeric
    }
}

async fn key_is_unique(dialect: Dialect, conn: &mut Conn, table: &Table) -> Result<bool, Fault> {
    let quoted = dialect.quote(&table.sql_name);
    let (sql, name) = match dialect {
        Dialect::Postgres => (
            "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
             WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indnkeyatts = 1 \
             AND i.indpred IS NULL AND i.indexprs IS NULL AND a.attname = '__key__'",
            Param::Text(quoted.as_str()),
        ),
        // The first column of the primary key, and no second.
        Dialect::MySql => (
            "SELECT CAST(count(*) = 1 AND sum(column_name = '__key__' AND sub_part IS NULL) = 1 AS SIGNED) FROM information_schema.statistics \
             WHERE table_schema = DATABASE() AND table_name = ? AND index_name = 'PRIMARY'",
            Param::Text(table.sql_name.as_str()),
        ),
        Dialect::Sqlite => (
            "SELECT count(*) FROM pragma_index_list(?1) l WHERE l.\"unique\" = 1 AND l.partial = 0 \
             AND (SELECT count(*) FROM pragma_index_xinfo(l.name) WHERE key = 1) = 1 \
             AND EXISTS (SELECT 1 FROM pragma_index_xinfo(l.name) x WHERE x.key = 1 AND x.name = '__key__' AND x.coll = 'BINARY')",
            Param::Text(table.sql_name.as_str()),
        ),
    };
    let rows = conn.fetch(sql, vec![name], &[Want::Int]).await?;
    let count = rows.into_iter().flatten().next().unwrap_or(Cell::Null);
    // NULL: no primary key at all
    Ok(count.into_int().unwrap_or(0) > 0)
}

/// What is wrong with the database or the table as a whole.
async fn house_flaw(
    dialect: Dialect,
    conn: &mut Conn,
    table: &Table,
) -> Result<Option<String>, Fault> {
    let (sql, params, wanted) = match dialect {
        Dialect::Postgres => (
            "SELECT current_setting('server_encoding')",
            Vec::new(),
            "UTF8",
        ),
        Dialect::MySql => (
            "SELECT coalesce(engine, table_type) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
            vec![Param::Text(table.sql_name.as_str())],
            "InnoDB",
        ),
        Dialect::Sqlite => ("PRAGMA encoding", Vec::new(), "UTF-8"),
    };
    let rows = conn.fetch(sql, params, &[Want::Text]).await?;
    let told = rows.into_iter().flatten().next().unwrap_or(Cell::Null);
    let told = told.into_text().map_err(Fault::Unfit)?;
    if told == wanted {
        return Ok(None);
    }
    let what = match dialect {
        Dialect::MySql => "its engine",
        Dialect::Postgres | Dialect::Sqlite => "the encoding of the database",
    };
    Ok(Some(format!("{what} is {told}, needs {wanted}")))
}

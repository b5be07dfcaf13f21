//! Writing rows back: each only over the version its writer expects.
//!
//! ```text
//!   BEGIN
//!   SELECT key, version … FOR UPDATE        what is there, held until the end, in the order of keys
//!       the table is another by now         -> Unfit, nothing is written
//!       the version itself                  -> Already
//!       not in low..=high                   -> Conflict, untouched
//!       absent                              -> INSERT            fails if somebody inserted meanwhile: all again
//!       in low..=high                       -> guarded upsert    fails or does nothing over a newer version
//!   COMMIT                                  -> Written
//! ```
//!
//! Rows that somebody else has locked for longer than a statement may take are left out, and are `Busy`; the others are written.
//!
//! A statement that fails because of a row takes the transaction with it. Then the batch is halved until the row is alone, and it alone is
//! `Refused`: n rows with one bad among them cost about 2 log n transactions, once.
//!
//! What makes it safe to do any of this twice, late, or from two nodes: all that is written is decided by what
//! the database has *while it is locked*, never by what a node remembers. Versions tell nothing about a table that was dropped and made anew
//! under its name, so the caller says whether it is still the one that is meant ([`Meant`]); asked when the lock keeps it from going.

use std::collections::{BTreeMap, BTreeSet};

use table::{Table, Value};

use crate::conn::{Cell, Conn, Param, Want};
use crate::database::{Database, Limits};
use crate::error::Fault;
use crate::statement::{Dialect, Names};

/// Whether the table of this name is still the one the rows are of.
pub type Meant<'a> = &'a (dyn Fn() -> bool + Sync);

/// A row to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Flush {
    pub key: String,
    pub slot: u16,
    /// Negative: deleted; the row stays, without values.
    pub version: i64,
    /// The versions, without sign, that the database may have now; 0 is no row. Usually both what it is known to have.
    pub low: u64,
    pub high: u64,
    /// One per field of the table, in their order; none of a deleted row.
    pub values: Vec<Value>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flushed {
    Written,
    /// The database had exactly this version: written before, perhaps by another node.
    Already,
    /// The database has a version nobody expected, 0 being none: changed behind our back, or a newer leader wrote. Untouched.
    Conflict {
        sql_version: i64,
    },
    /// The database will not take this row: a constraint, a type, a length.
    Refused {
        why: String,
    },
    /// Somebody else has locked it. Untouched; later it may work.
    Busy,
}

impl Flush {
    pub(crate) fn value(&self, at: usize) -> Option<&Value> {
        if self.version < 0 {
            return None; // nothing is left of a deleted row
        }
        self.values.get(at)
    }

    fn size(&self) -> usize {
        self.key.len() + 16 + self.values.iter().map(Value::size).sum::<usize>()
    }

    /// What is wrong with it whatever the database has.
    fn flaw(&self, table: &Table) -> Option<String> {
        if let Err(refusal) = table::name::check_key(self.key.as_bytes()) {
            return Some(refusal.to_string());
        }
        let newest = self.version.unsigned_abs();
        if self.version == i64::MIN || self.low > self.high || self.high >= newest {
            let (low, high, version) = (self.low, self.high, self.version);
            return Some(format!("version {version} cannot follow {low} to {high}"));
        }
        if self.version < 0 {
            return None;
        }
        if self.values.len() != table.fields.len() {
            let (given, fields) = (self.values.len(), table.fields.len());
            return Some(format!("{given} values for {fields} fields"));
        }
        let fits = |(field, value): (&table::Field, &Value)| {
            value.clone().check(field.kind, &field.name).err()
        };
        let mut flaws = table.fields.iter().zip(&self.values).filter_map(fits);
        flaws.next().map(|refusal| refusal.to_string())
    }
}

pub(crate) async fn flush(
    database: &Database,
    conn: &mut Conn,
    table: &Table,
    rows: &[Flush],
    is_meant: Meant<'_>,
) -> Result<Vec<Flushed>, Fault> {
    let names = Names::of(database.pool.target.dialect(), table)?;
    let mut outcomes: Vec<Option<Flushed>> = rows
        .iter()
        .map(|row| row.flaw(table).map(|why| Flushed::Refused { why }))
        .collect();
    let mut sorted: Vec<(usize, &Flush)> = rows
        .iter()
        .enumerate()
        .filter(|(at, _)| outcomes.get(*at).is_some_and(Option::is_none))
        .collect();
    sorted.sort_by(|(_, a), (_, b)| {
        (&a.key, a.version.unsigned_abs()).cmp(&(&b.key, b.version.unsigned_abs()))
    });
    for batch in batches(&sorted, &database.limits, &names, table) {
        settle(conn, &names, batch, is_meant, &mut outcomes).await?;
    }
    let missing = || Flushed::Refused {
        why: "never tried".into(), // every row is in a batch or has a flaw
    };
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_or_else(missing))
        .collect())
}

/// Rows that fit one statement; a key at most once in each.
fn batches<'b, 'a>(
    sorted: &'b [(usize, &'a Flush)],
    limits: &Limits,
    names: &Names,
    table: &Table,
) -> Vec<&'b [(usize, &'a Flush)]> {
    let by_params = names.dialect.params_max() / (table.fields.len() + 3);
    let most = limits.rows.min(by_params).max(1);
    let mut batches = Vec::new();
    let mut rest = sorted;
    while !rest.is_empty() {
        let mut bytes = 0;
        let mut before: Option<&str> = None;
        let fits = |(_, row): &&(usize, &'a Flush)| {
            bytes += row.size();
            let again = before == Some(row.key.as_str());
            let first = before.is_none();
            before = Some(row.key.as_str());
            first || (bytes <= limits.bytes && !again)
        };
        let count = rest.iter().take(most).take_while(fits).count();
        let (batch, others) = rest.split_at(count.max(1));
        batches.push(batch);
        rest = others;
    }
    batches
}

/// All of a batch, in halves if need be.
async fn settle(
    conn: &mut Conn,
    names: &Names,
    batch: &[(usize, &Flush)],
    is_meant: Meant<'_>,
    outcomes: &mut [Option<Flushed>],
) -> Result<(), Fault> {
    // With each part, whether it has met a taken value before: the first time it may have been a race with another writer.
    let mut open = vec![(batch.to_vec(), false)];
    while let Some((mut part, met)) = open.pop() {
        let rows: Vec<&Flush> = part.iter().map(|(_, row)| *row).collect();
        match transact(conn, names, &rows, is_meant).await {
            Ok(decided) => {
                for ((at, _), outcome) in part.iter().zip(decided) {
                    if let Some(place) = outcomes.get_mut(*at) {
                        *place = Some(outcome);
                    }
                }
            }
            Err(Fault::Locked(why)) => {
                conn.say("ROLLBACK").await?;
                // None: all of the table, or something else. A database that is too old to say does not.
                let locked = match locked(conn, names, &rows).await {
                    Ok(locked) if !locked.is_empty() => locked,
                    _ => return Err(Fault::Transient(why)),
                };
                let busy = part.extract_if(.., |(_, row)| locked.contains(&row.key));
                for (at, _) in busy {
                    if let Some(place) = outcomes.get_mut(at) {
                        *place = Some(Flushed::Busy);
                    }
                }
                if !part.is_empty() {
                    open.push((part, met));
                }
            }
            Err(Fault::Row { why, taken }) => {
                conn.say("ROLLBACK").await?;
                match &part[..] {
                    _ if taken && !met => open.push((part, true)),
                    [(at, _)] => {
                        if let Some(place) = outcomes.get_mut(*at) {
                            *place = Some(Flushed::Refused { why });
                        }
                    }
                    _ => {
                        let (low, high) = part.split_at(part.len() / 2);
                        open.push((high.to_vec(), false));
                        open.push((low.to_vec(), false));
                    }
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// Of these rows, those that somebody else has locked.
async fn locked(
    conn: &mut Conn,
    names: &Names,
    rows: &[&Flush],
) -> Result<BTreeSet<String>, Fault> {
    if names.dialect == Dialect::Sqlite {
        return Ok(BTreeSet::new());
    }
    let keys = || rows.iter().map(|row| row.key.as_str());
    conn.say(names.dialect.begin()).await?;
    let mut free = versions(conn, names.lock_free(keys())).await?;
    conn.say("ROLLBACK").await?;
    let there = versions(conn, names.look(keys())).await?;
    let is_locked = |key: &String| free.remove(key).is_none();
    Ok(there.into_keys().filter(is_locked).collect())
}

/// Keys and versions of a statement that asks for these.
async fn versions(
    conn: &mut Conn,
    (sql, params): (String, Vec<Param<'_>>),
) -> Result<BTreeMap<String, i64>, Fault> {
    let mut there = BTreeMap::new();
    for row in conn.fetch(&sql, params, &[Want::Key, Want::Int]).await? {
        let mut cells = row.into_iter();
        if let (Some(Cell::Text(key)), Some(Cell::Int(version))) = (cells.next(), cells.next()) {
            there.insert(key, version);
        }
    }
    Ok(there)
}

/// One transaction for all of these.
async fn transact(
    conn: &mut Conn,
    names: &Names,
    rows: &[&Flush],
    is_meant: Meant<'_>,
) -> Result<Vec<Flushed>, Fault> {
    conn.require_durable()?;
    conn.say(names.dialect.begin()).await?;
    let keys = rows.iter().map(|row| row.key.as_str());
    let there = versions(conn, names.lock(keys)).await?;
    if !is_meant() {
        let why = "the table, or a field of it, was dropped meanwhile".into();
        return Err(Fault::Unfit(why)); // the connection is closed, and the transaction with it
    }
    let mut absent = Vec::new();
    let mut older = Vec::new();
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        let found = there.get(&row.key).copied();
        let sql_version = found.unwrap_or(0);
        let expected = (row.low..=row.high).contains(&sql_version.unsigned_abs());
        outcomes.push(if found == Some(row.version) {
            Flushed::Already
        } else if !expected {
            Flushed::Conflict { sql_version }
        } else {
            match found {
                None => absent.push(*row),
                Some(_) => older.push(*row),
            }
            Flushed::Written
        });
    }
    if !absent.is_empty() {
        let (sql, params) = names.insert(&absent);
        conn.execute(&sql, params).await?;
    }
    if !older.is_empty() {
        let (sql, params) = names.overwrite(&older);
        let touched = conn.execute(&sql, params).await?;
        // MySQL counts otherwise, and fails instead.
        let counts = names.dialect != Dialect::MySql;
        if counts && touched != older.len() as u64 {
            let why = "a row changed while it was locked".into();
            return Err(Fault::Row { why, taken: true });
        }
    }
    conn.say("COMMIT").await?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    //! The guard inside the statement, without the lock that comes before it: the second lock on the door.

    use databases::{Engine, Server};

    use super::*;

    fn flush(key: &str, version: i64, name: &str) -> Flush {
        Flush {
            key: key.into(),
            slot: 1,
            version,
            low: 0,
            high: 0,
            values: vec![Value::Text(name.into())],
        }
    }

    async fn guarded(url: &str) {
        let database = Database::open(url, Limits::default()).unwrap();
        let table = Table {
            id: 1,
            name: "t".into(),
            epoch: 1,
            backend: "main".into(),
            sql_name: "t".into(),
            fields: table::parse_fields("name:string", 1).unwrap(),
            next_field: 2,
            closed: false,
        };
        database.create_table(&table).await.unwrap();
        let names = Names::of(database.pool.target.dialect(), &table).unwrap();
        let mut lease = database.pool.take(&database.limits).await.unwrap();
        let column = match names.dialect {
            Dialect::MySql => "name(20)", // a prefix: it is a LONGTEXT
            _ => "name",
        };
        let unique = format!("CREATE UNIQUE INDEX u ON t ({column})");
        lease.conn.say(&unique).await.unwrap();
        let first = [flush("a", 5, "ann"), flush("b", -5, "")];
        database.flush(&table, &first).await.unwrap();
        // older or equal, over a row and over a deleted one; and a row that is absent, whose unique value is another's
        for late in [
            flush("a", 4, "x"),
            flush("a", -5, "x"),
            flush("b", 5, "y"),
            flush("c", 9, "ann"),
        ] {
            let (sql, params) = names.overwrite(&[&late]);
            let done = lease.conn.execute(&sql, params).await;
            let held = matches!(done, Ok(0) | Err(Fault::Row { .. }));
            assert!(held, "{late:?}: {done:?}");
        }
        let found = database.load(&table, &["a", "b", "c"]).await.unwrap();
        let at = |version, values| crate::Loaded::Found { version, values };
        let ann = vec![Value::Text("ann".into())];
        assert_eq!(
            found,
            [at(5, ann), at(-5, Vec::new()), crate::Loaded::Missing]
        );
    }

    fn run(work: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work);
    }

    #[test]
    fn guard_of_postgres() {
        if let Some(server) = Server::start(Engine::Postgres) {
            run(guarded(&server.url()));
        }
    }

    #[test]
    fn guard_of_mariadb() {
        if let Some(server) = Server::start(Engine::Mariadb) {
            run(guarded(&server.url()));
        }
    }

    #[test]
    fn guard_of_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        run(guarded(&format!(
            "sqlite://{}/t.db",
            folder.path().display()
        )));
    }
}

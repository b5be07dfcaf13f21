//! A database by its URL, and what can be asked of it.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use table::{Field, Table};

use crate::adopt::Column;
use crate::conn::Target;
use crate::error::{Error, Fault};
use crate::flush::{Flush, Flushed, Meant};
use crate::load::Loaded;
use crate::pool::Pool;
use crate::scan::Page;

/// What one database may cost.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most connections at a time.
    pub connections: usize,
    /// For a connection to become free or be made.
    pub connect: Duration,
    /// For one statement, waiting for locks included.
    pub statement: Duration,
    /// For one change of a table; an `ALTER TABLE` may copy all of it.
    pub shape: Duration,
    /// Most rows of one transaction or SELECT.
    pub rows: usize,
    /// Most bytes of values in one statement. MariaDB takes no packet above 16 MB by default.
    pub bytes: usize,
    /// Rows are written only where an answered commit is on disk. `durability=relaxed` in a URL takes it back.
    pub durable: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 8,
            connect: Duration::from_secs(3),
            statement: Duration::from_secs(5),
            shape: Duration::from_secs(600),
            rows: 1000,
            bytes: 4 * 1024 * 1024,
            durable: true,
        }
    }
}

/// A word of ours in the query of a URL, that no driver is shown.
const RELAXED: &str = "durability=relaxed";

/// The URL as drivers know it, and whether it had our word.
fn without_relaxed(url: &str) -> (String, bool) {
    let Some((place, query)) = url.split_once('?') else {
        return (url.to_owned(), false);
    };
    let rest: Vec<&str> = query.split('&').filter(|pair| *pair != RELAXED).collect();
    let relaxed = rest.len() < query.split('&').count();
    match rest.is_empty() {
        true => (place.to_owned(), relaxed),
        false => (format!("{place}?{}", rest.join("&")), relaxed),
    }
}

/// Runs `$work` on a connection. One that had been waiting in the pool may have died there, which is found out only now: then once more on
/// a new one. Everything asked here may be asked twice.
macro_rules! with_conn {
    ($database:ident, $conn:ident => $work:expr) => {
        loop {
            let mut lease = $database.pool.take(&$database.limits).await?;
            let reused = lease.reused;
            let $conn = &mut lease.conn;
            let result = $work.await;
            match lease.settle(result) {
                Err(Fault::Lost(_)) if reused => {}
                settled => break Ok(settled?),
            }
        }
    };
}

/// One SQL database. Cheap to ask, shared by reference.
pub struct Database {
    pub(crate) pool: Pool,
    pub(crate) limits: Limits,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        write!(f, "Database({:?})", self.pool.target.dialect())
    }
}

impl Database {
    /// For `postgres://`, `mysql://` or `sqlite://`. Does not connect yet: a node starts while its database is away.
    pub fn open(url: &str, mut limits: Limits) -> Result<Database, Error> {
        let (url, relaxed) = without_relaxed(url);
        limits.durable &= !relaxed;
        let url = url.as_str();
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let unfit = |error: sqlx::Error| Error::Unfit(format!("the URL is not valid: {error}"));
        let target = match scheme {
            Some("postgres" | "postgresql") => {
                let options = sqlx::postgres::PgConnectOptions::from_str(url).map_err(unfit)?;
                Target::Postgres(Box::new(options))
            }
            Some("mysql" | "mariadb") => {
                let options = sqlx::mysql::MySqlConnectOptions::from_str(url).map_err(unfit)?;
                Target::MySql(Box::new(options))
            }
            Some("sqlite") => {
                if url.contains(":memory:") || url.contains("mode=memory") {
                    let why =
                        "a SQLite database in memory is lost with its connection: name a file";
                    return Err(Error::Unfit(why.into()));
                }
                let options = sqlx::sqlite::SqliteConnectOptions::from_str(url).map_err(unfit)?;
                Target::Sqlite(Box::new(options))
            }
            _ => {
                let why = "a database URL begins with postgres://, mysql:// or sqlite://";
                return Err(Error::Unfit(why.into()));
            }
        };
        Ok(Database {
            pool: Pool::new(target, &limits),
            limits,
        })
    }

    /// Statements sent so far that read or wrote rows: what coalescing saves is seen here.
    pub fn statements(&self) -> u64 {
        self.pool.sent.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), Error> {
        with_conn!(self, conn => conn.say("SELECT 1"))
    }

    /// The rows of `keys`, in their order, by one SELECT (per [`Limits::rows`]).
    pub async fn load(&self, table: &Table, keys: &[&str]) -> Result<Vec<Loaded>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        with_conn!(self, conn => crate::load::load(self, conn, table, keys))
    }

    /// Writes rows, each if the database has the version it expects: what became of each, in their order.
    /// After an error some may have been written; the same call again answers `Already` for these.
    pub async fn flush(&self, table: &Table, rows: &[Flush]) -> Result<Vec<Flushed>, Error> {
        self.flush_if(table, rows, &|| true).await
    }

    /// The same, as long as the table there is the one that is meant: asked while it is locked, so that it cannot go any more.
    pub async fn flush_if(
        &self,
        table: &Table,
        rows: &[Flush],
        is_meant: Meant<'_>,
    ) -> Result<Vec<Flushed>, Error> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        with_conn!(self, conn => crate::flush::flush(self, conn, table, rows, is_meant))
    }

    /// Up to `limit` rows after `after` in the order of their keys' bytes, deleted ones included; of `slots` only, if given.
    pub async fn scan(
        &self,
        table: &Table,
        after: Option<&str>,
        limit: usize,
        slots: Option<RangeInclusive<u16>>,
    ) -> Result<Page, Error> {
        with_conn!(self, conn => crate::scan::scan(self, conn, table, after, limit, slots.clone()))
    }

    /// Makes the SQL table, or finds that one that fits is there.
    pub async fn create_table(&self, table: &Table) -> Result<(), Error> {
        crate::shape::create_table(self, table).await
    }

    /// Whether the SQL table is there and can hold these rows; if not, everything that is in the way.
    pub async fn check_table(&self, table: &Table) -> Result<(), Error> {
        with_conn!(self, conn => crate::adopt::check(self, conn, table))
    }

    /// Adds the column of a field, or finds that one that fits is there.
    pub async fn add_field(&self, table: &Table, field: &Field) -> Result<(), Error> {
        crate::shape::add_field(self, table, field).await
    }

    /// Drops the column, or finds it gone.
    pub async fn drop_field(&self, table: &Table, name: &str) -> Result<(), Error> {
        crate::shape::drop_field(self, table, name).await
    }

    /// Drops the SQL table with all its rows, or finds it gone.
    pub async fn drop_table(&self, table: &Table) -> Result<(), Error> {
        crate::shape::drop_table(self, table).await
    }

    pub(crate) async fn columns(&self, table: &Table) -> Result<Vec<Column>, Error> {
        with_conn!(self, conn => crate::adopt::columns(self, conn, table))
    }
}

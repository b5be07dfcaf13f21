//! What must hold on every database, against real ones: PostgreSQL, MariaDB and SQLite.
//!
//! Each test starts a server of its own (a second or so) and uses several tables in it.

mod data;
mod guards;
mod outage;
mod poison;
mod shapes;

use std::time::Duration;

use databases::{Engine, Server};
use sqldb::{Database, Flush, Flushed, Limits};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use table::{Table, Value, parse_fields};

/// One database for one test.
pub struct House {
    pub which: Which,
    pub server: Option<Server>,
    pub url: String,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Postgres,
    Mariadb,
    Sqlite,
}

impl House {
    /// `None`: not installed here.
    pub fn open(which: Which) -> Option<House> {
        let folder = tempfile::tempdir().unwrap();
        let server = match which {
            Which::Postgres => Some(Server::start(Engine::Postgres)?),
            Which::Mariadb => Some(Server::start(Engine::Mariadb)?),
            Which::Sqlite => None,
        };
        let url = match &server {
            Some(server) => server.url(),
            None => format!("sqlite://{}/tables.db", folder.path().display()),
        };
        Some(House {
            which,
            server,
            url,
            _folder: folder,
        })
    }

    pub fn database(&self) -> Database {
        self.database_with(limits())
    }

    pub fn database_with(&self, limits: Limits) -> Database {
        Database::open(&self.url, limits).unwrap()
    }

    /// A connection that knows nothing of ours: the hand of a stranger.
    pub async fn stranger(&self) -> Stranger {
        let url = &self.url;
        match self.which {
            Which::Postgres => Stranger::Postgres(PgConnection::connect(url).await.unwrap()),
            Which::Mariadb => Stranger::Mariadb(MySqlConnection::connect(url).await.unwrap()),
            Which::Sqlite => {
                let url = format!("{url}?mode=rwc");
                Stranger::Sqlite(SqliteConnection::connect(&url).await.unwrap())
            }
        }
    }

    pub fn quoted(&self, name: &str) -> String {
        match self.which {
            Which::Mariadb => format!("`{name}`"),
            _ => format!("\"{name}\""),
        }
    }
}

/// Short enough that a test of a time-out is quick, long enough for a busy machine.
pub fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(20),
        statement: Duration::from_secs(20),
        ..Limits::default()
    }
}

pub enum Stranger {
    Postgres(PgConnection),
    Mariadb(MySqlConnection),
    Sqlite(SqliteConnection),
}

pub async fn run(stranger: &mut Stranger, sql: &str) {
    let text = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    let done = match stranger {
        Stranger::Postgres(stranger) => text.execute(stranger).await.map(drop),
        Stranger::Mariadb(stranger) => text.execute(stranger).await.map(drop),
        Stranger::Sqlite(stranger) => text.execute(stranger).await.map(drop),
    };
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub fn declare(name: &str, fields: &str) -> Table {
    let fields = parse_fields(fields, 1).unwrap();
    let table = Table {
        id: 1,
        name: name.into(),
        epoch: 1,
        backend: "main".into(),
        sql_name: name.into(),
        next_field: fields.len() as u16 + 1,
        closed: false,
        fields,
    };
    table.check().unwrap();
    table
}

/// Row `key` at `version`, over exactly the version before.
pub fn row(key: &str, version: i64, values: Vec<Value>) -> Flush {
    let before = version.unsigned_abs().saturating_sub(1);
    Flush {
        key: key.into(),
        slot: 7,
        version,
        low: before,
        high: before,
        values,
    }
}

pub fn age(number: i64) -> Vec<Value> {
    vec![Value::Int(number)]
}

pub async fn write(database: &Database, table: &Table, row: Flush) -> Flushed {
    let mut outcomes = database.flush(table, &[row]).await.unwrap();
    outcomes.remove(0)
}

macro_rules! on {
    ($which:ident) => {
        on!($which: data, guards, poison, shapes, outage);
    };
    ($which:ident: $($part:ident),*) => {
        $(
            #[test]
            fn $part() {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                if let Some(house) = crate::House::open(crate::Which::$which) {
                    runtime.block_on(crate::$part::all(house));
                }
            }
        )*
    };
}

mod postgres {
    on!(Postgres);
}

mod mariadb {
    on!(Mariadb);
}

mod sqlite {
    on!(Sqlite);
}

/// Whoever calls may do so from any task of his runtime.
#[test]
fn futures_can_be_sent() {
    fn sent(_: impl Send) {}
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/tables.db", folder.path().display());
    let database = Database::open(&url, limits()).unwrap();
    let table = declare("t", "age:int64");
    sent(database.load(&table, &["a"]));
    sent(database.flush(&table, &[]));
    sent(database.scan(&table, None, 1, None));
    sent(database.create_table(&table));
    sent(database.check_table(&table));
    sent(database.drop_field(&table, "age"));
}

//! A server with a table `users`, and what its database has.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use databases::{Engine, Server};
use redis::Connection;
use sqldb::{Database, Limits, Loaded};
use table::{Table, Value, parse_fields};

use crate::node::{Folder, Node, call, free_port};

pub const FIELDS: &str = "age:int64=18,name:string,gold:uint64,score:float64,tag:blob";

/// Where rows are kept.
pub struct Backend {
    pub server: Option<Server>,
    pub url: String,
    _folder: Folder,
}

impl Backend {
    /// One of each kind that is installed; CI has all.
    pub fn all() -> Vec<Backend> {
        let servers = [Engine::Postgres, Engine::Mariadb];
        let servers = servers.into_iter().filter_map(Backend::of);
        std::iter::once(Backend::sqlite()).chain(servers).collect()
    }

    pub fn sqlite() -> Backend {
        let folder = Folder::new();
        Backend {
            server: None,
            url: format!("sqlite://{}/rows.db", folder.0.display()),
            _folder: folder,
        }
    }

    pub fn of(engine: Engine) -> Option<Backend> {
        let server = Server::start(engine)?;
        Some(Backend {
            url: server.url(),
            server: Some(server),
            _folder: Folder::new(),
        })
    }
}

/// A single node on a folder of its own.
pub struct Rows {
    pub node: Option<Node>,
    pub folder: Folder,
    pub backend: Backend,
    more: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Rows {
    pub fn start(backend: Backend) -> Rows {
        Rows::start_with(backend, &[])
    }

    pub fn start_with(backend: Backend, more: &[&str]) -> Rows {
        Rows::start_in(backend, more, &[])
    }

    /// As [`Rows::start_with`], with variables of the environment.
    pub fn start_in(backend: Backend, more: &[&str], environment: &[(&str, &str)]) -> Rows {
        let environment = environment.iter();
        let mut rows = Rows {
            node: None,
            folder: Folder::new(),
            backend,
            more: more.iter().map(|it| it.to_string()).collect(),
            environment: environment
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        };
        rows.restart();
        let mut client = rows.client();
        let created: String = redis::cmd("ROW.TABLE")
            .arg(&["CREATE", "users", "FIELDS", FIELDS])
            .query(&mut client)
            .unwrap();
        assert_eq!(created, "OK");
        rows
    }

    /// Starts it, again if it ran: killed without a word.
    pub fn restart(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill();
        }
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
        command
            .args(["server", "--engine", "rocksdb", "--bind", "127.0.0.1"])
            .args(["--redis-port", &port.to_string(), "--http-port", "0"])
            .args(["--block-cache-size", "64mb", "--num-shards", "2"])
            .args(["--table-backend", &self.backend.url])
            .arg("--data-dir")
            .arg(self.folder.0.join("data"))
            .args(&self.more)
            .envs(self.environment.iter().cloned());
        self.node = Some(Node::of(command, port));
    }

    pub fn client(&self) -> Connection {
        self.node.as_ref().expect("a node that runs").client()
    }

    pub fn drain(&self) {
        let _: redis::Value = redis::cmd("ROW.TABLE")
            .arg(&["DRAIN", "TIMEOUT", "60000"])
            .query(&mut self.client())
            .unwrap();
    }

    pub fn sql(&self) -> Sql {
        Sql::open(&self.backend.url)
    }
}

/// The database behind the server's back.
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    database: Database,
    table: Arc<Table>,
}

impl Sql {
    pub fn open(url: &str) -> Sql {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let database = runtime
            .block_on(async { Database::open(url, Limits::default()) })
            .unwrap();
        let fields = parse_fields(FIELDS, 1).unwrap();
        let table = Table {
            id: 1,
            name: "users".into(),
            epoch: 1,
            backend: "main".into(),
            sql_name: "users".into(),
            next_field: fields.len() as u16 + 1,
            closed: false,
            fields,
        };
        Sql {
            runtime,
            database,
            table: table.into(),
        }
    }

    /// Version and values by field; `None`: no row, not even a deleted one.
    pub fn row(&self, key: &str) -> Option<(i64, BTreeMap<String, Value>)> {
        let keys = [key];
        let loaded = self
            .runtime
            .block_on(self.database.load(&self.table, &keys));
        match loaded.unwrap().remove(0) {
            Loaded::Found { version, values } => {
                let names = self.table.fields.iter().map(|field| field.name.clone());
                Some((version, names.zip(values).collect()))
            }
            _ => None,
        }
    }

    pub fn age(&self, key: &str) -> Option<(i64, i64)> {
        let (version, values) = self.row(key)?;
        match values.get("age") {
            Some(Value::Int(age)) => Some((version, *age)),
            _ => Some((version, 0)),
        }
    }
}

/// A transaction of somebody else in PostgreSQL, open until this is dropped.
pub struct Lock {
    child: Child,
    url: String,
}

impl Lock {
    /// Back when the statement is done.
    pub fn take(rows: &Rows, statement: &str) -> Lock {
        let url = rows.backend.url.clone();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "psql", "-q", &url]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.expect("setpriv, psql");
        let stdin = child.stdin.as_mut().expect("its input");
        writeln!(stdin, "BEGIN; {statement};").expect("psql listens");
        let lock = Lock { child, url };
        let granted = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
             WHERE l.granted AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace";
        until("it is locked", || lock.ask(granted) > 0);
        lock
    }

    /// Until somebody waits for it.
    pub fn until_waited_for(&self) {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        until("somebody waits for the lock", || self.ask(waits) > 0);
    }

    fn ask(&self, question: &str) -> i64 {
        let asked = Command::new("psql")
            .args(["-qAtc", question, &self.url])
            .output();
        let said = String::from_utf8(asked.expect("psql").stdout).expect("a number");
        said.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{question}: {said}"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of `ROW.TABLE STATUS`.
pub fn number(client: &mut Connection, name: &str) -> i64 {
    let status: Vec<(String, redis::Value)> =
        redis::cmd("ROW.TABLE").arg("STATUS").query(client).unwrap();
    let found = status.into_iter().find(|it| it.0 == name);
    let found = found.unwrap_or_else(|| panic!("no {name}"));
    redis::from_redis_value(found.1).unwrap()
}

/// Waits for something, or says what it waited for.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn text(client: &mut Connection, line: &str) -> String {
    call::<Option<String>>(client, line).unwrap_or_else(|| "nil".into())
}

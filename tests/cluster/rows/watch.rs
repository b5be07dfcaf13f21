//! The database behind the nodes' back, looked at all the while: a version never goes back, shows the same each time, and is
//! there when a client was told so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sqldb::{Database, Limits, Loaded};
use table::{Table, Value, parse_fields};

use super::judge::Images;
use super::model::{FIELDS, Row};

/// By key: the version that a client was told SQL has.
#[derive(Clone)]
pub struct Floors(Arc<Mutex<Vec<i64>>>);

impl Floors {
    pub fn raise(&self, key: usize, version: i64) {
        let mut floors = self.0.lock().expect("the floors");
        floors[key] = floors[key].max(version);
    }
}

/// A connection of our own.
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    database: Database,
    table: Table,
}

impl Sql {
    pub fn open(url: &str, table: &str) -> Sql {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let limits = Limits {
            connections: 1,
            connect: Duration::from_millis(500),
            statement: Duration::from_millis(500),
            ..Limits::default()
        };
        let open = async { Database::open(url, limits) };
        let database = runtime.block_on(open).expect("a database");
        let fields = parse_fields(FIELDS, 1).expect("fields");
        let table = Table {
            id: 1,
            name: table.into(),
            epoch: 1,
            backend: "main".into(),
            sql_name: table.into(),
            next_field: fields.len() as u16 + 1,
            closed: false,
            fields,
        };
        Sql {
            runtime,
            database,
            table,
        }
    }

    /// The rows of `keys` (`table:key`), in their order; none while the database is away.
    pub fn rows(&self, keys: &[String]) -> Option<Vec<Row>> {
        let inner = keys.iter().filter_map(|key| key.split_once(':'));
        let inner: Vec<&str> = inner.map(|(_, inner)| inner).collect();
        let loaded = self
            .runtime
            .block_on(self.database.load(&self.table, &inner))
            .ok()?;
        let row = |loaded: Loaded| match loaded {
            Loaded::Missing => Row::missing(),
            Loaded::Found { version, values } => match &values[..] {
                [Value::Int(n), Value::Text(v)] if version > 0 => Row {
                    version,
                    n: *n,
                    v: v.to_string().into(),
                },
                _ => Row::deleted(version),
            },
            Loaded::Unreadable { why } => panic!("{why}"),
        };
        Some(loaded.into_iter().map(row).collect())
    }
}

/// What was seen so far.
struct Seen {
    rows: Vec<Row>,
    images: Vec<Images>,
    looks: usize,
    wrong: Vec<String>,
}

pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub floors: Floors,
}

impl Watch {
    pub fn start(url: &str, table: &str, keys: Arc<Vec<String>>) -> Watch {
        let seen = Arc::new(Mutex::new(Seen {
            rows: vec![Row::missing(); keys.len()],
            images: vec![Images::new(); keys.len()],
            looks: 0,
            wrong: Vec::new(),
        }));
        let floors = Floors(Arc::new(Mutex::new(vec![0; keys.len()])));
        let stopped = Arc::new(AtomicBool::new(false));
        let (url, table) = (url.to_string(), table.to_string());
        let thread = std::thread::spawn({
            let (seen, stopped, floors) = (seen.clone(), stopped.clone(), floors.clone());
            move || {
                let sql = Sql::open(&url, &table);
                while !stopped.load(Ordering::Relaxed) {
                    let least = floors.0.lock().expect("the floors").clone();
                    if let Some(rows) = sql.rows(&keys) {
                        let mut seen = seen.lock().expect("what was seen");
                        for (number, row) in rows.into_iter().enumerate() {
                            seen.look(&keys[number], number, row, least[number]);
                        }
                        seen.looks += 1;
                    }
                    std::thread::sleep(Duration::from_millis(15));
                }
            }
        });
        Watch {
            seen,
            stopped,
            thread: Some(thread),
            floors,
        }
    }

    /// Ends it: what each version held in SQL.
    pub fn finish(mut self) -> Vec<Images> {
        self.stop();
        let mut seen = self.seen.lock().expect("what was seen");
        assert!(seen.wrong.is_empty(), "in SQL: {:#?}", seen.wrong);
        let images = std::mem::take(&mut seen.images);
        let versions: usize = images.iter().map(Images::len).sum();
        eprintln!(
            "SQL was looked at {} times: {versions} versions",
            seen.looks
        );
        images
    }

    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the watch ended");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seen {
    fn look(&mut self, key: &str, number: usize, row: Row, least: i64) {
        let before = &self.rows[number];
        if row.version.abs() < before.version.abs() {
            self.wrong.push(format!("{key}: {row:?} after {before:?}"));
        }
        if row.version.abs() < least {
            let what = format!("{key}: {row:?}, but WAITSQL answered {least}");
            self.wrong.push(what);
        }
        if row.version > 0 {
            let image = (row.n, row.v.clone());
            let images = &mut self.images[number];
            let known = images.entry(row.version).or_insert_with(|| image.clone());
            if *known != image {
                self.wrong.push(format!("{key}: {row:?} was {known:?}"));
            }
        }
        self.rows[number] = row;
    }
}

//! Sql against SQLite in a folder, against nothing, and at its end.

use std::sync::mpsc;

use table::entry::Found;
use table::{Image, Value, parse_fields};

use super::*;

fn users(backend: &str) -> Arc<Table> {
    let fields = parse_fields("age:int64=7,name:string", 1).unwrap();
    Arc::new(Table {
        id: 1,
        name: "users".into(),
        epoch: 1,
        backend: backend.into(),
        sql_name: "users".into(),
        next_field: 3,
        closed: false,
        fields,
    })
}

fn sql(url: &str) -> Sql {
    Sql::new(&SqlConfig {
        backends: [("main".to_owned(), url.to_owned())].into(),
        connections: 2,
        statement: Duration::from_secs(5),
    })
}

fn wait<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, Fault> {
    let (to, from) = mpsc::channel();
    call(Box::new(move |result| to.send(result).unwrap()));
    let result = from.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(from.recv().is_err(), "answered once");
    result
}

fn flush(key: &str, version: i64, low: u64, age: i64) -> Flush {
    Flush {
        key: key.into(),
        slot: 5,
        version,
        low,
        high: low,
        values: vec![Value::Int(age), Value::Text("é' --".into())],
    }
}

#[test]
fn rows_go_there_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let sql = sql(&format!("sqlite://{}/t.db", dir.path().display()));
    let table = users("main");
    let shape = |shape| wait(|done| sql.shape(table.clone(), shape, done));
    assert!(matches!(shape(Shape::Check), Err(Fault::Unfit(_))));
    shape(Shape::Create).unwrap();
    shape(Shape::Create).unwrap();
    shape(Shape::Check).unwrap();

    let rows = vec![
        flush("a", 1, 0, 1),
        flush("b", 1, 0, 2),
        flush("c", 3, 0, 3),
    ];
    let wait_flush = |rows: &[Flush], is_meant: fn(&Table) -> bool| {
        let (table, rows) = (table.clone(), rows.to_vec());
        wait(|done| sql.flush(table, rows, Box::new(is_meant), done))
    };
    let wrote = wait_flush(&rows, |_| false);
    assert!(
        matches!(&wrote, Err(Fault::Unfit(why)) if why.contains("dropped meanwhile")),
        "{wrote:?}"
    );
    let wrote = wait_flush(&rows, |_| true).unwrap();
    assert_eq!(wrote, [Wrote::Written, Wrote::Written, Wrote::Written]);
    let again = vec![
        flush("a", 1, 0, 1),
        flush("c", 3, 1, 3),
        flush("b", 5, 4, 0),
    ];
    let wrote = wait_flush(&again, |_| true).unwrap();
    let conflict = Wrote::Conflict { sql_version: 1 };
    assert_eq!(wrote, [Wrote::Already, Wrote::Already, conflict]);

    let keys = vec!["c".into(), "nix".into()];
    let read = wait(|done| sql.load(table.clone(), keys, done)).unwrap();
    let image = Image::of_values(&table, 3, rows[2].values.clone());
    assert_eq!(
        read,
        [Read::Found(Found::Row(image)), Read::Found(Found::Missing)]
    );

    let scan = wait(|done| sql.scan(table.clone(), None, 2, 0..=16383, done)).unwrap();
    let keys: Vec<&str> = scan.rows.iter().map(|row| &*row.key).collect();
    assert_eq!((keys, scan.more), (vec!["a", "b"], true));
    let after = Some("b".into());
    let scan = wait(|done| sql.scan(table.clone(), after, 2, 5..=5, done)).unwrap();
    assert_eq!((scan.rows.len(), scan.skipped, scan.more), (1, 0, false));

    let backend = sql.backend("main").unwrap();
    let counters = &backend.counters;
    assert_eq!((counters.loads.count(), counters.flushes.count()), (1, 2));
    assert_eq!(counters.flushed_rows.load(Ordering::Relaxed), 5);
    assert_eq!(counters.conflicting_rows.load(Ordering::Relaxed), 1);
    let of = counters.of_table(table.id);
    assert_eq!(
        (of.loads, of.loaded_rows, of.flushes, of.flushed_rows),
        (1, 2, 2, 5)
    );
    assert_eq!(counters.unfit_faults.load(Ordering::Relaxed), 2);
    let last = counters.last_fault().unwrap();
    assert!(last.why.contains("dropped meanwhile"), "{}", last.why);
    assert_eq!((sql.calls(), counters.open.load(Ordering::Relaxed)), (0, 0));
    assert!(backend.statements() > 0);
    sql.stop();
    let after = wait(|done| sql.load(table.clone(), vec!["a".into()], done));
    assert_eq!(after, Err(Fault::Transient(STOPS.into())));
}

#[test]
fn unknown_backends_and_bad_urls_say_what_to_do() {
    let sql = sql("tape://reel");
    let load = |backend| wait(|done| sql.load(users(backend), vec!["a".into()], done));
    let Err(Fault::Unfit(why)) = load("games") else {
        panic!("found");
    };
    assert!(why.contains("--table-backend 'games="), "{why}");
    let Err(Fault::Unfit(why)) = load("main") else {
        panic!("opened");
    };
    assert!(why.contains("postgres://, mysql:// or sqlite://"), "{why}");
}

#[test]
fn what_is_under_way_is_answered_at_the_end() {
    // A server that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sql = sql(&format!("postgres://nobody@127.0.0.1:{port}/x"));
    let (to, from) = mpsc::channel();
    let done: Done<Vec<Read>> = Box::new(move |result| to.send(result).unwrap());
    sql.load(users("main"), vec!["a".into()], done);
    let _conn = silent.accept().unwrap();
    sql.stop();
    let answer = from.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(answer, Err(Fault::Transient(STOPS.into())));
    assert_eq!(sql.calls(), 0);
}

//! Rows somebody else changed in SQL, and rows SQL does not take: seen, told, in nobody's way.

use std::process::Command;

use crate::node::call;
use crate::sql::{Backend, Lock, Rows, number, text, until};

/// What somebody else does to the database.
pub fn edit(rows: &Rows, statement: &str) {
    let url = rows.backend.url.as_str();
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1],timeout=30); d.execute(sys.argv[2]); d.commit()";
    let words = if let Some(path) = url.strip_prefix("sqlite://") {
        vec!["python3", "-c", script, path, statement]
    } else if let Some((_, socket)) = url.split_once("?socket=") {
        let root = ["mariadb", "-u", "root", "--socket", socket, "test", "-e"];
        [&root[..], &[statement]].concat()
    } else {
        vec!["psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, url]
    };
    let done = Command::new(words[0]).args(&words[1..]).status();
    assert!(done.unwrap().success(), "{statement}");
}

#[test]
fn an_edit_by_hand_is_never_overwritten_unless_somebody_says_so() {
    Backend::all().into_iter().for_each(edited);
}

fn edited(backend: Backend) {
    let rows = Rows::start(backend);
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:a age 1");
    call::<i64>(client, "ROW.WAITSQL users:a");
    edit(
        &rows,
        "UPDATE users SET age = 50, __version__ = 40 WHERE __key__ = 'a'",
    );
    call::<i64>(client, "HSET users:a age 2");
    let dead = |client: &mut redis::Connection| -> String {
        let list: redis::Value = redis::cmd("ROW.TABLE")
            .arg(&["DEAD", "LIST"])
            .query(client)
            .unwrap();
        format!("{list:?}")
    };
    until("a dead letter", || dead(client).contains("users:a"));
    assert_eq!(rows.sql().age("a"), Some((40, 50)), "not overwritten");
    assert_eq!(text(client, "HGET users:a age"), "2", "readable meanwhile");
    // Others go on.
    call::<i64>(client, "HSET users:b age 7");
    call::<i64>(client, "ROW.WAITSQL users:b");
    // Given up: what SQL has counts.
    let _: redis::Value = redis::cmd("ROW.TABLE")
        .arg(&["DEAD", "DROP", "users:a"])
        .query(client)
        .unwrap();
    assert_eq!(text(client, "HGET users:a age"), "50");
    // The other way: ours goes over it.
    edit(
        &rows,
        "UPDATE users SET age = 60, __version__ = 80 WHERE __key__ = 'a'",
    );
    call::<i64>(client, "HSET users:a age 3");
    until("another dead letter", || dead(client).contains("users:a"));
    let _: redis::Value = redis::cmd("ROW.TABLE")
        .arg(&["DEAD", "RETRY", "users:a", "OVER", "80"])
        .query(client)
        .unwrap();
    until("ours in SQL", || rows.sql().age("a") == Some((81, 3)));
}

#[test]
fn a_row_that_sql_refuses_blocks_nobody() {
    for backend in Backend::all() {
        let (refuse, take) = match backend.server {
            None => (
                "CREATE TRIGGER no BEFORE INSERT ON users WHEN new.age = 13 BEGIN SELECT RAISE(ABORT, 'unlucky'); END",
                "DROP TRIGGER no",
            ),
            Some(_) => (
                "ALTER TABLE users ADD CONSTRAINT unlucky CHECK (age <> 13)",
                "ALTER TABLE users DROP CONSTRAINT unlucky",
            ),
        };
        refused(backend, refuse, take);
    }
}

fn refused(backend: Backend, refuse: &str, take: &str) {
    let rows = Rows::start(backend);
    let client = &mut rows.client();
    edit(&rows, refuse);
    for n in 0..20 {
        call::<i64>(client, &format!("HSET users:{n} age {n}"));
    }
    rows.drain();
    let list: redis::Value = redis::cmd("ROW.TABLE")
        .arg(&["DEAD", "LIST"])
        .query(client)
        .unwrap();
    let list = format!("{list:?}");
    assert!(
        list.contains("users:13") && list.contains("unlucky"),
        "{list}"
    );
    assert_eq!(rows.sql().row("13"), None);
    assert_eq!(rows.sql().age("14"), Some((1, 14)));
    edit(&rows, take);
    let _: redis::Value = redis::cmd("ROW.TABLE")
        .arg(&["DEAD", "RETRY", "users:13"])
        .query(client)
        .unwrap();
    call::<i64>(client, "ROW.WAITSQL users:13");
    assert_eq!(rows.sql().age("13"), Some((1, 13)));
}

#[test]
fn a_row_that_somebody_has_locked_in_sql_blocks_nobody() {
    let Some(backend) = Backend::of(databases::Engine::Postgres) else {
        return;
    };
    let rows = Rows::start_with(backend, &["--table-statement-timeout-ms", "500"]);
    let client = &mut rows.client();
    // In one region, so that they are written together.
    let set = |client: &mut redis::Connection, age: i64| {
        for n in 0..20 {
            call::<i64>(client, &format!("HSET users:{{x}}{n} age {age}"));
        }
    };
    let sql = rows.sql();
    let have = |age: i64| {
        let ages = (0..20).map(|n| sql.age(&format!("{{x}}{n}")));
        ages.filter(|it| it.is_some_and(|it| it.1 == age)).count()
    };
    set(client, 1);
    rows.drain();
    let query = "SELECT * FROM users WHERE __key__ = '{x}7' FOR UPDATE";
    let lock = Lock::take(&rows, query);
    for age in 2..=4 {
        set(client, age);
        until("SQL has all others", || have(age) == 19);
    }
    assert_eq!(sql.age("{x}7"), Some((1, 1)));
    // SQL has them a moment before the server has heard so.
    until("only that one waits", || number(client, "dirty") == 1);
    assert_eq!(number(client, "dead"), 0);
    drop(lock);
    rows.drain();
    assert_eq!((have(4), sql.age("{x}7")), (20, Some((4, 4))));
}

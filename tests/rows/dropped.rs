//! A table goes and its SQL table stays: nothing that was acknowledged is missing there, however late it was changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

/// Whether a change was refused because something of the table is being dropped.
fn is_closed(error: &redis::RedisError) -> bool {
    let text = error.to_string();
    text.contains("TRYAGAIN") || text.contains("takes no changes while it")
}

#[test]
fn what_is_changed_while_a_table_is_dropped_is_in_sql() {
    // Long enough for changes to come after SQL was waited for.
    let rows = Rows::start_with(Backend::sqlite(), &["--table-flush-linger-ms", "300"]);
    let dropped = AtomicBool::new(false);
    let writers = 4;
    let last: Vec<i64> = std::thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|n| {
                let (rows, dropped) = (&rows, &dropped);
                scope.spawn(move || {
                    let client = &mut rows.client();
                    let (key, mut last) = (format!("users:w{n}"), 0);
                    while !dropped.load(Ordering::Relaxed) {
                        // A row that is not there has 18. Without the table it is a plain hash that begins with 1.
                        match try_call::<i64>(client, &format!("HINCRBY {key} age 1")) {
                            Ok(age) if age > 1 => last = age,
                            Ok(_) => break,
                            Err(error) => assert!(is_closed(&error), "{error}"),
                        }
                    }
                    last
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let client = &mut rows.client();
        let began = Instant::now();
        let done = call::<String>(client, "ROW.TABLE DROP users KEEPSQL");
        assert_eq!(done, "OK");
        let sql = rows.sql();
        let at_once: Vec<i64> = (0..writers)
            .map(|n| sql.age(&format!("w{n}")).unwrap().1)
            .collect();
        dropped.store(true, Ordering::Relaxed);
        let last: Vec<i64> = writing.into_iter().map(|it| it.join().unwrap()).collect();
        let took = began.elapsed();
        assert!(
            took < Duration::from_secs(12),
            "nobody is forgotten: {took:?}"
        );
        assert_eq!(at_once, last, "SQL has every change when the table is gone");
        last
    });
    assert!(last.iter().all(|age| *age > 20), "{last:?}");
    let client = &mut rows.client();
    let list: Value = redis::cmd("ROW.TABLE").arg("LIST").query(client).unwrap();
    assert_eq!(list, Value::Array(Vec::new()));
    // And found again by who adopts it.
    let adopt = ["CREATE", "users", "FIELDS", crate::sql::FIELDS, "ADOPT"];
    let done: String = redis::cmd("ROW.TABLE").arg(&adopt).query(client).unwrap();
    assert_eq!(done, "OK");
    for (n, age) in last.iter().enumerate() {
        assert_eq!(
            text(client, &format!("HGET users:w{n} age")),
            age.to_string()
        );
    }
}

/// What writers were told last, by row.
type Told = Vec<i64>;

/// Drops the table under load over a database that stands still half of the time, and for good once the table is closed, which `then` is told.
/// What the drop was answered, and the writers.
fn drop_and_lose_sql(rows: &mut Rows, then: impl Fn(&mut Rows)) -> (Option<String>, Told) {
    for attempt in 0.. {
        assert!(attempt < 20, "SQL was always quicker");
        let over = AtomicBool::new(false);
        let (addressed, told) = std::thread::scope(|scope| {
            let writing: Vec<_> = (0..4)
                .map(|n| {
                    let (mut client, over) = (rows.client(), &over);
                    scope.spawn(move || {
                        let mut last = 0;
                        while !over.load(Ordering::Relaxed) {
                            let line = format!("HINCRBY users:w{n} age 1");
                            match try_call::<i64>(&mut client, &line) {
                                Ok(age) if age > 1 => last = age,
                                Ok(_) => break,
                                Err(error) if is_closed(&error) => {}
                                Err(_) => break, // the node was killed
                            }
                        }
                        last
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            let mut asking = rows.client();
            let dropping = scope.spawn(move || {
                let told = try_call::<String>(&mut asking, "ROW.TABLE DROP users KEEPSQL");
                told.map_err(|error| error.to_string())
            });
            let client = &mut rows.client();
            let caught = loop {
                let server = rows.backend.server.as_ref().unwrap();
                server.pause();
                let began = Instant::now();
                let mut closed = false;
                while !closed && began.elapsed() < Duration::from_millis(120) {
                    closed = is_shown_closed(client);
                }
                if closed {
                    break true;
                }
                server.resume();
                if dropping.is_finished() {
                    break false;
                }
                std::thread::sleep(Duration::from_millis(40));
            };
            if caught {
                then(rows);
            }
            let answer = dropping.join().unwrap();
            over.store(true, Ordering::Relaxed);
            let told: Told = writing.into_iter().map(|it| it.join().unwrap()).collect();
            (answer, told)
        });
        let dropped = addressed.is_ok();
        if !dropped {
            return (addressed.err(), told);
        }
        // SQL was quick: nothing may be missing there all the same.
        rows.backend.server.as_ref().unwrap().resume();
        let sql = rows.sql();
        for (n, age) in told.iter().enumerate() {
            assert_eq!(sql.age(&format!("w{n}")).map(|it| it.1), Some(*age));
        }
        let client = &mut rows.client();
        let adopt = ["CREATE", "users", "FIELDS", crate::sql::FIELDS, "ADOPT"];
        let done: String = redis::cmd("ROW.TABLE").arg(&adopt).query(client).unwrap();
        assert_eq!(done, "OK");
    }
    unreachable!("counted above")
}

fn is_shown_closed(client: &mut redis::Connection) -> bool {
    let shown: Result<Vec<(String, Value)>, _> = redis::cmd("ROW.TABLE")
        .arg(&["SHOW", "users"])
        .query(client);
    let shown = shown.unwrap_or_default();
    shown.contains(&("closed".to_owned(), Value::Int(1)))
}

#[test]
fn a_drop_that_loses_sql_at_the_last_moment_is_taken_back() {
    let Some(backend) = Backend::of(databases::Engine::Postgres) else {
        return;
    };
    let mut rows = Rows::start(backend);
    let (refused, told) = drop_and_lose_sql(&mut rows, |_| {});
    let refused = refused.unwrap();
    assert!(refused.contains("nothing was dropped"), "{refused}");
    let client = &mut rows.client();
    for (n, age) in told.iter().enumerate() {
        let next = format!("HINCRBY users:w{n} age 1");
        assert_eq!(
            call::<i64>(client, &next),
            age + 1,
            "it takes changes again"
        );
    }
    rows.backend.server.as_ref().unwrap().resume();
    let done = call::<String>(client, "ROW.TABLE DROP users KEEPSQL");
    assert_eq!(done, "OK");
    let sql = rows.sql();
    for (n, age) in told.iter().enumerate() {
        let has = sql.age(&format!("w{n}")).map(|it| it.1);
        assert_eq!(has, Some(age + 1), "{n}");
    }
}

#[test]
fn a_drop_that_is_cut_off_leaves_the_table_closed_and_whole() {
    let Some(backend) = Backend::of(databases::Engine::Postgres) else {
        return;
    };
    let mut rows = Rows::start(backend);
    let (_, told) = drop_and_lose_sql(&mut rows, |rows| rows.restart());
    rows.backend.server.as_ref().unwrap().resume();
    let client = &mut rows.client();
    assert!(is_shown_closed(client));
    let refused = try_call::<i64>(client, "HINCRBY users:w0 age 1").unwrap_err();
    assert!(refused.to_string().contains("ROW.TABLE OPEN"), "{refused}");
    for line in ["DEL users:w0", "DEL plain users:w0", "UNLINK users:w1"] {
        let refused = try_call::<i64>(client, line).expect_err(line);
        assert!(is_closed(&refused), "{line}: {refused}");
    }
    let field = ["ADDFIELD", "users", "more:int64"];
    let added: Result<String, _> = redis::cmd("ROW.TABLE").arg(&field).query(client);
    assert!(added.unwrap_err().to_string().contains("is closed"));
    for (n, age) in told.iter().enumerate() {
        // The one that was on its way when the node died may be there.
        let has: i64 = call(client, &format!("HGET users:w{n} age"));
        assert!((*age..=age + 1).contains(&has), "{n}: {has} after {age}");
    }
    assert_eq!(call::<String>(client, "ROW.TABLE OPEN users"), "OK");
    assert_eq!(
        call::<String>(client, "ROW.TABLE OPEN users"),
        "OK",
        "again"
    );
    let last: i64 = call(client, "HINCRBY users:w0 age 1");
    let done = call::<String>(client, "ROW.TABLE DROP users KEEPSQL");
    assert_eq!(done, "OK");
    assert_eq!(rows.sql().age("w0").map(|it| it.1), Some(last));
}

#[test]
fn a_field_that_goes_leaves_its_last_values_in_sql() {
    // Long enough for nothing to be there by itself.
    let rows = Rows::start_with(Backend::sqlite(), &["--table-flush-linger-ms", "5000"]);
    let client = &mut rows.client();
    let sql = rows.sql();
    for n in 0..20 {
        call::<i64>(client, &format!("HSET users:{n} age {n}"));
    }
    let drop = ["DROPFIELD", "users", "age", "KEEPSQL"];
    let done: String = redis::cmd("ROW.TABLE").arg(&drop).query(client).unwrap();
    assert_eq!(done, "OK");
    for n in 0..20 {
        assert_eq!(sql.age(&n.to_string()).map(|it| it.1), Some(n));
    }
    call::<i64>(client, "HSET users:1 name open");
    let drop = ["DROPFIELD", "users", "nix", "KEEPSQL"];
    let told: Result<String, _> = redis::cmd("ROW.TABLE").arg(&drop).query(client);
    assert!(told.unwrap_err().to_string().contains("has no field 'nix'"));
    call::<i64>(client, "HSET users:1 name still");
}

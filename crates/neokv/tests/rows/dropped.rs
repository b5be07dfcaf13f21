//! A table goes and its SQL table stays: nothing that was acknowledged is missing there, however late it was changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

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
                            Err(error) => panic!("{error}"),
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

//! A transaction on rows that is too large for the log is undone: memory is read again from the store while SQL is
//! still owed changes from before.

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

const USERS: usize = 10;

#[test]
fn rows_are_as_before_and_sql_gets_what_it_is_owed() {
    if !cfg!(debug_assertions) {
        return; // the limit is 1 GiB
    }
    let environment = [("NEOKV_TEST_CHANGE_BYTES", "65536")];
    let mut rows = Rows::start_in(Backend::sqlite(), &[], &environment);
    let client = &mut rows.client();
    let big = "b".repeat(100_000);
    let _: () = call(client, &format!("SET big {big}"));
    for round in 1..=20 {
        for user in 0..USERS {
            let gold: i64 = call(client, &format!("HINCRBY users:{user} gold 1"));
            assert_eq!(gold, round);
        }
        let _: () = call(client, "MULTI");
        for user in 0..USERS {
            let _: () = call(client, &format!("HINCRBY users:{user} gold 1000"));
        }
        // Whichever regions these are in: one of them is not that of `big`.
        for copy in 0..4 {
            let _: () = call(client, &format!("COPY big copy{copy}"));
        }
        let refused = try_call::<redis::Value>(client, "EXEC").unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("too large for the log"), "{refused}");
    }
    for restarted in [false, true] {
        if restarted {
            rows.restart();
        }
        let client = &mut rows.client();
        for user in 0..USERS {
            assert_eq!(text(client, &format!("HGET users:{user} gold")), "20");
        }
        rows.drain();
        let sql = rows.sql();
        for user in 0..USERS {
            let (version, values) = sql.row(&user.to_string()).unwrap();
            assert_eq!((version, &values["gold"]), (20, &table::Value::Uint(20)));
        }
    }
}

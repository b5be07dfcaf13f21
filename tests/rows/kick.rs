//! `ROW.KICK` among other commands: whoever comes behind it finds the row again, and is never told to try later.

use redis::Value;

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

#[test]
fn commands_behind_a_kick_in_one_pipeline_find_the_row() {
    let rows = Rows::start(Backend::sqlite());
    let client = &mut rows.client();
    const KEYS: usize = 8;
    for n in 0..KEYS {
        call::<i64>(client, &format!("HSET users:{n} age 0"));
    }
    rows.drain();
    let mut pipe = redis::pipe();
    for n in 0..KEYS {
        let key = format!("users:{n}");
        pipe.cmd("ROW.KICK").arg(&key);
        pipe.cmd("HINCRBY").arg(&key).arg("age").arg(1);
        pipe.cmd("HGET").arg(&key).arg("age");
        pipe.cmd("SET").arg(format!("plain{n}")).arg(n);
    }
    // Many at once, then what was kicked.
    for n in 0..KEYS {
        pipe.cmd("ROW.KICK").arg(format!("users:cold{n}"));
        pipe.cmd("ROW.KICK").arg(format!("users:cold{n}"));
    }
    pipe.cmd("HGET").arg("users:cold1").arg("age");
    let replies: Vec<Value> = pipe.query(client).unwrap();
    for n in 0..KEYS {
        let of = &replies[n * 4..n * 4 + 4];
        assert_eq!(
            of[..2],
            [Value::Okay, Value::Int(1)],
            "row {n} was kicked, brought and changed: {of:?}"
        );
        assert_eq!(of[2], Value::BulkString(b"1".into()), "row {n}");
        assert_eq!(of[3], Value::Okay, "row {n}");
    }
    let kicks = &replies[KEYS * 4..KEYS * 6];
    assert!(kicks.iter().all(|it| *it == Value::Okay), "{kicks:?}");
    assert_eq!(replies.last(), Some(&Value::Nil));
    let loaded: String = call(client, "INFO tables");
    let loaded = loaded
        .lines()
        .find_map(|line| line.strip_prefix("table_loaded:"));
    let loaded: usize = loaded.unwrap().parse().unwrap();
    assert!(
        loaded >= 2 * KEYS,
        "kicked rows were loaded again: {loaded}"
    );
}

#[test]
fn a_transaction_does_not_kick() {
    let rows = Rows::start(Backend::sqlite());
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:a age 1");
    rows.drain();
    assert_eq!(text(client, "MULTI"), "OK");
    let told = try_call::<Value>(client, "ROW.KICK users:a").unwrap_err();
    assert!(told.to_string().contains("inside a transaction"), "{told}");
    assert!(try_call::<Value>(client, "EXEC").is_err());
    assert_eq!(text(client, "HGET users:a age"), "1");
}

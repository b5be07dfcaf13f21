//! A table goes and another of its name comes: nothing of the one is seen in the other, and nothing of the other goes with the one.

use databases::Engine;

use crate::node::{call, try_call};
use crate::sql::{Backend, FIELDS, Lock, Rows, number, text, until};

fn create(rows: &Rows, name: &str) -> redis::RedisResult<String> {
    let words = ["CREATE", name, "FIELDS", FIELDS];
    redis::cmd("ROW.TABLE")
        .arg(&words)
        .query(&mut rows.client())
}

#[test]
fn a_statement_for_a_table_that_went_does_not_reach_another_of_its_name() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    // One statement at a time that writes, and it may wait for long.
    let settings = "--table-pool-size 2 --table-statement-timeout-ms 30000";
    let settings: Vec<&str> = settings.split(' ').collect();
    let rows = Rows::start_with(backend, &settings);
    let client = &mut rows.client();
    assert_eq!(create(&rows, "slow").unwrap(), "OK");
    call::<i64>(client, "HSET slow:a age 1");
    assert_eq!(text(client, "HGET users:a age"), "nil");
    rows.drain();
    let lock = Lock::take(&rows, "LOCK TABLE slow IN ACCESS EXCLUSIVE MODE");
    call::<i64>(client, "HSET slow:a age 2");
    until("a statement waits", || number(client, "flying") == 1);
    call::<i64>(client, "HSET users:a age 1");
    until("and one behind it", || number(client, "flying") == 2);
    assert_eq!(text(client, "ROW.TABLE DROP users"), "OK");
    assert_eq!(create(&rows, "users").unwrap(), "OK");
    call::<i64>(client, "HSET users:a age 2");
    drop(lock);
    assert_eq!(call::<i64>(client, "ROW.WAITSQL users:a"), 1);
    assert_eq!(
        rows.sql().age("a"),
        Some((1, 2)),
        "what SQL was said to have"
    );
    assert_eq!(text(client, "ROW.KICK users:a"), "OK");
    assert_eq!(text(client, "HGET users:a age"), "2");
    assert_eq!(number(client, "dead"), 0);
}

#[test]
fn the_sql_table_of_a_new_table_does_not_go_with_an_old_one() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    let settings = ["--table-statement-timeout-ms", "30000"];
    let rows = Rows::start_with(backend, &settings);
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:old age 1");
    rows.drain();
    let lock = Lock::take(&rows, "LOCK TABLE users IN ACCESS SHARE MODE");
    let made = std::thread::scope(|scope| {
        let mut asking = rows.client();
        let dropping = scope.spawn(move || try_call::<String>(&mut asking, "ROW.TABLE DROP users"));
        lock.until_waited_for();
        let made = create(&rows, "users");
        drop(lock);
        assert_eq!(dropping.join().unwrap().unwrap(), "OK");
        made
    });
    // Refused while the other was going, or else it must be there.
    if made.is_err() {
        assert_eq!(create(&rows, "users").unwrap(), "OK", "now it is gone");
    }
    call::<i64>(client, "HSET users:a age 5");
    call::<i64>(client, "ROW.WAITSQL users:a");
    assert_eq!(text(client, "ROW.KICK users:a"), "OK");
    assert_eq!(text(client, "HGET users:a age"), "5");
    assert_eq!(text(client, "HGET users:old age"), "nil");
}

#[test]
fn a_field_that_comes_back_as_another_kind_is_read_at_once() {
    for backend in Backend::all() {
        let rows = Rows::start(backend);
        let client = &mut rows.client();
        call::<i64>(client, "HSET users:a age 1 tag t");
        rows.drain();
        for _ in 0..3 {
            assert_eq!(text(client, "ROW.KICK users:a"), "OK");
            assert_eq!(text(client, "HGET users:a tag"), "t");
        }
        assert_eq!(text(client, "ROW.TABLE DROPFIELD users tag"), "OK");
        assert_eq!(text(client, "ROW.TABLE ADDFIELD users tag:int64=7"), "OK");
        // The connections have asked the same before, and heard something of another kind.
        assert_eq!(text(client, "ROW.KICK users:a"), "OK");
        let read = try_call::<String>(client, "HGET users:a tag");
        assert_eq!(read.map_err(|error| error.to_string()), Ok("7".into()));
        call::<i64>(client, "HSET users:a tag 8");
        call::<i64>(client, "ROW.WAITSQL users:a");
        assert_eq!(text(client, "ROW.KICK users:a"), "OK");
        assert_eq!(text(client, "HGET users:a tag"), "8");
    }
}

//! What counts as written is on the disk of the database, whatever its defaults are.

use std::process::Command;

use databases::Engine;

use crate::behind::edit;
use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, number, until};

/// What a trigger saw of the session that wrote the row.
fn seen(rows: &Rows) -> String {
    let asked = Command::new("psql")
        .args(["-qAtc", "SELECT value FROM seen", &rows.backend.url])
        .output();
    let said = String::from_utf8(asked.expect("psql").stdout).expect("text");
    said.trim().to_owned()
}

#[test]
fn postgresql_answers_commits_when_they_are_on_disk() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    let mut rows = Rows::start(backend);
    edit(&rows, "CREATE TABLE seen (value text)");
    edit(
        &rows,
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM seen; \
         INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN new; END $$",
    );
    edit(
        &rows,
        "CREATE TRIGGER noted BEFORE INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION note()",
    );
    // The weakest is raised; one that waits for less than all standbys, or for more, is the operator's choice.
    for (n, (default, expected)) in [
        ("off", "on"),
        ("local", "local"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ]
    .into_iter()
    .enumerate()
    {
        let by_default = format!("ALTER ROLE neokv SET synchronous_commit = {default}");
        edit(&rows, &by_default);
        rows.restart();
        let client = &mut rows.client();
        call::<i64>(client, &format!("HSET users:a age {n}"));
        call::<i64>(client, "ROW.WAITSQL users:a");
        assert_eq!(seen(&rows), expected, "with {default} by default");
    }
}

#[test]
fn mariadb_that_loses_commits_gets_no_rows_until_it_is_set_right() {
    let Some(backend) = Backend::of(Engine::Mariadb) else {
        return;
    };
    let mut rows = Rows::start(backend);
    edit(&rows, "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    rows.restart();
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:a age 5");
    until("the database is found unfit", || {
        number(client, "faults") > 0
    });
    assert_eq!(rows.sql().age("a"), None, "nothing is written");
    let create = "ROW.TABLE CREATE games FIELDS age:int64";
    let told = try_call::<String>(client, create).expect_err("it is refused");
    let told = told.to_string();
    assert!(
        told.contains("SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
        "{told}"
    );
    assert!(told.contains("durability=relaxed"), "{told}");
    // Set right, the rows that wait are written.
    edit(&rows, "SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    until("it is written", || rows.sql().age("a").is_some());
    // Or somebody accepts the loss.
    edit(&rows, "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    let url = rows.backend.url.clone();
    rows.backend.url = url.replace('?', "?durability=relaxed&");
    rows.restart();
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:b age 6");
    call::<i64>(client, "ROW.WAITSQL users:b");
}

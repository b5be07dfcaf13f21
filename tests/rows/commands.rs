//! Every command once, over every database.

use redis::{Connection, Value};

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text};

fn row(client: &mut Connection, line: &str) -> (String, i64, Vec<String>) {
    call(client, line)
}

fn refused(client: &mut Connection, line: &str) -> String {
    match try_call::<Value>(client, line) {
        Err(error) => error.to_string(),
        Ok(value) => panic!("{line} is answered {value:?}"),
    }
}

#[test]
fn hash_commands_and_row_commands_on_all_databases() {
    for backend in Backend::all() {
        eprintln!("{}", backend.url);
        let rows = Rows::start(backend);
        let client = &mut rows.client();
        // There is no such row, and it is found out by one SELECT.
        assert_eq!(text(client, "HGET users:alice name"), "nil");
        assert_eq!(
            row(client, "ROW.GET users:alice"),
            ("not_exist".into(), 0, vec![])
        );
        assert_eq!(call::<i64>(client, "EXISTS users:alice"), 0);
        // Made by a hash command: defaults for the rest.
        call::<i64>(
            client,
            "HSET users:alice name Alice gold 18446744073709551615",
        );
        let all: Vec<String> = call(client, "HGETALL users:alice");
        let expected = "age 18 name Alice gold 18446744073709551615 score 0 tag ";
        assert_eq!(all.join(" "), expected);
        assert_eq!(call::<i64>(client, "HINCRBY users:alice age 2"), 20);
        assert_eq!(text(client, "HINCRBYFLOAT users:alice score 0.5"), "0.5");
        assert_eq!(text(client, "TYPE users:alice"), "hash");
        assert_eq!(call::<i64>(client, "EXISTS users:alice users:bob"), 1);
        let got = row(client, "ROW.GET users:alice FIELDS 2 age score");
        let values = ["age", "20", "score", "0.5"].map(String::from).to_vec();
        assert_eq!(got, ("ok".into(), 3, values));
        let unchanged = row(client, "ROW.GET users:alice VERSION 3");
        assert_eq!(unchanged, ("unchanged".into(), 3, vec![]));
        // Versions.
        let set = row(
            client,
            "ROW.SET users:alice VERSION 2 RETURN 1 age FIELDS 1 age 99",
        );
        let values = ["age", "20"].map(String::from).to_vec();
        assert_eq!(set, ("version_mismatch".into(), 3, values));
        let set = row(client, "ROW.SET users:alice VERSION 3 FIELDS 1 age 21");
        assert_eq!(set, ("ok".into(), 4, vec![]));
        let not = row(client, "ROW.SETNX users:alice FIELDS 1 age 1");
        assert_eq!((not.0.as_str(), not.1), ("exist", 4));
        let not = row(client, "ROW.CAS users:alice WHEN 1 age 5 FIELDS 1 age 6");
        assert_eq!((not.0.as_str(), not.1), ("cas_not_equal", 4));
        let cas = row(client, "ROW.CAS users:alice WHEN 1 age 21 FIELDS 1 age 22");
        assert_eq!((cas.0.as_str(), cas.1), ("ok", 5));
        // A retry is answered again, and done once.
        let line = "ROW.INCRBY users:alice age 10 REQUEST 0123456789abcdef0123456789abcdef 7";
        let first = row(client, line);
        assert_eq!(first, row(client, line));
        assert_eq!((first.1, first.2), (6, vec!["age".into(), "32".into()]));
        // SQL has it when it says so.
        let version: i64 = call(client, "ROW.WAITSQL users:alice");
        assert_eq!(version, 6);
        let sql = rows.sql();
        let (version, values) = sql.row("alice").unwrap();
        assert_eq!(version, 6);
        assert_eq!(values["gold"], table::Value::Uint(u64::MAX));
        assert_eq!(values["age"], table::Value::Int(32));
        // It leaves the cache and comes back as it was.
        assert_eq!(text(client, "ROW.KICK users:alice"), "OK");
        assert_eq!(text(client, "ROW.KICK users:alice"), "OK");
        assert_eq!(text(client, "HGET users:alice age"), "32");
        // Deleted, and made again: the count goes on.
        assert_eq!(call::<i64>(client, "DEL users:alice users:nobody"), 1);
        assert_eq!(row(client, "ROW.GET users:alice").1, -7);
        call::<i64>(client, "ROW.WAITSQL users:alice");
        assert_eq!(sql.row("alice").unwrap().0, -7);
        let again = row(client, "ROW.SETNX users:alice FIELDS 1 name Again");
        assert_eq!(again, ("ok".into(), 8, vec![]));
        let both: Vec<(String, i64, Vec<String>)> =
            call(client, "ROW.MGET 2 users:alice users:bob FIELDS 1 name");
        assert_eq!(both[0].2, ["name", "Again"]);
        assert_eq!(both[1].0, "not_exist");
    }
}

#[test]
fn keys_of_all_kinds_are_rows_and_nothing_reaches_sql_unescaped() {
    for backend in Backend::all() {
        let rows = Rows::start(backend);
        let client = &mut rows.client();
        let long = "k".repeat(255);
        let keys = [
            "' OR 1=1 --",
            "\"; DROP TABLE users; --",
            "😀",
            "a:b:c",
            "{tag}x",
            "%_\\",
            &long,
        ];
        for key in keys {
            let name = format!("it's {key}\n\u{1F600}");
            let tag: Vec<u8> = (0..=255).collect();
            let _: i64 = redis::cmd("HSET")
                .arg(format!("users:{key}"))
                .arg("name")
                .arg(&name)
                .arg("tag")
                .arg(&tag)
                .query(client)
                .unwrap();
        }
        rows.drain();
        let sql = rows.sql();
        for key in keys {
            let (version, values) = sql.row(key).unwrap();
            assert_eq!(version, 1, "{key}");
            let name = format!("it's {key}\n\u{1F600}");
            assert_eq!(values["name"], table::Value::text("name", &name).unwrap());
            let _: redis::Value = redis::cmd("ROW.KICK")
                .arg(format!("users:{key}"))
                .query(client)
                .unwrap();
            let tag: Vec<u8> = redis::cmd("HGET")
                .arg(format!("users:{key}"))
                .arg("tag")
                .query(client)
                .unwrap();
            assert_eq!(tag, (0..=255).collect::<Vec<u8>>());
        }
    }
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() {
    let rows = Rows::start(Backend::sqlite());
    let client = &mut rows.client();
    call::<i64>(client, "HSET users:a age 1");
    for (line, words) in [
        ("HSET users:a height 3", "height"),
        ("HSET users:a age tall", "age"),
        ("HSET users:a age 9223372036854775808", "age"),
        ("HSET users:a gold -1", "gold"),
        ("HSET users:a score nan", "score"),
        ("HINCRBY users:a age 9223372036854775807", "overflow"),
        ("HINCRBY users:a gold -5", "overflow"),
        ("HINCRBY users:a name 1", "name"),
        ("HDEL users:a age", "cannot be removed"),
        ("EXPIRE users:a 10", "row of table"),
        ("SET users:a x", "row of table"),
        ("LPUSH users:a x", "row of table"),
        ("RENAME users:a b", "row of table"),
        ("RENAME b users:a", "row of table"),
        ("GET users:a", "row of table"),
        ("ROW.GET nobody:a", "no such table"),
        ("ROW.GET plain", "table:key"),
        ("ROW.SET users:a FIELDS 1 age", ""),
        ("ROW.APPLY x", "unknown command"),
        ("ROW.SCAN nobody 0", "no such table"),
        ("ROW.SCAN users x", "cursor"),
        ("ROW.WAITSQL nobody:a", "no such table"),
    ] {
        let told = refused(client, line);
        assert!(told.contains(words), "{line}: {told}");
    }
    for key in [
        &b"users:\0"[..],
        b"users:\xff",
        b"users:",
        &[&b"users:"[..], &[b'k'; 256]].concat(),
    ] {
        let told: Result<i64, _> = redis::cmd("HSET").arg(key).arg("age").arg(1).query(client);
        assert!(told.is_err(), "{}", key.escape_ascii());
    }
    let big = "x".repeat(2 << 20);
    let told: Result<i64, _> = redis::cmd("HSET")
        .arg("users:a")
        .arg("name")
        .arg(&big)
        .query(client);
    assert!(
        told.unwrap_err().to_string().contains("bytes"),
        "an oversized row"
    );
    assert_eq!(
        row(client, "ROW.GET users:a FIELDS 1 age"),
        ("ok".into(), 1, vec!["age".into(), "1".into()])
    );
    // In another database it is a key like any other.
    call::<()>(client, "SELECT 1");
    call::<()>(client, "SET users:a x");
    assert_eq!(text(client, "GET users:a"), "x");
}

#[test]
fn transactions_pipelines_and_several_rows() {
    let rows = Rows::start(Backend::sqlite());
    let client = &mut rows.client();
    let mut pipe = redis::pipe();
    pipe.atomic();
    for n in 0..20 {
        pipe.cmd("HSET")
            .arg(format!("users:{n}"))
            .arg("age")
            .arg(n)
            .ignore();
        pipe.cmd("SET").arg(format!("plain{n}")).arg(n).ignore();
    }
    pipe.cmd("HGET").arg("users:7").arg("age");
    let (seven,): (i64,) = pipe.query(client).unwrap();
    assert_eq!(seven, 7);
    let mut pipe = redis::pipe();
    for n in 0..200 {
        pipe.cmd("HINCRBY")
            .arg(format!("users:{}", n % 20))
            .arg("age")
            .arg(1);
        pipe.cmd("HGET").arg(format!("users:{}", n % 20)).arg("age");
    }
    let ages: Vec<i64> = pipe.query(client).unwrap();
    for (n, pair) in ages.chunks(2).enumerate() {
        let expected = (n % 20 + n / 20 + 1) as i64;
        assert_eq!(pair, [expected, expected], "{n}");
    }
    // WATCH sees changes of rows.
    call::<()>(client, "WATCH users:1");
    call::<i64>(&mut rows.client(), "HINCRBY users:1 age 1");
    call::<()>(client, "MULTI");
    call::<String>(client, "HSET users:1 age 0");
    assert_eq!(call::<Value>(client, "EXEC"), Value::Nil);
    rows.drain();
    let sql = rows.sql();
    assert_eq!(sql.age("1").unwrap().1, 12);
    assert_eq!(
        call::<i64>(client, "DEL users:1 users:2 plain3 users:never"),
        3
    );
}

#[test]
fn a_walk_shows_every_row_once_wherever_it_is() {
    for backend in Backend::all() {
        let rows = Rows::start(backend);
        let client = &mut rows.client();
        for n in 0..300 {
            call::<i64>(client, &format!("HSET users:k{n:03} age {n}"));
        }
        rows.drain();
        for n in (0..300).step_by(2) {
            text(client, &format!("ROW.KICK users:k{n:03}"));
        }
        call::<i64>(client, "DEL users:k000 users:k001");
        let mut seen = Vec::new();
        let mut cursor = String::from("0");
        loop {
            let (next, page): (String, Vec<(String, i64, Vec<String>)>) = redis::cmd("ROW.SCAN")
                .arg(&["users", &cursor, "COUNT", "17", "FIELDS", "1", "age"])
                .query(client)
                .unwrap();
            for (key, version, values) in page {
                assert_eq!(version, 1, "{key}");
                assert_eq!(
                    values[1].parse::<usize>().unwrap(),
                    key[1..].parse::<usize>().unwrap()
                );
                seen.push(key);
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
        seen.sort();
        let expected: Vec<String> = (2..300).map(|n| format!("k{n:03}")).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_page_of_a_walk_is_no_larger_than_it_should_be_however_large_the_rows() {
    let rows = Rows::start(Backend::sqlite());
    let client = &mut rows.client();
    const ROWS: usize = 48;
    const LONG: usize = 900_000;
    for n in 0..ROWS {
        let name = n.to_string().repeat(LONG)[..LONG].to_owned();
        let set = redis::cmd("HSET")
            .arg(format!("users:{{one}}{n:02}"))
            .arg(&["name", &name])
            .query::<i64>(client);
        assert_eq!(set.unwrap(), 1);
    }
    rows.drain();
    // From the cache, then from SQL, then some from either.
    for round in 0..3 {
        for n in 0..ROWS {
            let key = format!("users:{{one}}{n:02}");
            match round {
                1 => assert_eq!(text(client, &format!("ROW.KICK {key}")), "OK"),
                2 if n % 2 == 0 => assert_eq!(call::<i64>(client, &format!("EXISTS {key}")), 1),
                _ => {}
            }
        }
        let (mut cursor, mut seen, mut largest) = (String::from("0"), Vec::new(), 0);
        loop {
            let (next, page): (String, Vec<(String, i64, Vec<String>)>) = redis::cmd("ROW.SCAN")
                .arg(&["users", &cursor, "COUNT", "10000", "FIELDS", "1", "name"])
                .query(client)
                .unwrap();
            largest = largest.max(page.iter().map(|row| row.2[1].len()).sum());
            seen.extend(page.into_iter().map(|row| row.0));
            if next == "0" {
                break;
            }
            cursor = next;
        }
        let expected: Vec<String> = (0..ROWS).map(|n| format!("{{one}}{n:02}")).collect();
        assert_eq!(seen, expected, "round {round}");
        assert!(
            largest < 10 << 20,
            "round {round}: a page of {largest} bytes"
        );
    }
}

//! Limits of the cache, by bytes: above the soft one clean rows leave and dirty ones never; at the hard one what needs room is
//! refused, the rest goes on, and so does everything once SQL has taken what was owed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use databases::Engine;
use redis::{Connection, Value};
use table::Value as Field;

use crate::node::{call, try_call};
use crate::sql::{Backend, Rows, text, until};

const SOFT: u64 = 256 * 1024;
const HARD: u64 = 512 * 1024;
const LIMITS: [&str; 4] = [
    "--table-cache-soft-bytes",
    "262144",
    "--table-cache-hard-bytes",
    "524288",
];
/// A row of this test, roughly; much more than what else a row costs.
const LONG: usize = 4000;

fn numbers(client: &mut Connection) -> BTreeMap<String, u64> {
    let status: Vec<(String, Value)> = redis::cmd("ROW.TABLE").arg("STATUS").query(client).unwrap();
    let number = |(name, value)| Some((name, redis::from_redis_value(value).ok()?));
    status.into_iter().filter_map(number).collect()
}

fn long(of: usize) -> String {
    format!("{of}-").repeat(LONG / 2)[..LONG].to_owned()
}

/// Sets a name; whether there was room for it.
fn rename(client: &mut Connection, row: &str, name: &str) -> bool {
    match try_call::<Value>(client, &format!("HSET users:{row} name {name}")) {
        Ok(_) => true,
        Err(error) => {
            let said = error.to_string();
            let is_clear =
                said.contains("cache of tables is full") && said.contains("table-cache-hard-bytes");
            assert!(is_clear, "{said}");
            false
        }
    }
}

/// Until there is room.
fn rename_soon(client: &mut Connection, row: &str, name: &str) {
    until(&format!("room for {row}"), || rename(client, row, name));
}

#[test]
fn clean_rows_leave_above_the_soft_limit_and_come_back_the_same() {
    let rows = Rows::start_with(Backend::sqlite(), &LIMITS);
    let client = &mut rows.client();
    let count = 4 * SOFT as usize / LONG;
    for n in 0..count {
        rename_soon(client, &n.to_string(), &long(n));
        assert!(
            n % 16 != 0 || numbers(client)["bytes"] < HARD + 32 * LONG as u64,
            "bounded all the time"
        );
    }
    rows.drain();
    until("cold rows have left", || numbers(client)["bytes"] <= SOFT);
    let now = numbers(client);
    assert!(now["kicked"] > 0 && now["dirty"] == 0, "{now:?}");
    assert!((now["rows"] as usize) < count / 3, "{now:?}");
    assert!(now["rows"] > 0, "no more than is needed: {now:?}");
    for n in 0..count {
        assert_eq!(text(client, &format!("HGET users:{n} name")), long(n));
    }
    assert!(numbers(client)["loaded"] >= now["kicked"] / 2, "from SQL");
    until("and leave again", || numbers(client)["bytes"] <= SOFT);
}

#[test]
fn at_the_hard_limit_what_needs_room_is_refused_and_the_rest_goes_on() {
    let Some(backend) = Backend::of(Engine::Postgres) else {
        return;
    };
    let mut rows = Rows::start_with(backend, &LIMITS);
    let client = &mut rows.client();
    // All of them fit when they are small.
    let names: Vec<String> = (0..200).map(|n| format!("r{n}")).collect();
    for row in &names {
        call::<i64>(client, &format!("HSET users:{row} age 1 name x"));
    }
    rows.drain();
    let before = numbers(client);
    assert!(
        before["bytes"] < SOFT && before["kicked"] == 0,
        "{before:?}"
    );

    rows.backend.server.as_mut().unwrap().kill();
    for row in &names {
        assert_eq!(
            call::<i64>(client, &format!("HINCRBY users:{row} age 1")),
            2
        );
    }
    // All are dirty now, and grow as long as there is room.
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    let mut refused = Vec::new();
    for (n, row) in names.iter().enumerate() {
        match rename(client, row, &long(n)) {
            true => known.insert(row, long(n)),
            false => {
                refused.push(row.as_str());
                known.insert(row, "x".into())
            }
        };
    }
    let taken = names.len() - refused.len();
    assert!(taken > 60 && refused.len() > 20, "{taken} were taken");
    let full = numbers(client);
    assert!(full["bytes"] > SOFT, "{full:?}");
    assert!(full["bytes"] < HARD + 32 * LONG as u64, "{full:?}");

    // Nobody has left, above the soft limit or not, and everything but what grows goes on, through whatever command.
    std::thread::sleep(Duration::from_millis(500));
    let mut slowest = Duration::ZERO;
    for (n, row) in names.iter().enumerate() {
        assert_eq!(
            text(client, &format!("HGET users:{row} name")),
            known[&**row]
        );
        let add = match n % 2 {
            0 => format!("HINCRBY users:{row} age 5"),
            _ => format!("ROW.INCRBY users:{row} age 5"),
        };
        let began = Instant::now();
        call::<Value>(client, &add);
        slowest = slowest.max(began.elapsed());
    }
    let still = numbers(client);
    assert_eq!((still["dirty"], still["kicked"]), (200, 0), "{still:?}");
    let row = refused[0];
    let other = "y".to_owned();
    assert!(rename(client, row, &other), "as long as before");
    call::<Value>(client, &format!("HSET users:{row} age 77 name {other}"));
    call::<Value>(client, &format!("ROW.SET users:{row} FIELDS 1 age 78"));
    known.insert(row, other);
    let told = try_call::<Value>(client, &format!("ROW.SET users:{row} FIELDS 1 name yy"));
    assert!(told.unwrap_err().to_string().contains("is full"));
    assert!(!rename(client, row, "yy"), "longer by one");
    let told = try_call::<Value>(client, &format!("HSET users:{row} tag t"));
    assert!(told.is_err(), "a field it did not have: {told:?}");
    let twice = ["name", "", "name", "zz"];
    let twice = redis::cmd("HSET")
        .arg(format!("users:{row}"))
        .arg(&twice)
        .clone();
    let told = twice.query::<Value>(client);
    assert!(told.is_err(), "the last of a field counts: {told:?}");
    // Nor in a transaction, of one region or over several.
    for count in [1, 8] {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for row in &refused[1..=count] {
            pipe.hset(format!("users:{row}"), "name", long(7));
        }
        let told = pipe.query::<Vec<Value>>(client);
        let told = told.map_err(|error| error.to_string());
        assert!(
            told.as_ref().is_err_and(|it| it.contains("is full")),
            "{told:?}"
        );
    }
    let again = numbers(client);
    assert!(again["bytes"] <= still["bytes"], "{still:?} {again:?}");
    // A row that is waited for takes five seconds.
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    assert_eq!(
        text(client, "SET plain 1"),
        "OK",
        "plain keys know nothing of it"
    );
    let gone = names
        .iter()
        .find(|row| known[&***row].len() == LONG)
        .unwrap();
    assert_eq!(call::<i64>(client, &format!("DEL users:{gone}")), 1);

    rows.backend.server.as_mut().unwrap().restart();
    for row in &refused {
        let name = long(1);
        rename_soon(client, row, &name);
        known.insert(row, name);
    }
    rows.drain();
    until("clean rows leave", || numbers(client)["bytes"] <= SOFT);
    let sql = rows.sql();
    for row in names.iter().filter(|row| *row != gone) {
        let (_, values) = sql.row(row).expect(row);
        let name = &known[&**row];
        assert_eq!(values["name"], Field::Text(name.as_str().into()), "{row}");
        assert_eq!(text(client, &format!("HGET users:{row} name")), *name);
    }
    assert_eq!(sql.age(refused[0]).unwrap().1, 78);
    assert!(sql.row(gone).is_none_or(|(version, _)| version < 0));
}

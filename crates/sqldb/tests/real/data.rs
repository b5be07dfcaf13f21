//! What is written comes back the same; keys are bytes; batches are large.

use sqldb::{Database, Flushed, Loaded};
use table::{Table, Value};

use super::{House, Stranger, Which, age, declare, row, run, write};

pub async fn all(house: House) {
    let database = house.database();
    every_value(&house, &database).await;
    hostile_keys(&database).await;
    thousands(&database).await;
    strangers_values(&house, &database).await;
    walking(&database).await;
}

const ALL_KINDS: &str = "i:int64=-1,u:uint64=7,f:float64=1.5,s:string='dflt',b:blob=0x00ff";

async fn every_value(house: &House, database: &Database) {
    let table = declare("Values", ALL_KINDS);
    database.create_table(&table).await.unwrap();
    let ints = [0, 1, -1, i64::MAX, i64::MIN, i64::MAX - 1];
    let uints = [
        0,
        1,
        i64::MAX as u64,
        i64::MAX as u64 + 1,
        10_000_000_000_000_000_000,
        u64::MAX,
    ];
    let floats = [
        0.0,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        0.1 + 0.2,
    ];
    let long = "é😀'\"`\\%_;--\t\r\n ".repeat(3000);
    let texts = [
        "",
        " ",
        "' OR 1=1 --",
        "NULL",
        "a\\'b\u{feff}\u{202e}",
        long.as_str(),
    ];
    let bytes: Vec<u8> = (0..=255).collect();
    let blobs = [&b""[..], b"\0", b"\xff\xfe\0'\"", &bytes, b"NULL", b" "];
    let mut rows = Vec::new();
    for at in 0..6 {
        let values = vec![
            Value::Int(ints[at]),
            Value::Uint(uints[at]),
            Value::Float(floats[at]),
            Value::Text(texts[at].into()),
            Value::Blob(blobs[at].into()),
        ];
        rows.push(row(&format!("row{at}"), 1, values));
    }
    let outcomes = database.flush(&table, &rows).await.unwrap();
    assert_eq!(outcomes, vec![Flushed::Written; 6]);
    let same = |loaded: &[Loaded], version| {
        for (at, found) in loaded.iter().enumerate() {
            let values = rows[at].values.clone();
            assert_eq!(*found, Loaded::Found { version, values }, "row {at}");
        }
    };
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    same(&database.load(&table, &keys).await.unwrap(), 1);
    if let Stranger::Sqlite(stranger) = &mut house.stranger().await {
        // the one database without unsigned integers sorts and finds them all the same
        let sorted = "SELECT group_concat(__key__) FROM (SELECT __key__ FROM `Values` ORDER BY u)";
        let sorted: String = sqlx::query_scalar(sorted)
            .fetch_one(&mut *stranger)
            .await
            .unwrap();
        assert_eq!(sorted, keys.join(","));
        let found = "SELECT __key__ FROM `Values` WHERE u = 9223372036854775807";
        let found: String = sqlx::query_scalar(found).fetch_one(stranger).await.unwrap();
        assert_eq!(found, "row2");
    }
    // the same through the upsert
    let again: Vec<_> = rows
        .iter()
        .map(|old| row(&old.key, 2, old.values.clone()))
        .collect();
    let outcomes = database.flush(&table, &again).await.unwrap();
    assert_eq!(outcomes, vec![Flushed::Written; 6]);
    same(&database.load(&table, &keys).await.unwrap(), 2);
    assert_eq!(
        database.load(&table, &["nix"]).await.unwrap(),
        [Loaded::Missing]
    );
    // a deleted row keeps its version and nothing else
    let deleted = row("row1", -3, Vec::new());
    assert_eq!(write(database, &table, deleted).await, Flushed::Written);
    let found = database
        .load(&table, &["row1", "row2", "row1"])
        .await
        .unwrap();
    let gone = Loaded::Found {
        version: -3,
        values: Vec::new(),
    };
    assert_eq!((&found[0], &found[2]), (&gone, &gone));
}

async fn hostile_keys(database: &Database) {
    let table = declare("keys", "age:int64");
    database.create_table(&table).await.unwrap();
    let long = "k".repeat(255);
    let wide = "😀".repeat(63);
    let keys = [
        "' OR 1=1 --",
        "'; DROP TABLE keys; --",
        "a",
        "A",
        "a ",
        "a  ",
        " a",
        "á",
        "a\u{301}",
        "ä",
        "ß",
        "ss",
        "SS",
        "😀",
        "😁",
        "\\",
        "%",
        "_",
        "\"",
        "`",
        "?",
        "$1",
        ":x",
        "\t",
        "\n",
        "0",
        "00",
        "1e0",
        "null",
        "\u{1}",
        "\u{10ffff}",
        &long,
        &wide,
    ];
    let rows: Vec<_> = keys
        .iter()
        .zip(0..)
        .map(|(key, number)| row(key, 1, age(number)))
        .collect();
    let outcomes = database.flush(&table, &rows).await.unwrap();
    assert!(
        outcomes.iter().all(|outcome| *outcome == Flushed::Written),
        "{outcomes:?}"
    );
    let before = database.statements();
    let found = database.load(&table, &keys).await.unwrap();
    assert_eq!(database.statements() - before, 1, "one SELECT for all");
    for ((key, number), found) in keys.iter().zip(0..).zip(found) {
        let values = age(number);
        assert_eq!(found, Loaded::Found { version: 1, values }, "{key:?}");
    }
    let absent = database
        .load(&table, &["' or 1=1 --", "a   ", "", "K", "' OR 1=1 -- "])
        .await
        .unwrap();
    assert!(absent.iter().all(|found| *found == Loaded::Missing));
    // what is no key does not reach the database
    for bad in ["", "a\0b", &"k".repeat(256)] {
        let refused = write(database, &table, row(bad, 1, age(1))).await;
        assert!(matches!(refused, Flushed::Refused { .. }), "{bad:?}");
    }
    // in the order of bytes, one by one
    let mut sorted: Vec<&str> = keys.to_vec();
    sorted.sort_unstable();
    let mut walked = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = database
            .scan(&table, after.as_deref(), 1, None)
            .await
            .unwrap();
        walked.extend(page.rows.into_iter().map(|row| row.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(walked, sorted);
}

/// More than any one statement takes, some of them large.
async fn thousands(database: &Database) {
    let fields: Vec<String> = (0..40).map(|number| format!("f{number}:int64")).collect();
    let table = declare("wide", &format!("{},text:string", fields.join(",")));
    database.create_table(&table).await.unwrap();
    let values = |number: i64| {
        let mut values: Vec<Value> = (0..40).map(|field| Value::Int(number * field)).collect();
        let length = if number % 500 == 0 { 700_000 } else { 10 };
        values.push(Value::Text("x".repeat(length).into()));
        values
    };
    let keys: Vec<String> = (0..3000).map(|number| format!("key{number}")).collect();
    let rows = |version| -> Vec<_> {
        let row = |(key, number): (&String, i64)| row(key, version, values(number));
        keys.iter().zip(0..).map(row).collect()
    };
    for version in [1, 2] {
        let outcomes = database.flush(&table, &rows(version)).await.unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome == Flushed::Written));
    }
    let outcomes = database.flush(&table, &rows(2)).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Flushed::Already));
    let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found = database.load(&table, &asked).await.unwrap();
    for (number, found) in (0..).zip(found) {
        let values = values(number);
        assert!(
            found == Loaded::Found { version: 2, values },
            "row {number}"
        );
    }
    // one key twice in a batch: both, in the order of their versions
    let twice = [row("key1", 4, values(4)), row("key1", 3, values(3))];
    let outcomes = database.flush(&table, &twice).await.unwrap();
    assert_eq!(outcomes, [Flushed::Written, Flushed::Written]);
}

/// Values that somebody else put there: defaults for NULL, and a word for what is none of ours.
async fn strangers_values(house: &House, database: &Database) {
    let table = declare("strangers", ALL_KINDS);
    database.create_table(&table).await.unwrap();
    let mut stranger = house.stranger().await;
    let quoted = house.quoted("strangers");
    let columns: Vec<String> = ["__key__", "__version__", "__slot__"]
        .iter()
        .map(|name| house.quoted(name))
        .collect();
    let columns = columns.join(",");
    run(
        &mut stranger,
        &format!("INSERT INTO {quoted} ({columns}) VALUES ('null', 0, 1), ('odd', 5, 1)"),
    )
    .await;
    match house.which {
        Which::Postgres => {
            run(
                &mut stranger,
                "UPDATE strangers SET f = 'NaN' WHERE __version__ = 5",
            )
            .await
        }
        Which::Sqlite => {
            run(
                &mut stranger,
                "UPDATE strangers SET u = 'many' WHERE __version__ = 5",
            )
            .await
        }
        // neither is possible here
        Which::Mariadb => run(&mut stranger, "DELETE FROM strangers WHERE __version__ = 5").await,
    }
    let found = database.load(&table, &["null", "odd"]).await.unwrap();
    let values = defaults(&table);
    assert_eq!(
        found[0],
        Loaded::Found {
            version: 0,
            values: values.clone()
        }
    );
    if house.which != Which::Mariadb {
        assert!(
            matches!(found[1], Loaded::Unreadable { .. }),
            "{:?}",
            found[1]
        );
    }
    // a row that was there before us is at version 0, and is taken over
    let first = row("null", 1, values);
    assert_eq!(write(database, &table, first).await, Flushed::Written);
}

fn defaults(table: &Table) -> Vec<Value> {
    table
        .fields
        .iter()
        .map(|field| field.default.clone())
        .collect()
}

async fn walking(database: &Database) {
    let table = declare("walk", "age:int64");
    database.create_table(&table).await.unwrap();
    let empty = database.scan(&table, None, 10, None).await.unwrap();
    assert_eq!((empty.rows.len(), empty.next), (0, None));
    let mut rows: Vec<_> = (0..100)
        .map(|number| row(&format!("k{number:03}"), 1, age(number)))
        .collect();
    for (slot, row) in (0..).zip(&mut rows) {
        row.slot = slot * 160;
    }
    database.flush(&table, &rows).await.unwrap();
    let mut deleted = row("k050", -2, Vec::new());
    deleted.slot = 8000;
    database.flush(&table, &[deleted]).await.unwrap();
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = database
            .scan(&table, after.as_deref(), 7, Some(1600..=12000))
            .await
            .unwrap();
        seen.extend(page.rows);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 66);
    assert_eq!(seen[0].key, "k010");
    for found in seen {
        let Loaded::Found { version, values } = found.row else {
            panic!("{found:?}");
        };
        let deleted = found.key == "k050";
        assert_eq!(
            (version, values.is_empty()),
            if deleted { (-2, true) } else { (1, false) }
        );
    }
}

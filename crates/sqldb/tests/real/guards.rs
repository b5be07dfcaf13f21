//! Nobody writes over a version he did not expect, however late or often he tries.

use sqldb::{Database, Flush, Flushed, Loaded};
use table::{Table, Value};

use super::{House, age, declare, row, run, write};

pub async fn all(house: House) {
    let database = house.database();
    let table = declare("guarded", "age:int64");
    database.create_table(&table).await.unwrap();
    outcomes(&database, &table).await;
    tombstones(&database, &table).await;
    edited_by_hand(&house, &database, &table).await;
    two_writers(&house, &table).await;
}

fn over(key: &str, version: i64, low: u64, high: u64, number: i64) -> Flush {
    Flush {
        low,
        high,
        ..row(key, version, age(number))
    }
}

async fn has(database: &Database, table: &Table, key: &str) -> (i64, Option<i64>) {
    match database.load(table, &[key]).await.unwrap().remove(0) {
        Loaded::Found { version, values } => match values.first() {
            Some(Value::Int(number)) => (version, Some(*number)),
            _ => (version, None),
        },
        _ => (0, None),
    }
}

async fn outcomes(database: &Database, table: &Table) {
    let key = "alice";
    let conflict = |sql_version| Flushed::Conflict { sql_version };
    // absent, though something was expected
    assert_eq!(
        write(database, table, over(key, 5, 4, 4, 50)).await,
        conflict(0)
    );
    assert_eq!(has(database, table, key).await, (0, None));
    assert_eq!(
        write(database, table, over(key, 1, 0, 0, 1)).await,
        Flushed::Written
    );
    assert_eq!(
        write(database, table, over(key, 1, 0, 0, 1)).await,
        Flushed::Already
    );
    // many changes, one statement
    assert_eq!(
        write(database, table, over(key, 9, 1, 1, 9)).await,
        Flushed::Written
    );
    // a late one changes nothing
    assert_eq!(
        write(database, table, over(key, 5, 1, 1, 5)).await,
        conflict(9)
    );
    assert_eq!(
        write(database, table, over(key, 5, 0, 4, 5)).await,
        conflict(9)
    );
    assert_eq!(has(database, table, key).await, (9, Some(9)));
    // a new leader knows 4 and that it was at most 11
    assert_eq!(
        write(database, table, over(key, 12, 4, 11, 12)).await,
        Flushed::Written
    );
    // newer than expected: somebody else
    assert_eq!(
        write(database, table, over(key, 14, 11, 11, 14)).await,
        conflict(12)
    );
    // older than expected: the database was set back
    assert_eq!(
        write(database, table, over(key, 14, 13, 13, 14)).await,
        conflict(12)
    );
    assert_eq!(has(database, table, key).await, (12, Some(12)));
    // nonsense is refused here
    for nonsense in [
        over(key, 13, 13, 13, 1),
        over(key, 13, 12, 11, 1),
        over(key, 0, 0, 0, 1),
        over(key, i64::MIN, 0, 1, 1),
        row(key, 13, Vec::new()),
        row(key, 13, vec![Value::Uint(1)]),
    ] {
        let outcome = write(database, table, nonsense.clone()).await;
        assert!(
            matches!(outcome, Flushed::Refused { .. }),
            "{nonsense:?}: {outcome:?}"
        );
    }
    // each row is judged alone
    let batch = [
        over("new", 1, 0, 0, 1),
        over(key, 12, 11, 11, 12),
        over("other", 3, 2, 2, 1),
        over("new2", 2, 0, 1, 2),
    ];
    let together = database.flush(table, &batch).await.unwrap();
    let expected = [
        Flushed::Written,
        Flushed::Already,
        conflict(0),
        Flushed::Written,
    ];
    assert_eq!(together, expected);
}

async fn tombstones(database: &Database, table: &Table) {
    let key = "bob";
    assert_eq!(
        write(database, table, over(key, 1, 0, 0, 1)).await,
        Flushed::Written
    );
    assert_eq!(
        write(database, table, over(key, -2, 1, 1, 0)).await,
        Flushed::Written
    );
    assert_eq!(has(database, table, key).await, (-2, None));
    assert_eq!(
        write(database, table, over(key, -2, 1, 1, 0)).await,
        Flushed::Already
    );
    // a late write does not bring it back
    let late = write(database, table, over(key, 1, 0, 0, 1)).await;
    assert_eq!(late, Flushed::Conflict { sql_version: -2 });
    let same = write(database, table, over(key, 2, 1, 1, 1)).await;
    assert_eq!(same, Flushed::Conflict { sql_version: -2 });
    // created again, the count goes on
    assert_eq!(
        write(database, table, over(key, 3, 2, 2, 3)).await,
        Flushed::Written
    );
    assert_eq!(
        write(database, table, over(key, -2, 1, 1, 0)).await,
        Flushed::Conflict { sql_version: 3 }
    );
    assert_eq!(has(database, table, key).await, (3, Some(3)));
    // deleted before the database ever heard of it
    assert_eq!(
        write(database, table, over("eve", -2, 0, 1, 0)).await,
        Flushed::Written
    );
    assert_eq!(has(database, table, "eve").await, (-2, None));
}

async fn edited_by_hand(house: &House, database: &Database, table: &Table) {
    assert_eq!(
        write(database, table, over("carl", 1, 0, 0, 1)).await,
        Flushed::Written
    );
    let mut stranger = house.stranger().await;
    run(
        &mut stranger,
        "UPDATE guarded SET age = 99, __version__ = 2 WHERE __key__ = 'carl'",
    )
    .await;
    let told = write(database, table, over("carl", 2, 1, 1, 2)).await;
    assert_eq!(
        told,
        Flushed::Already,
        "the same version cannot be told apart"
    );
    let told = write(database, table, over("carl", 3, 1, 1, 3)).await;
    assert_eq!(told, Flushed::Conflict { sql_version: 2 });
    assert_eq!(has(database, table, "carl").await, (2, Some(99)));
    run(&mut stranger, "DELETE FROM guarded WHERE __key__ = 'carl'").await;
    let told = write(database, table, over("carl", 3, 2, 2, 3)).await;
    assert_eq!(told, Flushed::Conflict { sql_version: 0 });
}

/// Two nodes write the same absent rows at once, in batches that overlap, again and again: every row ends with the newest version,
/// and both are told the truth.
async fn two_writers(house: &House, table: &Table) {
    let (first, second) = (house.database(), house.database());
    for round in 0..8 {
        let keys: Vec<String> = (0..40)
            .map(|number| format!("race{round}-{number}"))
            .collect();
        let old: Vec<Flush> = keys.iter().map(|key| over(key, 1, 0, 0, 1)).collect();
        let new: Vec<Flush> = keys.iter().rev().map(|key| over(key, 2, 0, 1, 2)).collect();
        // A deadlock is possible where rows are absent, and a transient error; who lost tries again.
        let until_done = async |database: &Database, rows: &[Flush]| loop {
            match database.flush(table, rows).await {
                Ok(outcomes) => return outcomes,
                Err(sqldb::Error::Transient(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        let (olds, news) = tokio::join!(until_done(&first, &old), until_done(&second, &new));
        for outcome in &olds {
            let fair = [
                Flushed::Written,
                Flushed::Already,
                Flushed::Conflict { sql_version: 2 },
            ];
            assert!(fair.contains(outcome), "{outcome:?}");
        }
        assert!(
            news.iter()
                .all(|told| matches!(told, Flushed::Written | Flushed::Already)),
            "{news:?}"
        );
        for key in &keys {
            assert_eq!(has(&first, table, key).await, (2, Some(2)));
        }
    }
}

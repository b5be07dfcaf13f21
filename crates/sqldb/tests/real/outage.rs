//! The database dies, comes back, hangs, or a row of it is locked by somebody: a transient error each time, of that row only if it can be, in good time, and afterwards all goes on.

use std::time::{Duration, Instant};

use sqldb::{Database, Error, Flushed, Limits, Loaded};
use table::Table;

use super::{House, Which, age, declare, limits, row, run, write};

pub async fn all(mut house: House) {
    let table = declare("outage", "age:int64");
    let database = house.database();
    database.create_table(&table).await.unwrap();
    assert_eq!(
        write(&database, &table, row("a", 1, age(1))).await,
        Flushed::Written
    );
    locked(&house, &table).await;
    if house.server.is_some() {
        hangs(&house, &table).await;
        dies(&mut house, &database, &table).await;
    }
    crowded(&house, &table).await;
}

fn impatient() -> Limits {
    Limits {
        statement: Duration::from_secs(1),
        ..limits()
    }
}

/// What went wrong, and that it did not take long.
async fn transient<T: std::fmt::Debug>(call: impl Future<Output = Result<T, Error>>) -> String {
    let began = Instant::now();
    let result = call.await;
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "took {:?}",
        began.elapsed()
    );
    match result {
        Err(Error::Transient(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Somebody holds the row.
async fn locked(house: &House, table: &Table) {
    let database = house.database_with(impatient());
    database.ping().await.unwrap();
    let mut stranger = house.stranger().await;
    let begin = match house.which {
        Which::Sqlite => "BEGIN IMMEDIATE",
        _ => "BEGIN",
    };
    run(&mut stranger, begin).await;
    run(
        &mut stranger,
        "UPDATE outage SET age = 77 WHERE __key__ = 'a'",
    )
    .await;
    let rows = [row("a", 2, age(2))];
    match house.which {
        // The one writer there is.
        Which::Sqlite => drop(transient(database.flush(table, &rows)).await),
        // It alone is left out.
        _ => {
            let two = [row("b", 1, age(1)), rows[0].clone(), row("c", 1, age(1))];
            let outcomes = database.flush(table, &two).await.unwrap();
            let expected = [Flushed::Written, Flushed::Busy, Flushed::Written];
            assert_eq!(outcomes, expected);
        }
    }
    // reading goes on meanwhile
    let found = database.load(table, &["a"]).await.unwrap();
    assert!(matches!(found[0], Loaded::Found { version: 1, .. }));
    run(&mut stranger, "ROLLBACK").await;
    assert_eq!(
        database.flush(table, &rows).await,
        Ok(vec![Flushed::Written])
    );
}

/// Stopped in mid-air: nobody answers, and the connections stay open.
async fn hangs(house: &House, table: &Table) {
    let limits = Limits {
        connect: Duration::from_secs(1),
        ..impatient()
    };
    let database = house.database_with(limits);
    database.ping().await.unwrap();
    let server = house.server.as_ref().unwrap();
    server.pause();
    let why = transient(database.flush(table, &[row("a", 3, age(3))])).await;
    assert!(why.starts_with("no answer within"), "{why}");
    transient(database.load(table, &["a"])).await;
    server.resume();
    // The flush was given up before it wrote, so it is not there; whatever still runs of it must be over first.
    let outcome = loop {
        match database.flush(table, &[row("a", 3, age(3))]).await {
            Ok(mut outcomes) => break outcomes.remove(0),
            Err(Error::Transient(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(
        matches!(outcome, Flushed::Written | Flushed::Already),
        "{outcome:?}"
    );
}

async fn dies(house: &mut House, database: &Database, table: &Table) {
    let keys: Vec<String> = (0..20).map(|number| format!("d{number}")).collect();
    let rows: Vec<_> = keys.iter().map(|key| row(key, 1, age(5))).collect();
    database.ping().await.unwrap();
    let server = house.server.as_mut().unwrap();
    server.kill();
    transient(database.flush(table, &rows)).await;
    // Nobody there: told at once, not when the time is up.
    let began = Instant::now();
    transient(database.load(table, &["a"])).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    server.restart();
    let found = database.load(table, &["a"]).await.unwrap();
    assert!(matches!(found[0], Loaded::Found { version: 3, .. }));
    let outcomes = database.flush(table, &rows).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Flushed::Written));
    // Killed between two calls: nobody notices, because the dead connection is replaced.
    server.restart();
    let outcomes = database.flush(table, &rows).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Flushed::Already));
}

/// More callers than connections: they wait for each other, and nobody waits for ever.
async fn crowded(house: &House, table: &Table) {
    let one = Limits {
        connections: 1,
        ..limits()
    };
    let database = house.database_with(one);
    let load = async || database.load(table, &["a", "b"]).await.unwrap().len();
    let (a, b, c, d) = tokio::join!(load(), load(), load(), load());
    assert_eq!([a, b, c, d], [2; 4]);
}

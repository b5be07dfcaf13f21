//! A row the database will never take is refused alone.

use sqldb::{Database, Flushed, Loaded};
use table::{Table, Value};

use super::{House, Which, declare, row, run};

pub async fn all(house: House) {
    let database = house.database();
    let table = declare("poison", "age:int64,name:string");
    let mut stranger = house.stranger().await;
    let own = match house.which {
        Which::Postgres => {
            "__key__ text COLLATE \"C\" PRIMARY KEY, __version__ bigint NOT NULL, __slot__ integer NOT NULL"
        }
        Which::Mariadb => {
            "__key__ varbinary(255) PRIMARY KEY, __version__ bigint NOT NULL, __slot__ int NOT NULL"
        }
        Which::Sqlite => {
            "__key__ text NOT NULL PRIMARY KEY, __version__ integer NOT NULL, __slot__ integer NOT NULL"
        }
    };
    let fields = match house.which {
        Which::Postgres => "age bigint CHECK (age >= 0), name varchar(10) UNIQUE",
        Which::Mariadb => {
            "age bigint CHECK (age >= 0), name varchar(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin UNIQUE"
        }
        Which::Sqlite => {
            "age integer CHECK (age >= 0), name text CHECK (length(name) <= 10) UNIQUE"
        }
    };
    run(
        &mut stranger,
        &format!("CREATE TABLE poison ({own}, {fields})"),
    )
    .await;
    database.check_table(&table).await.unwrap();
    among_many(&database, &table).await;
    taken(&database, &table).await;
}

fn values(age: i64, name: &str) -> Vec<Value> {
    vec![Value::Int(age), Value::Text(name.into())]
}

async fn among_many(database: &Database, table: &Table) {
    for version in [1, 2] {
        let mut rows = Vec::new();
        for number in 0..300 {
            let name = if number == 123 {
                "much too long a name".into()
            } else {
                format!("n{version}-{number}")
            };
            let age = if number == 7 || number == 299 {
                -1
            } else {
                number
            };
            let mut row = row(&format!("k{number}"), version, values(age, &name));
            row.low = 0; // the refused ones are not there
            rows.push(row);
        }
        let outcomes = database.flush(table, &rows).await.unwrap();
        for (number, outcome) in outcomes.iter().enumerate() {
            let bad = [7, 123, 299].contains(&number);
            let refused = matches!(outcome, Flushed::Refused { why } if !why.is_empty());
            assert_eq!(refused, bad, "{number}: {outcome:?}");
            assert!(bad || *outcome == Flushed::Written);
        }
    }
    let found = database.load(table, &["k7", "k8"]).await.unwrap();
    assert_eq!(found[0], Loaded::Missing);
    assert!(matches!(found[1], Loaded::Found { version: 2, .. }));
}

/// A value of another row in a unique column: never written over, in MySQL neither.
async fn taken(database: &Database, table: &Table) {
    let first = [
        row("u1", 1, values(1, "ann")),
        row("u2", 1, values(2, "ben")),
    ];
    database.flush(table, &first).await.unwrap();
    // one that is new, one that is there, and one that is fine
    let second = [
        row("u3", 1, values(3, "ann")),
        row("u2", 2, values(4, "ann")),
        row("u4", 1, values(5, "eve")),
    ];
    let outcomes = database.flush(table, &second).await.unwrap();
    assert!(
        matches!(outcomes[0], Flushed::Refused { .. }),
        "{outcomes:?}"
    );
    assert!(
        matches!(outcomes[1], Flushed::Refused { .. }),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[2], Flushed::Written);
    let found = database.load(table, &["u1", "u2", "u3"]).await.unwrap();
    let at = |version, age, name| Loaded::Found {
        version,
        values: values(age, name),
    };
    assert_eq!(found, [at(1, 1, "ann"), at(1, 2, "ben"), Loaded::Missing]);
    // two deleted rows have no values to collide
    let gone = [row("u1", -2, Vec::new()), row("u2", -2, Vec::new())];
    let outcomes = database.flush(table, &gone).await.unwrap();
    assert_eq!(outcomes, [Flushed::Written, Flushed::Written]);
}

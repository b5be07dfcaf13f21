//! Making, changing and adopting tables.

use sqldb::{Database, Error, Flushed, Loaded};
use table::{Value, parse_fields};

use super::{House, Which, age, declare, row, run, write};

pub async fn all(house: House) {
    let database = house.database();
    twice(&database).await;
    fields(&database).await;
    unfit(&house, &database).await;
    no_table(&database).await;
    urls();
}

fn told(result: Result<(), Error>) -> String {
    match result {
        Err(Error::Unfit(why)) => why,
        other => panic!("{other:?}"),
    }
}

async fn twice(database: &Database) {
    let table = declare("twice", "age:int64,select:string,Group:blob");
    database.create_table(&table).await.unwrap();
    database.create_table(&table).await.unwrap();
    database.check_table(&table).await.unwrap();
    let other = declare("twice", "age:uint64,more:string");
    let why = told(database.create_table(&other).await);
    assert!(
        why.contains("column age is") && why.contains("column more is missing"),
        "{why}"
    );
    database.drop_table(&table).await.unwrap();
    database.drop_table(&table).await.unwrap();
    let why = told(database.check_table(&table).await);
    assert_eq!(why, "there is no table twice");
}

async fn fields(database: &Database) {
    let first = declare("grows", "age:int64");
    database.create_table(&first).await.unwrap();
    assert_eq!(
        write(database, &first, row("a", 1, age(1))).await,
        Flushed::Written
    );
    let mut table = first.clone();
    for field in parse_fields(
        "i:int64=3,u:uint64=4,f:float64=5.5,s:string='it''s',b:blob=0x01",
        0,
    )
    .unwrap()
    {
        table = table.with_field(field).unwrap();
        let field = table.fields.last().unwrap();
        database.add_field(&first, field).await.unwrap();
        database.add_field(&first, field).await.unwrap();
    }
    database.check_table(&table).await.unwrap();
    let mut values: Vec<Value> = table
        .fields
        .iter()
        .map(|field| field.default.clone())
        .collect();
    values[0] = Value::Int(1);
    let found = database.load(&table, &["a"]).await.unwrap();
    assert_eq!(
        found,
        [Loaded::Found {
            version: 1,
            values: values.clone()
        }]
    );
    // who does not know the new fields yet leaves them alone
    assert_eq!(
        write(database, &table, row("a", 2, values.clone())).await,
        Flushed::Written
    );
    assert_eq!(
        write(database, &first, row("a", 3, age(9))).await,
        Flushed::Written
    );
    values[0] = Value::Int(9);
    let found = database.load(&table, &["a"]).await.unwrap();
    assert_eq!(found, [Loaded::Found { version: 3, values }]);
    // a column of that name that does not fit
    let clash = parse_fields("s:int64", 9).unwrap().remove(0);
    let why = told(database.add_field(&first, &clash).await);
    assert!(why.starts_with("table grows: column s is "), "{why}");
    // dropped, and added as something else, while statements are prepared
    for _ in 0..2 {
        database.drop_field(&table, "s").await.unwrap();
    }
    let shorter = table.without_field("s").unwrap();
    database.check_table(&shorter).await.unwrap();
    assert!(database.load(&table, &["a"]).await.is_err());
    let again = shorter.with_field(clash).unwrap();
    database
        .add_field(&shorter, again.fields.last().unwrap())
        .await
        .unwrap();
    let mut found = database.load(&again, &["a"]).await;
    if let Err(Error::Transient(_)) = found {
        found = database.load(&again, &["a"]).await; // a stale plan, once
    }
    assert!(matches!(
        found.unwrap()[0],
        Loaded::Found { version: 3, .. }
    ));
    let hostile = declare("grows", "age:int64");
    for bad in ["a\"b", "a`b; DROP TABLE grows", "__key__", ""] {
        assert!(matches!(
            database.drop_field(&hostile, bad).await,
            Err(Error::Unfit(_))
        ));
    }
}

async fn unfit(house: &House, database: &Database) {
    let mut stranger = house.stranger().await;
    let table = declare("adopted", "i:int64,u:uint64,f:float64,s:string,b:blob");
    let (sql, expected): (&str, &[&str]) = match house.which {
        Which::Postgres => (
            "CREATE TABLE adopted (__key__ varchar(100), __version__ integer NOT NULL, i integer, u bigint, f real, s char(5), b text, x text NOT NULL)",
            &[
                "column __key__ is character varying(100), needs text COLLATE \"C\"",
                "column __version__ is integer, needs bigint",
                "column __slot__ is missing",
                "column i is integer",
                "column u is bigint",
                "column f is real",
                "column s is character(5)",
                "column b is text",
                "column x is no field, NOT NULL",
                "__key__ is not the primary key",
            ],
        ),
        Which::Mariadb => (
            "CREATE TABLE adopted (__key__ varchar(100), __version__ int NOT NULL, i int, u bigint, f float, s varchar(5), b text, x text NOT NULL) ENGINE=MyISAM",
            &[
                "column __key__ is varchar(100), needs varbinary(255)",
                "column __version__ is int(11), needs bigint",
                "column __slot__ is missing",
                "column i is int(11)",
                "column u is bigint(20)",
                "column f is float",
                "column s is varchar(5) (latin1_swedish_ci)",
                "column b is text",
                "column x is no field, NOT NULL",
                "__key__ is not the primary key",
                "its engine is MyISAM, needs InnoDB",
            ],
        ),
        Which::Sqlite => (
            "CREATE TABLE adopted (__key__ text COLLATE NOCASE PRIMARY KEY, __version__ text NOT NULL, i text, u integer, f numeric, s blob, b text, x text NOT NULL)",
            &[
                "column __key__ may be NULL",
                "column __version__ is text, needs INTEGER",
                "column __slot__ is missing",
                "column i is text",
                "column u is integer",
                "column f is numeric",
                "column s is blob",
                "column b is text",
                "column x is no field, NOT NULL",
                "__key__ is not the primary key",
            ],
        ),
    };
    run(&mut stranger, sql).await;
    let why = told(database.check_table(&table).await);
    for flaw in expected {
        assert!(why.contains(flaw), "{flaw}\nis not in\n{why}");
    }
    if house.which == Which::Postgres {
        run(&mut stranger, "CREATE TABLE sorted (__key__ text PRIMARY KEY, __version__ bigint NOT NULL, __slot__ int NOT NULL, age bigint NOT NULL)").await;
        let why = told(database.check_table(&declare("sorted", "age:int64")).await);
        assert!(
            why.contains("has collation \"default\", needs \"C\"")
                && why.contains("age is NOT NULL"),
            "{why}"
        );
    }
}

/// Without its table a flush refuses no row: an operator has to act, and rows wait.
async fn no_table(database: &Database) {
    let table = declare("nowhere", "age:int64");
    let flushed = database
        .flush(&table, &[row("a", 1, age(1)), row("b", 1, age(1))])
        .await;
    assert!(matches!(flushed, Err(Error::Unfit(_))), "{flushed:?}");
    assert!(matches!(
        database.load(&table, &["a"]).await,
        Err(Error::Unfit(_))
    ));
    let added = database.add_field(&table, &table.fields[0]).await;
    assert_eq!(added, Err(Error::Unfit("there is no table nowhere".into())));
}

fn urls() {
    for bad in [
        "",
        "main",
        "redis://x",
        "sqlite://:memory:",
        "sqlite:///x?mode=memory",
        "mysql://a:b@[",
        "http://x",
    ] {
        let opened = Database::open(bad, super::limits());
        assert!(matches!(opened, Err(Error::Unfit(_))), "{bad}");
    }
    let secret = Database::open("postgres://me:hunter2@localhost/x", super::limits()).unwrap();
    assert!(!format!("{secret:?}").contains("hunter2"));
}

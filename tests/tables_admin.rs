//! Declaring and changing tables on the running binary, over SQLite, PostgreSQL and MariaDB.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use databases::{Engine, Server};
use node::{Folder, Node, call, free_port};
use redis::{Connection, RedisResult, Value};

fn start(folder: &Path, flags: &[&str]) -> Node {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--redis-port", &port.to_string()])
        .args([
            "--bind",
            "127.0.0.1",
            "--num-shards",
            "1",
            "--http-port",
            "0",
        ])
        .args(["--block-cache-size", "16mb", "--data-dir"])
        .arg(folder)
        .args(flags);
    Node::of(command, port)
}

/// `ROW.TABLE` and these words.
fn ask(client: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    let mut command = redis::cmd("ROW.TABLE");
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command.query(client)
}

fn ok(client: &mut Connection, words: &[&str]) {
    let answer = ask(client, words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert_eq!(answer, Value::Okay, "{words:?}");
}

fn refused(client: &mut Connection, words: &[&str], with: &str) {
    let answer = ask(client, words);
    let error = answer.expect_err(&format!("{words:?}")).to_string();
    assert!(error.contains(with), "{words:?}: {error}");
}

fn pairs(value: Value) -> BTreeMap<String, String> {
    let pairs: Vec<(String, Value)> = redis::from_redis_value(value).unwrap();
    let text = |value| match value {
        Value::Array(_) => "…".into(),
        value => redis::from_redis_value(value).unwrap(),
    };
    pairs
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}

fn shown(client: &mut Connection, name: &str) -> BTreeMap<String, String> {
    pairs(ask(client, &["SHOW", name]).unwrap())
}

fn listed(client: &mut Connection) -> Vec<String> {
    let list: Vec<Value> = redis::from_redis_value(ask(client, &["LIST"]).unwrap()).unwrap();
    list.into_iter()
        .map(|it| pairs(it)["name"].clone())
        .collect()
}

/// The life of a table, over any database.
fn life(flags: &[&str]) {
    let folder = Folder::new();
    let node = start(&folder.0, flags);
    let client = &mut node.client();
    assert!(listed(client).is_empty());
    ok(
        client,
        &[
            "CREATE",
            "users",
            "FIELDS",
            "age:int64=7,name:string='it''s'",
        ],
    );
    refused(
        client,
        &["CREATE", "users", "FIELDS", "a:blob"],
        "exists already",
    );
    ok(
        client,
        &[
            "create",
            "games",
            "sqlname",
            "Spiele",
            "fields",
            "u:uint64,b:blob=0xff00",
        ],
    );
    refused(
        client,
        &["CREATE", "x", "SQLNAME", "spiele", "FIELDS", "a:blob"],
        "table 'games'",
    );
    assert_eq!(listed(client), ["games", "users"]);

    ok(client, &["ADDFIELD", "users", "score:float64=1.5"]);
    refused(
        client,
        &["ADDFIELD", "users", "SCORE:blob"],
        "declared twice",
    );
    ok(client, &["DROPFIELD", "users", "age"]);
    refused(client, &["DROPFIELD", "users", "age"], "has no field 'age'");
    refused(client, &["ADDFIELD", "nix", "a:blob"], "no table 'nix'");
    let users = shown(client, "users");
    assert_eq!(
        users["declaration"],
        "name:string='it''s',score:float64=1.5"
    );
    assert_eq!((&*users["epoch"], &*users["id"]), ("3", "1"));
    // A column that is there and fits is taken, one that does not is not.
    ok(client, &["DROPFIELD", "users", "score", "KEEPSQL"]);
    refused(client, &["ADDFIELD", "users", "score:blob"], "score");
    ok(client, &["ADDFIELD", "users", "score:float64"]);

    let backends = ask(client, &["BACKENDS"]).unwrap();
    let backends: Vec<Value> = redis::from_redis_value(backends).unwrap();
    let main = pairs(backends.into_iter().next().unwrap());
    assert_eq!(
        (&*main["name"], &*main["up"], &*main["tables"]),
        ("main", "1", "2")
    );

    // What was declared is there after a crash.
    let before = shown(client, "users");
    node.kill();
    let node = start(&folder.0, flags);
    let client = &mut node.client();
    assert_eq!(listed(client), ["games", "users"]);
    assert_eq!(shown(client, "users"), before);

    // An SQL table is adopted if its columns fit; what does not is said, column by column.
    ok(client, &["DROP", "users", "KEEPSQL"]);
    let wrong = "name:int64,score:string,more:blob";
    let people = ["CREATE", "people", "SQLNAME", "users", "FIELDS"];
    for words in [
        &[&people[..], &[wrong]].concat(),
        &[&people[..], &[wrong, "ADOPT"]].concat(),
    ] {
        for column in ["name", "score", "more is missing"] {
            refused(client, words, &format!("column {column}"));
        }
    }
    assert_eq!(listed(client), ["games"]);
    ok(
        client,
        &[&people[..], &["name:string,score:float64", "ADOPT"]].concat(),
    );
    assert_eq!(shown(client, "people")["id"], "3");
    ok(client, &["DROP", "people"]);
    let again = ["CREATE", "users", "FIELDS", "name:string", "ADOPT"];
    refused(client, &again, "there is no table users");
    ok(client, &["DROP", "games"]);
    assert!(listed(client).is_empty());
    assert!(node.terminate());
}

#[test]
fn over_sqlite() {
    life(&[]);
}

#[test]
fn over_postgres() {
    if let Some(server) = Server::start(Engine::Postgres) {
        life(&["--table-backend", &server.url()]);
    }
}

#[test]
fn over_mariadb() {
    if let Some(server) = Server::start(Engine::Mariadb) {
        life(&["--table-backend", &server.url()]);
    }
}

fn numbers(client: &mut Connection) -> BTreeMap<String, String> {
    pairs(ask(client, &["STATUS"]).unwrap())
}

/// Rows, dirty rows and dead letters of each table.
fn counts(client: &mut Connection) -> Vec<(&'static str, i64, i64, i64)> {
    let status: Vec<(String, Value)> =
        redis::from_redis_value(ask(client, &["STATUS"]).unwrap()).unwrap();
    let (_, tables) = status.into_iter().find(|it| it.0 == "per_table").unwrap();
    let tables: Vec<Value> = redis::from_redis_value(tables).unwrap();
    let count = |it: Value| {
        let it = pairs(it);
        let number = |name: &str| it[name].parse().unwrap();
        let names = ["users", "games"];
        let name = names.into_iter().find(|name| *name == it["table"]);
        (
            name.unwrap(),
            number("rows"),
            number("dirty"),
            number("dead"),
        )
    };
    tables.into_iter().map(count).collect()
}

/// `neokv table` with these words.
fn table(node: &Node, words: &[&str]) -> (bool, String) {
    let address = format!("127.0.0.1:{}", node.port);
    let output = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["table", "--address", &address])
        .args(words)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn rows_are_counted_drained_and_their_dead_letters_settled() {
    let folder = Folder::new();
    let node = start(&folder.0, &["--table-flush-linger-ms", "0"]);
    let client = &mut node.client();
    assert_eq!(numbers(client)["tables"], "0");
    ok(
        client,
        &["CREATE", "users", "FIELDS", "age:int64,name:string"],
    );
    for at in 0..100 {
        let set: i64 = call(client, &format!("HSET users:u{at} age {at}"));
        assert_eq!(set, 1);
    }
    let drained = pairs(ask(client, &["DRAIN", "TIMEOUT", "30000"]).unwrap());
    assert_eq!((&*drained["slots"], &*drained["dead"]), ("16384", "0"));
    let status = numbers(client);
    let some = ["tables", "rows", "dirty", "dead", "slots"].map(|name| &*status[name]);
    assert_eq!(some, ["1", "100", "0", "0", "16384"]);
    ok(client, &["CREATE", "games", "FIELDS", "name:string"]);
    let _: i64 = call(client, "HSET games:g name chess");
    let info: String = call(client, "INFO tables");
    for line in [
        "table:name=games,backend=main,sqlname=games,epoch=1,fields=1,rows=1,",
        "epoch=1,fields=2,rows=100,dirty=0,dead=0,",
        "# Tables",
        "table_rows:101\r",
        "table:name=users,",
        "table_backend:name=main,",
    ] {
        assert!(info.contains(line), "{line} in {info}");
    }
    let info: String = call(client, "ROW.INFO users");
    assert!(info.contains("table:name=users,"), "{info}");
    assert!(node::try_call::<String>(client, "ROW.INFO nix").is_err());
    let inside: (String,) = redis::pipe()
        .atomic()
        .cmd("INFO")
        .arg("tables")
        .query(client)
        .unwrap();
    assert!(inside.0.contains("tables:2"));

    // A row that somebody else changed in SQL is a dead letter.
    let file = folder.0.join("tables.db");
    let edit = "UPDATE users SET __version__ = 77, age = 1000 WHERE __key__ IN ('u1', 'u2')";
    let edited = Command::new("python3")
        .args(["-c", "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"])
        .arg(&file)
        .arg(edit)
        .status()
        .unwrap();
    assert!(edited.success());
    for row in ["u1", "u2"] {
        let _: i64 = call(client, &format!("HSET users:{row} age 5"));
    }
    let drained = pairs(ask(client, &["DRAIN"]).unwrap());
    assert_eq!(drained["dead"], "2");
    assert_eq!(counts(client), [("users", 100, 0, 2), ("games", 1, 0, 0)]);
    let (done, text) = table(&node, &["status"]);
    for line in ["users   100         0     2", "games     1         0     0"] {
        assert!(done && text.contains(line), "{line} in {text}");
    }
    let (done, text) = table(&node, &["drain"]);
    assert!(
        !done && text.contains("but 2 dead letters: users:u1, users:u2"),
        "{text}"
    );
    let (done, text) = table(&node, &["dead", "list"]);
    assert!(
        done && text.contains("users:u1        2  conflict      77"),
        "{text}"
    );
    let (done, text) = table(&node, &["dead", "retry", "users:u1", "--over", "77"]);
    assert!(done, "{text}");
    let (done, text) = table(&node, &["dead", "drop", "users:u2"]);
    assert!(done, "{text}");
    let (done, text) = table(&node, &["dead", "drop", "users:u3"]);
    assert!(!done && text.contains("no dead letter"), "{text}");
    let (done, text) = table(&node, &["drain"]);
    assert!(done && text == "SQL has everything\n", "{text}");
    let ages: (i64, i64) = (
        call(client, "HGET users:u1 age"),
        call(client, "HGET users:u2 age"),
    );
    assert_eq!(ages, (5, 1000));
    refused(client, &["DEAD", "RETRY", "nix:a"], "no table 'nix'");
    refused(client, &["DEAD", "RETRY", "users"], "users:key");
    refused(client, &["DEAD", "NIX", "users:a"], "syntax");
    refused(client, &["DRAIN", "TIMEOUT", "soon"], "not an integer");
}

#[test]
fn the_command_line() {
    let folder = Folder::new();
    let node = start(&folder.0, &[]);
    let _: () = call(&mut node.client(), "CONFIG SET requirepass secret");
    let (done, text) = table(&node, &["list"]);
    assert!(!done && text.contains("NEOKV_PASSWORD"), "{text}");
    let ask = |words: &[&str]| {
        let (done, text) = table(&node, &[&["--password", "secret"], words].concat());
        assert!(done, "{words:?}: {text}");
        text
    };
    assert!(ask(&["list"]).contains("no tables"));
    ask(&[
        "create",
        "users",
        "--fields",
        "age:int64=7,name:string",
        "--sql-name",
        "People",
    ]);
    ask(&["add-field", "users", "photo:blob=0xff"]);
    ask(&["drop-field", "users", "age"]);
    assert!(
        ask(&["list"]).contains("users  main     People         3  name:string,photo:blob=0xff")
    );
    assert!(ask(&["show", "users"]).contains("rows are the keys users:…"));
    assert!(ask(&["backends"]).contains("main     up"));
    assert!(ask(&["status"]).contains("rows written"));
    let json: serde_json::Value = serde_json::from_str(&ask(&["show", "users", "--json"])).unwrap();
    assert_eq!(
        json["fields"][1],
        serde_json::json!(["photo", "blob", "\u{fffd}"])
    );
    assert_eq!(json["epoch"], 3);
    assert_eq!(ask(&["drain"]), "SQL has everything\n");
    assert!(ask(&["dead", "list"]).contains("no dead letters"));
    ask(&["drop", "users", "--keep-sql"]);
    ask(&[
        "create",
        "people",
        "--fields",
        "name:string",
        "--sql-name",
        "People",
        "--adopt",
    ]);
    ask(&["drop", "people"]);
    let (done, text) = table(&node, &["--password", "secret", "show", "users"]);
    assert!(
        !done && text == "neokv: there is no table 'users'; see ROW.TABLE LIST\n",
        "{text}"
    );
    let nobody = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["table", "list", "--address", "127.0.0.1:1"])
        .output()
        .unwrap();
    let text = String::from_utf8(nobody.stderr).unwrap();
    assert!(
        !nobody.status.success() && text.contains("is the node running"),
        "{text}"
    );
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let folder = Folder::new();
    let node = start(&folder.0, &[]);
    let client = &mut node.client();
    let long = "x".repeat(64);
    for (name, fields, with) in [
        ("a b", "a:int64", "is not valid"),
        ("x'; DROP TABLE y; --", "a:int64", "is not valid"),
        ("", "a:int64", "is not valid"),
        ("__t", "a:int64", "is not valid"),
        ("\0", "a:int64", "is not valid"),
        ("é", "a:int64", "is not valid"),
        (&long, "a:int64", "is not valid"),
        ("t", "", "field is empty"),
        ("t", "a:int32", "no known kind"),
        ("t", "a:int64=x", "'a'"),
        ("t", "a:int64,A:blob", "declared twice"),
        ("t", "a\"b:int64", "is not valid"),
        ("t", "__key__:int64", "is not valid"),
    ] {
        refused(client, &["CREATE", name, "FIELDS", fields], with);
    }
    let create = ["CREATE", "t", "FIELDS", "a:int64"];
    for (more, with) in [
        (&["SQLNAME", "a;b"][..], "is not valid"),
        (&["BACKEND", "games"], "--table-backend 'games="),
        (&["BACKEND", "a b"], "is not valid"),
        (&["BACKEND"], "syntax"),
        (&["NONSENSE"], "syntax"),
        (&["FIELDS", "b:int64"], "syntax"),
    ] {
        refused(client, &[&create[..], more].concat(), with);
    }
    refused(client, &["CREATE", "t", "SQLNAME", "t"], "FIELDS");
    refused(client, &["CREATE", "t"], "wrong number of arguments");
    refused(client, &["SHOW", "nix"], "no table 'nix'");
    refused(client, &["DROP", "nix"], "no table 'nix'");
    refused(client, &["NIX"], "unknown subcommand");
    let mut binary = redis::cmd("ROW.TABLE");
    binary
        .arg("CREATE")
        .arg(b"\xff\xfe")
        .arg("FIELDS")
        .arg("a:int64");
    let error = binary.query::<Value>(client).unwrap_err().to_string();
    assert!(error.contains("utf-8"), "{error}");
    assert!(listed(client).is_empty());
    let fields: Vec<String> = (0..257).map(|at| format!("f{at}:int64")).collect();
    refused(
        client,
        &["CREATE", "t", "FIELDS", &fields.join(",")],
        "at most 256 fields",
    );
    assert!(listed(client).is_empty());
}

#[test]
fn the_memory_engine_has_no_tables() {
    let folder = Folder::new();
    let node = start(&folder.0, &["--engine", "memory"]);
    let client = &mut node.client();
    for words in [
        &["LIST"][..],
        &["CREATE", "t", "FIELDS", "a:int64"],
        &["BACKENDS"],
    ] {
        refused(client, words, "--engine rocksdb");
    }
}

#[test]
fn a_database_that_is_away_is_told() {
    let folder = Folder::new();
    let flags = [
        "--table-backend",
        "main=postgres://nobody@127.0.0.1:1/x",
        "--table-backend",
    ];
    let lite = format!("lite=sqlite://{}/other.db", folder.0.display());
    let node = start(&folder.0, &[&flags[..], &[&lite]].concat());
    let client = &mut node.client();
    let create = ["CREATE", "t", "FIELDS", "a:int64"];
    refused(client, &create, "does not answer, nothing was changed");
    ok(client, &[&create[..], &["BACKEND", "lite"]].concat());
    let backends = ask(client, &["BACKENDS"]).unwrap();
    let backends: Vec<Value> = redis::from_redis_value(backends).unwrap();
    let up = |it: Value| {
        let it = pairs(it);
        (it["name"].clone(), it["up"].clone())
    };
    let up: Vec<(String, String)> = backends.into_iter().map(up).collect();
    let expected = [("lite", "1"), ("main", "0")].map(|(a, b)| (a.into(), b.into()));
    assert_eq!(up, expected);
}

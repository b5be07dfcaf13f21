//! Declaring and changing tables on the running binary, over SQLite, PostgreSQL and MariaDB.

#[allow(dead_code)] // shared with other tests, which use the rest
mod node;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use databases::{Engine, Server};
use node::{Folder, Node, free_port};
use redis::{Connection, RedisResult, Value};

fn start(folder: &Path, flags: &[&str]) -> Node {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_neokv"));
    command
        .args(["server", "--redis-port", &port.to_string()])
        .args(["--bind", "127.0.0.1", "--num-shards", "1"])
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

//! Which tables there are: what is changed at one node is known to all, outlives them, and is learned by those that were away.

use std::time::{Duration, Instant};

use crate::client::{Session, text};
use crate::nodes::{Cluster, Plan};
use crate::wire::Value;

/// Three nodes over one SQLite database.
fn start() -> Cluster {
    let mut cluster = Cluster::empty(None, Plan::default());
    let database = cluster.folder().join("tables.db");
    let url = format!("sqlite://{}", database.display());
    for number in 1..=3 {
        cluster.add_down(number);
        cluster.set(number, &["--table-backend", &url]);
        cluster.restart(number);
    }
    cluster.until_healthy();
    cluster
}

/// A change may wait until a node that died counts as dead.
fn patient(cluster: &Cluster, number: usize) -> Session {
    Session::open(&cluster.address(number), Duration::from_secs(20)).expect("a connection")
}

fn change(cluster: &Cluster, number: usize, words: &[&str]) -> Value {
    let mut session = patient(cluster, number);
    let words: Vec<&str> = ["ROW.TABLE"].iter().chain(words).copied().collect();
    session.ask(&words).expect("an answer")
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// Name and declaration of each table, as a node knows them.
fn tables(cluster: &Cluster, number: usize) -> Vec<(String, String)> {
    let listed = cluster
        .session(number)
        .and_then(|mut it| it.ask(&["ROW.TABLE", "LIST"]));
    let Ok(Value::Array(listed)) = listed else {
        panic!("node {number} has no list: {listed:?}");
    };
    let of = |table: &Value, name: &str| {
        let Value::Array(parts) = table else {
            panic!("{table:?}");
        };
        let at = parts
            .iter()
            .position(|it| text(it).as_deref() == Some(name));
        at.and_then(|at| text(&parts[at + 1])).expect(name)
    };
    let tables = listed.iter();
    tables
        .map(|table| (of(table, "name"), of(table, "declaration")))
        .collect()
}

fn names(cluster: &Cluster, number: usize) -> Vec<String> {
    let tables = tables(cluster, number).into_iter();
    tables.map(|(name, _)| name).collect()
}

#[test]
fn all_nodes_know_the_same_tables() {
    let mut cluster = start();
    let began = Instant::now();
    let create = ["CREATE", "users", "FIELDS", "age:int64=0,name:string"];
    assert_eq!(change(&cluster, 1, &create), ok());
    // The answer came when all knew it.
    for number in 1..=3 {
        assert_eq!(names(&cluster, number), ["users"], "node {number}");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    eprintln!("a table was known everywhere after {took:?}");
    let Value::Error(why) = change(&cluster, 2, &create) else {
        panic!("twice");
    };
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("exists already"), "{why}");

    // Changes at all nodes at once: none undoes another.
    let makers: Vec<_> = (1..=3)
        .map(|number| {
            let mut session = patient(&cluster, number);
            std::thread::spawn(move || {
                for n in 0..3 {
                    let name = format!("t{number}{n}");
                    let words = ["ROW.TABLE", "CREATE", &name, "FIELDS", "a:int64"];
                    let made = session.ask(&words).expect("an answer");
                    assert_eq!(made, ok(), "{name}");
                }
            })
        })
        .collect();
    makers.into_iter().for_each(|it| it.join().expect("made"));
    for number in 1..=3 {
        assert_eq!(names(&cluster, number).len(), 10, "node {number}");
    }

    // All die at once.
    (1..=3).for_each(|number| cluster.kill(number));
    (1..=3).for_each(|number| cluster.spawn(number));
    cluster.until("all are back", |cluster| {
        for number in 1..=3 {
            let mut session = cluster.session(number).map_err(|it| it.to_string())?;
            session.ask(&["PING"]).map_err(|it| it.to_string())?;
        }
        Ok(())
    });
    for number in 1..=3 {
        assert_eq!(names(&cluster, number).len(), 10, "node {number} forgot");
    }
    cluster.until_healthy();

    // One is away while things change, and learns it when it is back.
    cluster.kill(3);
    let add = ["ADDFIELD", "users", "level:uint64=1"];
    assert_eq!(change(&cluster, 1, &add), ok());
    assert_eq!(change(&cluster, 2, &["DROP", "t10"]), ok());
    cluster.restart(3);
    cluster.until("node 3 learns it", |cluster| {
        let found = tables(cluster, 3);
        let is_new = found.contains(&(
            "users".into(),
            "age:int64,name:string,level:uint64=1".into(),
        ));
        match is_new && found.len() == 9 {
            true => Ok(()),
            false => Err(format!("{found:?}")),
        }
    });

    // Without meta nothing can be changed, and that is said; what was known is known, also to a node that starts.
    cluster.kill(1);
    cluster.kill(2);
    let Value::Error(why) = change(&cluster, 3, &["DROP", "t11"]) else {
        panic!("without a majority");
    };
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("nothing was changed"), "{why}");
    cluster.kill(3);
    cluster.restart(3);
    assert_eq!(names(&cluster, 3).len(), 9);
    cluster.restart(1);
    cluster.restart(2);
    cluster.until_healthy();
    assert_eq!(change(&cluster, 3, &["DROP", "t11"]), ok());
    assert_eq!(names(&cluster, 1).len(), 8);
}

//! MULTI, EXEC, WATCH on one core and over several.

mod client;

use client::{Client, Value, node};

#[test]
fn watch_sees_changes_on_any_core() {
    for shards in [1, 4] {
        let node = node(shards, |_| {});
        let mut a = Client::new(&node);
        let mut b = Client::new(&node);
        for i in 0..40 {
            let key = format!("watched:{i}");
            a.run(&format!("WATCH {key} other:{i}"));
            let changes = i % 2 == 0;
            if changes {
                b.run(&format!("SET {key} 1"));
            } else {
                b.run(&format!("SET unrelated:{i} 1"));
            }
            a.run("MULTI");
            a.run(&format!("SET result:{i} 1"));
            let reply = a.run("EXEC");
            if changes {
                assert_eq!(reply, Value::Nil);
                assert_eq!(a.run(&format!("EXISTS result:{i}")), Value::Int(0));
            } else {
                assert_eq!(reply, Value::List(vec![Value::Text("OK".into())]));
            }
        }
        // After EXEC nothing is watched any more.
        a.run("WATCH k");
        a.run("UNWATCH");
        b.run("SET k 1");
        a.run("MULTI");
        a.run("PING");
        assert_eq!(a.run("EXEC").list().len(), 1);
        node.stop();
    }
}

#[test]
fn a_key_that_expires_has_changed() {
    let node = node(4, |_| {});
    let mut client = Client::new(&node);
    client.run("SET k 1 PX 30");
    client.run("WATCH k");
    std::thread::sleep(std::time::Duration::from_millis(60));
    client.run("MULTI");
    client.run("SET x 1");
    assert_eq!(client.run("EXEC"), Value::Nil);
    node.stop();
}

#[test]
fn errors_of_transactions() {
    let node = node(4, |_| {});
    let mut client = Client::new(&node);
    assert_eq!(client.run("EXEC").text(), "ERR EXEC without MULTI");
    assert_eq!(client.run("DISCARD").text(), "ERR DISCARD without MULTI");
    client.run("MULTI");
    assert_eq!(
        client.run("MULTI").text(),
        "ERR MULTI calls can not be nested"
    );
    assert_eq!(
        client.run("WATCH k").text(),
        "ERR WATCH inside MULTI is not allowed"
    );
    assert!(client.run("NOSUCH").text().starts_with("ERR unknown"));
    assert_eq!(
        client.run("EXEC").text(),
        "EXECABORT Transaction discarded because of previous errors."
    );
    // A command that fails when it runs does not stop the others.
    let lines = [
        "SET text x".to_string(),
        "MULTI".to_string(),
        "INCR text".to_string(),
        "SELECT 2".to_string(),
        "SET in2 1".to_string(),
        "BLPOP nothing 0".to_string(),
        "DBSIZE".to_string(),
        "EXEC".to_string(),
        "EXISTS in2".to_string(),
    ];
    let replies = client.pipeline(&lines);
    let results = replies[7].list();
    assert!(matches!(results[0], Value::Error(_)));
    assert_eq!(results[3], Value::Nil);
    assert_eq!(results[4], Value::Int(1));
    assert_eq!(replies[8], Value::Int(1));
    node.stop();
}

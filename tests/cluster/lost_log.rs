//! A node whose log has lost what it acknowledged: it may not vote with those who never had it.

use std::fs;
use std::path::PathBuf;

use crate::client::Fate;
use crate::nodes::{Cluster, Plan};
use crate::wire::Value;

/// The end of the log of a node that is down is gone: what a bad block or a file restored from yesterday leaves.
fn cut_log(cluster: &Cluster, number: usize) {
    let entries = fs::read_dir(cluster.data(number).join("log")).expect("a log");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "raftlog"));
    files.sort();
    let path = files.pop().expect("a file of the log");
    let bytes = fs::read(&path).expect("the log");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_len((end / 3) as u64).expect("it is cut");
}

#[test]
fn with_one_node_away_and_one_that_forgot_nothing_acknowledged_is_lost() {
    let plan = Plan::default().with(&["--node-dead-after", "3000"]);
    let mut cluster = Cluster::start(plan);
    let mut client = cluster.client();
    cluster.kill(2);
    let mut acknowledged = Vec::new();
    for n in 0..300 {
        let key = format!("key{n}");
        cluster.until("it can be written", |_| {
            match client.ask(&key, &["SET", &key, &key]) {
                Fate::Done(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        acknowledged.push(key);
    }
    let id = |cluster: &Cluster| {
        let mut session = cluster.session(3).expect("a session");
        session.ask(&["CLUSTER", "MYID"]).expect("an id")
    };
    let before = id(&cluster);
    cluster.kill(1);
    cluster.kill(3);
    cut_log(&cluster, 3);
    // The second lacks it all, the third has lost it: together they are a majority, and must not act as one.
    cluster.restart(2);
    cluster.spawn(3);
    cluster.until_logged(3, "has lost acknowledged writes");
    cluster.until_logged(3, "asking to join");
    for key in acknowledged.iter().step_by(40) {
        if let Fate::Done(replies) = client.ask(key, &["GET", key]) {
            assert_ne!(replies[0], Value::Nil, "{key} is lost");
        }
    }
    cluster.restart(1);
    cluster.until_healthy();
    assert_ne!(id(&cluster), before, "it has the id of one that forgot");
    for key in &acknowledged {
        cluster.until("it can be read", |_| match client.ask(key, &["GET", key]) {
            Fate::Done(replies) => {
                assert_ne!(replies[0], Value::Nil, "{key} is lost");
                Ok(())
            }
            other => Err(format!("{other:?}")),
        });
    }
    // Its old data is there still, and a later start does not do it again.
    let aside = cluster.data(3).join("lost-log-1");
    assert!(aside.join("log").is_dir() && aside.join("rows").is_dir());
    let now = id(&cluster);
    cluster.kill(3);
    cluster.restart(3);
    assert_eq!(id(&cluster), now);
}

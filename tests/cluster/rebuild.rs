//! Nodes that come late, empty, as an addition, or not again: replicas are brought up by snapshot while clients work.

use std::time::Duration;

use crate::Dice;
use crate::client::{Client, Fate};
use crate::kill::RESUMED;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

/// Writes that make every region's log longer than it may be.
fn write_much(client: &mut Client, name: &str, keys: usize) {
    let value = "v".repeat(4096);
    for n in 0..keys {
        let key = format!("{name}{n}");
        let mut tries = 0;
        while !matches!(client.ask(&key, &["SET", &key, &value]), Fate::Done(_)) {
            tries += 1;
            assert!(tries < 500, "{key} cannot be written");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// All keys of [`write_much`] are there, on every replica.
fn read_much(cluster: &Cluster, name: &str, keys: usize) {
    for number in cluster.answering() {
        cluster.until("its replicas answer", |cluster| {
            let mut session = cluster.session(number).map_err(|e| e.to_string())?;
            session.ask(&["READONLY"]).map_err(|e| e.to_string())?;
            for n in 0..keys {
                let key = format!("{name}{n}");
                let reply = session.ask(&["STRLEN", &key]).map_err(|e| e.to_string())?;
                match reply {
                    crate::wire::Value::Int(length) => {
                        assert_eq!(length, 4096, "{key} on node {number}");
                    }
                    crate::wire::Value::Error(error) if error.starts_with(b"MOVED") => {}
                    other => return Err(format!("{key} on node {number}: {other:?}")),
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_node_that_was_down_for_long_catches_up_by_snapshot() {
    let plan = Plan::default().with(&["--log-size", "256kb", "--log-keep-bytes", "64kb"]);
    let mut cluster = Cluster::start(plan);
    let mut client = cluster.client();
    write_much(&mut client, "old", 100);
    let traffic = Traffic::start(&cluster, "late", 2, seed());
    cluster.kill(3);
    traffic.until_written(RESUMED);
    write_much(&mut client, "new", 1000);
    assert!(!cluster.log(3).contains("a snapshot is installed"));
    cluster.restart(3);
    cluster.until_logged(3, "a snapshot is installed");
    cluster.until_healthy();
    read_much(&cluster, "old", 100);
    read_much(&cluster, "new", 1000);
    traffic.finish(&cluster);
}

/// Letters that no compression makes fewer.
fn noise(dice: &mut Dice, bytes: usize) -> String {
    let letter = |_| char::from(b'0' + dice.roll(64) as u8);
    (0..bytes).map(letter).collect()
}

/// Snapshots that a node is sending.
fn outgoing(cluster: &Cluster, number: usize) -> usize {
    let folder = std::fs::read_dir(cluster.data(number).join("snapshots"));
    let names = folder.into_iter().flatten().flatten();
    names
        .filter(|it| it.file_name().to_string_lossy().starts_with("out-"))
        .count()
}

/// It takes longer than a replica waits before it asks again.
#[test]
fn a_large_region_is_sent_once() {
    let plan = Plan {
        regions: 1,
        ..Plan::default()
    };
    let settings = ["--log-size", "256kb", "--log-keep-bytes", "64kb"];
    let plan = plan.with(&settings).with(&["--snapshot-rate", "1mb"]);
    let mut cluster = Cluster::start(plan);
    let mut client = cluster.client();
    cluster.kill(3);
    let mut dice = Dice::new(seed());
    for n in 0..150 {
        let (key, value) = (format!("large{n}"), noise(&mut dice, 64 << 10));
        while !matches!(client.ask(&key, &["SET", &key, &value]), Fate::Done(_)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    cluster.restart(3);
    let (mut most, mut n) = (0, 0);
    while !cluster.log(3).contains("a snapshot is installed") {
        n += 1;
        assert!(n < 600, "no snapshot is installed");
        write_much(&mut client, &format!("during{n}-"), 1);
        most = most.max(outgoing(&cluster, 1) + outgoing(&cluster, 2));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(n > 35, "it did not take long: {n}");
    assert_eq!(most, 1, "of one region, to one node");
    cluster.until_healthy();
}

#[test]
fn a_wiped_node_comes_back_as_a_new_one() {
    let plan = Plan::default().with(&["--node-dead-after", "3000"]);
    let mut cluster = Cluster::start(plan);
    let mut client = cluster.client();
    write_much(&mut client, "old", 100);
    let traffic = Traffic::start(&cluster, "wiped", 2, seed());
    let id = |cluster: &Cluster| {
        let mut session = cluster.session(3).expect("a session");
        session.ask(&["CLUSTER", "MYID"]).expect("an id")
    };
    let before = id(&cluster);
    cluster.kill(3);
    cluster.wipe(3);
    cluster.set(3, &["--replace", "3"]);
    cluster.restart(3);
    assert_ne!(id(&cluster), before, "a new node has the id of an old one");
    cluster.until_healthy();
    read_much(&cluster, "old", 100);
    traffic.finish(&cluster);
}

#[test]
fn a_fourth_node_gets_replicas_and_those_of_a_dead_one() {
    let plan = Plan::default().with(&["--node-dead-after", "3000"]);
    let mut cluster = Cluster::start(plan);
    let mut client = cluster.client();
    write_much(&mut client, "old", 100);
    let traffic = Traffic::start(&cluster, "fourth", 2, seed());
    cluster.add(4);
    let fourth = cluster.address(4);
    cluster.until("the fourth node has replicas", |cluster| {
        let ranges = cluster.ranges(1)?;
        match ranges.iter().any(|it| it.nodes.contains(&fourth)) {
            true => Ok(()),
            false => Err(format!("{ranges:?}")),
        }
    });
    cluster.until_healthy();
    let second = cluster.address(2);
    cluster.kill(2);
    traffic.until_written(RESUMED);
    cluster.until("the dead node's replicas are elsewhere", |cluster| {
        let ranges = cluster.ranges(1)?;
        let is_left = |it: &crate::nodes::Range| it.nodes.contains(&second);
        match ranges.iter().any(|it| is_left(it) || it.nodes.len() != 3) {
            true => Err(format!("{ranges:?}")),
            false => Ok(()),
        }
    });
    cluster.until_healthy();
    read_much(&cluster, "old", 100);
    // The dead come back: it has nothing to say any more, and does no harm.
    cluster.restart(2);
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

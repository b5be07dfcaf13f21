//! A node whose data directory is empty: its disk is lost, or only not mounted. Nothing is given up before somebody says so
//! and a majority has it, and what was given up comes back with its data.

use std::path::PathBuf;

use crate::client::Fate;
use crate::nodes::{Cluster, Plan};
use crate::refused::until_ended;
use crate::wire::Value;

pub fn write(cluster: &Cluster, keys: usize) {
    for n in 0..keys {
        let key = format!("key{n}");
        cluster.until("it is written", |cluster| {
            match cluster.client().ask(&key, &["SET", &key, "v"]) {
                Fate::Done(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
}

pub fn read(cluster: &Cluster, keys: usize) {
    for n in 0..keys {
        let key = format!("key{n}");
        cluster.until("it is read", |cluster| {
            match cluster.client().ask(&key, &["GET", &key]) {
                Fate::Done(replies) if replies == [Value::Bulk(b"v".to_vec())] => Ok(()),
                other => Err(format!("{key}: {other:?}")),
            }
        });
    }
}

fn id(cluster: &Cluster, number: usize) -> Value {
    let mut session = cluster.session(number).expect("a session");
    session.ask(&["CLUSTER", "MYID"]).expect("an id")
}

/// The volume of a node that is down is not mounted: its directory is empty.
pub fn unmount(cluster: &mut Cluster, number: usize) -> PathBuf {
    let data = cluster.data(number);
    let aside = data.with_file_name(format!("aside{number}"));
    std::fs::rename(data, &aside).expect("its data");
    std::fs::create_dir(data).expect("a folder");
    aside
}

pub fn mount(cluster: &mut Cluster, number: usize, aside: PathBuf) {
    let data = cluster.data(number);
    std::fs::remove_dir_all(data).expect("a folder");
    std::fs::rename(aside, data).expect("its data");
}

#[test]
fn an_empty_directory_replaces_nobody_unless_somebody_says_so() {
    let mut cluster = Cluster::start(Plan::default());
    write(&cluster, 50);
    let before = id(&cluster, 3);
    cluster.kill(3);
    let aside = unmount(&mut cluster, 3);
    cluster.spawn(3);
    until_ended(&mut cluster, 3, "start once with --replace 3");
    mount(&mut cluster, 3, aside);
    cluster.restart(3);
    assert_eq!(id(&cluster, 3), before);
    cluster.until_healthy();
    read(&cluster, 50);
    // Another node is not meant.
    cluster.kill(3);
    let aside = unmount(&mut cluster, 3);
    cluster.set(3, &["--replace", "2"]);
    cluster.spawn(3);
    until_ended(&mut cluster, 3, "start once with --replace 3");
    // Given up by a word, it comes back with its data all the same.
    cluster.set(3, &["--replace", "3"]);
    cluster.restart(3);
    cluster.until_healthy();
    assert_ne!(
        id(&cluster, 3),
        before,
        "a new node has the id of an old one"
    );
    cluster.kill(3);
    mount(&mut cluster, 3, aside);
    cluster.set(3, &[]);
    cluster.restart(3);
    assert_eq!(id(&cluster, 3), before);
    cluster.until_healthy();
    read(&cluster, 50);
}

/// The meta service has its majority, the regions have not.
#[test]
fn nodes_that_hold_a_majority_are_not_given_up() {
    let plan = Plan {
        nodes: 5,
        replicas: 5,
        ..Plan::default()
    };
    let mut cluster = Cluster::start(plan);
    write(&cluster, 100);
    for number in [3, 4, 5] {
        cluster.kill(number);
    }
    let aside = [4, 5].map(|number| unmount(&mut cluster, number));
    for number in [4, 5] {
        cluster.set(number, &["--replace", &number.to_string()]);
        cluster.spawn(number);
    }
    for number in [4, 5] {
        cluster.until_logged(number, "is needed: without it");
    }
    let settings = cluster.ctl_settings();
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args([
            "ctl",
            "remove-node",
            "4",
            "--peer",
            &cluster.peer_address(1),
        ])
        .args(settings)
        .output()
        .expect("neokv ctl");
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(
        !told.status.success() && said.contains("is needed: without it"),
        "{said}"
    );
    for number in [4, 5] {
        cluster.kill(number);
    }
    cluster.restart(3);
    for (number, aside) in [4, 5].into_iter().zip(aside) {
        mount(&mut cluster, number, aside);
        cluster.set(number, &[]);
        cluster.restart(number);
    }
    cluster.until_healthy();
    read(&cluster, 100);
}

//! What must not be let in, or must not do harm: nodes and data of somewhere else, one identity twice, garbage, no meta.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::client::Fate;
use crate::kill::RESUMED;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

fn alone() -> Plan {
    Plan {
        nodes: 1,
        replicas: 1,
        ..Plan::default()
    }
}

fn write(cluster: &Cluster, value: &str) {
    let fate = cluster.client().ask("k", &["SET", "k", value]);
    assert!(matches!(fate, Fate::Done(_)), "{fate:?}");
}

fn read(cluster: &Cluster) -> String {
    let mut answer = String::new();
    cluster.until("k is answered", |cluster| {
        match cluster.client().ask("k", &["GET", "k"]) {
            Fate::Done(replies) => {
                answer = crate::client::text(&replies[0]).unwrap_or_default();
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
    answer
}

pub fn until_ended(cluster: &mut Cluster, number: usize, words: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(status) = cluster.ended(number) {
            assert!(!status.success(), "it ended as if all were well");
            let log = cluster.log_tail(number);
            assert!(log.contains(words), "it did not say {words:?}:\n{log}");
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "node {number} runs on"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_of_another_cluster_is_refused() {
    let one = Cluster::start(alone());
    write(&one, "one");
    let mut other = Cluster::start(alone());
    write(&other, "other");
    other.kill(1);
    other.set(1, &["--join", &one.peer_address(1)]);
    other.spawn(1);
    other.until_logged(1, "another cluster");
    assert_eq!(read(&one), "one");
    other.kill(1);
    other.set(1, &[]);
    other.restart(1);
    assert_eq!(read(&other), "other");
}

#[test]
fn one_identity_twice_is_noticed_and_one_of_them_stops() {
    let mut cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "twice", 2, seed());
    cluster.stop(3);
    let copy = cluster.data(3).with_file_name("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([cluster.data(3), &copy])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    cluster.restart(3);
    traffic.until_written(RESUMED);
    cluster.add_down(4);
    cluster.set_data(4, copy);
    cluster.spawn(4);
    cluster.until("one of the two has stopped", |cluster| {
        let logs = [cluster.log(3), cluster.log(4)];
        match logs.iter().any(|log| log.contains("this node has to stop")) {
            true => Ok(()),
            false => Err(logs.join("\n")),
        }
    });
    traffic.until_written(RESUMED);
    for number in [3, 4] {
        std::thread::sleep(Duration::from_millis(500));
        if cluster.ended(number).is_some() {
            eprintln!("node {number} has stopped");
        }
    }
    assert_eq!(
        cluster.running().len(),
        3,
        "both run on, or both have stopped"
    );
    traffic.finish(&cluster);
}

#[test]
fn data_of_a_node_that_was_alone_is_not_taken_into_a_cluster() {
    let cluster = Cluster::start(alone());
    let mut single = Cluster::empty(None, Plan::default());
    single.add_down(1);
    single.set_alone(1, true);
    single.restart(1);
    let mut session = single.session(1).expect("a session");
    session.ask(&["SET", "k", "single"]).expect("a reply");
    single.stop(1);
    single.set_alone(1, false);
    for settings in [
        ["--join", cluster.peer_address(1).as_str()],
        ["--cluster-init", "yes"],
    ] {
        single.set(1, &settings);
        single.set_alone(1, true);
        single.spawn(1);
        until_ended(&mut single, 1, "a node that is alone");
    }
    single.set(1, &[]);
    single.restart(1);
    let mut session = single.session(1).expect("a session");
    let reply = session.ask(&["GET", "k"]).expect("a reply");
    assert_eq!(crate::client::text(&reply).as_deref(), Some("single"));
}

#[test]
fn data_of_a_cluster_node_stays_that_without_a_word() {
    let mut cluster = Cluster::start(alone());
    write(&cluster, "kept");
    cluster.stop(1);
    // Neither --join nor --cluster-init: it is what its data says.
    cluster.set_alone(1, true);
    cluster.restart(1);
    assert_eq!(read(&cluster), "kept");
    cluster.stop(1);
    // Founding again founds nothing.
    cluster.set(1, &["--cluster-init", "yes"]);
    cluster.restart(1);
    assert_eq!(read(&cluster), "kept");
}

#[test]
fn garbage_to_the_peer_port_does_no_harm() {
    let cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "garbage", 2, seed());
    let mut dice = crate::Dice::new(seed());
    let mut noise = vec![0u8; 1 << 16];
    for number in 1..=3 {
        for round in 0..8 {
            noise.iter_mut().for_each(|it| *it = dice.roll(256) as u8);
            let sent: &[u8] = match round {
                0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                1 => b"*1\r\n$4\r\nPING\r\n",
                2 => &[0xff; 4096],
                3 => &[0; 4096],
                4 => &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3],
                _ => &noise,
            };
            let mut stream = TcpStream::connect(cluster.peer_address(number)).expect("a listener");
            let timeout = Some(Duration::from_millis(200));
            stream.set_read_timeout(timeout).expect("a timeout");
            let _ = stream.write_all(sent);
            let mut answer = [0; 256];
            let _ = stream.read(&mut answer);
        }
    }
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

#[test]
fn data_is_served_while_meta_is_not_to_be_reached() {
    let plan = Plan::default().with(&["--meta-replicas", "1"]);
    let mut cluster = Cluster::start(plan);
    let traffic = Traffic::start(&cluster, "meta", 2, seed());
    // The only member of meta, and a third of the replicas.
    cluster.kill(1);
    traffic.until_written(RESUMED);
    cluster.until_logged(2, "the meta service does not answer");
    // Not even a start needs it.
    cluster.kill(2);
    cluster.restart(2);
    traffic.until_written(RESUMED);
    cluster.restart(1);
    cluster.until_logged(3, "the meta service answers again");
    traffic.finish(&cluster);
}

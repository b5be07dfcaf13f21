//! The log disk of one node of four fails, and its process stays: it is replaced as a dead one, though it is heard.

use std::process::Command;

use crate::faulty_disk;
use crate::kill::RESUMED;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

/// What a node of the cluster says of all nodes.
fn states(cluster: &Cluster, asked: usize) -> String {
    let shown = Command::new(env!("CARGO_BIN_EXE_neokv"))
        .args(["ctl", "nodes", "--json", "--peer"])
        .arg(cluster.peer_address(asked))
        .args(cluster.ctl_settings())
        .output()
        .expect("neokv ctl");
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

#[test]
fn a_node_with_a_failed_disk_is_replaced() {
    let plan = Plan::default().with(&["--node-dead-after", "6000"]);
    let mut cluster = Cluster::empty(None, plan);
    let sick = 3;
    cluster.add(1);
    cluster.add(2);
    cluster.add_down(sick);
    let fault = cluster.folder().join("fault3");
    let part = cluster.data(sick).join("log");
    let control = fault.to_string_lossy().into_owned();
    for (name, value) in faulty_disk::environment(&part.to_string_lossy(), &control) {
        cluster.set_environment(sick, &name, &value);
    }
    cluster.restart(sick);
    cluster.until_healthy();
    cluster.add(4);
    let traffic = Traffic::start(&cluster, "failed-disk", 2, seed());
    traffic.until_written(RESUMED);
    faulty_disk::set(&fault, "sync fail 5\nwrite fail 5\n");
    cluster.until_logged(sick, "writes stopped");
    traffic.until_written(RESUMED);
    cluster.until("meta takes it for dead and says why", |cluster| {
        let states = states(cluster, 1);
        match states.contains("\"dead: ") && states.contains("cannot be written") {
            true => Ok(()),
            false => Err(states),
        }
    });
    let address = cluster.address(sick);
    cluster.until("all its replicas are on others", |cluster| {
        for range in cluster.ranges(1)? {
            let (first, count) = (range.first, range.nodes.len());
            if count != 3 || range.nodes.contains(&address) {
                return Err(format!("slot {first}: {:?}", range.nodes));
            }
        }
        Ok(())
    });
    assert!(cluster.ended(sick).is_none(), "it was heard all the time");
    cluster.kill(sick);
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

//! Nodes die, stand still, come back, while clients work.

use std::time::Duration;

use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

/// Within this, on a busy machine, somebody else leads and all slots are written again.
pub const RESUMED: Duration = Duration::from_secs(15);

#[test]
fn a_leader_is_killed_and_comes_back() {
    let mut cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "kill", 4, seed());
    traffic.run(Duration::from_millis(300));
    // Each in its turn, so some lead and one leads meta.
    for number in 1..=3 {
        cluster.kill(number);
        let pause = traffic.until_written(RESUMED);
        eprintln!("node {number} killed: all slots written again after {pause:?}");
        cluster.restart(number);
        cluster.until_healthy();
    }
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

#[test]
fn a_leader_stands_still_and_goes_on() {
    let mut cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "pause", 4, seed());
    for round in 0..2 {
        let number = cluster.leader_of("{any}");
        cluster.pause(number);
        let pause = traffic.until_written(RESUMED);
        eprintln!("round {round}: node {number} stands still: written again after {pause:?}");
        traffic.run(Duration::from_secs(3).saturating_sub(pause));
        cluster.resume(number);
        // It must not answer from what it believed before.
        traffic.run(Duration::from_millis(500));
        traffic.until_written(RESUMED);
    }
    traffic.finish(&cluster);
}

#[test]
fn two_of_three_are_killed_and_nothing_wrong_is_said() {
    let mut cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "quorum", 4, seed());
    traffic.run(Duration::from_millis(500));
    cluster.kill(1);
    cluster.kill(2);
    // Long enough for the last one to give up its lease, and to be asked without it.
    traffic.run(Duration::from_secs(3));
    cluster.restart(1);
    traffic.until_written(RESUMED);
    cluster.restart(2);
    traffic.until_written(RESUMED);
    // And all at once.
    for number in 1..=3 {
        cluster.kill(number);
    }
    for number in 1..=3 {
        cluster.restart(number);
    }
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

#[test]
fn nodes_are_stopped_and_started_one_after_the_other() {
    let mut cluster = Cluster::start(Plan::default());
    let traffic = Traffic::start(&cluster, "rolling", 4, seed());
    for number in 1..=3 {
        cluster.stop(number);
        traffic.until_written(RESUMED);
        cluster.restart(number);
        cluster.until_healthy();
    }
    traffic.finish(&cluster);
}

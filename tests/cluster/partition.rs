//! Nodes that do not hear each other, while clients reach all of them: a former leader must not answer.

use std::time::Duration;

use crate::kill::RESUMED;
use crate::network::Network;
use crate::nodes::{Cluster, Plan};
use crate::seed;
use crate::traffic::Traffic;

/// How long a partition lasts: longer than an election, and than a lease.
const LASTS: Duration = Duration::from_secs(3);

/// Cuts a node off in some way, for a while; writes go on meanwhile, and afterwards.
fn cut_off(
    cluster: &Cluster,
    traffic: &Traffic,
    what: &str,
    node: usize,
    how: fn(&Network, usize),
) {
    let network = cluster.network.as_ref().expect("a network");
    how(network, node);
    let pause = traffic.until_written(RESUMED);
    traffic.run(LASTS.saturating_sub(pause));
    network.heal();
    let healed = traffic.until_written(RESUMED);
    eprintln!("{what}: written again after {pause:?}; healed: after {healed:?}");
}

#[test]
fn a_leader_is_cut_off_from_the_others() {
    let Some(network) = Network::new() else {
        return;
    };
    let cluster = Cluster::start_on(Some(network), Plan::default());
    let traffic = Traffic::start(&cluster, "part", 4, seed());
    for _ in 0..2 {
        let leader = cluster.leader_of("{any}");
        cut_off(
            &cluster,
            &traffic,
            "leader cut off",
            leader,
            Network::isolate,
        );
    }
    // It tells clients that ask it for the slots to go elsewhere, so they do not stay with it.
    let leader = cluster.leader_of("{any}");
    let address = cluster.address(leader);
    let network = cluster.network.as_ref().expect("a network");
    network.isolate(leader);
    cluster.until("it names others", |cluster| {
        let ranges = cluster.ranges(leader)?;
        let slots: usize = ranges
            .iter()
            .map(|it| usize::from(it.last - it.first) + 1)
            .sum();
        match ranges.iter().any(|it| it.nodes.first() == Some(&address)) || slots != 16384 {
            true => Err(format!("{ranges:?}")),
            false => Ok(()),
        }
    });
    network.heal();
    traffic.until_written(RESUMED);
    traffic.finish(&cluster);
}

#[test]
fn a_leader_is_heard_but_deaf_or_hears_but_is_mute() {
    let Some(network) = Network::new() else {
        return;
    };
    let cluster = Cluster::start_on(Some(network), Plan::default());
    let traffic = Traffic::start(&cluster, "oneway", 4, seed());
    let leader = cluster.leader_of("{any}");
    cut_off(&cluster, &traffic, "leader deaf", leader, Network::deafen);
    let leader = cluster.leader_of("{any}");
    cut_off(&cluster, &traffic, "leader mute", leader, Network::mute);
    traffic.finish(&cluster);
}

#[test]
fn only_two_nodes_lose_each_other() {
    let Some(network) = Network::new() else {
        return;
    };
    let cluster = Cluster::start_on(Some(network), Plan::default());
    let traffic = Traffic::start(&cluster, "pair", 4, seed());
    let leader = cluster.leader_of("{any}");
    cut_off(
        &cluster,
        &traffic,
        "two lose each other",
        leader,
        |network, leader| {
            let other = leader % 3 + 1;
            network.cut(leader, other);
            network.cut(other, leader);
        },
    );
    let leader = cluster.leader_of("{any}");
    cut_off(
        &cluster,
        &traffic,
        "one loses the other",
        leader,
        |network, leader| {
            network.cut(leader % 3 + 1, leader);
        },
    );
    traffic.finish(&cluster);
}

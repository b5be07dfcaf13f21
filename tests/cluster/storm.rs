//! All faults, at random, several at a time, round after round: `make chaos SECONDS=600 SEED=7`.
//!
//! A round has keys of its own, so that its history can be checked. The same seed gives the same faults; what the
//! machine makes of them differs.

use std::time::{Duration, Instant};

use crate::network::Network;
use crate::nodes::{Cluster, Plan};
use crate::traffic::Traffic;
use crate::{Dice, given, seed};

#[test]
fn faults_at_random() {
    let seed = seed();
    let seconds = given("NEOKV_SECONDS");
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    let faults = if seconds.is_some() { 6 } else { 3 };
    let mut dice = Dice::new(seed);
    // A short log, so that those who were away need snapshots now and then.
    let plan = Plan::default().with(&["--log-size", "64kb", "--log-keep-entries", "50"]);
    let mut cluster = Cluster::start_on(Network::new(), plan);
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        eprintln!("round {round}");
        let traffic = Traffic::start(&cluster, &format!("storm{round}"), 5, dice.roll(1 << 30));
        for _ in 0..faults {
            let heals = dice.roll(3) > 0;
            strike(&mut cluster, &mut dice);
            traffic.run(Duration::from_millis(100 + dice.roll(3000)));
            if heals {
                calm(&mut cluster);
                traffic.run(Duration::from_millis(dice.roll(1500)));
            }
        }
        calm(&mut cluster);
        let pause = traffic.until_written(Duration::from_secs(20));
        eprintln!("all is well again; written everywhere after {pause:?}");
        traffic.finish(&cluster);
    }
    let logs = (1..=3).map(|number| cluster.log(number));
    let installed: usize = logs
        .map(|log| log.matches("a snapshot is installed").count())
        .sum();
    eprintln!(
        "SUMMARY storm: {round} rounds of {faults} faults; {installed} snapshots installed; all replicas are equal"
    );
}

/// One more fault.
pub fn strike(cluster: &mut Cluster, dice: &mut Dice) {
    let victim = match dice.roll(3) {
        // Whoever leads something, if anybody knows.
        0 => 1 + dice.roll(3) as usize,
        _ => leader(cluster, dice),
    };
    let other = victim % 3 + 1;
    let is_up = cluster.answering().contains(&victim);
    let network = cluster.network.as_ref();
    let fault = dice.roll(if network.is_some() { 9 } else { 4 });
    let what = match (fault, network) {
        (0 | 1, _) => {
            cluster.kill(victim);
            "killed"
        }
        (2, _) if is_up => {
            cluster.pause(victim);
            "stands still"
        }
        (3, _) if is_up => {
            cluster.stop(victim);
            "stopped"
        }
        (4, Some(network)) => {
            network.isolate(victim);
            "cut off"
        }
        (5, Some(network)) => {
            network.deafen(victim);
            "deaf"
        }
        (6, Some(network)) => {
            network.mute(victim);
            "mute"
        }
        (7, Some(network)) => {
            network.cut(victim, other);
            network.cut(other, victim);
            "apart from its neighbour"
        }
        (8, Some(network)) => {
            network.cut(victim, other);
            "not heard by its neighbour"
        }
        _ => return,
    };
    eprintln!("  node {victim}: {what}");
}

fn leader(cluster: &Cluster, dice: &mut Dice) -> usize {
    let fallback = 1 + dice.roll(3) as usize;
    let at = dice.roll(16384) as u16;
    let asked = cluster.answering().first().copied();
    let ranges = asked.and_then(|it| cluster.ranges(it).ok());
    let range = ranges
        .iter()
        .flatten()
        .find(|it| (it.first..=it.last).contains(&at));
    let address = range.and_then(|it| it.nodes.first());
    address.map_or(fallback, |address| cluster.number_of(address))
}

/// Everything works again.
pub fn calm(cluster: &mut Cluster) {
    if let Some(network) = &cluster.network {
        network.heal();
    }
    for number in 1..=3 {
        if !cluster.running().contains(&number) {
            cluster.restart(number);
        } else if !cluster.answering().contains(&number) {
            cluster.resume(number);
        }
    }
    eprintln!("  calm");
}

//! Faults while stock clients work: each kind once in `make test`; `make chaos` goes through all of them again and again.

use std::time::{Duration, Instant};

use super::Stock;
use crate::network::Network;
use crate::nodes::{Cluster, Plan};
use crate::{Dice, given, seed};

/// Within this, somebody else leads and all clients have found out.
const KILLED: Duration = Duration::from_secs(5);
/// A node that says nothing is given up by its clients first, after a second or more.
const SILENT: Duration = Duration::from_secs(15);
/// Among other tests only that they go on is asked, not how soon: clients' own time-outs add up on a busy machine.
const SOME_TIME: Duration = Duration::from_secs(60);
/// How long a node stands still or is cut off.
const LASTS: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// kill -9, and a start when all is well without it.
    Kill,
    /// SIGTERM, likewise.
    Stop,
    /// SIGSTOP, and SIGCONT some time later.
    Stand,
    /// No word between it and the other nodes.
    Isolate,
    Deafen,
    Mute,
}

const LOCAL: [Fault; 3] = [Fault::Kill, Fault::Stand, Fault::Stop];
const ALL: [Fault; 6] = [
    Fault::Kill,
    Fault::Stand,
    Fault::Isolate,
    Fault::Stop,
    Fault::Deafen,
    Fault::Mute,
];

/// Something happens to a node, lasts, and ends; clients write everywhere meanwhile, and afterwards.
fn strike(cluster: &mut Cluster, stock: &mut Stock, fault: Fault, node: usize) {
    let is_long = given("NEOKV_SECONDS").is_some();
    let (killed, silent) = match is_long {
        true => (KILLED, SILENT),
        false => (SOME_TIME, SOME_TIME),
    };
    let began = Instant::now();
    let rest = || std::thread::sleep(LASTS.saturating_sub(began.elapsed()));
    eprintln!("  node {node}: {fault:?}");
    match fault {
        Fault::Kill | Fault::Stop => {
            match fault {
                Fault::Kill => cluster.kill(node),
                _ => cluster.stop(node),
            }
            stock.until_written("while it is down", killed);
            cluster.restart(node);
            cluster.until_healthy();
        }
        Fault::Stand => {
            cluster.pause(node);
            stock.until_written("while it stands still", silent);
            rest();
            cluster.resume(node);
        }
        Fault::Isolate | Fault::Deafen | Fault::Mute => {
            let network = cluster.network.as_ref().expect("a network");
            match fault {
                Fault::Isolate => network.isolate(node),
                Fault::Deafen => network.deafen(node),
                _ => network.mute(node),
            }
            stock.until_written("while it is cut off", silent);
            rest();
            network.heal();
        }
    }
    stock.until_written("when it is back", silent);
}

#[test]
fn stock_clients_go_on() {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let mut cluster = Cluster::start_on(Network::new(), Plan::default());
    let faults = match cluster.network {
        Some(_) => &ALL[..],
        None => &LOCAL,
    };
    let seconds = given("NEOKV_SECONDS");
    let until = Duration::from_secs(seconds.unwrap_or(0));
    // A round has keys of its own, so that its history stays short enough to be checked.
    let per_round = 3;
    let began = Instant::now();
    let mut round = 0;
    while round == 0 || began.elapsed() < until {
        eprintln!("round {round} with stock clients, {:?}", began.elapsed());
        let mut stock = Stock::start(&cluster, &format!("stock{round}x"));
        for n in 0..per_round {
            let fault = faults[(round * per_round + n) % faults.len()];
            // A leader, most of the time.
            let node = match dice.roll(4) {
                0 if seconds.is_some() => 1 + dice.roll(3) as usize,
                _ => cluster.leader_of(&format!("any{}", dice.roll(1000))),
            };
            strike(&mut cluster, &mut stock, fault, node);
        }
        stock.finish(&cluster);
        round += 1;
    }
    eprintln!(
        "SUMMARY stock clients: {round} rounds of {per_round} faults; every history has one order, all replicas are equal"
    );
}

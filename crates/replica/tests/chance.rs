//! Everything at once, by chance: messages lost, doubled, late and out of order, one-way cuts, pauses,
//! power cuts that lose what was not synced, clocks of different rates, transfers, changes of
//! members, truncation and snapshots, while clients write and read everywhere. What must hold is
//! checked by the network at every step (see `network`); here is only what happens. Everything
//! follows from the seed.
//!
//! More seeds: `REPLICA_SEEDS=1000..2000 cargo test --release -p replica --test chance`.

mod network;

use MemberChange::{AddLearner, Promote, Remove};
use network::{Net, State};
use replica::*;

fn chaos(net: &mut Net, steps: usize) {
    net.delay_ms = 1..80;
    net.lost = 50;
    net.doubled = 30;
    let mut next_id = 10;
    for _ in 0..steps {
        net.step();
        let ids: Vec<u64> = net.nodes.keys().copied().collect();
        let id = ids[net.rng.usize(..ids.len())];
        let other = ids[net.rng.usize(..ids.len())];
        let is_up = net.nodes[&id].replica.is_some() && !net.nodes[&id].is_paused;
        if is_up {
            act(net, id, other, &mut next_id);
        }
        match net.rng.u32(..1000) {
            0..4 => {
                let kept = net.rng.usize(..=net.unsynced(id));
                net.crash(id, kept);
            }
            4..20 if net.nodes[&id].replica.is_none() => net.start(id),
            20..24 if is_up => net.node(id).is_paused = true,
            24..50 => net.node(id).is_paused = false,
            50..58 if id != other => {
                net.cuts.insert((id, other));
            }
            58..62 => net.isolate(id),
            62..80 => net.join(),
            // Whatever is said of who is there, right or wrong.
            80..84 => net.absent = vec![id.min(other), id.max(other)],
            84..88 => net.absent = vec![id],
            88..100 => net.absent.clear(),
            _ => {}
        }
    }
}

fn act(net: &mut Net, id: u64, other: u64, next_id: &mut u64) {
    match net.rng.u32(..1000) {
        0..200 => {
            let _ = net.propose(id);
        }
        200..300 => {
            net.read(id);
        }
        300..400 => {
            net.read_here(id);
        }
        400..410 => {
            let _ = net.transfer(id, other);
        }
        410..420 => net.truncate(id),
        420..430 => {
            let node = net.node(id);
            node.durable = node.state.clone();
        }
        430..440 => {
            let node = net.node(id);
            node.syncs = !node.syncs;
            net.sync(id, usize::MAX);
        }
        440..700 => {
            let told = net.rng.usize(..=net.unsynced(id));
            net.sync(id, told);
        }
        700..710 => change(net, id, next_id),
        710..715 => {
            let clock_ms = net.nodes[&id].clock_ms(net.now_ms);
            net.replica(id).wake(clock_ms);
            net.work(id);
        }
        _ => {}
    }
}

/// A member more, or one less, or one for another.
fn change(net: &mut Net, id: u64, next_id: &mut u64) {
    if !net.replica(id).is_leader() {
        return;
    }
    let members = net.members(id).clone();
    let leaves = members.voters.iter().copied().find(|&voter| voter != id);
    let changes = match (net.rng.u32(..4), members.learners.first(), leaves) {
        (0 | 1, Some(&learner), Some(leaves)) if members.voters.len() > 2 => {
            vec![Promote(learner), Remove(leaves)]
        }
        (_, Some(&learner), _) => vec![Promote(learner)],
        (2, None, Some(leaves)) if members.voters.len() > 3 => vec![Remove(leaves)],
        (_, None, _) if members.voters.len() < 5 => vec![AddLearner(*next_id)],
        _ => return,
    };
    let added: Vec<u64> = changes
        .iter()
        .filter(|c| matches!(c, AddLearner(_)))
        .map(|c| c.replica())
        .collect();
    if net.change(id, &changes).is_ok() {
        for new in added {
            net.create(new, State::default());
            *next_id += 1;
        }
    }
}

fn heal(net: &mut Net) {
    net.join();
    (net.lost, net.doubled) = (0, 0);
    net.absent.clear();
    net.delay_ms = 1..20;
    for id in net.nodes.keys().copied().collect::<Vec<_>>() {
        net.node(id).is_paused = false;
        net.node(id).syncs = true;
        if net.nodes[&id].replica.is_none() {
            net.start(id);
        }
        net.sync(id, usize::MAX);
    }
    net.until("all agree", Net::agree);
    let leader = net.elect();
    net.propose(leader).unwrap();
    net.until("all agree", Net::agree);
}

fn run(seed: u64, steps: usize) -> Net {
    let mut net = Net::founded(seed, &[1, 2, 3]);
    net.config.keep_entries = seed % 3 * 10;
    net.config.quiet_ticks = if seed.is_multiple_of(2) { 4 } else { 0 };
    for (id, rate) in [(1, 960), (2, 1040), (3, 1000)] {
        net.node(id).clock.1 = rate;
    }
    for id in [1, 2, 3] {
        net.restart(id);
    }
    chaos(&mut net, steps);
    heal(&mut net);
    net
}

fn seeds() -> std::ops::Range<u64> {
    let given = option_env!("REPLICA_SEEDS").and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    given.unwrap_or(0..40)
}

#[test]
fn whatever_happens_they_agree_and_nobody_reads_the_past() {
    let mut total = [0; 6];
    for seed in seeds() {
        let net = run(seed, 3000);
        let facts = [
            net.acknowledged,
            net.served,
            net.leaders.len() as u64,
            net.installs,
            net.failed,
            net.nodes.len() as u64 - 3,
        ];
        for (sum, fact) in total.iter_mut().zip(facts) {
            *sum += fact;
        }
    }
    // The test is worth nothing if nothing happened.
    let least = [1000, 1000, 100, 40, 10, 40];
    assert!(
        total.iter().zip(least).all(|(sum, least)| *sum >= least),
        "{total:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 4] {
        let (one, two) = (run(seed, 1500), run(seed, 1500));
        assert_eq!(one.history, two.history);
        assert_eq!(one.sent, two.sent);
        assert_eq!((one.served, one.failed), (two.served, two.failed));
    }
}

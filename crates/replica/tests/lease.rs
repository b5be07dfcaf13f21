//! Serving without asking: who may, until when, and who must not help another meanwhile.

mod network;

use network::Net;
use replica::*;

#[test]
fn a_leader_serves_by_its_lease_and_stops_when_it_is_cut_off() {
    let mut net = Net::founded(1, &[1, 2, 3]);
    let leader = net.elect();
    assert_eq!(net.read(leader), Read::Now);
    net.isolate(leader);
    let since = net.now_ms;
    while net.may_serve(leader) {
        net.step();
    }
    // Shorter than the promise of a second, by twice the drift.
    assert!(net.now_ms - since <= 900, "{}", net.now_ms - since);
    assert!(matches!(net.read(leader), Read::Wait(_)));
    let other = {
        net.until("another leader", |net| {
            net.leader().is_some_and(|id| id != leader)
        });
        net.elect()
    };
    net.propose(other).unwrap();
    net.run(3000);
    assert!(net.failed >= 1, "the read of the old leader was given up");
    net.join();
    net.until("all agree", Net::agree);
    assert_eq!(net.most_serving, 1);
}

/// SIGSTOP: no ticks, no messages, and the clock goes on.
#[test]
fn a_paused_leader_has_no_lease_when_it_goes_on() {
    let mut net = Net::founded(2, &[1, 2, 3]);
    let leader = net.elect();
    net.node(leader).is_paused = true;
    net.run(500);
    assert!(net.may_serve(leader), "not longer than its lease");
    net.run(9500);
    assert!(!net.may_serve(leader));
    assert!(
        net.replica(leader).is_leader(),
        "it knows nothing of its successor"
    );
    let other = net.elect();
    assert_ne!(other, leader);
    net.propose(other).unwrap();
    net.node(leader).is_paused = false;
    assert!(!matches!(net.read(leader), Read::Now));
    net.until("all agree", Net::agree);
    assert_eq!(net.leader(), Some(other));
}

#[test]
fn no_service_before_an_entry_of_the_own_term_is_applied() {
    let mut net = Net::founded(3, &[1, 2, 3]);
    let leader = net.elect();
    net.propose(leader).unwrap();
    net.run(100);
    net.crash(leader, 0);
    net.until("another leader", |net| net.leader().is_some());
    // Disks are slow from now on: heartbeats are answered, the first entry is not committed.
    let other = net.leader().unwrap();
    for id in [1, 2, 3] {
        net.node(id).syncs = false;
    }
    let waits = net.replica(other).applied_index() < net.replica(other).last_index();
    assert!(waits);
    let replica = net.replica(other);
    assert_eq!(replica.acknowledged_index(), replica.last_index());
    net.run(600);
    assert!(net.replica(other).is_leader());
    assert!(!net.may_serve(other));
    assert!(matches!(net.read(other), Read::Wait(_)));
    for id in [1, 2, 3].into_iter().filter(|&id| id != leader) {
        net.node(id).syncs = true;
        net.sync(id, usize::MAX);
    }
    net.until("served", |net| net.waiting_reads(other) == 0);
    assert!(net.may_serve(other));
    let replica = net.replica(other);
    assert_eq!(replica.acknowledged_index(), replica.committed_index());
}

/// The two sides measure by clocks of different rates: 4 % apart from true is within the margin.
#[test]
fn clocks_may_run_at_different_rates() {
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        for (id, rate) in [(1, 960), (2, 1040), (3, 1000)] {
            net.node(id).clock.1 = rate;
        }
        for id in [1, 2, 3] {
            net.elect();
            net.isolate(id);
            net.run(4000);
            net.join();
        }
        assert_eq!(net.most_serving, 1);
    }
}

/// Hands the leadership to this one.
fn lead(net: &mut Net, id: u64) {
    for _ in 0..20 {
        let leader = net.elect();
        if leader == id {
            return;
        }
        let _ = net.transfer(leader, id);
        net.run(500);
    }
    panic!("{id} does not come to lead");
}

/// A leader whose clock runs at a third: the test above can fail.
#[test]
fn clocks_beyond_the_margin_would_be_noticed() {
    let mut worst = 0;
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        net.may_err = true;
        lead(&mut net, 1);
        // From the same reading on: no clock jumps.
        let (offset, now_ms) = (net.nodes[&1].clock.0, net.now_ms);
        net.node(1).clock = (offset + now_ms - now_ms * 300 / 1000, 300);
        net.run(500);
        net.isolate(1);
        net.run(6000);
        worst = worst.max(net.most_serving);
    }
    assert_eq!(worst, 2);
}

/// 2 acknowledges 1, dies, comes back and has forgotten it; 3, cut off long ago, asks it for its
/// vote while 1 relies on it.
fn a_voter_forgets(forgets_start: bool) -> usize {
    let mut worst = 0;
    for moment in 0..200 {
        let mut net = Net::founded(7, &[1, 2, 3]);
        net.may_err = true;
        net.delay_ms = 1..2;
        lead(&mut net, 1);
        net.isolate(3);
        net.run(5000 + moment * 10);
        assert!(net.may_serve(1));
        net.join();
        net.isolate(1);
        net.forgets_start = forgets_start;
        net.restart(2);
        net.run(1500);
        worst = worst.max(net.most_serving);
    }
    worst
}

#[test]
fn a_restarted_voter_keeps_the_promise_it_has_forgotten() {
    assert_eq!(a_voter_forgets(false), 1);
}

/// The test above is worth something: a start that does not wait is caught.
#[test]
fn a_restarted_voter_that_helps_at_once_is_caught() {
    assert_eq!(a_voter_forgets(true), 2);
}

#[test]
fn a_single_voter_and_a_new_region_do_not_wait() {
    let mut net = Net::founded(1, &[1]);
    net.step();
    assert!(net.may_serve(1));
    net.restart(1);
    net.step();
    assert!(net.may_serve(1));
    let mut net = Net::founded(1, &[1, 2, 3]);
    let began = net.now_ms;
    net.elect();
    assert!(net.now_ms - began < 2500);
}

/// One to two election timeouts, once more if two asked for votes at the same moment.
#[test]
fn failover_takes_two_election_timeouts_as_a_rule() {
    let mut all = Vec::new();
    for seed in 0..30 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        let leader = net.elect();
        net.propose(leader).unwrap();
        net.run(200);
        net.crash(leader, 0);
        let since = net.now_ms;
        net.elect();
        all.push(net.now_ms - since);
        net.start(leader);
        net.until("all agree", Net::agree);
    }
    all.sort_unstable();
    assert!(
        all[all.len() / 2] < 2000 && all[all.len() - 1] < 5000,
        "{all:?}"
    );
}

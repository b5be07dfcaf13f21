//! Idle regions cost nothing, and wake when they should.

mod network;

use network::{Net, State};
use replica::*;

fn quiet(seed: u64) -> (Net, u64) {
    let mut net = Net::founded(seed, &[1, 2, 3]);
    net.config.quiet_ticks = 5;
    for id in [1, 2, 3] {
        net.restart(id);
    }
    let leader = net.elect();
    net.propose(leader).unwrap();
    net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
    (net, leader)
}

#[test]
fn nothing_is_sent_and_nobody_ticks() {
    let (mut net, leader) = quiet(1);
    net.run(100);
    let sent = net.sent.clone();
    let ticks: Vec<u64> = net.nodes.values().map(|node| node.ticks).collect();
    let term = net.replica(leader).term();
    net.run(60_000);
    assert_eq!(net.sent, sent);
    assert_eq!(
        net.nodes
            .values()
            .map(|node| node.ticks)
            .collect::<Vec<_>>(),
        ticks
    );
    assert!(!net.may_serve(leader), "a quiet leader has no lease");
    // A proposal goes through at once, a read after one round.
    let acknowledged = net.acknowledged;
    net.propose(leader).unwrap();
    net.run(50);
    assert_eq!(net.acknowledged, acknowledged + 1);
    net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
    assert!(matches!(net.read(leader), Read::Wait(_)));
    net.run(50);
    assert_eq!(net.waiting_reads(leader), 0);
    assert_eq!(net.replica(leader).term(), term);
    net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
    let follower = leader % 3 + 1;
    assert!(matches!(net.read_here(follower), Read::Wait(_)));
    net.run(50);
    assert_eq!(net.waiting_reads(follower), 0);
}

#[test]
fn a_suspicion_wakes_and_a_dead_leader_is_replaced() {
    let (mut net, leader) = quiet(2);
    net.crash(leader, 0);
    net.run(10_000);
    assert_eq!(net.leader(), None, "nobody has noticed");
    for id in [1, 2, 3].into_iter().filter(|&id| id != leader) {
        let clock_ms = net.nodes[&id].clock_ms(net.now_ms);
        net.replica(id).wake(clock_ms);
    }
    let since = net.now_ms;
    net.elect();
    assert!(net.now_ms - since < 3000);
}

/// One suspicion is enough: its question for votes wakes the other, which has no promise to keep.
#[test]
fn one_woken_follower_is_enough() {
    let (mut net, leader) = quiet(3);
    net.crash(leader, 0);
    net.run(2000);
    let id = leader % 3 + 1;
    let clock_ms = net.nodes[&id].clock_ms(net.now_ms);
    net.replica(id).wake(clock_ms);
    let since = net.now_ms;
    net.elect();
    assert!(net.now_ms - since < 3000);
}

#[test]
fn a_false_alarm_is_calmed() {
    let (mut net, leader) = quiet(4);
    net.run(2000);
    let term = net.replica(leader).term();
    let id = leader % 3 + 1;
    let clock_ms = net.nodes[&id].clock_ms(net.now_ms);
    net.replica(id).wake(clock_ms);
    net.run(10_000);
    assert_eq!(net.leader(), Some(leader));
    assert_eq!(net.replica(leader).term(), term);
    assert!(net.is_quiet(leader));
}

#[test]
fn a_restarted_member_of_a_quiet_region_wakes_it() {
    for who in 0..3 {
        let (mut net, leader) = quiet(5 + who);
        let id = (leader + who) % 3 + 1;
        let term = net.replica(leader).term();
        net.restart(id);
        net.until("it has all again", |net| {
            net.leader().is_some() && net.agree() && net.nodes[&id].state.count == 1
        });
        net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
        if id != leader {
            assert_eq!(net.replica(leader).term(), term, "a follower moves nothing");
        }
    }
}

#[test]
fn a_learner_that_comes_back_is_heard() {
    let (mut net, leader) = quiet(11);
    net.create(4, State::default());
    net.change(leader, &[MemberChange::AddLearner(4)]).unwrap();
    net.until("all quiet", |net| {
        [1, 2, 3, 4].iter().all(|&id| net.is_quiet(id))
    });
    net.restart(4);
    net.until("it has all again", |net| net.agree() && net.is_quiet(4));
    // One that was removed and does not know it keeps nobody awake.
    net.cut(leader, 4);
    net.change(leader, &[MemberChange::Remove(4)]).unwrap();
    net.until("removed", |net| net.members(leader).learners.is_empty());
    net.join();
    net.restart(4);
    net.run(3000);
    net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
    let ticks = net.nodes[&leader].ticks;
    net.run(10_000);
    assert_eq!(net.nodes[&leader].ticks, ticks);
}

#[test]
fn nobody_is_quiet_while_somebody_lags() {
    let (mut net, leader) = quiet(9);
    let id = leader % 3 + 1;
    net.crash(id, 0);
    net.propose(leader).unwrap();
    net.run(10_000);
    assert!(!net.is_quiet(leader));
    net.start(id);
    net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
    assert_eq!(net.nodes[&id].state.count, 2);
}

/// Two of three are quiet without the third, which is known to be gone; it gets what it missed when it is back.
#[test]
fn a_majority_is_quiet_without_a_member_that_is_known_to_be_gone() {
    for seed in 20..40 {
        let (mut net, leader) = quiet(seed);
        let gone = leader % 3 + 1;
        let others: Vec<u64> = (1..=3).filter(|&id| id != gone).collect();
        net.crash(gone, 0);
        net.propose(leader).unwrap();
        net.run(5000);
        assert!(!net.is_quiet(leader), "nobody has said that it is gone");
        net.absent = vec![gone];
        net.until("quiet", |net| others.iter().all(|&id| net.is_quiet(id)));
        let (sent, term) = (net.sent.clone(), net.replica(leader).term());
        net.run(30_000);
        assert_eq!(net.sent, sent);
        assert!(!net.may_serve(leader), "a quiet leader has no lease");
        // It can be used, and is quiet again.
        net.propose(leader).unwrap();
        net.run(50);
        assert!(!net.is_quiet(leader));
        net.until("quiet", |net| others.iter().all(|&id| net.is_quiet(id)));
        match seed % 2 {
            0 => net.start(gone), // it makes itself heard, before the owners hear of its node
            _ => {
                net.absent.clear();
                net.run(500);
                assert!(!net.is_quiet(leader), "it may have missed something");
                net.start(gone);
            }
        }
        net.run(1000);
        net.absent.clear();
        net.until("it has all", |net| {
            net.agree() && net.nodes[&gone].state.count == 3
        });
        net.until("quiet", |net| [1, 2, 3].iter().all(|&id| net.is_quiet(id)));
        assert_eq!(net.replica(leader).term(), term);
    }
}

/// A leader without a majority must find out that it leads no more: it is not quiet, whoever is known to be gone.
#[test]
fn nobody_is_quiet_without_a_majority() {
    let (mut net, leader) = quiet(41);
    net.absent = (1..=3).filter(|&id| id != leader).collect();
    net.isolate(leader);
    let clock_ms = net.nodes[&leader].clock_ms(net.now_ms);
    net.replica(leader).wake(clock_ms);
    net.run(10_000);
    assert!(!net.replica(leader).is_leader());
    assert!(!net.is_quiet(leader));
}

/// The two that are quiet lose their leader while the third is away: with the third there is one again.
#[test]
fn who_was_away_helps_to_replace_the_leader() {
    for seed in 42..52 {
        let (mut net, leader) = quiet(seed);
        let (gone, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        net.crash(gone, 0);
        net.absent = vec![gone];
        net.propose(leader).unwrap();
        net.until("quiet", |net| {
            [leader, other].iter().all(|&id| net.is_quiet(id))
        });
        net.crash(leader, 0);
        net.start(gone);
        net.absent = vec![leader];
        let clock_ms = net.nodes[&other].clock_ms(net.now_ms);
        net.replica(other).wake(clock_ms);
        assert_eq!(net.elect(), other, "the third does not have all");
        net.until("quiet", |net| {
            [gone, other].iter().all(|&id| net.is_quiet(id))
        });
        assert_eq!(net.nodes[&gone].state.count, 2);
    }
}

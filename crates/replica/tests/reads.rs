//! Linearizable reads without a lease, and from followers.

mod network;

use network::Net;
use replica::*;

fn followers(net: &Net, leader: u64) -> Vec<u64> {
    net.nodes
        .keys()
        .copied()
        .filter(|&id| id != leader)
        .collect()
}

#[test]
fn reads_share_a_round() {
    let mut net = Net::founded(1, &[1, 2, 3]);
    let leader = net.elect();
    // The lease is over, but nobody has stood up yet.
    net.isolate(leader);
    net.run(900);
    assert!(!net.may_serve(leader));
    net.join();
    let sent = net.sent.get(&leader).copied();
    let Read::Wait(first) = net.read(leader) else {
        panic!("no lease");
    };
    let Read::Wait(second) = net.read(leader) else {
        panic!("no lease");
    };
    assert_ne!(first, second, "the second came after the round began");
    for _ in 0..100 {
        assert_eq!(net.read(leader), Read::Wait(second));
    }
    assert_eq!(net.sent.get(&leader).copied(), sent.map(|sent| sent + 2));
    let served = net.served;
    net.run(50);
    assert_eq!(net.served, served + 102);
    assert_eq!(net.read(leader), Read::Now, "a round renews the lease");
}

#[test]
fn a_round_that_is_lost_is_repeated() {
    let mut net = Net::founded(2, &[1, 2, 3]);
    let leader = net.elect();
    net.isolate(leader);
    net.run(900);
    assert!(matches!(net.read(leader), Read::Wait(_)));
    net.run(30);
    net.join();
    net.until("it is served", |net| net.waiting_reads(leader) == 0);
    assert_eq!(net.failed, 0);
}

#[test]
fn followers_ask_the_leader() {
    let mut net = Net::founded(3, &[1, 2, 3]);
    let leader = net.elect();
    for _ in 0..10 {
        net.propose(leader).unwrap();
        for id in followers(&net, leader) {
            assert!(matches!(net.read_here(id), Read::Wait(_)));
            assert!(matches!(net.read(id), Read::NotLeader { leader: Some(id) } if id == leader));
        }
        net.step();
    }
    net.until("all are served", |net| {
        followers(net, leader)
            .iter()
            .all(|&id| net.waiting_reads(id) == 0)
    });
    assert_eq!(net.failed, 0);
    assert_eq!(net.served, 20);
}

#[test]
fn a_follower_that_is_cut_off_says_so() {
    let mut net = Net::founded(4, &[1, 2, 3]);
    let leader = net.elect();
    let id = followers(&net, leader)[0];
    net.isolate(id);
    assert!(matches!(net.read_here(id), Read::Wait(_)));
    net.run(3000);
    assert_eq!(net.failed, 1);
    assert!(matches!(
        net.read_here(id),
        Read::NotLeader { leader: None }
    ));
    net.join();
    net.until("it hears again", |net| net.agree());
    net.run(500);
    assert!(matches!(net.read_here(id), Read::Wait(_)));
    net.until("it is served", |net| net.waiting_reads(id) == 0);
}

#[test]
fn the_question_of_a_follower_survives_its_leader() {
    let mut net = Net::founded(5, &[1, 2, 3]);
    let leader = net.elect();
    let id = followers(&net, leader)[0];
    net.cut(id, leader);
    assert!(matches!(net.read_here(id), Read::Wait(_)));
    let other = followers(&net, leader)[1];
    net.transfer(leader, other).unwrap();
    net.until("it is answered or given up", |net| {
        net.waiting_reads(id) == 0
    });
}

/// A leader whose first entry is not committed does not know all that was acknowledged.
#[test]
fn reads_wait_for_the_first_entry_of_the_term() {
    let mut net = Net::founded(6, &[1, 2, 3]);
    let leader = net.elect();
    for _ in 0..5 {
        net.propose(leader).unwrap();
    }
    net.run(100);
    net.crash(leader, 0);
    for id in followers(&net, leader) {
        net.node(id).syncs = false;
    }
    for _ in 0..500 {
        net.step();
        for id in followers(&net, leader) {
            net.sync(id, 1);
        }
        if let Some(other) = net.leader()
            && other != leader
        {
            net.read(other);
        }
    }
    assert!(net.served > 0);
}

/// Answers to heartbeats from before the read prove nothing: the process stood still, others chose
/// another leader and wrote, and the old answers still lie in the socket.
#[test]
fn answers_from_before_the_read_do_not_count() {
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        let leader = net.elect();
        let is_beat = |(_, message): &(u64, Message)| {
            message.get_msg_type() == MessageType::MsgHeartbeat && message.from == leader
        };
        while !net.wire.iter().any(is_beat) {
            net.step();
        }
        net.node(leader).is_paused = true;
        net.until("another leader", |net| net.leader().is_some());
        let other = net.elect();
        net.propose(other).unwrap();
        net.run(500);
        net.node(leader).is_paused = false;
        assert!(matches!(net.read(leader), Read::Wait(_)));
        net.run(500);
        assert_eq!(net.failed, 1);
    }
}

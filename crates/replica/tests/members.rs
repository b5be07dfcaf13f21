//! Members come and go, leaders hand over, snapshots bring up the new ones.

mod network;

use MemberChange::{AddLearner, AddVoter, Promote, Remove};
use network::{Net, REGION, State};
use replica::*;

/// Adds a learner that knows nothing, waits until it has all, makes it a voter.
fn add(net: &mut Net, id: u64) {
    net.create(id, State::default());
    let leader = net.elect();
    net.change(leader, &[AddLearner(id)]).unwrap();
    net.until("the learner has all", |net| {
        net.agree() && net.members(leader).contains(id)
    });
    let leader = net.elect();
    net.change(leader, &[Promote(id)]).unwrap();
    net.until("it is a voter", |net| net.members(id).voters.contains(&id));
}

#[test]
fn from_one_to_three_and_back() {
    let mut net = Net::founded(1, &[1]);
    net.step();
    for _ in 0..20 {
        net.propose(1).unwrap();
    }
    add(&mut net, 2);
    add(&mut net, 3);
    assert_eq!(net.members(1).voters, [1, 2, 3]);
    assert!(net.installs >= 2, "a new member begins with a snapshot");
    assert_eq!(
        net.change(1, &[Remove(1)])
            .err()
            .map(|refused| refused.to_string())
            .as_deref(),
        Some("the leader must hand over first")
    );
    net.transfer(1, 2).unwrap();
    net.until("2 leads", |net| net.leader() == Some(2));
    net.elect();
    net.change(2, &[Remove(1)]).unwrap();
    net.until("1 is gone", |net| net.members(2).voters == [2, 3]);
    net.elect();
    net.propose(2).unwrap();
    net.until("2 and 3 agree", Net::agree);
    // The removed one may go on asking for votes; nobody minds.
    let term = net.replica(2).term();
    net.run(10_000);
    assert_eq!(net.replica(2).term(), term);
    net.change(2, &[Remove(3)]).unwrap();
    net.until("alone", |net| net.members(2).voters == [2]);
    net.propose(2).unwrap();
    net.run(100);
    assert!(net.may_serve(2));
}

#[test]
fn several_at_once_go_through_a_joint_state() {
    let mut net = Net::founded(2, &[1, 2, 3]);
    let leader = net.elect();
    net.create(4, State::default());
    net.create(5, State::default());
    net.change(leader, &[AddLearner(4), AddLearner(5)]).unwrap();
    assert_eq!(
        net.change(leader, &[Remove(9)]),
        Err(Refused::Busy),
        "one at a time"
    );
    net.until("all have all", |net| {
        net.agree() && net.members(leader).learners == [4, 5]
    });
    net.until("done", |net| !net.members(leader).is_joint());
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|&id| id != leader).collect();
    let changes = [Promote(4), Promote(5), Remove(others[0]), Remove(others[1])];
    // Not the old majority: the joint state cannot be left without it.
    net.change(leader, &changes).unwrap();
    net.isolate(others[0]);
    net.isolate(others[1]);
    net.run(500);
    assert!(!net.members(leader).voters.contains(&4), "not committed");
    net.join();
    net.until("done", |net| {
        net.leader()
            .is_some_and(|id| !net.members(id).is_joint() && net.members(id).voters.contains(&5))
    });
    let leader = net.elect();
    assert!(!net.members(leader).voters.contains(&others[0]));
    net.crash(others[0], 0);
    net.crash(others[1], 0);
    net.propose(leader).unwrap();
    net.until("the new ones agree", Net::agree);
    assert_eq!(net.members(4).voters.len(), 3);
}

/// Nothing is written after a change. One of the old members is gone with it, another loses its disk,
/// the rest start anew: they must not wait for a majority of the old.
#[test]
fn a_change_outlives_the_members_it_was_made_with() {
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        let leader = net.elect();
        let (removed, stays) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        for id in [4, 5] {
            net.create(id, State::default());
        }
        net.change(leader, &[AddLearner(4), AddLearner(5)]).unwrap();
        net.until("both have all", |net| {
            net.agree() && net.members(leader).learners == [4, 5]
        });
        net.change(leader, &[Promote(4), Remove(removed)]).unwrap();
        net.until("joint, and not any more", |net| {
            net.agree() && net.members(leader).voters.contains(&4)
        });
        // Leader and follower, voter and learner.
        for id in [leader, stays, 4, 5] {
            let node = &net.nodes[&id];
            assert!(!node.state.members.is_joint());
            let kept = node.log.hard_state(REGION).unwrap().unwrap();
            assert_eq!(kept.commit, node.state.applied, "{id}");
        }
        net.crash(removed, 0);
        net.crash(leader, 0);
        net.restart(stays);
        net.restart(4);
        let leader = net.elect();
        net.propose(leader).unwrap();
        net.until("they go on", Net::agree);
        assert!(!net.members(leader).contains(removed));
    }
}

/// That costs one write for each step of a change, and nothing otherwise.
#[test]
fn only_a_change_has_its_commit_written_alone() {
    let mut net = Net::founded(6, &[1, 2, 3]);
    let leader = net.elect();
    net.create(4, State::default());
    net.change(leader, &[AddLearner(4)]).unwrap();
    net.until("it has all", |net| {
        net.agree() && net.members(leader).learners == [4]
    });
    net.run(1000);
    let bare = net.bare_writes.clone();
    for id in [1, 2, 3] {
        assert_eq!(bare.get(&id), Some(&1), "replica {id}");
    }
    for _ in 0..20 {
        net.propose(leader).unwrap();
        net.run(50);
    }
    net.run(1000);
    assert_eq!(net.bare_writes, bare);
    // It is not written again by a start that applies the change again.
    net.restart(leader);
    net.elect();
    net.until("all agree", Net::agree);
    assert_eq!(net.bare_writes, bare);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut net = Net::founded(3, &[1, 2, 3]);
    let leader = net.elect();
    let follower = leader % 3 + 1;
    for changes in [
        &[][..],
        &[AddLearner(1)],
        &[AddVoter(2)],
        &[Promote(3)],
        &[Remove(9)],
        &[AddLearner(0)],
        &[AddLearner(4), Remove(4)],
        &[Remove(leader)],
    ] {
        let refused = net.change(leader, changes);
        assert!(
            matches!(refused, Err(Refused::Members(_))),
            "{changes:?}: {refused:?}"
        );
    }
    let refused = net.change(follower, &[AddLearner(4)]);
    assert_eq!(
        refused,
        Err(Refused::NotLeader {
            leader: Some(leader)
        })
    );
    let refused = net.transfer(leader, leader);
    assert!(matches!(refused, Err(Refused::Members(_))));
    // A region of a single node has a log from zero: nobody can be brought up by it.
    let log = MapLog::new();
    let mut alone = Replica::new(ReplicaConfig::default(), &log).unwrap();
    let mut out = Ready::default();
    alone.ready(&mut out);
    alone.on_persisted(out.write.take().unwrap().number);
    alone.ready(&mut out);
    alone.on_applied(1);
    let refused = alone.propose_members(&[AddLearner(2)], Vec::new());
    assert!(matches!(refused, Err(Refused::Members(_))), "{refused:?}");
}

/// A member that slept through its own removal, and one that learns of a new member late.
#[test]
fn old_and_new_members_may_be_heard() {
    let mut net = Net::founded(4, &[1, 2, 3]);
    let leader = net.elect();
    let away = leader % 3 + 1;
    net.isolate(away);
    net.change(leader, &[Remove(away)]).unwrap();
    net.until("removed", |net| net.members(leader).voters.len() == 2);
    net.join();
    let term = net.replica(leader).term();
    net.run(10_000);
    assert_eq!(net.leader(), Some(leader));
    assert_eq!(
        net.replica(leader).term(),
        term,
        "the removed one disturbs nobody"
    );
    assert!(
        net.members(away).contains(away),
        "nobody told it: that is for its owner"
    );
}

#[test]
fn a_leader_that_is_removed_steps_down() {
    let mut net = Net::founded(5, &[1, 2, 3]);
    let leader = net.elect();
    let next = leader % 3 + 1;
    // Proposed by one leader, committed under the next: the one it removes.
    for id in [1, 2, 3] {
        net.node(id).syncs = false;
    }
    net.change(leader, &[Remove(next)]).unwrap();
    net.run(20);
    for id in [1, 2, 3] {
        net.node(id).syncs = true;
        net.sync(id, usize::MAX);
    }
    net.cut(leader, next % 3 + 1);
    net.run(20);
    net.join();
    net.until("all know", |net| {
        net.leader()
            .is_some_and(|id| net.members(id).voters.len() == 2 && id != next)
    });
    let leader = net.elect();
    net.propose(leader).unwrap();
    net.until("all agree", Net::agree);
}

#[test]
fn leadership_is_handed_over_within_a_second_and_nothing_is_lost() {
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        let leader = net.elect();
        let to = leader % 3 + 1;
        for _ in 0..50 {
            net.propose(leader).unwrap();
        }
        net.transfer(leader, to).unwrap();
        assert!(!net.may_serve(leader), "void from the beginning");
        assert_eq!(net.propose(leader), Err(Refused::Busy));
        let since = net.now_ms;
        net.until("it leads", |net| {
            net.leader() == Some(to) && net.may_serve(to)
        });
        assert!(net.now_ms - since < 1000, "{}", net.now_ms - since);
        net.until("all agree", Net::agree);
        assert_eq!(net.nodes[&to].state.count, 50);
    }
}

#[test]
fn a_transfer_that_comes_to_nothing_is_given_up() {
    let mut net = Net::founded(8, &[1, 2, 3]);
    let leader = net.elect();
    let to = leader % 3 + 1;
    net.cut(leader, to);
    net.transfer(leader, to).unwrap();
    net.run(500);
    assert!(!net.may_serve(leader));
    net.until("given up", |net| net.may_serve(leader));
    net.propose(leader).unwrap();
    net.join();
    net.until("all agree", Net::agree);
}

/// The word to campaign arrives after the transfer was given up, when the leader has a lease again,
/// made of the third one's word. The successor has not heard that it was given up.
#[test]
fn a_late_word_to_campaign_breaks_no_lease() {
    for seed in 0..20 {
        let mut net = Net::founded(seed, &[1, 2, 3]);
        let leader = net.elect();
        let (to, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        net.transfer(leader, to).unwrap();
        let is_word = |message: &Message| message.get_msg_type() == MessageType::MsgTimeoutNow;
        let word = net.wire.iter().position(|(_, message)| is_word(message));
        let (_, word) = net.wire.swap_remove(word.unwrap());
        while net.replica(leader).is_transferring() {
            net.step();
        }
        net.cut(leader, to);
        net.until("a lease again", |net| net.may_serve(leader));
        assert_eq!(
            net.replica(to).leader(),
            Some(leader),
            "it would believe the word"
        );
        net.cut(leader, third);
        let clock_ms = net.nodes[&to].clock_ms(net.now_ms);
        net.replica(to).step(word, clock_ms).unwrap();
        net.work(to);
        assert!(net.may_serve(leader));
        net.run(3000);
        assert_eq!(net.most_serving, 1);
        net.join();
        net.until("all agree", Net::agree);
    }
}

#[test]
fn a_follower_that_was_away_for_long_gets_a_snapshot() {
    let mut net = Net::founded(9, &[1, 2, 3]);
    net.config.keep_entries = 10;
    for id in [1, 2, 3] {
        net.restart(id);
    }
    let leader = net.elect();
    let away = leader % 3 + 1;
    net.crash(away, 0);
    for _ in 0..100 {
        net.propose(leader).unwrap();
        net.run(20);
    }
    net.truncate(leader);
    assert!(net.replica(leader).first_index() > 50);
    // Several times lost, several times announced again.
    net.start(away);
    net.lost = 300;
    net.until("installed", |net| net.installs == 1);
    net.lost = 0;
    net.until("all agree", Net::agree);
    // And it starts from there, with and without entries behind it.
    net.restart(away);
    net.until("all agree", Net::agree);
    net.propose(leader).unwrap();
    net.run(100);
    net.restart(away);
    net.until("all agree", Net::agree);
    assert_eq!(net.installs, 1);
    assert_eq!(net.nodes[&away].state.count, 101);
}

/// However few entries that is: members that lag are waited for with so many bytes of log, and no more.
#[test]
fn the_log_kept_for_a_member_that_is_away_has_a_bound_in_bytes() {
    const ENTRY: u64 = 10_000;
    const KEPT: u64 = 1 << 20;
    let mut net = Net::founded(19, &[1, 2, 3]);
    net.config.keep_bytes = KEPT;
    for id in [1, 2, 3] {
        net.restart(id);
    }
    let leader = net.elect();
    let (away, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let write = |net: &mut Net, count: u64| {
        for _ in 0..count {
            let payload = vec![net.rng.u8(..); ENTRY as usize];
            net.replica(leader).propose(payload).unwrap();
            net.work(leader);
            net.run(20);
        }
    };
    let kept = |net: &mut Net, id: u64| {
        net.truncate(id);
        let (first, last) = net.nodes[&id].log.span(REGION).unwrap();
        (last + 1 - first) * ENTRY
    };
    write(&mut net, 10);
    net.crash(away, 0);
    // Not much is missing: nothing goes.
    write(&mut net, 50);
    assert!(kept(&mut net, leader) > 50 * ENTRY);
    net.start(away);
    net.until("all agree", Net::agree);
    assert_eq!(net.installs, 0);
    // More is missing than anybody may keep, leader or not.
    net.crash(away, 0);
    write(&mut net, 200);
    for id in [leader, third] {
        let kept = kept(&mut net, id);
        assert!(kept <= KEPT + ENTRY, "{kept} bytes");
        assert!(kept > KEPT / 2, "{kept} bytes");
    }
    net.start(away);
    net.until("all agree", Net::agree);
    assert_eq!(net.installs, 1);
    // Less room than before.
    net.replica(leader).set_keep_bytes(KEPT / 2);
    net.crash(away, 0);
    write(&mut net, 100);
    assert!(kept(&mut net, leader) <= KEPT / 2 + ENTRY);
}

/// The state was installed, and the power failed before the log was forgotten.
#[test]
fn an_install_is_finished_by_the_next_start() {
    let mut net = Net::founded(10, &[1, 2, 3]);
    net.config.keep_entries = 0;
    for id in [1, 2, 3] {
        net.restart(id);
    }
    let leader = net.elect();
    let (away, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    for _ in 0..5 {
        net.propose(leader).unwrap();
    }
    net.until("all agree", Net::agree);
    net.isolate(away);
    for _ in 0..50 {
        net.propose(leader).unwrap();
        net.run(20);
    }
    net.truncate(leader);
    net.truncate(third);
    net.node(away).syncs = false;
    net.join();
    for _ in 0..1000 {
        net.step();
        if net.installs == 1 {
            break;
        }
        // Terms and votes get to its disk.
        net.sync(away, usize::MAX);
    }
    assert_eq!(net.installs, 1);
    assert!(net.unsynced(away) > 0, "the log is not forgotten on disk");
    net.crash(away, 0);
    let (_, last) = net.nodes[&away].log.span(REGION).unwrap();
    assert!(
        last < net.nodes[&away].durable.applied,
        "the state is ahead of the log"
    );
    net.start(away);
    assert_eq!(net.nodes[&away].log.span(REGION), None);
    net.node(away).syncs = true;
    net.until("all agree", Net::agree);
    assert_eq!(net.nodes[&away].state.count, 55);
}

/// While a snapshot is made the log behind it stays, however often it is truncated.
#[test]
fn the_log_waits_for_a_snapshot_on_its_way() {
    let mut net = Net::founded(11, &[1, 2, 3]);
    net.config.keep_entries = 0;
    for id in [1, 2, 3] {
        net.restart(id);
    }
    net.carries_snapshots = false;
    let leader = net.elect();
    let away = leader % 3 + 1;
    net.crash(away, 0);
    for _ in 0..20 {
        net.propose(leader).unwrap();
        net.run(20);
    }
    net.truncate(leader);
    net.start(away);
    net.until("wanted", |net| net.nodes[&leader].wanted.contains(&away));
    let state = net.nodes[&leader].state.clone();
    for _ in 0..20 {
        net.propose(leader).unwrap();
        net.run(20);
        net.truncate(leader);
    }
    assert!(net.replica(leader).first_index() <= state.applied + 1);
    net.run(5000);
    net.carries_snapshots = true;
    net.carry_snapshots(leader);
    net.until("all agree", Net::agree);
    assert_eq!(net.installs, 1);
    net.run(500);
    net.truncate(leader);
    assert!(net.replica(leader).first_index() > state.applied + 1);
}

#[test]
fn versions_are_the_lowest_of_all() {
    let mut net = Net::founded(12, &[1, 2, 3]);
    let leader = net.elect();
    let replica = net.replica(leader);
    assert_eq!(replica.common_version(), 1);
    for id in [1, 2, 3] {
        replica.set_version(id, 200);
    }
    assert_eq!(replica.common_version(), entry::VERSION);
}

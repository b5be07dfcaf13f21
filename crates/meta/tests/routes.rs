//! The route table: published with versions, merged in any order, shown as ranges.

use base::cluster::*;
use meta::limits::Limits;
use meta::liveness::Life;
use meta::publish::Publisher;
use meta::route::{Routes, SlotRange};
use meta::scheduler::Picture;
use meta::state::*;
use meta::view::View;
use meta::wire::*;

fn join(node: u64, host: &str, starts: u64) -> Join {
    Join {
        cluster: if node == 0 { 0 } else { 9 },
        node,
        token: u64::from(host.as_bytes()[0]) * 100 + starts,
        start_count: starts,
        profile: Profile {
            redis: Address::new(host, 1),
            peer: Address::new(host, 2),
            stores: true,
            metas: true,
            ..Profile::default()
        },
        replace: 0,
    }
}

/// Three nodes, four regions on all of them.
fn state() -> State {
    let mut state = State::default();
    let settings = Settings {
        replicas: 3,
        regions: 4,
        meta_replicas: 1,
    };
    let found = Found {
        cluster: 9,
        settings,
        join: join(0, "a", 1),
    };
    state.apply(&Change::Found(found).into(), 0);
    for host in ["b", "c"] {
        let register = Register {
            join: join(0, host, 1),
            alive: Vec::new(),
        };
        state.apply(&Change::Register(register).into(), 0);
    }
    let nodes = vec![1, 2, 3];
    state.apply(&Change::Bootstrap(Bootstrap { nodes }).into(), 0);
    state
}

fn leads(state: &State, node: NodeId, number: u64, regions: &[(RegionId, u64)]) -> Heartbeat {
    let report = |&(region, term): &(RegionId, u64)| ReplicaReport {
        region,
        replica: state
            .region(region)
            .unwrap()
            .descriptor
            .member_on(node)
            .unwrap()
            .replica,
        role: ReplicaRole::Leader.into(),
        term,
        ..ReplicaReport::default()
    };
    Heartbeat {
        cluster: 9,
        node,
        start_count: 1,
        number,
        replicas: regions.iter().map(report).collect(),
        ..Heartbeat::default()
    }
}

#[test]
fn whole_then_changes_then_whole_from_a_new_leader() {
    let state = state();
    let limits = Limits::default();
    let mut view = View::default();
    view.expect(&state, 0);
    let mut publisher = Publisher::new(3);
    assert!(publisher.refresh(&Picture::new(&state, &view, 0, &limits)));
    assert!(!publisher.refresh(&Picture::new(&state, &view, 0, &limits)));

    let mut routes = Routes::new();
    let whole = publisher.since(routes.version()).unwrap();
    assert!(whole.full && whole.regions.len() == 5 && whole.nodes.len() == 3);
    assert!(routes.update(&whole));
    assert!(!routes.update(&whole));
    assert_eq!(publisher.since(routes.version()), None);
    assert_eq!(routes.region_of(0), Some(1));
    assert_eq!(routes.region_of(16383), Some(4));
    assert_eq!(routes.leader_of(0), None);
    assert_eq!(
        routes.ranges().len(),
        1,
        "all slots are equally without a leader"
    );

    // Leaders show: 1 and 2 next to each other on node 1, then 3 on node 2.
    view.on_heartbeat(leads(&state, 1, 1, &[(1, 5), (2, 5)]), 10);
    view.on_heartbeat(leads(&state, 2, 1, &[(3, 7)]), 10);
    publisher.refresh(&Picture::new(&state, &view, 10, &limits));
    let change = publisher.since(routes.version()).unwrap();
    assert!(!change.full && change.regions.len() == 3 && change.nodes.is_empty());
    routes.update(&change);
    let range = |slots, leader, followers: &[u64]| SlotRange {
        slots,
        leader,
        followers: followers.to_vec(),
    };
    let ranges = routes.ranges();
    assert_eq!(
        ranges,
        [
            range(0..=8191, Some(1), &[2, 3]),
            range(8192..=12287, Some(2), &[1, 3]),
            range(12288..=16383, None, &[1, 2, 3]),
        ]
    );
    assert_eq!(routes.led_by(1), [0..=8191]);
    assert_eq!(routes.leader_of(9000).unwrap().redis.host, "b");

    // An older leader's word comes late; a newer one is learned from the node's own replica.
    view.on_heartbeat(leads(&state, 3, 1, &[(3, 6)]), 11);
    assert!(!publisher.refresh(&Picture::new(&state, &view, 11, &limits)));
    let third = state
        .region(3)
        .unwrap()
        .descriptor
        .member_on(3)
        .unwrap()
        .replica;
    assert!(!routes.on_leader(3, third, 6));
    let seen = ReplicaReport {
        region: 3,
        replica: 99,
        term: 8,
        leader: third,
        ..ReplicaReport::default()
    };
    assert!(routes.is_news(&seen));
    routes.hear(&seen);
    assert!(!routes.is_news(&seen));
    assert!(!routes.update(&change));
    assert_eq!(routes.leader(3), Some(3));

    // Another leader of meta, who knows less: nothing is forgotten.
    let mut publisher = Publisher::new(4);
    publisher.refresh(&Picture::new(&state, &View::default(), 0, &limits));
    let whole = publisher.since(routes.version()).unwrap();
    assert!(whole.full && whole.version > routes.version());
    routes.update(&whole);
    assert_eq!(routes.leader(3), Some(3));
    assert_eq!(routes.leader(1), Some(1));
}

#[test]
fn members_come_from_anywhere_and_meta_is_told() {
    let mut state = state();
    let limits = Limits::default();
    let mut publisher = Publisher::new(1);
    let view = View::default();
    publisher.refresh(&Picture::new(&state, &view, 0, &limits));
    let mut routes = Routes::new();
    routes.update(&publisher.since(0).unwrap());

    let old = state.region(2).unwrap().descriptor.clone();
    let mut new = old.clone();
    new.epoch.members += 1;
    new.members.pop();
    assert!(routes.meta_knows(2, old.epoch));
    let report = ReplicaReport {
        region: 2,
        descriptor: Some(new.clone()),
        ..ReplicaReport::default()
    };
    assert!(routes.is_news(&report));
    routes.hear(&report);
    assert!(!routes.is_news(&report));
    assert!(!routes.on_descriptor(&old));
    // The node's own word does not mean that meta has it.
    assert!(!routes.meta_knows(2, new.epoch));
    let descriptors = vec![new.clone()];
    state.apply(
        &Change::MembersChanged(MembersChanged { descriptors }).into(),
        0,
    );
    publisher.refresh(&Picture::new(&state, &view, 0, &limits));
    routes.update(&publisher.since(routes.version()).unwrap());
    assert!(routes.meta_knows(2, new.epoch));
    assert_eq!(routes.region(2).unwrap().descriptor, new);

    // A node goes: it leaves the table by a change.
    let set = SetNodeState {
        node: 3,
        state: NodeState::Removed.into(),
        alive: vec![1, 2],
    };
    assert_eq!(
        state.apply(&Change::SetNodeState(set).into(), 0),
        Outcome::Changed
    );
    publisher.refresh(&Picture::new(&state, &view, 0, &limits));
    let change = publisher.since(routes.version()).unwrap();
    assert!(!change.full);
    assert_eq!(change.removed_nodes, [3]);
    assert!(routes.update(&change));
    assert!(routes.node(3).is_none() && routes.node(2).is_some());
}

#[test]
fn silence_counts_from_when_this_leader_could_have_heard() {
    let state = state();
    let limits = Limits::default();
    let mut view = View::default();
    view.expect(&state, 100_000);
    view.on_heartbeat(leads(&state, 1, 1, &[]), 100_000);
    let life = |node, now| Life::of(state.node(node).unwrap(), &view, now, &limits);
    assert_eq!(life(1, 104_000), Life::Alive);
    assert_eq!(life(2, 104_000), Life::Unheard);
    assert_eq!(life(1, 105_000), Life::Down);
    assert_eq!(life(2, 105_000), Life::Down);
    assert_eq!(life(2, 129_999), Life::Down);
    assert_eq!(life(2, 130_000), Life::Dead);
}

#[test]
fn late_heartbeats_are_passed_over() {
    let state = state();
    let mut view = View::default();
    assert!(view.on_heartbeat(leads(&state, 1, 5, &[(1, 5)]), 10));
    assert!(!view.on_heartbeat(leads(&state, 1, 4, &[]), 11));
    assert_eq!(view.heard(1).unwrap().at_ms, 10);
    let again = Heartbeat {
        start_count: 2,
        ..leads(&state, 1, 1, &[])
    };
    assert!(view.on_heartbeat(again, 12));
}

#[test]
fn orders_are_only_for_their_epoch_and_term() {
    let epoch = |members| Epoch {
        members,
        segments: 1,
    };
    let order = |action| Order::new(7, epoch(5), 3, action);
    let transfer = order(Action::TransferLeader(TransferLeader { to: 2 }));
    assert!(transfer.check(epoch(5), Some(3)).is_ok());
    assert_eq!(
        transfer.check(epoch(5), Some(4)),
        Err(OrderFault::NotThatLeader)
    );
    assert_eq!(
        transfer.check(epoch(5), None),
        Err(OrderFault::NotThatLeader)
    );
    assert!(matches!(
        transfer.check(epoch(6), Some(3)),
        Err(OrderFault::Stale { .. })
    ));
    let destroy = order(Action::Destroy(Destroy { replica: 2 }));
    assert!(destroy.check(epoch(4), None).is_ok());
    assert!(destroy.check(epoch(5), None).is_ok());
    assert!(destroy.check(epoch(6), None).is_err());
    assert_eq!(
        order(Action::Destroy(Destroy { replica: 2 })).id,
        destroy.id
    );
    assert_ne!(transfer.id, destroy.id);
    let unknown = Order {
        action: None,
        ..destroy
    };
    assert_eq!(unknown.check(epoch(5), None), Err(OrderFault::Unknown));
}

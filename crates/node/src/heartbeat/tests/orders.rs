//! What follows from an answer of meta's leader: replicas, routes, addresses, tables.

use base::cluster::META_REGION;
use keyspace::rows::Changes;
use meta::wire::{
    Catalogue, Destroy, Leadership, ReplicaReport, RouteRegion, RouteTable, TransferLeader,
};

use super::*;
use crate::replica_record::{put_gone, write};

fn destroy(region: RegionId, replica: u64) -> Order {
    let action = Action::Destroy(Destroy { replica });
    Order::new(region, Epoch::FIRST, 0, action)
}

fn transfer(region: RegionId) -> Order {
    let action = Action::TransferLeader(TransferLeader { to: 12 });
    Order::new(region, Epoch::FIRST, 1, action)
}

#[test]
fn replicas_are_made_unless_they_are_here_or_were_destroyed() {
    let mut node = Node::joined();
    node.here.borrow_mut().insert(1);
    let mut changes = Changes::new();
    put_gone(&mut changes, 2, 20);
    put_gone(&mut changes, 3, 30);
    write(&node.rows, &changes, || {}).unwrap();
    node.beat();
    let orders = vec![
        create(1, 12),
        create(2, 20),
        create(3, 31),
        create(4, 40),
        create(META_REGION, 3),
    ];
    let effects = node.answer(accepted(orders.clone()));
    let [
        HeartbeatEffect::TablesKnown,
        HeartbeatEffect::ToMeta(order),
        HeartbeatEffect::Create(records),
    ] = &*effects
    else {
        panic!("{effects:?}");
    };
    assert_eq!(**order, orders[4]);
    let made: Vec<_> = records.iter().map(|it| (it.region(), it.replica)).collect();
    assert_eq!(made, [(3, 31), (4, 40)]);
    assert_eq!(node.heartbeats.due_ms(), None);
    node.clock_ms = 1_300;
    assert!(node.done(Ok(())).is_empty());
    assert_eq!(node.heartbeats.due_ms(), Some(1_320));

    // The answer to orders that change nothing is a heartbeat, too.
    node.beat();
    let effects = node.answer(accepted(vec![create(1, 12)]));
    assert!(matches!(*effects, [HeartbeatEffect::TablesKnown]));
    assert_eq!(node.heartbeats.due_ms(), Some(1_320));

    node.beat();
    node.answer(accepted(vec![create(4, 40)]));
    let told = notices(&node.done(Err("no room")));
    assert_eq!(told, [HeartbeatNotice::NotCreated("no room".into())]);
    assert!(node.beat().orders.is_empty());
}

#[test]
fn orders_are_carried_out_one_by_one_and_failures_are_reported_once() {
    let mut node = Node::joined();
    node.here.borrow_mut().extend([1, 2]);
    node.beat();
    let orders = vec![
        create(1, 15),
        destroy(1, 11),
        transfer(META_REGION),
        transfer(2),
        transfer(8),
        destroy(9, 91),
    ];
    let effects = node.answer(accepted(orders.clone()));
    let [
        HeartbeatEffect::TablesKnown,
        HeartbeatEffect::Destroy { order, replica },
    ] = &*effects
    else {
        panic!("{effects:?}");
    };
    assert_eq!((&**order, *replica), (&orders[1], 11));
    // The region is free now: what is ordered with the same answer is made.
    node.here.borrow_mut().remove(&1);
    let effects = node.done(Ok(()));
    let [HeartbeatEffect::ToMeta(meta), HeartbeatEffect::Lead(order)] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!((&**meta, &**order), (&orders[2], &orders[3]));
    let effects = node.done(Err("does not lead"));
    assert!(matches!(&*effects, [HeartbeatEffect::Create(made)] if made[0].replica == 15));
    node.done(Ok(()));
    let reported: Vec<_> = node.beat().orders.into_iter().collect();
    let report = |order: &Order, text: &str| OrderReport {
        order: order.id,
        region: order.region,
        text: text.into(),
    };
    let expected = [
        report(&orders[3], "does not lead"),
        report(&orders[4], "no replica of this region is here"),
    ];
    assert_eq!(reported, expected);
    node.answer(accepted(Vec::new()));
    assert!(node.beat().orders.is_empty());
}

#[test]
fn addresses_are_kept_when_they_change() {
    let mut node = Node::joined();
    node.beat();
    let table = RouteTable {
        version: 7,
        full: true,
        regions: vec![RouteRegion {
            descriptor: Descriptor {
                members: vec![
                    Member::new(1, 8, Role::Voter),
                    Member::new(2, 9, Role::Voter),
                ],
                ..descriptor(META_REGION, 1)
            },
            leader: None,
        }],
        nodes: vec![route_node(2, "b"), route_node(8, "h"), route_node(9, "i")],
        ..RouteTable::default()
    };
    let told = HeartbeatAnswer {
        routes: Some(table),
        meta: vec![route_node(8, "h")],
        ..accepted(Vec::new())
    };
    let effects = node.answer(told.clone());
    let [
        HeartbeatEffect::PublishRoutes(routes),
        HeartbeatEffect::TablesKnown,
    ] = &*effects
    else {
        panic!("{effects:?}");
    };
    assert_eq!(routes.version(), 7);
    let elsewhere = heartbeat_elsewhere(routes);
    assert_eq!(elsewhere.standing(), Standing::NotLeader);
    let nodes: Vec<_> = elsewhere.meta.iter().map(|it| it.node).collect();
    assert_eq!(nodes, [8, 9]);
    let join = join_elsewhere(routes);
    assert!(join.retry && join.node == 0);
    assert_eq!(join.meta, [Address::new("h", 1), Address::new("i", 1)]);

    let kept = Identity::read(&node.rows).unwrap().unwrap();
    assert_eq!(kept, *node.heartbeats.identity());
    assert_eq!(kept.meta, ["h:1"]);
    assert_eq!(kept.nodes, ["2@b:1", "8@h:1", "9@i:1"]);

    // What is the same is not written again.
    node.rows = MapStore::new();
    assert_eq!(node.beat().route_version, 7);
    node.answer(told);
    assert_eq!(Identity::read(&node.rows), Ok(None));
}

#[test]
fn replicas_teach_the_routes_and_meta_is_spared_what_it_knows() {
    let mut node = Node::joined();
    let replica = |region, replica| ReplicaReport {
        region,
        replica,
        term: 4,
        leader: replica,
        epoch: Epoch::FIRST,
        descriptor: Some(descriptor(region, replica)),
        ..ReplicaReport::default()
    };
    let table = RouteTable {
        version: 1,
        regions: vec![RouteRegion {
            descriptor: descriptor(1, 11),
            leader: Some(Leadership {
                term: 4,
                replica: 11,
            }),
        }],
        ..RouteTable::default()
    };
    node.beat();
    node.answer(HeartbeatAnswer {
        routes: Some(table),
        ..accepted(Vec::new())
    });
    for is_news in [true, false] {
        node.due();
        let report = NodeReport {
            replicas: vec![replica(1, 11), replica(2, 21)],
            ..NodeReport::default()
        };
        let effects = node.report(report);
        let is_published = matches!(effects[0], HeartbeatEffect::PublishRoutes(_));
        assert_eq!(is_published, is_news);
        assert_eq!(node.heartbeats.routes().leader(2), Some(2));
        let said = heartbeat_in(&effects).replicas;
        assert_eq!(said[0].descriptor, None);
        assert_eq!(said[1].descriptor, Some(descriptor(2, 21)));
        node.answer(accepted(Vec::new()));
    }
}

#[test]
fn newer_tables_are_taken_and_a_refusal_is_told_once() {
    let mut node = Node::joined();
    let with_tables = |version| HeartbeatAnswer {
        tables: Some(Catalogue {
            version,
            ..Catalogue::default()
        }),
        ..accepted(Vec::new())
    };
    let at = |tables_version| NodeReport {
        tables_version,
        users_version: 0,
        ..NodeReport::default()
    };
    node.due();
    assert_eq!(heartbeat_in(&node.report(at(4))).tables_version, 4);
    assert!(matches!(
        *node.answer(with_tables(4)),
        [HeartbeatEffect::TablesKnown]
    ));
    assert_eq!(node.heartbeats.due_ms(), Some(2_000));
    for is_told in [true, false] {
        node.due();
        node.report(at(4));
        let effects = node.answer(with_tables(5));
        assert!(matches!(&*effects, [HeartbeatEffect::TakeTables(it)] if it.version == 5));
        let effects = node.done(Err("damaged"));
        assert_eq!(notices(&effects).len(), usize::from(is_told));
        assert!(matches!(effects.last(), Some(HeartbeatEffect::TablesKnown)));
        assert_eq!(node.heartbeats.due_ms(), Some(2_000));
    }
    node.due();
    node.report(at(4));
    node.answer(with_tables(5));
    node.done(Ok(()));
    assert_eq!(node.heartbeats.due_ms(), Some(1_020));
}

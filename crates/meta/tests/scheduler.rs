//! The scheduler in a model cluster: whatever happens, every region ends with its voters on live,
//! distinct nodes, evenly spread, and then there is quiet.

mod model;

use std::collections::{BTreeMap, BTreeSet};

use base::cluster::*;
use meta::leader::admin_answer;
use meta::state::{Change, ChangeSettings, SetTables, Settings, State};
use meta::wire::{AdminRequest, Ask, CatalogueAnswer, ReplicaMove, Reply};
use model::World;

fn labels(zone: &str) -> BTreeMap<String, String> {
    match zone {
        "" => BTreeMap::new(),
        zone => BTreeMap::from([("zone".to_owned(), zone.to_owned())]),
    }
}

fn settings(replicas: u32, regions: u32) -> Settings {
    Settings {
        replicas,
        regions,
        meta_replicas: 3,
    }
}

/// A cluster of `count` nodes that has come to rest.
fn cluster(seed: u64, count: u64, replicas: u32, regions: u32) -> World {
    let mut world = World::new(seed, settings(replicas, regions));
    world.run(1_000);
    for node in 2..=count {
        let host = format!("n{node}");
        while world.add_node(&host, &labels("")).is_none() {
            world.run(500);
        }
    }
    world.run(60_000);
    world
}

fn spread(counts: impl Iterator<Item = usize>) -> usize {
    let counts: Vec<usize> = counts.collect();
    counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0)
}

/// Everything is as it should be, on every level.
fn check_rest(world: &mut World, what: &str) {
    let up: Vec<NodeId> = world
        .nodes
        .iter()
        .filter(|(_, node)| node.alive)
        .map(|(id, _)| *id)
        .collect();
    for (id, node) in world.nodes.iter().filter(|(_, node)| node.alive) {
        let tables = world.state.tables().cloned().unwrap_or_default();
        assert_eq!(node.tables, tables, "{what}: node {id} has other tables");
    }
    let want = world.state.settings();
    let mut held: BTreeMap<NodeId, usize> = up.iter().map(|&node| (node, 0)).collect();
    let mut leads = held.clone();
    assert_eq!(world.regions.len(), want.regions as usize + 1, "{what}");
    for (&id, truth) in &world.regions {
        let descriptor = &truth.descriptor;
        let region = world.state.region(id).unwrap();
        assert_eq!(
            &region.descriptor, descriptor,
            "{what}: meta does not follow"
        );
        assert!(region.plans.is_empty(), "{what}: {region:?}");
        assert!(!descriptor.is_joint());
        assert_eq!(descriptor.learners().count(), 0, "{what}: {descriptor:?}");
        let nodes: BTreeSet<NodeId> = descriptor.members.iter().map(|m| m.node).collect();
        assert_eq!(nodes.len(), descriptor.members.len());
        let replicas = match id {
            META_REGION => want.meta_replicas as usize,
            _ => want.replicas as usize,
        };
        assert_eq!(nodes.len(), replicas, "{what}: {descriptor:?}");
        for node in &nodes {
            assert!(
                up.contains(node),
                "{what}: {descriptor:?} has a dead member"
            );
        }
        if id != META_REGION {
            for node in nodes {
                *held.get_mut(&node).unwrap() += 1;
            }
            let leader = descriptor.member(truth.leader.unwrap()).unwrap();
            *leads.get_mut(&leader.node).unwrap() += 1;
        }
    }
    let labelled = world.nodes.values().any(|node| !node.labels.is_empty());
    if !labelled {
        assert!(
            spread(held.values().copied()) <= 1,
            "{what}: replicas {held:?}"
        );
    }
    assert!(
        spread(leads.values().copied()) <= 1,
        "{what}: leaders {leads:?}"
    );
    for (id, node) in world.nodes.iter().filter(|(_, node)| node.alive) {
        let replicas = world
            .regions
            .values()
            .filter(|t| t.descriptor.member_on(*id).is_some());
        assert_eq!(
            node.replicas.len(),
            replicas.count(),
            "{what}: node {id} has rubbish"
        );
        let routed = node.routes.ranges();
        assert_eq!(
            routed
                .iter()
                .map(|range| range.slots.clone().count())
                .sum::<usize>(),
            16384
        );
        for truth in world
            .regions
            .values()
            .filter(|truth| truth.descriptor.region != 0)
        {
            let region = truth.descriptor.region;
            let leader = truth.descriptor.member(truth.leader.unwrap()).unwrap().node;
            assert_eq!(
                node.routes.leader(region),
                Some(leader),
                "{what}: routes of node {id}"
            );
        }
    }
    // And then there is quiet.
    world.activity = 0;
    world.run(30_000);
    let leader = world.leader.as_ref().unwrap();
    let busy: Vec<_> = leader.scheduler().operators().collect();
    assert_eq!(world.activity, 0, "{what}: no quiet: {busy:?}");
}

/// Same commands, same bytes; also with a snapshot in the middle.
fn check_history(world: &World) {
    let mut again = State::default();
    for (at, (command, stamp)) in world.history.iter().enumerate() {
        let bytes = command.to_bytes();
        let command = meta::state::Command::from_bytes(&bytes).unwrap();
        again.apply(&command, *stamp);
        if at == world.history.len() / 2 {
            again = State::decode(&again.encode()).unwrap();
        }
    }
    assert_eq!(again.encode(), world.state.encode());
    assert_eq!(again.hash(), world.state.hash());
}

#[test]
fn three_nodes_come_up() {
    let mut world = cluster(1, 3, 3, 12);
    check_rest(&mut world, "three nodes");
    check_history(&world);
}

#[test]
fn one_voter_per_region_moves_too() {
    let mut world = cluster(2, 3, 1, 9);
    check_rest(&mut world, "one voter each");
    world.add_node("n4", &labels("")).unwrap();
    world.run(60_000);
    check_rest(&mut world, "one voter each, fourth node");
}

#[test]
fn a_fourth_node_gets_its_share() {
    let mut world = cluster(3, 3, 3, 12);
    let node = world.add_node("n4", &labels("")).unwrap();
    world.run(90_000);
    check_rest(&mut world, "four nodes");
    assert_eq!(world.nodes[&node].replicas.keys().count(), 9);
}

#[test]
fn a_dead_node_is_rebuilt_or_waited_for() {
    let mut world = cluster(4, 3, 3, 12);
    world.kill(2);
    world.run(30_000);
    // Nowhere to go: all stays as it is.
    let descriptor = &world.regions[&1].descriptor;
    assert!(descriptor.member_on(2).is_some());
    assert_eq!(descriptor.learners().count(), 0);
    // The machine comes back with an empty disk.
    let node = world.add_node("n2", &labels("")).unwrap();
    world.run(100_000);
    check_rest(&mut world, "wiped node");
    assert_eq!(world.nodes[&node].replicas.len(), 13);
    assert!(!world.state.node(2).unwrap().is_up());
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_replicas() {
    let mut world = cluster(5, 4, 3, 12);
    check_rest(&mut world, "four nodes");
    let before: Vec<Descriptor> = world
        .regions
        .values()
        .map(|t| t.descriptor.clone())
        .collect();
    world.kill(3);
    world.run(5_000);
    assert!(world.restart(3, "elsewhere"));
    world.run(30_000);
    check_rest(&mut world, "node back elsewhere");
    let after: Vec<Descriptor> = world
        .regions
        .values()
        .map(|t| t.descriptor.clone())
        .collect();
    assert_eq!(before, after);
    assert_eq!(
        world.nodes[&1].routes.node(3).unwrap().peer.host,
        "elsewhere"
    );
}

#[test]
fn zones_are_kept_apart() {
    let mut world = World::new(6, settings(3, 10));
    world.run(1_000);
    // Node 1 has no zone. The third zone comes late.
    for (node, zone) in [(2, "a"), (3, "a"), (4, "b"), (5, "b")] {
        world.add_node(&format!("n{node}"), &labels(zone)).unwrap();
    }
    world.run(60_000);
    world.kill(1);
    world.run(60_000);
    world.add_node("n6", &labels("c")).unwrap();
    world.add_node("n7", &labels("c")).unwrap();
    world.run(200_000);
    for truth in world
        .regions
        .values()
        .filter(|t| t.descriptor.region != META_REGION)
    {
        let zones: BTreeSet<_> = truth
            .descriptor
            .members
            .iter()
            .map(|member| world.nodes[&member.node].labels.get("zone"))
            .collect();
        assert_eq!(zones.len(), 3, "{:?}", truth.descriptor);
    }
    check_rest(&mut world, "zones");
}

#[test]
fn more_and_fewer_replicas() {
    let mut world = cluster(7, 5, 3, 8);
    for replicas in [5, 3, 1, 3] {
        let change = ChangeSettings {
            replicas: Some(replicas),
            meta_replicas: Some(replicas),
        };
        world.apply(Change::ChangeSettings(change).into());
        world.run(120_000);
        check_rest(&mut world, &format!("{replicas} replicas"));
    }
}

fn ask(world: &mut World, ask: Ask) -> Reply {
    let request = AdminRequest { ask: Some(ask) };
    let leader = world.leader.as_mut().unwrap();
    let (answer, command) = leader.admin(&world.state, &request, world.now);
    let answer = match command {
        Some(command) => {
            let outcome = world.apply(command);
            admin_answer(answer, &outcome, &world.state)
        }
        None => answer,
    };
    answer.reply.unwrap()
}

fn ask_tables(world: &mut World, wanted: Ask) -> CatalogueAnswer {
    match ask(world, wanted) {
        Reply::Catalogue(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Until the region has no operator.
fn wait_for(world: &mut World, region: RegionId) {
    for _ in 0..80 {
        world.run(500);
        let mut operators = world.leader.as_ref().unwrap().scheduler().operators();
        if operators.all(|operator| operator.region != region) {
            return;
        }
    }
    panic!("region {region} is busy for ever");
}

#[test]
fn by_hand() {
    let mut world = cluster(8, 4, 3, 4);
    let truth = &world.regions[&1];
    let members = truth.descriptor.members.clone();
    let free = (1..=4)
        .find(|&node| truth.descriptor.member_on(node).is_none())
        .unwrap();
    let other = members
        .iter()
        .find(|m| Some(m.replica) != truth.leader)
        .unwrap();
    let region = 1;
    let node = other.node;

    let reply = ask(
        &mut world,
        Ask::TransferLeader(ReplicaMove { region, node }),
    );
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    wait_for(&mut world, 1);
    assert_eq!(world.regions[&1].leader, Some(other.replica));

    let add = Ask::AddReplica(ReplicaMove { region, node: free });
    assert!(matches!(ask(&mut world, add.clone()), Reply::Done(_)));
    let Reply::Refused(busy) = ask(&mut world, add) else {
        panic!("twice at once");
    };
    assert!(busy.contains("busy"), "{busy}");
    wait_for(&mut world, 1);
    assert_eq!(world.regions[&1].descriptor.voters().count(), 4);
    // The leader itself goes.
    let reply = ask(&mut world, Ask::RemoveReplica(ReplicaMove { region, node }));
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    wait_for(&mut world, 1);
    world.run(2_500);
    let descriptor = &world.regions[&1].descriptor;
    assert!(descriptor.member_on(node).is_none(), "{descriptor:?}");
    assert_eq!(descriptor.voters().count(), 3);
    assert!(!world.nodes[&node].replicas.contains_key(&other.replica));

    let Reply::Tables(tables) = ask(&mut world, Ask::Operators(true)) else {
        panic!("no tables");
    };
    assert!(
        tables
            .operators
            .iter()
            .any(|row| row.by_hand && row.ended && row.step == "done")
    );
    let Reply::Tables(tables) = ask(&mut world, Ask::Region(1)) else {
        panic!("no tables");
    };
    assert_eq!(tables.regions[0].health, "ok");
    assert_eq!(tables.regions[0].members.len(), 3);
    let Reply::Tables(tables) = ask(&mut world, Ask::Nodes(true)) else {
        panic!("no tables");
    };
    assert_eq!(tables.nodes.iter().map(|row| row.replicas).sum::<u64>(), 12);
    assert_eq!(tables.nodes.iter().map(|row| row.leaders).sum::<u64>(), 4);
    let reply = ask(&mut world, Ask::RemoveNode(2));
    assert!(
        matches!(&reply, Reply::Refused(why) if why.starts_with("node 2 is alive")),
        "{reply:?}"
    );
    assert!(
        world.state.node(2).unwrap().is_up(),
        "an alive node is not removed"
    );

    // With a dead voter the others are all needed.
    let victim = world.regions[&1].descriptor.members[0].node;
    world.kill(victim);
    world.run(4_000);
    let node = world.regions[&1].descriptor.members[1].node;
    let reply = ask(&mut world, Ask::RemoveReplica(ReplicaMove { region, node }));
    assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    world.run(90_000);
    check_rest(&mut world, "after the hand was off");
}

#[test]
fn tables_reach_every_node_that_lives() {
    let mut world = cluster(10, 3, 3, 3);
    let set = |expected_version, text: &str| {
        let bytes = text.as_bytes().to_vec();
        Ask::SetTables(SetTables {
            expected_version,
            bytes,
        })
    };
    let answer = ask_tables(&mut world, set(0, "one"));
    assert!(answer.was_set && answer.version == 1, "{answer:?}");
    let nodes_behind = |world: &mut World, version| -> Vec<NodeId> {
        let answer = ask_tables(world, Ask::Catalogue(version));
        answer.behind.iter().map(|node| node.node).collect()
    };
    assert_eq!(nodes_behind(&mut world, 1), [1, 2, 3]);
    // Those that live are woken for it, once.
    world.leader.as_mut().unwrap().tick(&world.state, world.now);
    let leader = world.leader.as_ref().unwrap();
    assert_eq!(leader.nodes_with_news().collect::<Vec<_>>(), [1, 2, 3]);
    world.run(3_000);
    assert_eq!(nodes_behind(&mut world, 1), []);

    // A change of what is not the newest shows the newest; the same again is the same.
    let lost = ask_tables(&mut world, set(0, "other"));
    assert!(!lost.was_set && lost.version == 1, "{lost:?}");
    assert_eq!(lost.newer.unwrap().bytes, b"one");
    assert!(ask_tables(&mut world, set(0, "one")).was_set);
    assert_eq!(world.state.tables_version(), 1);

    // One that is down is waited for until it counts as such, and learns it later.
    world.kill(3);
    ask_tables(&mut world, set(1, "two"));
    world.run(1_500);
    assert!(nodes_behind(&mut world, 2).contains(&3));
    world.run(4_000);
    assert_eq!(nodes_behind(&mut world, 2), []);
    assert_eq!(world.nodes[&3].tables.bytes, b"one");
    assert!(world.restart(3, "n3"));
    world.run(3_000);
    assert_eq!(world.nodes[&3].tables.bytes, b"two");

    // A new leader of meta does not know yet who has what.
    world.unseat_meta();
    world.run(1_000);
    while world.leader.is_none() {
        world.run(100);
    }
    world.run(3_000);
    assert_eq!(nodes_behind(&mut world, 2), []);
}

#[test]
fn a_cancelled_operator_leaves_nothing() {
    let mut world = cluster(9, 4, 3, 3);
    world.limits.rest_ms = 5_000;
    let descriptor = &world.regions[&1].descriptor;
    let node = (1..=4)
        .find(|&node| descriptor.member_on(node).is_none())
        .unwrap();
    ask(&mut world, Ask::AddReplica(ReplicaMove { region: 1, node }));
    world.run(2_500);
    assert!(matches!(ask(&mut world, Ask::Cancel(1)), Reply::Done(_)));
    assert!(matches!(ask(&mut world, Ask::Cancel(1)), Reply::Refused(_)));
    world.run(30_000);
    check_rest(&mut world, "cancelled");
}

#[test]
fn a_new_leader_of_meta_calls_nobody_dead_too_soon() {
    let mut world = cluster(10, 4, 3, 6);
    let dead_after = world.limits.dead_after_ms;
    world.kill(4);
    world.run(dead_after - 2_000);
    world.unseat_meta();
    world.run(4_000);
    assert!(
        world
            .regions
            .values()
            .all(|truth| truth.descriptor.learners().count() == 0)
    );
    world.run(60_000);
    check_rest(&mut world, "after the full time");
}

/// Seeds at random: nodes join, die, come back, lose their disks; messages are lost, doubled and
/// late; meta changes its leader in the middle of everything.
/// `META_SEEDS=1000 cargo test -p meta --test scheduler whatever` runs more of them.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test may be told how long to run"
)]
fn whatever_happens() {
    let seeds = std::env::var("META_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(10) {
        chaos(seed);
    }
}

fn chaos(seed: u64) {
    eprintln!("seed {seed}");
    let mut world = cluster(seed, 4, 3, 10);
    world.loss = 10;
    let mut hosts = 4;
    let mut last_kill = 0;
    for _ in 0..200 {
        world.run(1_000);
        let ids: Vec<NodeId> = world.nodes.keys().copied().collect();
        let node = ids[world.rng.usize(0..ids.len())];
        let (alive, host) = (world.nodes[&node].alive, world.nodes[&node].host.clone());
        let up = world.nodes.values().filter(|node| node.alive).count();
        match world.rng.u32(0..12) {
            // Long enough apart that the one before is known: `down_after`, and a late heartbeat
            // before it, and a late order after it. Two unknown deaths are one too many for anybody.
            0..=2 if alive && up > 3 && world.now > last_kill + 12_000 && world.can_lose(node) => {
                world.kill(node);
                last_kill = world.now;
            }
            3..=5 if !alive => {
                world.restart(node, &host);
            }
            // Two processes cannot have one address.
            6 if !alive && world.nodes.values().all(|n| !n.alive || n.host != host) => {
                world.add_node(&host, &labels(""));
            }
            7 if up < 6 => {
                hosts += 1;
                world.add_node(&format!("n{hosts}"), &labels(""));
            }
            8 => world.unseat_meta(),
            9 => {
                let expected_version = world.state.tables_version();
                let bytes = world.now.to_le_bytes().to_vec();
                let set = SetTables {
                    expected_version,
                    bytes,
                };
                world.apply(Change::SetTables(set).into());
            }
            _ => {}
        }
    }
    world.loss = 0;
    world.run(200_000);
    check_rest(&mut world, &format!("seed {seed}"));
    check_history(&world);
}

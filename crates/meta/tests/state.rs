//! The replicated state: joins and what may go wrong with them, bootstrap, plans, bytes.

use base::cluster::{Descriptor, Epoch, META_REGION, Member, Role};
use meta::state::*;
use meta::wire::{Address, Join, Profile};

const CLUSTER: u64 = 0xC1;

fn profile(host: &str, zone: &str) -> Profile {
    let mut profile = Profile {
        redis: Address::new(host, 6379),
        peer: Address::new(host, 16379),
        http_port: 8379,
        tls_port: 0,
        stores: true,
        metas: true,
        format: 1,
        ..Profile::default()
    };
    if !zone.is_empty() {
        profile.labels.insert("zone".into(), zone.into());
    }
    profile
}

fn join(node: u64, host: &str, token: u64, start_count: u64) -> Join {
    Join {
        cluster: if node == 0 { 0 } else { CLUSTER },
        node,
        token,
        start_count,
        profile: profile(host, ""),
        replace: 0,
    }
}

fn register(join: Join, alive: &[u64]) -> Command {
    Change::Register(Register {
        join,
        alive: alive.to_vec(),
    })
    .into()
}

fn founded(settings: Settings) -> State {
    let mut state = State::default();
    let found = Change::Found(Found {
        cluster: CLUSTER,
        settings,
        join: join(0, "a", 1, 1),
    });
    let outcome = state.apply(&found.into(), 1000);
    assert!(
        matches!(outcome, Outcome::Registered { node: 1, .. }),
        "{outcome:?}"
    );
    state
}

fn three_by_twelve() -> State {
    founded(Settings {
        replicas: 3,
        regions: 12,
        meta_replicas: 3,
    })
}

fn refused(outcome: Outcome) -> Refused {
    match outcome {
        Outcome::Refused(refused) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

/// Nodes 2 to `last` at hosts b, c, d …
fn with_nodes(state: &mut State, last: u64) {
    for node in 2..=last {
        let host = char::from(b'a' + node as u8 - 1).to_string();
        let outcome = state.apply(&register(join(0, &host, node, 1), &[]), 1000 + node);
        assert_eq!(
            outcome,
            Outcome::Registered {
                node,
                replaced: None
            }
        );
    }
}

#[test]
fn nothing_before_it_is_founded_and_founded_once() {
    let mut state = State::default();
    let outcome = state.apply(&register(join(0, "b", 2, 1), &[]), 0);
    assert_eq!(refused(outcome), Refused::NotFounded);
    assert_eq!(state, State::default());

    let mut state = three_by_twelve();
    assert_eq!(
        state.region(META_REGION).unwrap().descriptor.members.len(),
        1
    );
    let mut found = Found {
        cluster: CLUSTER,
        settings: state.settings(),
        join: join(0, "a", 1, 1),
    };
    let again = state.apply(&Change::Found(found.clone()).into(), 0);
    assert_eq!(again, Outcome::Unchanged);
    found.join.token = 9;
    let outcome = state.apply(&Change::Found(found).into(), 0);
    assert_eq!(refused(outcome), Refused::AlreadyFounded(CLUSTER));
}

#[test]
fn a_join_tried_again_makes_one_node() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 2);
    let before = state.hash();
    let outcome = state.apply(&register(join(0, "b", 2, 1), &[2]), 0);
    assert!(matches!(outcome, Outcome::Registered { node: 2, .. }));
    assert_eq!(state.hash(), before);
}

#[test]
fn a_node_comes_back_elsewhere_but_not_twice() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 3);
    // Elsewhere, while it is heard of at the old address.
    let outcome = state.apply(&register(join(2, "x", 20, 2), &[1, 2, 3]), 0);
    let refusal = refused(outcome);
    assert!(matches!(refusal, Refused::AliveElsewhere { node: 2, .. }));
    assert!(refusal.passes());
    // Silent for a while: fine.
    let version = state.route_version();
    let outcome = state.apply(&register(join(2, "x", 20, 2), &[1, 3]), 0);
    assert!(matches!(outcome, Outcome::Registered { node: 2, .. }));
    assert_eq!(state.node(2).unwrap().profile.peer.host, "x");
    assert!(state.route_version() > version);
    // At its own address a quick restart is fine, though the last heartbeat is young.
    let outcome = state.apply(&register(join(2, "x", 21, 3), &[1, 2, 3]), 0);
    assert!(matches!(outcome, Outcome::Registered { node: 2, .. }));
    // The same start by another process, and an old copy.
    let outcome = state.apply(&register(join(2, "x", 22, 3), &[1, 3]), 0);
    assert_eq!(refused(outcome), Refused::CopiedDirectory { node: 2 });
    let outcome = state.apply(&register(join(2, "x", 23, 2), &[1, 3]), 0);
    assert!(matches!(
        refused(outcome),
        Refused::OldDirectory {
            started: 2,
            known: 3,
            ..
        }
    ));
    // To the address of somebody who is alive.
    let outcome = state.apply(&register(join(2, "c", 24, 4), &[1, 3]), 0);
    assert!(matches!(
        refused(outcome),
        Refused::AddressInUse { node: 3, .. }
    ));
}

#[test]
fn a_wiped_node_replaces_itself_when_it_is_silent() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 3);
    let outcome = state.apply(&register(join(0, "c", 30, 1), &[1, 2, 3]), 0);
    assert!(matches!(
        refused(outcome),
        Refused::AddressInUse { node: 3, .. }
    ));
    let outcome = state.apply(&register(join(0, "c", 30, 1), &[1, 2]), 0);
    assert_eq!(
        outcome,
        Outcome::Registered {
            node: 4,
            replaced: Some(3)
        }
    );
    assert_eq!(state.node(3).unwrap().state(), NodeState::Replaced);
    // While the new one is alive its address is taken; at another one, or after it, the old one with its data is itself again.
    let outcome = state.apply(&register(join(3, "c", 31, 9), &[1, 2, 4]), 0);
    assert!(matches!(
        refused(outcome),
        Refused::AddressInUse { node: 4, .. }
    ));
    let outcome = state.apply(&register(join(3, "c", 31, 9), &[1, 2]), 0);
    assert!(matches!(outcome, Outcome::Registered { node: 3, .. }));
    assert!(state.node(3).unwrap().is_up());
    // An old copy of its directory is as bad as ever.
    let outcome = state.apply(&register(join(3, "c", 32, 8), &[1, 2]), 0);
    assert!(matches!(refused(outcome), Refused::OldDirectory { .. }));
}

/// It died before it heard of its id, and has the same token at its next start.
#[test]
fn a_newcomer_that_died_before_it_was_answered_may_join_and_come_back() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 3);
    let outcome = state.apply(&register(join(0, "c", 3, 2), &[1, 2]), 0);
    assert_eq!(
        outcome,
        Outcome::Registered {
            node: 4,
            replaced: Some(3)
        }
    );
    let before = state.hash();
    for node in [0, 4] {
        let outcome = state.apply(&register(join(node, "c", 3, 2), &[1, 2, 4]), 0);
        assert!(matches!(outcome, Outcome::Registered { node: 4, .. }));
    }
    assert_eq!(state.hash(), before);
}

#[test]
fn bad_joins_have_clear_words() {
    let mut state = three_by_twelve();
    let before = state.hash();
    let wrong = Join {
        cluster: 0xBAD,
        ..join(5, "b", 2, 1)
    };
    let text = refused(state.apply(&register(wrong, &[]), 0)).to_string();
    assert!(text.contains("0000000000000bad"), "{text}");
    let mut old = join(0, "b", 2, 1);
    old.profile.format = 0;
    assert!(matches!(
        refused(state.apply(&register(old, &[]), 0)),
        Refused::OldFormat { .. }
    ));
    assert!(matches!(
        refused(state.apply(&register(join(0, "", 2, 1), &[]), 0)),
        Refused::BadJoin(_)
    ));
    assert!(matches!(
        refused(state.apply(&register(join(77, "b", 2, 1), &[]), 0)),
        Refused::UnknownNode(77)
    ));
    assert_eq!(
        refused(state.apply(&Command::default(), 0)),
        Refused::UnknownCommand
    );
    assert_eq!(state.hash(), before);
}

#[test]
fn bootstrap_covers_all_slots_evenly() {
    for (nodes, replicas, regions) in [(3, 3, 12), (5, 3, 16), (1, 1, 1), (4, 2, 7), (3, 3, 16384)]
    {
        let mut state = founded(Settings {
            replicas,
            regions,
            meta_replicas: 1,
        });
        with_nodes(&mut state, nodes);
        let all: Vec<u64> = (1..=nodes).collect();
        let bootstrap: Command = Change::Bootstrap(Bootstrap { nodes: all.clone() }).into();
        assert_eq!(
            state.apply(&bootstrap, 5),
            Outcome::Bootstrapped { regions }
        );
        assert_eq!(
            refused(state.apply(&bootstrap, 6)),
            Refused::AlreadyBootstrapped
        );
        let mut owners = vec![0u32; 16384];
        let mut held = vec![0u32; nodes as usize + 1];
        let mut leads = vec![0u32; nodes as usize + 1];
        for region in state.data_regions() {
            for slot in region.descriptor.segments[0].slots() {
                owners[usize::from(slot)] += 1;
            }
            assert_eq!(region.descriptor.members.len(), replicas as usize);
            for member in &region.descriptor.members {
                held[member.node as usize] += 1;
            }
            let leader = region.descriptor.member(region.preferred).unwrap();
            leads[leader.node as usize] += 1;
        }
        assert!(owners.iter().all(|&count| count == 1));
        for counts in [&held[1..], &leads[1..]] {
            let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
            assert!(spread <= 1, "{counts:?}");
        }
    }
}

#[test]
fn bootstrap_spreads_over_zones_and_needs_nodes() {
    let mut state = three_by_twelve();
    let bootstrap = |nodes: Vec<u64>| -> Command { Change::Bootstrap(Bootstrap { nodes }).into() };
    assert!(matches!(
        refused(state.apply(&bootstrap(vec![1]), 5)),
        Refused::TooFewNodes { have: 1, need: 3 }
    ));
    // Node 1 has no zone; 2 and 3 are in a, 4 and 5 in b.
    for (node, zone) in [(2, "a"), (3, "a"), (4, "b"), (5, "b")] {
        let mut join = join(0, &format!("h{node}"), node, 1);
        join.profile.labels.insert("zone".into(), zone.into());
        state.apply(&register(join, &[]), 0);
    }
    state.apply(&bootstrap((1..=5).collect()), 5);
    for region in state.data_regions() {
        let zones: std::collections::BTreeSet<_> = region
            .descriptor
            .members
            .iter()
            .map(|member| state.node(member.node).unwrap().profile.labels.get("zone"))
            .collect();
        assert_eq!(zones.len(), 3, "{:?}", region.descriptor);
    }
}

#[test]
fn a_plan_lives_until_its_replica_votes() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 4);
    let nodes = vec![1, 2, 3];
    state.apply(&Change::Bootstrap(Bootstrap { nodes }).into(), 5);
    let founders = state.region(1).unwrap().descriptor.clone();
    let plan = PlanReplica {
        region: 1,
        node: 4,
        replaces: founders.members[0].replica,
        purpose: Purpose::Repair.into(),
    };
    let Outcome::Planned { replica } = state.apply(&Change::PlanReplica(plan).into(), 6) else {
        panic!("not planned");
    };
    let again = refused(state.apply(&Change::PlanReplica(plan).into(), 6));
    assert_eq!(again, Refused::AlreadyThere { region: 1, node: 4 });

    let created = Change::ReplicasCreated(ReplicasCreated {
        replicas: vec![
            Created { region: 1, replica },
            Created {
                region: 1,
                replica: founders.members[1].replica,
            },
        ],
    });
    assert_eq!(state.apply(&created.clone().into(), 7), Outcome::Changed);
    assert_eq!(state.apply(&created.into(), 8), Outcome::Unchanged);
    // Of four plans the founder's that was seen is gone.
    assert_eq!(state.region(1).unwrap().plans.len(), 3);

    let mut now = founders.clone();
    now.epoch.members += 1;
    now.members.push(Member::new(replica, 4, Role::Learner));
    let changed = |descriptor: &Descriptor| -> Command {
        Change::MembersChanged(MembersChanged {
            descriptors: vec![descriptor.clone()],
        })
        .into()
    };
    assert_eq!(state.apply(&changed(&now), 9), Outcome::Changed);
    assert_eq!(state.apply(&changed(&founders), 9), Outcome::Unchanged);
    assert_eq!(
        state.region(1).unwrap().plan(replica).unwrap().stage(),
        Stage::Joined
    );
    let forget = ForgetReplica { region: 1, replica };
    let outcome = state.apply(&Change::ForgetReplica(forget).into(), 9);
    assert_eq!(refused(outcome), Refused::NotPlanned(replica));

    now.epoch.members += 1;
    now.members.remove(0);
    now.members.last_mut().unwrap().role = Role::Voter.into();
    state.apply(&changed(&now), 10);
    let region = state.region(1).unwrap();
    assert!(region.plan(replica).is_none());
    assert_eq!(region.descriptor, now);
    // The founder that was removed before its node had it is not to be made any more.
    assert_eq!(region.plans.len(), 1);

    let mut foreign = now.clone();
    foreign.epoch.members += 1;
    foreign.members.push(Member::new(999_999, 4, Role::Learner));
    let outcome = state.apply(&changed(&foreign), 10);
    assert_eq!(refused(outcome), Refused::UnknownReplica(1, 999_999));
}

#[test]
fn blocks_of_numbers_rise_and_are_given_once() {
    let mut state = three_by_twelve();
    let mut take = |count| {
        let allocate = AllocateIds {
            sequence: "orders".into(),
            count,
        };
        state.apply(&Change::AllocateIds(allocate).into(), 0)
    };
    assert_eq!(
        take(100),
        Outcome::Ids {
            first: 1,
            count: 100
        }
    );
    assert_eq!(
        take(1),
        Outcome::Ids {
            first: 101,
            count: 1
        }
    );
    assert!(matches!(refused(take(u64::MAX)), Refused::TooMany { .. }));
    assert_eq!(
        take(5),
        Outcome::Ids {
            first: 102,
            count: 5
        }
    );
}

#[test]
fn the_format_rises_when_all_can_read_it() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 2);
    let raise = |format| -> Command { Change::RaiseFormat(RaiseFormat { format }).into() };
    assert!(matches!(
        refused(state.apply(&raise(2), 0)),
        Refused::OldFormat { .. }
    ));
    for node in [1, 2] {
        let mut join = join(node, if node == 1 { "a" } else { "b" }, 70 + node, 2);
        join.profile.format = 2;
        state.apply(&register(join, &[]), 0);
    }
    assert_eq!(state.apply(&raise(2), 0), Outcome::Changed);
    assert_eq!(state.format(), 2);
}

#[test]
fn bytes_and_back_and_damage_is_seen() {
    let mut state = three_by_twelve();
    with_nodes(&mut state, 4);
    let nodes = vec![1, 2, 3, 4];
    state.apply(&Change::Bootstrap(Bootstrap { nodes }).into(), 5);
    let bytes = state.encode();
    let back = State::decode(&bytes).unwrap();
    assert_eq!(back, state);
    assert_eq!(back.encode(), bytes);
    assert_eq!(back.hash(), state.hash());
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(State::decode(&damaged).is_err(), "byte {at}");
    }
    assert!(State::decode(b"").is_err());
    assert!(State::decode(&bytes[..20]).is_err());
    assert_eq!(
        State::default(),
        State::decode(&State::default().encode()).unwrap()
    );
    assert_eq!(state.region(3).unwrap().descriptor.epoch, Epoch::FIRST);
}

#[test]
fn tables_change_one_after_the_other() {
    let mut state = three_by_twelve();
    let old = state.encode();
    assert_eq!(old[6..8], [1, 0], "written as before there were tables");
    let set = |expected_version, bytes: &[u8]| -> Command {
        let bytes = bytes.to_vec();
        let change = Change::SetTables(SetTables {
            expected_version,
            bytes,
        });
        let command = Command::from_bytes(&Command::from(change).to_bytes());
        command.unwrap()
    };
    assert_eq!(state.tables_version(), 0);
    let ahead = state.apply(&set(1, b"a"), 0);
    assert_eq!(refused(ahead), Refused::OtherTables { version: 0 });
    let first = Outcome::TablesSet { version: 1 };
    assert_eq!(state.apply(&set(0, b"a"), 0), first);
    assert_eq!(state.apply(&set(0, b"a"), 0), first, "tried again");
    let other = state.apply(&set(0, b"b"), 0);
    assert_eq!(refused(other), Refused::OtherTables { version: 1 });
    let never = state.apply(&set(u64::MAX, b"b"), 0);
    assert_eq!(refused(never), Refused::OtherTables { version: 1 });
    let large = state.apply(&set(1, &vec![0; 9 << 20]), 0);
    assert!(matches!(refused(large), Refused::CatalogueTooLarge { .. }));
    assert_eq!(state.tables().unwrap().bytes, b"a");
    assert_eq!(state.tables_since(1), None);
    assert_eq!(state.tables_since(0).unwrap().version, 1);

    let bytes = state.encode();
    assert_eq!(bytes[6..8], [2, 0], "written as before there were users");
    assert_eq!(State::decode(&bytes).unwrap(), state);
    assert_eq!(State::decode(&old).unwrap().tables(), None);
}

#[test]
fn users_change_one_after_the_other() {
    let mut state = three_by_twelve();
    let old = state.encode();
    let set = |expected_version, bytes: &[u8]| -> Command {
        let bytes = bytes.to_vec();
        let change = Change::SetUsers(SetUsers {
            expected_version,
            bytes,
        });
        let command = Command::from_bytes(&Command::from(change).to_bytes());
        command.unwrap()
    };
    assert_eq!(state.users_version(), 0);
    let first = Outcome::UsersSet { version: 1 };
    assert_eq!(state.apply(&set(0, b"a"), 0), first);
    assert_eq!(state.apply(&set(0, b"a"), 0), first, "tried again");
    let other = state.apply(&set(0, b"b"), 0);
    assert_eq!(refused(other), Refused::OtherUsers { version: 1 });
    let never = state.apply(&set(u64::MAX, b"b"), 0);
    assert_eq!(refused(never), Refused::OtherUsers { version: 1 });
    let large = state.apply(&set(1, &vec![0; 9 << 20]), 0);
    assert!(matches!(refused(large), Refused::UsersTooLarge { .. }));
    assert_eq!(state.users().unwrap().bytes, b"a");
    assert_eq!(state.users_since(1), None);
    assert_eq!(state.users_since(0).unwrap().version, 1);
    assert_eq!(state.tables_version(), 0, "tables are another thing");

    let bytes = state.encode();
    assert_eq!(bytes[6..8], FORMAT.to_le_bytes());
    assert_eq!(State::decode(&bytes).unwrap(), state);
    assert_eq!(State::decode(&old).unwrap().users(), None);
}

//! A node without threads or sockets: whom it asks, and what it makes of the answers.

mod orders;

use std::cell::RefCell;
use std::collections::BTreeSet;

use base::cluster::{Descriptor, Epoch, Member, RegionId, Role};
use keyspace::rows::MapStore;
use meta::wire::{Action, Address, Create, Order, RouteNode};

use super::*;

/// A node with id 2, and the moment it is at.
struct Node {
    heartbeats: Heartbeats,
    rows: MapStore,
    here: RefCell<BTreeSet<RegionId>>,
    clock_ms: u64,
    now_ms: u64,
}

impl Node {
    fn new() -> Node {
        let open = OpenHeartbeats {
            identity: Identity {
                cluster: 5,
                node: 2,
                start_count: 3,
                meta: vec!["a:1".into(), "b:1".into()],
                nodes: ["1@a:1", "2@b:1", "3@c:1", "4@d:1"]
                    .map(String::from)
                    .into(),
                ..Identity::default()
            },
            token: 9,
            profile: Profile::default(),
            join: vec!["j:1".into(), "a:1".into()],
            clock_ms: 1_000,
        };
        Node {
            heartbeats: open.open(),
            rows: MapStore::new(),
            here: RefCell::default(),
            clock_ms: 1_000,
            now_ms: 1_000_000,
        }
    }

    /// One that meta has accepted before, and that is about to ask.
    fn joined() -> Node {
        let mut node = Node::new();
        node.heartbeats.has_joined = true;
        node
    }

    fn on(
        &mut self,
        event: impl FnOnce(&mut Heartbeats, &HeartbeatContext<'_>, &mut Vec<HeartbeatEffect>),
    ) -> Vec<HeartbeatEffect> {
        let cx = HeartbeatContext {
            wall_ms: self.now_ms,
            clock_ms: self.clock_ms,
            rows: &self.rows,
            pause: || {},
            is_here: &|region| self.here.borrow().contains(&region),
        };
        let mut out = Vec::new();
        event(&mut self.heartbeats, &cx, &mut out);
        out
    }

    fn due(&mut self) -> Vec<HeartbeatEffect> {
        self.on(|it, cx, out| it.on_due(cx, out))
    }

    fn report(&mut self, report: NodeReport) -> Vec<HeartbeatEffect> {
        self.on(|it, cx, out| it.on_report(Some(report), cx, out))
    }

    /// Up to the first question of a heartbeat.
    fn beat(&mut self) -> Heartbeat {
        assert!(matches!(*self.due(), [HeartbeatEffect::Report]));
        heartbeat_in(&self.report(NodeReport::default()))
    }

    fn answer(&mut self, answer: HeartbeatAnswer) -> Vec<HeartbeatEffect> {
        let answer = MetaAnswer::Heartbeat(Box::new(answer));
        self.on(|it, cx, out| it.on_answer(answer, cx, out))
    }

    fn join_answer(&mut self, answer: JoinAnswer) -> Vec<HeartbeatEffect> {
        let answer = MetaAnswer::Join(Box::new(answer));
        self.on(|it, cx, out| it.on_answer(answer, cx, out))
    }

    fn no_answer(&mut self) -> Vec<HeartbeatEffect> {
        self.on(|it, cx, out| it.on_no_answer(cx, out))
    }

    fn done(&mut self, result: Result<(), &str>) -> Vec<HeartbeatEffect> {
        let result = result.map_err(String::from);
        self.on(|it, cx, out| it.on_done(result, cx, out))
    }

    /// Nobody answers; whom it asked, beginning with those in `effects`.
    fn asked_in_vain(&mut self, mut effects: Vec<HeartbeatEffect>) -> Vec<String> {
        let mut asked = Vec::new();
        while let Some(target) = asked_in(&effects) {
            asked.push(target);
            effects = self.no_answer();
        }
        asked
    }
}

fn asked_in(effects: &[HeartbeatEffect]) -> Option<String> {
    match effects.last()? {
        HeartbeatEffect::Ask { target, .. } => Some(match target {
            MetaTarget::ThisNode => "itself".into(),
            MetaTarget::Address(address) => address.clone(),
        }),
        _ => None,
    }
}

fn heartbeat_in(effects: &[HeartbeatEffect]) -> Heartbeat {
    match effects.last() {
        Some(HeartbeatEffect::Ask { call, .. }) => match &**call {
            MetaCall::Heartbeat(heartbeat) => heartbeat.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn notices(effects: &[HeartbeatEffect]) -> Vec<HeartbeatNotice> {
    let notices = effects.iter().filter_map(|effect| match effect {
        HeartbeatEffect::Notice(notice) => Some(notice.clone()),
        _ => None,
    });
    notices.collect()
}

fn answer(standing: Standing) -> HeartbeatAnswer {
    HeartbeatAnswer {
        standing: standing.into(),
        ..HeartbeatAnswer::default()
    }
}

fn accepted(orders: Vec<Order>) -> HeartbeatAnswer {
    HeartbeatAnswer {
        orders,
        ..answer(Standing::Accepted)
    }
}

fn route_node(node: u64, host: &str) -> RouteNode {
    RouteNode {
        node,
        peer: Address::new(host, 1),
        ..RouteNode::default()
    }
}

fn descriptor(region: RegionId, replica: u64) -> Descriptor {
    Descriptor {
        region,
        epoch: Epoch::FIRST,
        segments: Vec::new(),
        members: vec![Member::new(replica, 2, Role::Voter)],
    }
}

fn create(region: RegionId, replica: u64) -> Order {
    let action = Action::Create(Create {
        descriptor: descriptor(region, replica),
        replica,
        campaign: false,
    });
    Order::new(region, Epoch::FIRST, 0, action)
}

#[test]
fn a_node_that_comes_back_joins_and_reports_at_once() {
    let mut node = Node::new();
    assert_eq!(node.heartbeats.due_ms(), Some(1_000));
    let effects = node.due();
    let [HeartbeatEffect::Ask { target, call }] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!(*target, MetaTarget::ThisNode);
    let MetaCall::Join(join) = &**call else {
        panic!("{call:?}");
    };
    let said = (join.cluster, join.node, join.token, join.start_count);
    assert_eq!(said, (5, 2, 9, 3));
    assert_eq!(node.heartbeats.due_ms(), None);
    assert!(node.due().is_empty());

    let elsewhere = JoinAnswer {
        retry: true,
        leader: Some(Address::new("x", 1)),
        meta: vec![Address::new("a", 1), Address::new("y", 1)],
        ..JoinAnswer::default()
    };
    assert_eq!(asked_in(&node.join_answer(elsewhere)), Some("a:1".into()));
    assert_eq!(asked_in(&node.no_answer()), Some("b:1".into()));
    let ours = JoinAnswer {
        node: 2,
        ..JoinAnswer::default()
    };
    assert!(matches!(*node.join_answer(ours), [HeartbeatEffect::Report]));
    let heartbeat = heartbeat_in(&node.report(NodeReport::default()));
    let said = (heartbeat.cluster, heartbeat.node, heartbeat.start_count);
    assert_eq!((said, heartbeat.number), ((5, 2, 3), 1));
    assert!(matches!(
        *node.answer(accepted(Vec::new())),
        [HeartbeatEffect::TablesKnown]
    ));
    assert_eq!(node.heartbeats.due_ms(), Some(2_000));
}

#[test]
fn all_who_may_know_are_asked_the_likeliest_first_and_another_node_in_turn() {
    let mut node = Node::new();
    for other in ["c:1", "d:1", "c:1"] {
        let first = node.due();
        let asked = node.asked_in_vain(first);
        assert_eq!(asked, ["itself", "a:1", "b:1", "j:1", other]);
    }
    node.heartbeats.has_joined = true;
    node.heartbeats.leader = Some(MetaTarget::Address("b:1".into()));
    node.due();
    let first = node.report(NodeReport::default());
    let asked = node.asked_in_vain(first);
    assert_eq!(asked, ["b:1", "itself", "a:1", "j:1", "d:1"]);
    assert_eq!(node.heartbeats.leader, None);
    assert_eq!(node.heartbeats.due_ms(), Some(2_000));

    // Whom the others name is asked behind them, once.
    node.beat();
    let not_leader = HeartbeatAnswer {
        meta: vec![route_node(1, "a"), route_node(7, "x")],
        ..answer(Standing::NotLeader)
    };
    let next = node.answer(not_leader);
    let asked = node.asked_in_vain(next);
    assert_eq!(asked, ["a:1", "b:1", "j:1", "c:1", "x:1"]);
}

#[test]
fn a_leader_that_is_named_is_asked_next_but_only_once() {
    let mut node = Node::joined();
    let named = |host: &str| HeartbeatAnswer {
        leader: Some(route_node(7, host)),
        ..answer(Standing::NotLeader)
    };
    node.beat();
    // One that was to be asked later, one that is new, and one that did not answer.
    let effects = node.answer(named("b"));
    assert_eq!(asked_in(&effects), Some("b:1".into()));
    assert_eq!(heartbeat_in(&effects).number, 1);
    let effects = node.answer(named("x"));
    assert_eq!(asked_in(&effects), Some("x:1".into()));
    assert_eq!(asked_in(&node.no_answer()), Some("a:1".into()));
    let next = node.answer(named("x"));
    assert_eq!(node.asked_in_vain(next), ["j:1", "c:1"]);

    node.beat();
    node.answer(named("x"));
    node.answer(accepted(Vec::new()));
    node.due();
    let effects = node.report(NodeReport::default());
    assert_eq!(asked_in(&effects), Some("x:1".into()));
}

#[test]
fn a_trigger_brings_the_next_heartbeat_forward() {
    let mut node = Node::joined();
    node.beat();
    node.answer(accepted(Vec::new()));
    node.heartbeats.on_heartbeat_trigger(1_500);
    assert_eq!(node.heartbeats.due_ms(), Some(1_520));
    node.heartbeats.on_heartbeat_trigger(1_510);
    assert_eq!(node.heartbeats.due_ms(), Some(1_520));
    node.clock_ms = 1_520;
    node.beat();
    // While it waits for an answer, too.
    node.heartbeats.on_heartbeat_trigger(1_530);
    assert_eq!(node.heartbeats.due_ms(), None);
    node.answer(accepted(Vec::new()));
    assert_eq!(node.heartbeats.due_ms(), Some(1_550));
}

#[test]
fn a_node_that_is_too_busy_to_report_sends_nothing() {
    let mut node = Node::joined();
    node.due();
    assert!(
        node.on(|it, cx, out| it.on_report(None, cx, out))
            .is_empty()
    );
    assert_eq!(node.heartbeats.due_ms(), Some(1_020));
    assert_eq!(node.beat().number, 1);
}

#[test]
fn a_node_that_meta_does_not_know_joins_again() {
    let mut node = Node::joined();
    node.beat();
    assert!(node.answer(answer(Standing::Unknown)).is_empty());
    assert_eq!(node.heartbeats.due_ms(), Some(1_020));
    let effects = node.due();
    let [HeartbeatEffect::Ask { call, .. }] = &*effects else {
        panic!("{effects:?}");
    };
    assert!(matches!(**call, MetaCall::Join(_)));
}

#[test]
fn a_node_that_is_not_wanted_stops_and_asks_no_more() {
    for standing in [Standing::Superseded, Standing::Gone, Standing::WrongCluster] {
        let mut node = Node::joined();
        node.beat();
        let effects = node.answer(HeartbeatAnswer {
            text: "why".into(),
            ..answer(standing)
        });
        assert!(matches!(&*effects, [HeartbeatEffect::Stop(why)] if why == "why"));
        node.heartbeats.on_heartbeat_trigger(1_001);
        assert_eq!(node.heartbeats.due_ms(), None);
        assert!(node.due().is_empty());
    }
    let mut node = Node::new();
    node.due();
    let refused = JoinAnswer {
        refused: "removed".into(),
        ..JoinAnswer::default()
    };
    let again = JoinAnswer {
        retry: true,
        ..refused.clone()
    };
    assert_eq!(asked_in(&node.join_answer(again)), Some("a:1".into()));
    assert!(matches!(
        *node.join_answer(refused),
        [HeartbeatEffect::Stop(_)]
    ));
}

#[test]
fn silence_clocks_and_a_full_disk_are_told_once() {
    let mut node = Node::joined();
    let mut told = Vec::new();
    for clock_ms in [1_000, 6_000, 6_001, 9_000] {
        node.clock_ms = clock_ms;
        node.beat();
        let mut effects = Vec::new();
        while !matches!(node.heartbeats.doing, Doing::Nothing) {
            effects = node.no_answer();
        }
        told.push(notices(&effects));
    }
    let silent = vec![HeartbeatNotice::MetaSilent];
    assert_eq!(told, [vec![], vec![], silent, vec![]]);

    let mut at = |wall_ms, now_ms| {
        node.now_ms = now_ms;
        node.beat();
        let answer = HeartbeatAnswer {
            wall_ms,
            ..accepted(Vec::new())
        };
        notices(&node.answer(answer))
    };
    let apart = |apart_ms, is_ahead| vec![HeartbeatNotice::ClocksApart { apart_ms, is_ahead }];
    assert_eq!(at(0, 50_000), [HeartbeatNotice::MetaAnswers]);
    assert_eq!(at(50_000, 51_000), []);
    assert_eq!(at(50_000, 51_001), apart(1_001, true));
    assert_eq!(at(50_000, 51_001), []);
    assert_eq!(at(50_000, 50_000), []);
    assert_eq!(at(60_000, 50_000), apart(10_000, false));

    let mut with_disk = |disk_bytes, disk_free_bytes| {
        node.due();
        let capacity = Capacity {
            disk_bytes,
            disk_free_bytes,
            ..Capacity::default()
        };
        let effects = node.report(NodeReport {
            capacity,
            ..NodeReport::default()
        });
        let is_full = heartbeat_in(&effects).capacity.disk_full;
        let told = notices(&effects).len();
        node.answer(accepted(Vec::new()));
        (is_full, told)
    };
    assert_eq!(with_disk(0, 0), (false, 0));
    assert_eq!(with_disk(5_000, 100), (false, 0));
    assert_eq!(with_disk(5_000, 99), (true, 1));
    assert_eq!(with_disk(5_000, 98), (true, 0));
    assert_eq!(with_disk(1 << 40, 1 << 30), (false, 0));
    assert_eq!(with_disk(1 << 40, (1 << 30) - 1), (true, 1));
}

#[test]
fn what_comes_unasked_changes_nothing() {
    let mut node = Node::joined();
    assert!(node.answer(accepted(vec![create(4, 40)])).is_empty());
    assert!(node.done(Ok(())).is_empty());
    assert!(node.report(NodeReport::default()).is_empty());
    assert!(node.no_answer().is_empty());
    assert_eq!(node.heartbeats.due_ms(), Some(1_000));
    // An answer to another question is none.
    node.beat();
    let effects = node.join_answer(JoinAnswer::default());
    assert_eq!(asked_in(&effects), Some("a:1".into()));
}

//! Three replicas in one thread: a network that loses, doubles and reorders, disks that forget
//! what was not synced. Everything follows from one seed, so a run can be had twice.

use std::collections::BTreeMap;

use replica::{Bytes, FOUNDED, Members, ReplicaConfig};
use replica::{Fetch, LogStore, LogWrite, MapLog, Message, MessageType, Ready, Refused, Replica};

const REGION: u64 = 3;
const NODES: [u64; 3] = [1, 2, 3];

struct Node {
    id: u64,
    log: MapLog,
    replica: Replica,
    /// Written and not synced: numbers to report.
    unsynced: Vec<u64>,
    fetch: Option<Fetch>,
    /// Index of the last entry applied, and a point before it that a restart begins at.
    applied: u64,
    durable: u64,
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    nodes: Vec<Node>,
    network: Vec<Message>,
    /// What anybody ever applied: all must agree.
    history: BTreeMap<u64, (u64, Bytes)>,
    leaders: BTreeMap<u64, u64>,
    trace: Vec<String>,
    fetches: u64,
    proposed: u64,
    now_ms: u64,
}

fn start(seed: u64, id: u64, applied: u64, now_ms: u64, log: &MapLog) -> Replica {
    let config = ReplicaConfig {
        region: REGION,
        replica: id,
        members: Members::of_voters(NODES),
        applied,
        snapshot: FOUNDED,
        seed,
        now_ms,
        // Small, so that promises are soon over by the clock.
        tick_ms: 10,
        // Small, so that everything old is fetched.
        batch_bytes: 200,
        recent_bytes: 400,
        ..ReplicaConfig::default()
    };
    Replica::new(config, log).unwrap()
}

impl World {
    fn new(seed: u64) -> World {
        let node = |id| {
            let log = MapLog::new();
            Node {
                id,
                replica: start(seed, id, 1, 0, &log),
                log,
                unsynced: Vec::new(),
                fetch: None,
                applied: 1,
                durable: 1,
            }
        };
        World {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            nodes: NODES.map(node).into(),
            network: Vec::new(),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            trace: Vec::new(),
            fetches: 0,
            proposed: 0,
            now_ms: 0,
        }
    }

    fn run_ready(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let mut out = Ready::default();
        while node.replica.has_ready() {
            node.replica.ready(&mut out);
            self.trace.push(format!("{} {out:?}", node.id));
            if let Some(term) = out.became_leader {
                let other = self.leaders.insert(term, node.id);
                assert_eq!(other, None, "two leaders of term {term}");
            }
            if let Some(write) = out.write.take() {
                let number = write.number;
                node.log.write(&[write], false).unwrap();
                node.unsynced.push(number);
            }
            self.network.append(&mut out.messages);
            for entry in out.committed.drain(..) {
                assert_eq!(entry.index, node.applied + 1);
                node.applied = entry.index;
                let seen = self
                    .history
                    .entry(entry.index)
                    .or_insert_with(|| (entry.term, entry.payload.clone()));
                assert_eq!(*seen, (entry.term, entry.payload), "seed {}", self.seed);
            }
            node.replica.on_applied(node.applied);
            if let Some(fetch) = out.fetch.take() {
                assert!(node.fetch.is_none(), "one fetch at a time");
                node.fetch = Some(fetch);
                self.fetches += 1;
            }
        }
    }

    fn sync(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.log.sync().unwrap();
        // Reports may come for some of the writes only.
        let told = self.rng.usize(..=node.unsynced.len());
        if let Some(&number) = node.unsynced[..told].last() {
            node.replica.on_persisted(number);
            node.unsynced.drain(..told);
        }
    }

    /// The clock goes on for all, a third of a tick.
    fn tick(&mut self, at: usize) {
        self.now_ms += 4;
        self.nodes[at].replica.tick(self.now_ms);
    }

    fn fetch(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if let Some(fetch) = node.fetch.take() {
            node.replica.fetch_now(&fetch, &node.log).unwrap();
        }
    }

    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let message = self
            .network
            .swap_remove(self.rng.usize(..self.network.len()));
        let node = &mut self.nodes[message.to as usize - 1];
        let text = format!("{message:?}");
        if let Err(error) = node.replica.step(message, self.now_ms) {
            panic!("{error}: {text}");
        }
    }

    fn propose(&mut self) {
        let at = self.rng.usize(..3);
        let replica = &mut self.nodes[at].replica;
        let payload = format!("proposal {}", self.proposed);
        match replica.propose(payload.into()) {
            Ok(()) => self.proposed += 1,
            Err(Refused::NotLeader { .. }) => assert!(!replica.is_leader()),
            Err(other) => panic!("{other}"),
        }
    }

    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let kept = self.rng.usize(..=node.unsynced.len());
        node.log.crash_keeping(kept);
        node.unsynced.clear();
        node.fetch = None;
        node.applied = node.durable;
        node.replica = start(self.seed, node.id, node.applied, self.now_ms, &node.log);
    }

    fn chaos(&mut self, steps: usize) {
        for _ in 0..steps {
            let at = self.rng.usize(..3);
            match self.rng.u32(..1000) {
                0..150 => self.tick(at),
                150..250 => self.propose(),
                250..400 => self.sync(at),
                400..450 => self.fetch(at),
                450..500 if !self.network.is_empty() => {
                    let lost = self.rng.usize(..self.network.len());
                    self.network.swap_remove(lost);
                }
                500..520 if !self.network.is_empty() => {
                    let doubled = self.rng.usize(..self.network.len());
                    self.network.push(self.network[doubled].clone());
                }
                520..522 => self.crash(at),
                522..530 => {
                    let node = &mut self.nodes[at];
                    node.durable = self.rng.u64(node.durable..=node.applied);
                }
                _ => self.deliver(),
            }
            self.run_ready(at);
        }
    }

    /// No more accidents: everything gets through, until all have applied the same.
    fn heal(&mut self) {
        for _ in 0..2000 {
            for at in 0..3 {
                self.tick(at);
                self.run_ready(at);
            }
            for _ in 0..20 {
                for _ in 0..self.network.len() {
                    self.deliver();
                }
                for at in 0..3 {
                    self.fetch(at);
                    self.sync(at);
                    self.run_ready(at);
                }
            }
            let last = self.history.last_key_value().map_or(0, |(&index, _)| index);
            let leader = self.nodes.iter().any(|node| node.replica.is_leader());
            let same = |node: &Node| node.applied == last && node.replica.last_index() == last;
            if leader && self.nodes.iter().all(same) {
                return;
            }
        }
        panic!("seed {}: they do not agree", self.seed);
    }
}

fn run(seed: u64, steps: usize) -> World {
    let mut world = World::new(seed);
    world.chaos(steps);
    world.heal();
    world
}

#[test]
fn they_agree_whatever_is_lost() {
    let mut total = (0, 0, 0);
    for seed in 0..60 {
        let world = run(seed, 4000);
        let logs = world.nodes.iter().map(|node| {
            let (first, last) = node.log.span(REGION).unwrap();
            node.log
                .entries(REGION, first, last + 1, usize::MAX)
                .unwrap()
        });
        let logs: Vec<_> = logs.collect();
        assert!(logs.iter().all(|log| *log == logs[0]), "seed {seed}");
        let texts = world
            .history
            .values()
            .filter(|(_, payload)| !payload.is_empty());
        total.0 += texts.count();
        total.1 += world.leaders.len();
        total.2 += world.fetches;
    }
    // The test is worth nothing if nothing happened.
    assert!(
        total.0 > 1000 && total.1 > 120 && total.2 > 100,
        "{total:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 77, 4711] {
        let (one, two) = (run(seed, 3000), run(seed, 3000));
        assert_eq!(one.trace.len(), two.trace.len());
        assert!(one.trace == two.trace, "seed {seed}");
    }
    assert_ne!(run(1, 1000).trace, run(2, 1000).trace);
}

/// A follower answers an append only when it has it on disk, also if it came twice.
#[test]
fn an_acknowledgement_never_overtakes_the_disk() {
    let mut world = World::new(5);
    world.heal();
    let leader = world
        .nodes
        .iter()
        .position(|n| n.replica.is_leader())
        .unwrap();
    world.network.clear();
    world.nodes[leader].replica.propose(b"x".to_vec()).unwrap();
    world.run_ready(leader);
    let index = world.nodes[leader].replica.last_index();
    let append = world
        .network
        .iter()
        .find(|message| !message.entries.is_empty());
    let append = append.unwrap().clone();
    world.network.clear();
    let follower = append.to as usize - 1;
    for _ in 0..2 {
        world.nodes[follower]
            .replica
            .step(append.clone(), 0)
            .unwrap();
        world.run_ready(follower);
        assert!(world.network.is_empty(), "not on disk yet");
    }
    let node = &mut world.nodes[follower];
    node.log.sync().unwrap();
    let number = node.unsynced.drain(..).next_back().unwrap();
    node.replica.on_persisted(number);
    world.run_ready(follower);
    let answers = world.network.iter().filter(|message| {
        message.get_msg_type() == MessageType::MsgAppendResponse && message.index == index
    });
    assert_eq!(answers.count(), 2);
}

/// A member that was cut off must not force an election when it comes back (pre-vote).
#[test]
fn a_member_that_was_cut_off_disturbs_nobody() {
    let mut world = World::new(9);
    world.heal();
    let leader = world
        .nodes
        .iter()
        .position(|n| n.replica.is_leader())
        .unwrap();
    let away = (leader + 1) % 3;
    let term = world.nodes[leader].replica.term();
    for _ in 0..200 {
        for at in 0..3 {
            world.tick(at);
            world.run_ready(at);
            world.sync(at);
            world.run_ready(at);
        }
        let id = world.nodes[away].id;
        world
            .network
            .retain(|message| message.to != id && message.from != id);
        for _ in 0..world.network.len() {
            world.deliver();
        }
        for at in 0..3 {
            world.run_ready(at);
        }
    }
    assert!(!world.nodes[away].replica.is_leader());
    world.heal();
    assert_eq!(world.nodes[leader].replica.term(), term);
    assert!(world.nodes[leader].replica.is_leader());
    // And a leader that was cut off itself steps down by itself (check-quorum).
    for _ in 0..40 {
        world.tick(leader);
        world.run_ready(leader);
        world.network.clear();
    }
    assert!(!world.nodes[leader].replica.is_leader());
    assert!(!world.nodes[leader].replica.may_serve(world.now_ms));
}

#[test]
fn mad_messages_are_refused() {
    let mut world = World::new(3);
    world.heal();
    let follower = world
        .nodes
        .iter()
        .position(|n| !n.replica.is_leader())
        .unwrap();
    let node = &mut world.nodes[follower];
    let leader = node.replica.leader().unwrap();
    let message = |kind: MessageType| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.to = node.id;
        message.from = leader;
        message.term = node.replica.term();
        message
    };
    let mut mad = Vec::new();
    let mut one = message(MessageType::MsgHeartbeat);
    one.commit = 1 << 40;
    mad.push(one);
    let mut one = message(MessageType::MsgHeartbeat);
    one.to = 9;
    mad.push(one);
    let mut one = message(MessageType::MsgHeartbeat);
    one.from = 0;
    mad.push(one);
    let mut one = message(MessageType::MsgHeartbeat);
    one.term = 0;
    mad.push(one);
    let mut one = message(MessageType::MsgHeartbeat);
    one.term = u64::MAX;
    mad.push(one);
    // Terms of entries that are not there count as zero in raft-rs.
    let mut one = message(MessageType::MsgAppend);
    one.index = 1000;
    let entry = replica::Entry {
        index: 1001,
        term: 1,
        ..Default::default()
    };
    one.set_entries(vec![entry].into());
    mad.push(one);
    let mut one = message(MessageType::MsgAppend);
    (one.index, one.log_term) = (node.replica.last_index(), node.replica.term());
    let mut entry = replica::Entry {
        index: one.index + 1,
        term: node.replica.term(),
        data: vec![255; 9].into(),
        ..Default::default()
    };
    entry.set_entry_type(replica::EntryType::EntryConfChangeV2);
    one.set_entries(vec![entry].into());
    mad.push(one);
    mad.push(message(MessageType::MsgTransferLeader));
    mad.push(message(MessageType::MsgPropose));
    mad.push(message(MessageType::MsgSnapshot));
    mad.push(message(MessageType::MsgHup));
    let mut one = message(MessageType::MsgAppend);
    let entry = replica::Entry {
        index: 77,
        ..Default::default()
    };
    one.set_entries(vec![entry].into());
    mad.push(one);
    let mut one = message(MessageType::MsgAppend);
    let entry = replica::Entry {
        index: 2,
        term: node.replica.term() + 1,
        ..Default::default()
    };
    one.term += 1;
    (one.index, one.log_term) = (1, 1);
    one.set_entries(vec![entry].into());
    mad.push(one);
    for message in mad {
        let text = format!("{message:?}");
        assert!(node.replica.step(message, 0).is_err(), "{text}");
    }
    world.heal();
}

#[test]
fn a_write_carries_what_a_restart_needs() {
    // A vote is given, its sync is done, the answer is sent, the node dies: it must not vote for
    // another in the same term.
    let log = MapLog::new();
    let mut replica = start(1, 1, 1, 0, &log);
    let vote = |from, term| {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgRequestVote);
        (message.from, message.to, message.term) = (from, 1, term);
        (message.index, message.log_term) = (10, 1);
        message
    };
    let mut out = Ready::default();
    replica.step(vote(2, 5), 0).unwrap();
    replica.ready(&mut out);
    assert!(out.messages.is_empty());
    let write: LogWrite = out.write.take().unwrap();
    log.write(std::slice::from_ref(&write), true).unwrap();
    replica.on_persisted(write.number);
    replica.ready(&mut out);
    assert!(!out.messages[0].reject);
    log.crash();
    let mut replica = start(1, 1, 1, 0, &log);
    assert_eq!(replica.term(), 5);
    replica.step(vote(3, 5), 100).unwrap();
    replica.ready(&mut out);
    assert!(out.write.is_none());
    assert!(out.messages[0].reject);
}

//! A small network of replicas in one thread, for scripts and for chance.
//!
//! Every node has a clock of its own (offset and rate), a disk that forgets what was not synced, and
//! a state machine that counts: every payload adds one. Time moves in steps of `STEP_MS`; messages
//! take `delay_ms`. Checked at every step, whatever the test is about:
//! - all apply the same entries,
//! - no two may serve under a lease at the same time,
//! - reads and writes see at least what any finished read or write saw (a counter that only grows:
//!   that is all linearizability asks).

#![allow(dead_code)] // each test uses a part

use std::collections::{BTreeMap, BTreeSet};

use replica::*;

pub const REGION: u64 = 3;
pub const STEP_MS: u64 = 10;

/// The state machine, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub count: u64,
    pub applied: u64,
    pub members: Members,
    pub snapshot: Position,
}

pub struct Node {
    pub id: u64,
    pub log: MapLog,
    /// None: it is down.
    pub replica: Option<Replica>,
    pub state: State,
    /// What a restart begins with.
    pub durable: State,
    /// Clock: offset, and how many of its milliseconds a thousand true ones are.
    pub clock: (u64, u64),
    next_tick_ms: u64,
    pub is_paused: bool,
    /// What came while it was paused.
    socket: Vec<Message>,
    /// Writes are synced at once; else by `sync`.
    pub syncs: bool,
    unsynced: Vec<u64>,
    fetch: Option<Fetch>,
    /// Own proposals: index, term, what had been seen when they were made.
    proposals: Vec<(u64, u64, u64)>,
    /// Reads that wait: number, what had been seen when they came, index once confirmed.
    reads: Vec<(u64, u64, Option<u64>)>,
    pub ticks: u64,
    /// Members to make snapshots for.
    pub wanted: BTreeSet<u64>,
}

pub struct Net {
    pub seed: u64,
    pub rng: fastrand::Rng,
    pub now_ms: u64,
    pub nodes: BTreeMap<u64, Node>,
    /// When it arrives.
    pub wire: Vec<(u64, Message)>,
    /// From, to.
    pub cuts: BTreeSet<(u64, u64)>,
    /// Who is not there, as all owners are told.
    pub absent: Vec<u64>,
    pub delay_ms: std::ops::Range<u64>,
    /// Of a thousand messages.
    pub lost: u32,
    pub doubled: u32,
    pub history: BTreeMap<u64, (u64, Bytes)>,
    pub leaders: BTreeMap<u64, u64>,
    /// The largest count that a finished read or write has seen.
    pub seen: u64,
    pub served: u64,
    pub failed: u64,
    pub acknowledged: u64,
    /// Most nodes that served at the same time. Asserted to be one, unless a test plants a fault.
    pub most_serving: usize,
    pub may_err: bool,
    /// A planted fault: starts do not know what time it is.
    pub forgets_start: bool,
    /// Makes and carries snapshots by itself.
    pub carries_snapshots: bool,
    pub installs: u64,
    pub config: ReplicaConfig,
    pub sent: BTreeMap<u64, u64>,
    /// By node: writes of nothing but a commit index.
    pub bare_writes: BTreeMap<u64, u64>,
    pub trace: Vec<String>,
}

impl Node {
    pub fn clock_ms(&self, now_ms: u64) -> u64 {
        self.clock.0 + now_ms * self.clock.1 / 1000
    }

    pub fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().unwrap()
    }
}

impl Net {
    /// A region founded with these voters.
    pub fn founded(seed: u64, voters: &[u64]) -> Net {
        let config = ReplicaConfig {
            region: REGION,
            seed,
            batch_bytes: 200,
            recent_bytes: 400,
            message_bytes: 300,
            quiet_ticks: 0,
            keep_entries: 1000,
            ..ReplicaConfig::default()
        };
        let mut net = Net {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 10_000,
            nodes: BTreeMap::new(),
            wire: Vec::new(),
            cuts: BTreeSet::new(),
            absent: Vec::new(),
            delay_ms: 5..6,
            lost: 0,
            doubled: 0,
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            seen: 0,
            served: 0,
            failed: 0,
            acknowledged: 0,
            most_serving: 0,
            may_err: false,
            forgets_start: false,
            carries_snapshots: true,
            installs: 0,
            config,
            sent: BTreeMap::new(),
            bare_writes: BTreeMap::new(),
            trace: Vec::new(),
        };
        for &id in voters {
            let state = State {
                applied: FOUNDED.index,
                members: Members::of_voters(voters),
                snapshot: FOUNDED,
                ..State::default()
            };
            net.create(id, state);
        }
        net
    }

    /// A node with a replica in this state: an empty one is a new member-to-be.
    pub fn create(&mut self, id: u64, state: State) {
        let node = Node {
            id,
            log: MapLog::new(),
            replica: None,
            durable: state,
            state: State::default(),
            clock: (id * 100_000, 1000),
            next_tick_ms: 0,
            is_paused: false,
            socket: Vec::new(),
            syncs: true,
            unsynced: Vec::new(),
            fetch: None,
            proposals: Vec::new(),
            reads: Vec::new(),
            ticks: 0,
            wanted: BTreeSet::new(),
        };
        self.nodes.insert(id, node);
        self.start(id);
    }

    pub fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    pub fn replica(&mut self, id: u64) -> &mut Replica {
        self.node(id).replica()
    }

    pub fn start(&mut self, id: u64) {
        let (now_ms, seed) = (self.now_ms, self.seed);
        let mut config = self.config.clone();
        let forgets_start = self.forgets_start;
        let node = self.node(id);
        node.state = node.durable.clone();
        config.replica = id;
        config.members = node.state.members.clone();
        config.applied = node.state.applied;
        config.snapshot = node.state.snapshot;
        config.seed = seed ^ now_ms;
        config.now_ms = if forgets_start {
            0
        } else {
            node.clock_ms(now_ms)
        };
        node.replica = Some(Replica::new(config, &node.log).unwrap());
        node.next_tick_ms = 0;
        node.is_paused = false;
    }

    /// The power fails: `kept` of what was not synced got to the disk all the same.
    pub fn crash(&mut self, id: u64, kept: usize) {
        let node = self.node(id);
        node.log.crash_keeping(kept);
        node.replica = None;
        node.unsynced.clear();
        node.socket.clear();
        node.fetch = None;
        node.proposals.clear();
        node.reads.clear();
        node.wanted.clear();
    }

    pub fn restart(&mut self, id: u64) {
        self.crash(id, 0);
        self.start(id);
    }

    pub fn cut(&mut self, a: u64, b: u64) {
        self.cuts.extend([(a, b), (b, a)]);
    }

    pub fn isolate(&mut self, id: u64) {
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.cut(id, other);
        }
    }

    pub fn join(&mut self) {
        self.cuts.clear();
    }

    /// The leader of the newest term.
    pub fn leader(&self) -> Option<u64> {
        let leaders = self.nodes.values().filter(|node| {
            let replica = node.replica.as_ref();
            replica.is_some_and(Replica::is_leader) && !node.is_paused
        });
        leaders
            .max_by_key(|node| node.replica.as_ref().map(Replica::term))
            .map(|node| node.id)
    }

    /// Waits for a leader that serves under its lease.
    pub fn elect(&mut self) -> u64 {
        for _ in 0..2000 {
            if let Some(leader) = self.leader()
                && self.may_serve(leader)
            {
                return leader;
            }
            self.step();
        }
        panic!("seed {}: no leader", self.seed);
    }

    pub fn may_serve(&self, id: u64) -> bool {
        let node = &self.nodes[&id];
        let clock_ms = node.clock_ms(self.now_ms);
        let replica = node.replica.as_ref();
        replica.is_some_and(|replica| replica.may_serve(clock_ms))
    }

    pub fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP_MS {
            self.step();
        }
    }

    /// Until it holds; panics if it does not within a minute.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&Net) -> bool) {
        for _ in 0..6000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        for node in self.nodes.values() {
            let replica = node.replica.as_ref();
            eprintln!(
                "{}: {:?}, quiet {}, leader {:?}, term {:?}, log {:?}..{:?}, committed {:?}",
                node.id,
                node.state,
                self.is_quiet(node.id),
                replica.map(Replica::leader),
                replica.map(Replica::term),
                replica.map(Replica::first_index),
                replica.map(Replica::last_index),
                replica.map(Replica::committed_index),
            );
        }
        panic!("seed {}: not within a minute: {what}", self.seed);
    }

    /// One step of time: what is due arrives, everybody works.
    pub fn step(&mut self) {
        self.now_ms += STEP_MS;
        let now_ms = self.now_ms;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.nodes[&id].is_paused {
                for message in std::mem::take(&mut self.node(id).socket) {
                    self.deliver(message);
                }
            }
        }
        loop {
            self.wire.sort_by_key(|&(at_ms, _)| at_ms);
            let due = self.wire.partition_point(|&(at_ms, _)| at_ms <= now_ms);
            if due == 0 {
                break;
            }
            for (_, message) in self.wire.drain(..due).collect::<Vec<_>>() {
                self.deliver(message);
            }
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            let absent = self.absent.clone();
            let node = self.node(id);
            let clock_ms = node.clock_ms(now_ms);
            if node.is_paused || node.replica.is_none() {
                continue;
            }
            if clock_ms >= node.next_tick_ms {
                node.next_tick_ms = clock_ms + 100;
                let replica = node.replica.as_mut().unwrap();
                if !replica.is_quiet() || replica.lacks_members() {
                    replica.set_absent(absent);
                }
                if !replica.is_quiet() {
                    replica.tick(clock_ms);
                    node.ticks += 1;
                }
            }
            self.work(id);
        }
        self.check_serving();
    }

    pub fn check_serving(&mut self) {
        let serving: Vec<u64> = self
            .nodes
            .keys()
            .copied()
            .filter(|&id| self.may_serve(id))
            .collect();
        self.most_serving = self.most_serving.max(serving.len());
        assert!(
            serving.len() <= 1 || self.may_err,
            "seed {}: {serving:?} serve at {}",
            self.seed,
            self.now_ms
        );
    }

    fn deliver(&mut self, message: Message) {
        let is_cut = self.cuts.contains(&(message.from, message.to));
        let (now_ms, seed) = (self.now_ms, self.seed);
        let Some(node) = self.nodes.get_mut(&message.to) else {
            return;
        };
        if is_cut || node.replica.is_none() {
            return;
        }
        if node.is_paused {
            // It lies in the socket until the process goes on.
            node.socket.push(message);
            return;
        }
        let mut bytes = Vec::new();
        encode_message(&message, &mut bytes);
        let message = decode_message(&bytes.into()).unwrap();
        let text = format!("{message:?}");
        let clock_ms = node.clock_ms(now_ms);
        if let Err(error) = node.replica().step(message, clock_ms) {
            panic!("seed {seed}: {error}: {text}");
        }
        let id = node.id;
        self.work(id);
    }

    fn send(&mut self, message: Message) {
        *self.sent.entry(message.from).or_default() += 1;
        let (lost, doubled) = (self.rng.u32(..1000), self.rng.u32(..1000));
        if lost < self.lost {
            return;
        }
        if doubled < self.doubled {
            let at_ms = self.now_ms + self.rng.u64(self.delay_ms.clone());
            self.wire.push((at_ms, message.clone()));
        }
        let at_ms = self.now_ms + self.rng.u64(self.delay_ms.clone());
        self.wire.push((at_ms, message));
    }

    /// The drive loop.
    pub fn work(&mut self, id: u64) {
        let mut out = Ready::default();
        loop {
            let node = self.nodes.get_mut(&id).unwrap();
            let Some(replica) = node.replica.as_mut() else {
                return;
            };
            if !replica.has_ready() {
                break;
            }
            replica.ready(&mut out);
            if let Some(term) = out.became_leader {
                let other = self.leaders.insert(term, id);
                assert_eq!(other, None, "two leaders of term {term}");
            }
            if let Some(write) = out.write.take() {
                let number = write.number;
                let before = node.log.hard_state(REGION).unwrap();
                if let (Some(before), Some(state)) = (before, &write.hard_state)
                    && write.entries.is_empty()
                    && write.reset.is_none()
                    && (before.term, before.vote) == (state.term, state.vote)
                {
                    *self.bare_writes.entry(id).or_default() += 1;
                }
                node.log.write(&[write], node.syncs).unwrap();
                match node.syncs {
                    true => replica.on_persisted(number),
                    false => node.unsynced.push(number),
                }
            }
            if let Some(head) = out.install.take() {
                let count = u64::from_le_bytes(head.data[..].try_into().unwrap());
                node.state = State {
                    count,
                    applied: head.index,
                    members: head.members.clone(),
                    snapshot: head.position(),
                };
                node.durable = node.state.clone();
                replica.on_installed(head.index);
                self.installs += 1;
            }
            for entry in out.committed.drain(..) {
                assert_eq!(entry.index, node.state.applied + 1, "seed {}", self.seed);
                let content = match &entry.change {
                    None => entry.payload.clone(),
                    Some(change) => {
                        node.state.members = replica.apply_members(change);
                        format!("change {:?}", change.context).into()
                    }
                };
                node.state.applied = entry.index;
                node.state.count += u64::from(!entry.payload.is_empty());
                let seen = self.history.entry(entry.index);
                let seen = seen.or_insert_with(|| (entry.term, content.clone()));
                assert_eq!(*seen, (entry.term, content), "seed {}", self.seed);
                replica.on_applied(entry.index);
                let done = |&(index, term, _): &(u64, u64, u64)| {
                    index == entry.index && term == entry.term
                };
                if let Some(at) = node.proposals.iter().position(done) {
                    let (_, _, seen) = node.proposals.swap_remove(at);
                    assert!(
                        node.state.count > seen,
                        "seed {}: a write that is none",
                        self.seed
                    );
                    self.seen = self.seen.max(node.state.count);
                    self.acknowledged += 1;
                }
            }
            if out.lost_leadership {
                node.proposals.clear();
            }
            if let Some(fetch) = out.fetch.take() {
                assert!(node.fetch.is_none(), "one fetch at a time");
                node.fetch = Some(fetch);
            }
            for confirmed in out.reads.drain(..) {
                for read in node
                    .reads
                    .iter_mut()
                    .filter(|read| read.0 == confirmed.number)
                {
                    read.2 = Some(confirmed.index);
                }
            }
            for number in out.reads_failed.drain(..) {
                let before = node.reads.len();
                node.reads.retain(|read| read.0 != number);
                self.failed += (before - node.reads.len()) as u64;
            }
            node.wanted.extend(out.snapshots_wanted.drain(..));
            let (applied, count) = (node.state.applied, node.state.count);
            let mut seen_now = self.seen;
            node.reads.retain(|&(_, seen, index)| {
                let ripe = index.is_some_and(|index| index <= applied);
                if ripe {
                    assert!(
                        count >= seen,
                        "seed {}: a stale read: {count} < {seen}",
                        self.seed
                    );
                    seen_now = seen_now.max(count);
                    self.served += 1;
                }
                !ripe
            });
            self.seen = seen_now;
            let syncs = node.syncs;
            for message in std::mem::take(&mut out.messages) {
                self.send(message);
            }
            if syncs {
                self.fetch(id);
            }
        }
        if self.carries_snapshots {
            self.carry_snapshots(id);
        }
    }

    /// Makes the snapshots that are wanted of this node and says they are there.
    pub fn carry_snapshots(&mut self, id: u64) {
        let node = self.node(id);
        let wanted = std::mem::take(&mut node.wanted);
        let term = |net: &Net, index: u64| match index {
            1 => 1,
            index => net.history[&index].0,
        };
        for to in wanted {
            let state = self.node(id).state.clone();
            let head = SnapshotHead {
                index: state.applied,
                term: term(self, state.applied),
                members: state.members.clone(),
                data: state.count.to_le_bytes().to_vec().into(),
            };
            self.replica(id).on_snapshot_made(to, &head);
            self.work(id);
        }
    }

    pub fn fetch(&mut self, id: u64) {
        let node = self.node(id);
        if let Some(fetch) = node.fetch.take()
            && let Some(replica) = node.replica.as_mut()
        {
            replica.fetch_now(&fetch, &node.log).unwrap();
        }
    }

    /// The disk is done with what is under way, or with the first `told` of it.
    pub fn sync(&mut self, id: u64, told: usize) {
        let node = self.node(id);
        node.log.sync().unwrap();
        let told = told.min(node.unsynced.len());
        if let Some(&number) = node.unsynced[..told].last() {
            node.unsynced.drain(..told);
            node.replica().on_persisted(number);
        }
        self.fetch(id);
        self.work(id);
    }

    pub fn unsynced(&self, id: u64) -> usize {
        self.nodes[&id].unsynced.len()
    }

    pub fn propose(&mut self, id: u64) -> Result<u64, Refused> {
        let (seen, name) = (self.seen, self.now_ms);
        let replica = self.replica(id);
        replica.propose(format!("{id} at {name}").into())?;
        let (index, term) = (replica.last_index(), replica.term());
        self.node(id).proposals.push((index, term, seen));
        self.work(id);
        Ok(index)
    }

    pub fn read(&mut self, id: u64) -> Read {
        let clock_ms = self.nodes[&id].clock_ms(self.now_ms);
        let read = self.replica(id).read(clock_ms);
        self.note_read(id, read);
        read
    }

    pub fn read_here(&mut self, id: u64) -> Read {
        let clock_ms = self.nodes[&id].clock_ms(self.now_ms);
        let read = self.replica(id).read_here(clock_ms);
        self.note_read(id, read);
        read
    }

    fn note_read(&mut self, id: u64, read: Read) {
        let seen = self.seen;
        let node = self.node(id);
        match read {
            Read::Now => {
                let count = node.state.count;
                assert!(
                    count >= seen,
                    "seed {}: a stale read: {count} < {seen}",
                    self.seed
                );
                self.seen = count;
                self.served += 1;
            }
            Read::Wait(number) => node.reads.push((number, seen, None)),
            Read::NotLeader { .. } => {}
        }
        self.work(id);
    }

    pub fn waiting_reads(&self, id: u64) -> usize {
        self.nodes[&id].reads.len()
    }

    pub fn change(&mut self, id: u64, changes: &[MemberChange]) -> Result<(), Refused> {
        let context = format!("{changes:?}").into_bytes();
        let result = self.replica(id).propose_members(changes, context);
        self.work(id);
        result
    }

    pub fn transfer(&mut self, from: u64, to: u64) -> Result<(), Refused> {
        let result = self.replica(from).transfer_leader(to);
        self.work(from);
        result
    }

    /// What is applied is durable; the log before it goes.
    pub fn truncate(&mut self, id: u64) {
        let node = self.node(id);
        node.durable = node.state.clone();
        let applied = node.state.applied;
        let index = node.replica().truncate_to(applied);
        node.log.truncate(REGION, index).unwrap();
    }

    pub fn members(&self, id: u64) -> &Members {
        &self.nodes[&id].state.members
    }

    pub fn applied(&self, id: u64) -> u64 {
        self.nodes[&id].state.applied
    }

    pub fn is_quiet(&self, id: u64) -> bool {
        self.nodes[&id]
            .replica
            .as_ref()
            .is_some_and(Replica::is_quiet)
    }

    pub fn last(&self) -> u64 {
        self.history.last_key_value().map_or(1, |(&index, _)| index)
    }

    /// All that are up and members have applied everything.
    pub fn agree(&self) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let members = self.members(leader);
        let last = self.nodes[&leader]
            .replica
            .as_ref()
            .map(Replica::last_index);
        let up = self.nodes.values().filter(|node| node.replica.is_some());
        let state = &self.nodes[&leader].state;
        up.filter(|node| members.contains(node.id)).all(|node| {
            Some(node.state.applied) == last
                && node.state.count == state.count
                && node.state.members == *members
        })
    }
}

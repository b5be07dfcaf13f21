//! This node's member of meta: region 0, driven by a thread of its own.
//!
//! ```text
//!   peers ─► Raft ──┐                        ┌─► log writer (shared with the cores) ─► Logged
//!   calls ─► Call ──┼─► thread "meta" ───────┼─► messages ─► transport
//!   orders ─► Order ┤    Replica, State,     └─► answers of calls
//!   clock ──────────┘    leader: Leader
//! ```
//!
//! The state is small and lives in memory; the log is what survives. Now and then all of it is kept as
//! one row, with the index it stands at, and the log is cut behind that. A member that is far behind
//! gets that row inside the snapshot message itself.

mod leader;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::cluster::{Descriptor, Epoch, META_REGION, Member as SeatOf, NodeId, ReplicaId, Role};
use bytes::Bytes;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier};
use meta::leader::Leader;
use meta::limits::Limits;
use meta::state::{Command, Found, Outcome, State};
use meta::wire::{
    Action, AdminAnswer, HeartbeatAnswer, JoinAnswer, Order, ReplicaReport, RouteNode, Standing,
};
use prost::Message;
use replica::{
    Committed, FOUNDED, Ready, Replica, ReplicaConfig, SnapshotHead, decode_message, encode_message,
};
use transport::Reply;

use super::members::{Newcomers, lead, report_of_replica};
use super::regions::Pace;
use super::seats::{self, Seat, with_members};
use super::{Cluster, METHOD_ADMIN, METHOD_HEARTBEAT, METHOD_JOIN, clock_ms};
use crate::Shared;
use crate::durable::{Job, forget_log};
use crate::shared::random_seed;

const ROW: &[u8] = b"meta";
/// Entries after which the state is kept and the log cut.
const KEEP_AFTER: u64 = 1024;

/// All that is kept of a member of meta.
#[derive(Clone, PartialEq, Message)]
pub struct Minutes {
    #[prost(message, required, tag = "1")]
    pub seat: Seat,
    #[prost(uint64, tag = "2")]
    pub applied: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub state: Bytes,
    #[prost(uint64, tag = "4")]
    pub applied_term: u64,
}

impl Minutes {
    /// Of a cluster that begins.
    pub fn found(seat: Seat) -> Minutes {
        Minutes {
            seat,
            applied: 0,
            applied_term: 0,
            state: Bytes::new(),
        }
    }

    /// Of the founder of a cluster, node 1: the only member.
    pub fn of_founder() -> Minutes {
        let mut seat = Seat {
            descriptor: Descriptor {
                region: META_REGION,
                epoch: Epoch::FIRST,
                segments: Vec::new(),
                members: vec![SeatOf::new(1, 1, Role::Voter)],
            },
            replica: 1,
            ..Seat::default()
        };
        seat.set_snapshot(FOUNDED);
        Minutes::found(seat)
    }

    pub fn read(rows: &dyn RowSource) -> Result<Option<Minutes>, String> {
        let mut found = None;
        rows.get(Family::Info, ROW, Tier::All, &mut |value| {
            found = Some(Minutes::decode(value));
        })
        .map_err(|error| format!("the store cannot be read: {error:?}"))?;
        found
            .transpose()
            .map_err(|error| format!("the row of the meta service is damaged: {error}"))
    }

    /// Whether this node founds a cluster and may not have finished.
    pub fn is_founding(rows: &dyn RowSource) -> Result<bool, String> {
        let minutes = Minutes::read(rows)?;
        Ok(minutes.is_some_and(|it| it.state.is_empty() && it.seat.snapshot() == FOUNDED))
    }

    /// Durable when it returns.
    pub fn keep(&self, rows: &dyn RowStore) -> Result<(), String> {
        let mut changes = Changes::new();
        changes.put(Family::Info, ROW, &self.encode_to_vec());
        seats::write(rows, &changes)?;
        seats::keep(rows)
    }
}

/// What an entry of region 0 is.
#[derive(Clone, PartialEq, Message)]
pub struct Motion {
    #[prost(uint64, tag = "1")]
    pub stamp_ms: u64,
    #[prost(message, required, tag = "2")]
    pub command: Command,
}

/// What the thread hears.
pub enum Word {
    Raft {
        from: NodeId,
        bytes: Bytes,
    },
    Logged {
        number: u64,
        ok: bool,
    },
    Call {
        method: u16,
        body: Bytes,
        reply: Reply,
    },
    /// About this member of meta itself.
    Order(Box<Order>),
    Stop,
}

/// What the thread begins with.
pub struct Start {
    pub shared: Arc<Shared>,
    pub cluster: Arc<Cluster>,
    pub inbox: Receiver<Word>,
    pub pace: Pace,
    /// What the founder of a cluster proposes first.
    pub founder: Option<Found>,
}

/// A seat in meta that is taken.
struct Chair {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    seat: Seat,
    heard: HashMap<ReplicaId, NodeId>,
    replica: Replica,
    ready: Ready,
    state: State,
    applied: u64,
    applied_term: u64,
    /// As of the last time the state was kept.
    kept: u64,
    stamp_ms: u64,
    founder: Option<Found>,
    /// On the leader: what heartbeats said, and what follows from it.
    leader: Option<Leader>,
    /// When the scheduler makes its next turn.
    turn_at_ms: u64,
    /// By index: term, and who asked.
    asked: BTreeMap<u64, (u64, Asked)>,
    is_failed: bool,
    has_left: bool,
}

/// Who waits for an entry.
enum Asked {
    /// A node that joins.
    Join(Reply),
    /// Somebody with a request; what to answer when it is done.
    Admin(Reply, Box<AdminAnswer>),
    /// The leader itself.
    Nobody,
}

impl Start {
    /// Until the node stops.
    pub fn run(mut self) {
        let mut chair = match self.open() {
            Ok(chair) => chair,
            Err(reason) => {
                eprintln!(
                    "neokv: the member of the meta service on this node cannot start: {reason}"
                );
                None
            }
        };
        let tick = Duration::from_millis(self.pace.tick_ms);
        let mut next = Instant::now() + tick;
        loop {
            if chair.as_ref().is_some_and(|chair| chair.has_left) {
                chair = None;
                self.cluster.set_chair_report(None);
            }
            let wait = next.saturating_duration_since(Instant::now());
            let mut heard = match self.inbox.recv_timeout(wait) {
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // What waits is heard before anything is written: one write for all.
            while let Some(word) = heard {
                match (word, &mut chair) {
                    (Word::Stop, _) => return,
                    (word, Some(chair)) => chair.on_word(word),
                    (word, None) => chair = self.on_word_without_chair(word),
                }
                heard = self.inbox.try_recv().ok();
            }
            let is_time = Instant::now() >= next;
            if is_time {
                next = Instant::now() + tick;
            }
            if let Some(chair) = &mut chair {
                if is_time {
                    chair.on_tick();
                }
                chair.drive();
            }
        }
    }

    fn open(&mut self) -> Result<Option<Chair>, String> {
        let Some(durable) = &self.shared.durable else {
            return Ok(None);
        };
        match Minutes::read(&*durable.stores.rows)? {
            Some(minutes) => self.sit_down(minutes).map(Some),
            None => Ok(None),
        }
    }

    fn sit_down(&mut self, minutes: Minutes) -> Result<Chair, String> {
        let Some(durable) = &self.shared.durable else {
            return Err("no store".into());
        };
        let state = match minutes.state.is_empty() {
            true => State::default(),
            false => State::decode(&minutes.state).map_err(|error| error.to_string())?,
        };
        let config = ReplicaConfig {
            region: META_REGION,
            replica: minutes.seat.replica,
            members: minutes.seat.members(minutes.applied),
            applied: minutes.applied,
            snapshot: minutes.seat.snapshot(),
            seed: random_seed(),
            now_ms: clock_ms(),
            tick_ms: self.pace.tick_ms,
            election_ticks: self.pace.election_ticks,
            heartbeat_ticks: self.pace.heartbeat_ticks,
            quiet_ticks: 0,
            ..ReplicaConfig::default()
        };
        let replica = Replica::new(config, &*durable.stores.log)
            .map_err(|error| format!("region 0 cannot be opened: {error}"))?;
        Ok(Chair {
            shared: self.shared.clone(),
            cluster: self.cluster.clone(),
            heard: HashMap::new(),
            replica,
            ready: Ready::default(),
            state,
            applied: minutes.applied,
            applied_term: minutes.applied_term,
            kept: minutes.applied,
            stamp_ms: 0,
            founder: self.founder.take(),
            leader: None,
            turn_at_ms: 0,
            asked: BTreeMap::new(),
            is_failed: false,
            has_left: false,
            seat: minutes.seat,
        })
    }

    /// A node that is no member of meta answers that it is not, and may be made one.
    fn on_word_without_chair(&mut self, word: Word) -> Option<Chair> {
        match word {
            Word::Order(order) => {
                let Some(Action::Create(create)) = order.action else {
                    return None;
                };
                let durable = self.shared.durable.as_ref()?;
                let rows = &*durable.stores.rows;
                if seats::gone(rows, META_REGION).is_ok_and(|gone| gone >= create.replica) {
                    return None;
                }
                let minutes = Minutes::found(Seat::made(create));
                let sat = minutes.keep(rows).and_then(|()| self.sit_down(minutes));
                match sat {
                    Ok(chair) => {
                        self.cluster.set_chair_report(chair.report());
                        self.cluster.nudge();
                        return Some(chair);
                    }
                    Err(reason) => eprintln!("neokv: cannot take part in meta: {reason}"),
                }
            }
            Word::Call {
                method,
                body,
                reply,
            } => answer_elsewhere(&self.cluster, method, body, reply),
            _ => {}
        }
        None
    }
}

/// Where meta is, for somebody who asked here.
fn answer_elsewhere(cluster: &Cluster, method: u16, body: Bytes, reply: Reply) {
    let meta = cluster.meta_nodes();
    match method {
        METHOD_JOIN => {
            let answer = JoinAnswer {
                retry: true,
                meta: meta.into_iter().map(|node| node.peer).collect(),
                ..JoinAnswer::default()
            };
            reply.done(answer.encode_to_vec());
        }
        METHOD_HEARTBEAT => {
            let answer = HeartbeatAnswer {
                standing: Standing::NotLeader.into(),
                meta,
                ..HeartbeatAnswer::default()
            };
            reply.done(answer.encode_to_vec());
        }
        METHOD_ADMIN => match somebody_up(cluster, meta) {
            Some(node) => cluster.pass_on(node.peer.to_string(), body, reply),
            None => reply.reject("this node does not know where the meta service is"),
        },
        _ => reply.reject("unknown method"),
    }
}

/// Any other node, better one that can be heard.
fn somebody_up(cluster: &Cluster, nodes: Vec<RouteNode>) -> Option<RouteNode> {
    let others = nodes.into_iter().filter(|it| it.node != cluster.node);
    others.max_by_key(|it| cluster.transport.is_up(it.node))
}

impl Chair {
    fn on_word(&mut self, word: Word) {
        match word {
            Word::Raft { from, bytes } => {
                if self.is_failed {
                    return;
                }
                let Ok(message) = decode_message(&bytes) else {
                    return;
                };
                if self.seat.descriptor.member(message.from).is_none() {
                    self.heard.insert(message.from, from);
                }
                let _ = self.replica.step(message, clock_ms());
            }
            Word::Logged { number, ok } => {
                if let Some(durable) = &self.shared.durable {
                    durable.writer.heard(1);
                }
                match ok {
                    true => self.replica.on_persisted(number),
                    false => self.is_failed = true,
                }
            }
            Word::Call {
                method,
                body,
                reply,
            } => self.on_call(method, body, reply),
            Word::Order(order) => self.on_order(&order),
            Word::Stop => {}
        }
    }

    fn on_tick(&mut self) {
        let durable = self.shared.durable.as_ref();
        self.is_failed |= durable.is_some_and(|durable| durable.is_failed());
        if self.is_failed {
            return;
        }
        self.replica.tick(clock_ms());
        self.schedule();
    }

    /// Passes on what the replica has to say.
    fn drive(&mut self) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        while !self.is_failed && self.replica.has_ready() {
            let mut ready = std::mem::take(&mut self.ready);
            self.replica.ready(&mut ready);
            if let Some(write) = ready.write.take() {
                let cluster = self.cluster.clone();
                let number = write.number;
                durable.writer.send(Job {
                    heard: 0,
                    writes: vec![write],
                    done: Box::new(move |_, result| {
                        let ok = result.is_ok();
                        cluster.tell_chair(Word::Logged { number, ok });
                    }),
                });
            }
            for message in ready.messages.drain(..) {
                self.send(&message);
            }
            if let Some(fetch) = ready.fetch.take()
                && let Err(error) = self.replica.fetch_now(&fetch, &*durable.stores.log)
            {
                self.fail(&error.to_string());
            }
            if let Some(head) = ready.install.take() {
                self.install(&head);
            }
            for committed in ready.committed.drain(..) {
                self.apply(committed);
            }
            for to in ready.snapshots_wanted.drain(..) {
                let head = self.head();
                self.replica.on_snapshot_made(to, &head);
            }
            if ready.lost_leadership {
                self.stand_down();
            }
            self.ready = ready;
        }
        self.take_the_chair();
        self.cluster.set_chair_report(self.report());
        if self.applied >= self.kept + KEEP_AFTER {
            self.keep();
        }
    }

    fn send(&self, message: &replica::Message) {
        let to = message.to;
        let node = match self.seat.descriptor.member(to) {
            Some(member) => Some(member.node),
            None => self.heard.get(&to).copied(),
        };
        if let Some(node) = node {
            let mut bytes = Vec::with_capacity(128);
            encode_message(message, &mut bytes);
            self.cluster.send(node, vec![(META_REGION, bytes.into())]);
        }
    }

    fn apply(&mut self, committed: Committed) {
        let Committed {
            index,
            term,
            payload,
            change,
        } = committed;
        let mut outcome = Outcome::Unchanged;
        if let Some(change) = change {
            let members = self.replica.apply_members(&change);
            let newcomers = Newcomers::of(&change.context);
            let next = with_members(&self.seat.descriptor, &members, |id| newcomers.node_of(id));
            self.seat.descriptor = next;
        } else if !payload.is_empty() {
            match Motion::decode(payload) {
                Ok(motion) => {
                    self.stamp_ms = self.stamp_ms.max(motion.stamp_ms);
                    outcome = self.state.apply(&motion.command, motion.stamp_ms);
                }
                Err(error) => {
                    let text = format!("entry {index} of the log cannot be read: {error}");
                    return self.fail(&text);
                }
            }
        }
        self.replica.on_applied(index);
        (self.applied, self.applied_term) = (index, term);
        if let Some((of, asked)) = self.asked.remove(&index) {
            match of == term {
                true => self.on_outcome(asked, outcome),
                false => self.give_up(asked),
            }
        }
    }

    /// Everything as of now, as another member gets it.
    fn head(&self) -> SnapshotHead {
        SnapshotHead {
            index: self.applied,
            term: self.applied_term,
            members: self.replica.members().clone(),
            data: self.minutes().encode_to_vec().into(),
        }
    }

    fn minutes(&self) -> Minutes {
        Minutes {
            seat: self.seat.clone(),
            applied: self.applied,
            applied_term: self.applied_term,
            state: self.state.encode().into(),
        }
    }

    /// Another member's state takes the place of ours.
    fn install(&mut self, head: &SnapshotHead) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        let received = Minutes::decode(head.data.clone()).map_err(|error| error.to_string());
        let installed = received.and_then(|mut minutes| {
            minutes.seat.replica = self.seat.replica;
            minutes.seat.set_snapshot(head.position());
            let state = State::decode(&minutes.state).map_err(|error| error.to_string())?;
            minutes.keep(&*durable.stores.rows)?;
            Ok((minutes, state))
        });
        match installed {
            Ok((minutes, state)) => {
                self.seat = minutes.seat;
                self.state = state;
                (self.applied, self.applied_term) = (head.index, head.term);
                self.kept = head.index;
                self.replica.on_installed(head.index);
            }
            Err(reason) => self.fail(&reason),
        }
    }

    /// Keeps the state and cuts the log behind it.
    fn keep(&mut self) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        if let Err(reason) = self.minutes().keep(&*durable.stores.rows) {
            return self.fail(&reason);
        }
        self.kept = self.applied;
        let index = self.replica.truncate_to(self.applied);
        if let Err(error) = durable.stores.log.truncate(META_REGION, index) {
            self.fail(&error.to_string());
        }
    }

    fn fail(&mut self, reason: &str) {
        self.is_failed = true;
        eprintln!("neokv: the member of the meta service on this node stopped: {reason}");
    }

    /// An order about meta's own members, to its leader.
    fn on_order(&mut self, order: &Order) {
        let leads_in = self.replica.is_leader().then(|| self.replica.term());
        let epoch = self.seat.descriptor.epoch;
        match order.check(epoch, leads_in) {
            Ok(Action::Destroy(destroy)) if destroy.replica == self.seat.replica => {
                self.leave(destroy.replica);
            }
            // What is refused comes again with the next heartbeat, if it is still wanted.
            Ok(action) => drop(lead(&mut self.replica, action)),
            Err(_) => {}
        }
    }

    /// This node is no member of meta any more.
    fn leave(&mut self, replica: ReplicaId) {
        (self.is_failed, self.has_left) = (true, true);
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let rows = &*durable.stores.rows;
        let mut changes = Changes::new();
        seats::put_gone(&mut changes, META_REGION, replica);
        changes.delete(Family::Info, ROW);
        let gone = seats::write(rows, &changes).and_then(|()| seats::keep(rows));
        if let Err(reason) = gone.and_then(|()| forget_log(&*durable.stores.log, META_REGION)) {
            eprintln!("neokv: what is left of this node's member of meta stays: {reason}");
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            dead_after_ms: self.shared.settings.current().cluster.dead_after_ms,
            ..Limits::default()
        }
    }

    fn report(&self) -> Option<ReplicaReport> {
        if self.is_failed {
            return None;
        }
        let mut report = report_of_replica(&self.replica, &self.seat);
        report.applied = self.applied;
        Some(report)
    }
}

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
//! one row, with the index it stands at ([`Minutes`]), and the log is cut behind that. A member that is
//! far behind gets that row inside the snapshot message itself.
//!
//! Here is what the member hears and says; [`thread`] is the loop around it and the node without one,
//! [`state`] what entries and snapshots change, [`leader`] the part of the one that leads.
//!
//! Invariant: a member that failed or left asks its replica nothing any more: it sends no message,
//! applies no entry and keeps no row.

mod leader;
mod minutes;
mod state;
mod thread;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::cluster::{META_REGION, NodeId, ReplicaId};
use bytes::Bytes;
use keyspace::rows::Changes;
use meta::leader::Leader;
use meta::limits::Limits;
use meta::state::{Command, Found, State};
use meta::wire::{Action, AdminAnswer, Order, ReplicaReport};
pub use minutes::Minutes;
use prost::Message;
use replica::{Ready, Replica, decode_message, encode_message};
pub use thread::Start;
use transport::Reply;

use super::leadership;
use super::seats::{self, ReplicaRecord};
use super::{Cluster, clock_ms};
use super::{lead, report_of_replica};
use crate::Shared;
use crate::durable::{Job, forget_log};

/// Entries after which the state is kept and the log cut.
const KEEP_AFTER: u64 = 1024;

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

/// A seat in meta that is taken.
struct Chair {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    seat: ReplicaRecord,
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
                    clients: 0,
                    writes: vec![write],
                    done: Box::new(move |_, result| {
                        let ok = result.is_ok();
                        cluster.tell_chair(Word::Logged { number, ok });
                        None
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
            let node_of = |id| self.seat.descriptor.member(id).map(|it| it.node);
            leadership::log_change(
                self.cluster.node,
                META_REGION,
                &self.replica,
                &ready,
                node_of,
            );
            if ready.lost_leadership {
                self.stand_down();
            }
            self.ready = ready;
        }
        self.take_the_chair();
        self.cluster.set_chair_report(self.report());
        if !self.is_failed && self.applied >= self.kept + KEEP_AFTER {
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

    fn fail(&mut self, reason: &str) {
        self.is_failed = true;
        let (node, term) = (self.cluster.node, self.replica.term());
        tracing::error!(
            node,
            term,
            "the member of the meta service on this node stopped: {reason}"
        );
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
        Minutes::put_gone(&mut changes, replica);
        let gone = seats::write(rows, &changes, super::pause).and_then(|()| seats::keep(rows));
        if let Err(reason) = gone.and_then(|()| forget_log(&*durable.stores.log, META_REGION)) {
            let node = self.cluster.node;
            tracing::warn!(
                node,
                "what is left of this node's member of meta stays: {reason}"
            );
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

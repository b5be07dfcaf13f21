//! The thread "meta": drives this node's member of meta, keeps time, and carries out what the member
//! asks for. It also answers for a node that is no member of meta (now, or not yet).
//!
//! ```text
//!   peers ─► Raft ──┐                              ┌─► log writer (shared with the cores) ─► Logged
//!   calls ─► Call ──┼─► thread "meta" ─► MetaMember┼─► messages ─► transport
//!   orders ─► Order ┤                              └─► answers of calls
//!   clock ──────────┘
//! ```
//!
//! Invariant: there is at most one member on a node; one that has left is gone before the next input is
//! handled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use base::cluster::{META_REGION, NodeId};
use bytes::Bytes;
use meta::limits::Limits;
use meta::state::Found;
use meta::wire::{Action, AdminRequest, Heartbeat, Join, Order, RouteNode};
use node::{
    MetaAnswer, MetaCall, MetaContext, MetaEffects, MetaMember, MetaObserver, MetaRecord, OpenMeta,
    Pace, heartbeat_elsewhere, join_elsewhere,
};
use prost::Message;
use replica::{LogWrite, Ready, Replica, Unfit, encode_message};
use transport::{Reply, Target};

use super::replica_record::ReplicaRecord;
use super::{Cluster, METHOD_ADMIN, METHOD_HEARTBEAT, METHOD_JOIN, NEWS, leadership, pause};
use crate::Shared;
use crate::clock::{clock_ms, now_ms};
use crate::durable::{Durable, Job};
use crate::shared::random_seed;

/// Entries after which the state is kept and the log cut.
const KEEP_AFTER: u64 = 1024;
const PASS_ON: Duration = Duration::from_secs(5);

/// What the thread hears.
pub enum MetaInput {
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

/// Somebody who called, and the call as it came.
struct Caller {
    body: Bytes,
    reply: Reply,
}

type Member = MetaMember<Caller>;

/// What the thread begins with.
pub struct MetaThread {
    pub shared: Arc<Shared>,
    pub cluster: Arc<Cluster>,
    pub inbox: Receiver<MetaInput>,
    pub pace: Pace,
    /// What the founder of a cluster proposes first.
    pub founder: Option<Found>,
}

impl MetaThread {
    /// Until the node stops.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        let mut member = match self.open_kept(durable) {
            Ok(member) => member,
            Err(reason) => {
                let node = self.cluster.node;
                tracing::error!(
                    node,
                    "the member of the meta service on this node cannot start: {reason}"
                );
                None
            }
        };
        let tick = Duration::from_millis(self.pace.tick_ms);
        let mut next = Instant::now() + tick;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let mut heard = match self.inbox.recv_timeout(wait) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // What waits is heard before anything is written: one write for all.
            while let Some(input) = heard {
                match (input, &mut member) {
                    (MetaInput::Stop, _) => return,
                    (input, Some(member)) => self.on_input(member, input, durable),
                    (input, None) => member = self.on_input_without_member(input, durable),
                }
                if member.as_ref().is_some_and(Member::has_left) {
                    member = None;
                    self.cluster.set_meta_report(None);
                }
                heard = self.inbox.try_recv().ok();
            }
            let is_time = Instant::now() >= next;
            if is_time {
                next = Instant::now() + tick;
            }
            if let Some(member) = &mut member {
                if is_time {
                    self.on_tick(member, durable);
                }
                self.drive(member, durable);
            }
        }
    }

    fn open_kept(&mut self, durable: &Durable) -> Result<Option<Member>, String> {
        match MetaRecord::read(&*durable.stores.rows)? {
            Some(kept) => self.open(kept, durable).map(Some),
            None => Ok(None),
        }
    }

    fn open(&mut self, kept: MetaRecord, durable: &Durable) -> Result<Member, String> {
        let open = OpenMeta {
            log: &*durable.stores.log,
            node: self.cluster.node,
            founder: self.founder.take(),
            pace: Pace {
                keep_entries: Pace::default().keep_entries,
                ..self.pace
            },
            keep_after: KEEP_AFTER,
            clock_ms: clock_ms(),
            seed: random_seed(),
        };
        open.open(kept, |_| {})
    }

    /// The node around the member, at this moment.
    fn context<'a>(&'a self, durable: &'a Durable) -> MetaContext<'a> {
        MetaContext {
            now_ms: now_ms(),
            clock_ms: clock_ms(),
            limits: Limits {
                dead_after_ms: self.shared.settings.current().cluster.dead_after_ms,
                ..Limits::default()
            },
            rows: &*durable.stores.rows,
            log: &*durable.stores.log,
            pause,
            observer: self,
            is_log_stalled: durable.writer.disk().stalled_ms().is_some(),
        }
    }

    fn on_input(&self, member: &mut Member, input: MetaInput, durable: &Durable) {
        let cx = self.context(durable);
        let mut out = MetaEffects::default();
        match input {
            MetaInput::Raft { from, bytes } => member.on_message(from, &bytes, &cx),
            MetaInput::Logged { number, ok } => match ok {
                true => member.on_persisted(number),
                false => member.stop(),
            },
            MetaInput::Call {
                method,
                body,
                reply,
            } => match decode_call(method, &body) {
                Ok(call) => member.on_call(call, Caller { body, reply }, &cx, &mut out),
                Err(reason) => reply.reject(reason),
            },
            MetaInput::Order(order) => member.on_order(&order, &cx, &mut out),
            MetaInput::Stop => {}
        }
        self.carry_out(member, out, durable);
    }

    fn on_tick(&self, member: &mut Member, durable: &Durable) {
        if durable.is_failed() {
            member.stop();
        }
        let mut out = MetaEffects::default();
        member.on_tick(&self.context(durable), &mut out);
        self.carry_out(member, out, durable);
    }

    fn drive(&self, member: &mut Member, durable: &Durable) {
        let mut out = MetaEffects::default();
        member.drive(&self.context(durable), &mut out);
        self.carry_out(member, out, durable);
        self.cluster.set_meta_report(member.report());
        let mut out = MetaEffects::default();
        member.keep_when_due(&self.context(durable), &mut out);
        self.carry_out(member, out, durable);
    }

    fn carry_out(&self, member: &Member, out: MetaEffects<Caller>, durable: &Durable) {
        for write in out.writes {
            self.write(write, durable);
        }
        for (node, message) in out.messages {
            let mut bytes = Vec::with_capacity(128);
            encode_message(&message, &mut bytes);
            self.cluster.send(node, vec![(META_REGION, bytes.into())]);
        }
        for (caller, answer) in out.answers {
            self.answer(caller, answer);
        }
        for node in out.news {
            match node == self.cluster.node {
                true => self.cluster.trigger_heartbeat(),
                false => self.cluster.send(node, vec![(NEWS, Bytes::new())]),
            }
        }
        let node = self.cluster.node;
        if let Some(reason) = out.failure {
            let term = member.replica().term();
            tracing::error!(
                node,
                term,
                "the member of the meta service on this node stopped: {reason}"
            );
        }
        if let Some(reason) = out.left_over {
            tracing::warn!(
                node,
                "what is left of this node's member of meta stays: {reason}"
            );
        }
    }

    fn write(&self, write: LogWrite, durable: &Durable) {
        let cluster = self.cluster.clone();
        let number = write.number;
        durable.writer.send(Job {
            clients: 0,
            writes: vec![write],
            done: Box::new(move |_, result| {
                let ok = result.is_ok();
                cluster.tell_meta(MetaInput::Logged { number, ok });
                None
            }),
        });
    }

    fn answer(&self, caller: Caller, answer: MetaAnswer) {
        let Caller { body, reply } = caller;
        match answer {
            MetaAnswer::Heartbeat(answer) => reply.done(answer.encode_to_vec()),
            MetaAnswer::Join(answer) => reply.done(answer.encode_to_vec()),
            MetaAnswer::Admin(answer) => reply.done(answer.encode_to_vec()),
            MetaAnswer::Elsewhere(address) => {
                self.cluster.pass_on(address.to_string(), body, reply);
            }
            MetaAnswer::Refused(reason) => reply.reject(reason),
        }
    }

    /// A node that is no member of meta answers that it is not, and may be made one.
    fn on_input_without_member(&mut self, input: MetaInput, durable: &Durable) -> Option<Member> {
        match input {
            MetaInput::Order(order) => {
                let Some(Action::Create(create)) = order.action else {
                    return None;
                };
                let (rows, log) = (&*durable.stores.rows, &*durable.stores.log);
                let made = MetaRecord::create(create, rows, log, pause);
                let opened = made.and_then(|made| match made {
                    Some(made) => self.open(made, durable).map(Some),
                    None => Ok(None),
                });
                match opened {
                    Ok(Some(member)) => {
                        self.cluster.set_meta_report(member.report());
                        self.cluster.trigger_heartbeat();
                        return Some(member);
                    }
                    Ok(None) => {}
                    Err(reason) => {
                        let node = self.cluster.node;
                        tracing::warn!(node, "cannot take part in meta: {reason}");
                    }
                }
            }
            MetaInput::Call {
                method,
                body,
                reply,
            } => answer_elsewhere(&self.cluster, method, body, reply),
            _ => {}
        }
        None
    }
}

impl MetaObserver for MetaThread {
    fn on_unfit_message(&self, from: NodeId, why: &Unfit) {
        self.cluster.tell_of_unfit(from, META_REGION, why);
    }

    fn on_ready(&self, replica: &Replica, record: &ReplicaRecord, ready: &Ready) {
        let node_of = |id| record.descriptor.member(id).map(|it| it.node);
        leadership::log_change(self.cluster.node, META_REGION, replica, ready, node_of);
    }
}

fn decode_call(method: u16, body: &Bytes) -> Result<MetaCall, &'static str> {
    let body = body.clone();
    match method {
        METHOD_HEARTBEAT => match Heartbeat::decode(body) {
            Ok(heartbeat) => Ok(MetaCall::Heartbeat(heartbeat)),
            Err(_) => Err("a heartbeat that makes no sense"),
        },
        METHOD_JOIN => match Join::decode(body) {
            Ok(join) => Ok(MetaCall::Join(join)),
            Err(_) => Err("a join that makes no sense"),
        },
        METHOD_ADMIN => match AdminRequest::decode(body) {
            Ok(request) => Ok(MetaCall::Admin(request)),
            Err(_) => Err("a request that makes no sense"),
        },
        _ => Err("unknown method"),
    }
}

impl Cluster {
    /// Passes a request for meta's leader on to the node at this address.
    fn pass_on(&self, address: String, body: Bytes, reply: Reply) {
        let transport = self.transport.clone();
        // Rare, and it may take as long as the call: a thread of its own.
        let passed = std::thread::Builder::new()
            .name("pass-on".into())
            .spawn(move || {
                let target = Target::Address(address);
                match transport.call_blocking(target, METHOD_ADMIN, body, PASS_ON) {
                    Ok(answer) => reply.done(answer),
                    Err(error) => reply.reject(error.to_string()),
                }
            });
        drop(passed);
    }
}

/// Answers a call on a node that is no member: where meta is.
fn answer_elsewhere(cluster: &Cluster, method: u16, body: Bytes, reply: Reply) {
    match method {
        METHOD_JOIN => reply.done(join_elsewhere(&cluster.routes()).encode_to_vec()),
        METHOD_HEARTBEAT => reply.done(heartbeat_elsewhere(&cluster.routes()).encode_to_vec()),
        METHOD_ADMIN => match somebody_up(cluster, cluster.meta_nodes()) {
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

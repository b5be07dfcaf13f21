//! A node and meta: it joins, sends heartbeats, and does what it is ordered to.
//!
//! It stands for `runtime::cluster::heartbeats`: one call at a time, to whoever is likeliest to lead meta; the
//! next when an answer came or was not to be had; sooner if something changed.

use std::collections::{BTreeMap, VecDeque};

use base::cluster::META_REGION;
use meta::route::Routes;
use meta::state::Found;
use meta::wire::{
    Action, Address, Heartbeat, HeartbeatAnswer, Join, JoinAnswer, Order, OrderReport, Profile,
    Standing,
};
use node::replica_record as seats;
use node::report_of;
use node::{Identity, MetaAnswer, MetaCall, MetaRecord, ReplicaRecord};

use crate::bugs::Bug;
use crate::effects::{Effects, Fact};
use crate::machine::{Node, Place};
use crate::meta::{Member, Setup};
use crate::state::make;

pub const BEAT_US: u64 = 1_000_000;
pub const SOON_US: u64 = 20_000;
pub const CALL_US: u64 = 2_000_000;

/// Who asked, and under which number.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub machine: u64,
    pub life: u64,
    pub ticket: u64,
}

struct Asking {
    ticket: u64,
    call: MetaCall,
    targets: VecDeque<u64>,
    tried: Vec<u64>,
}

pub struct Desk {
    pub setup: Setup,
    /// The machines it was told of, up to this one.
    told: u64,
    identity: Identity,
    /// What a founder proposes first.
    pub(crate) founder: Option<Found>,
    /// Of this start.
    token: u64,
    has_joined: bool,
    number: u64,
    /// The machine that answered last.
    leader: Option<u64>,
    /// How often it was looked for.
    turn: usize,
    routes: Routes,
    asking: Option<Asking>,
    tickets: u64,
    failures: Vec<OrderReport>,
    /// When the next heartbeat is due, in true time; none while an answer is awaited.
    pub next_us: Option<u64>,
    /// For when the simulator was told of it.
    pub planned_us: Option<u64>,
}

/// Machine `3` lives at the address `m3`.
pub fn address_of(machine: u64) -> Address {
    Address::new(format!("m{machine}"), 7000)
}

pub fn machine_of(address: &Address) -> Option<u64> {
    address.host.strip_prefix('m')?.parse().ok()
}

fn profile_of(machine: u64) -> Profile {
    Profile {
        redis: address_of(machine),
        peer: address_of(machine),
        http_port: 0,
        labels: BTreeMap::new(),
        stores: true,
        metas: true,
        format: 1,
        version: String::new(),
    }
}

impl Desk {
    pub fn new(setup: Setup, told: u64) -> Desk {
        Desk {
            setup,
            told,
            identity: Identity::default(),
            founder: None,
            token: 0,
            has_joined: false,
            number: 0,
            leader: None,
            turn: 0,
            routes: Routes::new(),
            asking: None,
            tickets: 0,
            failures: Vec::new(),
            next_us: None,
            planned_us: None,
        }
    }

    pub fn node_id(&self) -> u64 {
        self.identity.node
    }

    fn join(&self, machine: u64) -> Join {
        Join {
            cluster: self.identity.cluster,
            node: self.identity.node,
            token: self.token,
            start_count: self.identity.start_count,
            profile: profile_of(machine),
        }
    }

    /// Whom to ask, the likeliest first.
    fn targets(&mut self, machine: u64) -> VecDeque<u64> {
        let known = self.identity.meta.iter();
        let known = known.filter_map(|text| machine_at(text));
        let all = self.leader.into_iter().chain([machine]).chain(known);
        let mut targets = VecDeque::new();
        // A node that knows nobody was told whom to ask (`--join`).
        let told = (1..=self.told).filter(|_| self.identity.nodes.is_empty());
        for target in all.chain(told) {
            if !targets.contains(&target) {
                targets.push_back(target);
            }
        }
        let is_asked = |text: &str| machine_at(text).is_some_and(|it| targets.contains(&it));
        let other = self.identity.somebody_else(self.turn, is_asked);
        targets.extend(other.and_then(machine_at));
        self.turn += 1;
        targets
    }
}

fn machine_at(text: &str) -> Option<u64> {
    text.strip_prefix('m')?.split(':').next()?.parse().ok()
}

impl Node {
    /// Founds the cluster: the first node, before its first start.
    pub fn found(&mut self, cluster: u64, settings: meta::state::Settings) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        desk.identity = Identity {
            cluster,
            node: 1,
            token: self.rng.u64(..) | 1,
            ..Identity::default()
        };
        let join = Join {
            node: 0,
            token: desk.identity.token,
            start_count: 1,
            ..desk.join(self.id)
        };
        desk.founder = Some(Found {
            cluster,
            settings,
            join,
        });
        let _ = desk.identity.keep(&*self.disk.rows, || {});
        let _ = MetaRecord::of_founder().keep(&*self.disk.rows, || {});
    }

    /// The part of a start that concerns meta.
    pub(crate) fn open_desk(&mut self, true_us: u64, out: &mut Effects) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let rows = &*self.disk.rows;
        let known = Identity::read(rows).ok().flatten();
        let mut identity = known.unwrap_or_else(|| Identity {
            token: self.rng.u64(..) | 1,
            ..Identity::default()
        });
        identity.start_count += 1;
        let _ = identity.keep(rows, || {});
        let is_first = identity.node == 0 || identity.start_count == 1;
        let token = if is_first {
            identity.token
        } else {
            self.rng.u64(..) | 1
        };
        *desk = Desk {
            identity,
            token,
            founder: desk.founder.take(),
            tickets: desk.tickets,
            next_us: Some(true_us + 1000),
            ..Desk::new(desk.setup, desk.told)
        };
        match MetaRecord::read(&*self.disk.rows) {
            Ok(Some(kept)) => self.open_meta(kept, true_us, out),
            Ok(None) => {}
            Err(error) => out.failure = Some(error),
        }
    }

    /// Something changed that meta should hear of.
    pub fn nudge(&mut self, true_us: u64) {
        if let Some(desk) = &mut self.desk
            && let Some(next_us) = &mut desk.next_us
        {
            *next_us = (*next_us).min(true_us + SOON_US);
        }
    }

    /// It is time for a heartbeat, or for joining.
    pub fn beat(&mut self, true_us: u64, out: &mut Effects) {
        let machine = self.id;
        let Some(desk) = &mut self.desk else {
            return;
        };
        desk.next_us = None;
        let call = match desk.has_joined {
            false => MetaCall::Join(desk.join(machine)),
            true => {
                desk.number += 1;
                let mut replicas: Vec<_> = self
                    .regions
                    .owned
                    .present()
                    .filter_map(|it| report_of(it))
                    .collect();
                replicas.extend(self.meta.as_ref().and_then(Member::report));
                replicas.iter().for_each(|report| desk.routes.hear(report));
                for report in &mut replicas {
                    if desk.routes.meta_knows(report.region, report.epoch) {
                        report.descriptor = None;
                    }
                }
                MetaCall::Heartbeat(Heartbeat {
                    cluster: desk.identity.cluster,
                    node: desk.identity.node,
                    start_count: desk.identity.start_count,
                    number: desk.number,
                    route_version: desk.routes.version(),
                    replicas,
                    orders: std::mem::take(&mut desk.failures),
                    ..Heartbeat::default()
                })
            }
        };
        desk.asking = Some(Asking {
            ticket: 0,
            call,
            targets: desk.targets(machine),
            tried: Vec::new(),
        });
        self.ask_next(true_us, out);
    }

    /// Asks the next one; if there is none, later again.
    fn ask_next(&mut self, true_us: u64, out: &mut Effects) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let Some(asking) = &mut desk.asking else {
            return;
        };
        match asking.targets.pop_front() {
            Some(target) => {
                desk.tickets += 1;
                asking.ticket = desk.tickets;
                asking.tried.push(target);
                out.calls.push((target, asking.ticket, asking.call.clone()));
            }
            None => {
                desk.asking = None;
                desk.leader = None;
                desk.next_us = Some(true_us + BEAT_US);
            }
        }
    }

    /// No answer came in time.
    pub fn on_no_reply(&mut self, ticket: u64, true_us: u64, out: &mut Effects) {
        let asking = self.desk.as_ref().and_then(|desk| desk.asking.as_ref());
        if asking.is_some_and(|asking| asking.ticket == ticket) {
            self.ask_next(true_us, out);
        }
    }

    pub fn on_reply(&mut self, ticket: u64, reply: MetaAnswer, true_us: u64, out: &mut Effects) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let Some(asking) = desk.asking.take_if(|asking| asking.ticket == ticket) else {
            return;
        };
        match reply {
            MetaAnswer::Join(answer) => self.on_join_answer(asking, *answer, true_us, out),
            MetaAnswer::Heartbeat(answer) => self.on_beat_answer(asking, *answer, true_us, out),
            // Nobody here is an administrator.
            MetaAnswer::Admin(_) | MetaAnswer::Elsewhere(_) | MetaAnswer::Refused(_) => {}
        }
    }

    /// Where meta is said to be is asked next.
    fn ask_on(
        &mut self,
        mut asking: Asking,
        hints: impl IntoIterator<Item = Address>,
        true_us: u64,
        out: &mut Effects,
    ) {
        for machine in hints.into_iter().filter_map(|it| machine_of(&it)) {
            if !asking.tried.contains(&machine) && !asking.targets.contains(&machine) {
                asking.targets.push_back(machine);
            }
        }
        if let Some(desk) = &mut self.desk {
            desk.asking = Some(asking);
        }
        self.ask_next(true_us, out);
    }

    fn on_join_answer(
        &mut self,
        asking: Asking,
        answer: JoinAnswer,
        true_us: u64,
        out: &mut Effects,
    ) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        let known = desk.identity.node;
        if answer.node != 0 && (known == 0 || known == answer.node) {
            if known == 0 {
                desk.identity.cluster = answer.cluster;
                desk.identity.node = answer.node;
                desk.identity.meta = answer.meta.iter().map(Address::to_string).collect();
                let _ = desk.identity.keep(&*self.disk.rows, || {});
            }
            desk.has_joined = true;
            desk.next_us = Some(true_us);
            return;
        }
        if !answer.refused.is_empty() && !answer.retry {
            out.failure = Some(format!("meta does not take it: {}", answer.refused));
            return;
        }
        let hints = answer.leader.into_iter().chain(answer.meta);
        self.ask_on(asking, hints, true_us, out);
    }

    fn on_beat_answer(
        &mut self,
        asking: Asking,
        answer: HeartbeatAnswer,
        true_us: u64,
        out: &mut Effects,
    ) {
        let Some(desk) = &mut self.desk else {
            return;
        };
        match answer.standing() {
            Standing::Accepted => {
                desk.leader = asking.tried.last().copied();
                if let Some(table) = &answer.routes {
                    desk.routes.update(table);
                    let meta = answer.meta.iter().map(|node| node.peer.to_string());
                    desk.identity.meta = meta.collect();
                    let nodes = desk.routes.nodes();
                    let nodes = nodes.map(|node| format!("{}@{}", node.node, node.peer));
                    desk.identity.nodes = nodes.collect();
                    let _ = desk.identity.keep(&*self.disk.rows, || {});
                }
                let mut again = false;
                for order in answer.orders {
                    let action = order.action.as_ref();
                    again |= matches!(action, Some(Action::Create(_) | Action::Destroy(_)));
                    if let Err(text) = self.on_order(&order, true_us, out)
                        && let Some(desk) = &mut self.desk
                    {
                        desk.failures.push(OrderReport {
                            order: order.id,
                            region: order.region,
                            text,
                        });
                    }
                }
                if let Some(desk) = &mut self.desk {
                    let wait_us = if again { SOON_US } else { BEAT_US };
                    desk.next_us = Some(true_us + wait_us);
                }
            }
            Standing::NotLeader => {
                let hints = answer.leader.into_iter().chain(answer.meta);
                let hints: Vec<Address> = hints.map(|node| node.peer).collect();
                self.ask_on(asking, hints, true_us, out);
            }
            Standing::Unknown => {
                desk.has_joined = false;
                desk.next_us = Some(true_us + SOON_US);
            }
            Standing::Superseded | Standing::Gone | Standing::WrongCluster => {
                out.failure = Some(format!("meta wants it to stop: {}", answer.text));
            }
        }
    }

    fn on_order(&mut self, order: &Order, true_us: u64, out: &mut Effects) -> Result<(), String> {
        let region = order.region;
        let gone = seats::gone(&*self.disk.rows, region)?;
        match &order.action {
            Some(Action::Create(create)) => {
                let is_here = match region {
                    META_REGION => self.meta.is_some(),
                    _ => self.places.contains_key(&region),
                };
                if is_here || gone >= create.replica {
                    return Ok(());
                }
                let replica = create.replica;
                out.facts.push(Fact::Made { region, replica });
                if region == META_REGION {
                    let (rows, log) = (&*self.disk.rows, &*self.disk.log);
                    if let Some(made) = MetaRecord::create(create.clone(), rows, log, || {})? {
                        self.open_meta(made, true_us, out);
                    }
                } else {
                    let record = ReplicaRecord::made(create.clone());
                    make(&mut self.disk, &record);
                    let place = Place {
                        record,
                        made_us: true_us,
                    };
                    self.places.insert(region, place);
                    self.open(region, true_us, out);
                }
                Ok(())
            }
            _ if region == META_REGION => {
                self.with_meta(true_us, out, |member, cx, asked| {
                    member.on_order(order, cx, asked);
                });
                Ok(())
            }
            Some(Action::Destroy(_)) if self.bug == Bug::NeverDestroy => Ok(()),
            Some(Action::Destroy(destroy)) => {
                let replica = destroy.replica;
                let mut removed = None;
                self.on_regions(true_us, out, |owned, cx, asked| {
                    removed = owned.remove_replica(region as usize, order, cx, asked);
                });
                if removed.is_some() {
                    self.destroy(region);
                    out.facts.push(Fact::Destroyed { region, replica });
                }
                Ok(())
            }
            _ => self.on_regions(true_us, out, |owned, cx, asked| {
                owned.on_lead_order(region as usize, order, cx, asked)
            }),
        }
    }

    /// Another node asks for meta here.
    pub fn on_call(&mut self, asker: Asker, call: MetaCall, true_us: u64, out: &mut Effects) {
        if self.meta.is_some() {
            self.with_meta(true_us, out, |member, cx, asked| {
                member.on_call(call, asker, cx, asked);
            });
            return;
        }
        // It is not here; this is where it was when it was last heard of.
        let Some(desk) = &self.desk else {
            return;
        };
        let meta: Vec<Address> = desk
            .identity
            .meta
            .iter()
            .filter_map(|text| Some(Address::new(text.split(':').next()?, 7000)))
            .collect();
        let reply = match call {
            MetaCall::Join(_) => MetaAnswer::Join(Box::new(JoinAnswer {
                retry: true,
                meta,
                ..JoinAnswer::default()
            })),
            MetaCall::Admin(_) => return,
            MetaCall::Heartbeat(_) => MetaAnswer::Heartbeat(Box::new(HeartbeatAnswer {
                standing: Standing::NotLeader.into(),
                meta: meta.into_iter().map(route_node).collect(),
                ..HeartbeatAnswer::default()
            })),
        };
        out.replies.push((asker, reply));
    }
}

fn route_node(peer: Address) -> meta::wire::RouteNode {
    meta::wire::RouteNode {
        peer,
        ..meta::wire::RouteNode::default()
    }
}

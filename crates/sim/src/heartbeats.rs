//! The heartbeats of a simulated node: `node::Newcomer` and `node::Heartbeats`, the very code that a server's
//! start and its thread "node" call, with what they ask for carried out on a simulated disk and network.
//!
//! Nothing here decides anything about joining, heartbeats or orders (`server::cluster::heartbeats` does the
//! same with threads and sockets).

use std::collections::BTreeMap;

use meta::state::{Found, Settings};
use meta::wire::{Action, Address, Order, Profile};
use node::{
    HeartbeatContext, HeartbeatEffect, Heartbeats, Identity, MetaAnswer, MetaCall, MetaRecord,
    MetaTarget, NOT_DESTROYED, Newcomer, NewcomerStep, NodeReport, OpenHeartbeats, ReplicaRecord,
    Start, StartOptions, heartbeat_elsewhere, join_elsewhere,
};

use crate::bugs::Bug;
use crate::effects::{Effects, Fact};
use crate::machine::{Node, Place};
use crate::meta::{Member, Setup};
use crate::state::make;

pub const CALL_US: u64 = 2_000_000;

/// Who asked, and under which number.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    pub machine: u64,
    pub life: u64,
    pub ticket: u64,
}

/// A node's heartbeats, and what they were started with.
pub struct HeartbeatDriver {
    pub setup: Setup,
    /// The machines it was told of (`--join`), up to this one.
    told: u64,
    /// It founds the cluster (`--cluster-init`).
    init: Option<Settings>,
    /// The node that the operator has given up for it (`--replace`).
    replace: u64,
    /// What a founder proposes first.
    pub(crate) founder: Option<Found>,
    /// Of this start.
    token: u64,
    join: Vec<String>,
    stage: Stage,
    /// The number of the last call: an answer to another one is too late.
    ticket: u64,
    /// The due time the world was told of, and when it comes in true time.
    pub planned: Option<(u64, u64)>,
}

enum Stage {
    NotStarted,
    Joining {
        newcomer: Box<Newcomer>,
        due_ms: Option<u64>,
    },
    Beating(Box<Heartbeats>),
}

/// Machine `3` lives at the address `m3`.
fn address_of(machine: u64) -> Address {
    Address::new(format!("m{machine}"), 7000)
}

pub fn machine_of(address: &Address) -> Option<u64> {
    address.host.strip_prefix('m')?.parse().ok()
}

/// The same of an address as a text.
fn machine_at(text: &str) -> Option<u64> {
    text.strip_prefix('m')?.split(':').next()?.parse().ok()
}

/// The node that an operator is told to name.
fn said_to_replace(error: &str) -> Option<u64> {
    error.rsplit_once("--replace ")?.1.parse().ok()
}

fn profile_of(machine: u64) -> Profile {
    Profile {
        redis: address_of(machine),
        peer: address_of(machine),
        http_port: 0,
        tls_port: 0,
        labels: BTreeMap::new(),
        stores: true,
        metas: true,
        format: 1,
        version: String::new(),
    }
}

impl HeartbeatDriver {
    pub fn new(setup: Setup, told: u64, init: Option<Settings>) -> HeartbeatDriver {
        HeartbeatDriver {
            setup,
            told,
            init,
            founder: None,
            replace: 0,
            token: 0,
            join: Vec::new(),
            stage: Stage::NotStarted,
            ticket: 0,
            planned: None,
        }
    }

    pub fn node_id(&self) -> u64 {
        match &self.stage {
            Stage::Beating(heartbeats) => heartbeats.identity().node,
            Stage::Joining { .. } | Stage::NotStarted => 0,
        }
    }

    /// When it has to be called, by the node's own clock.
    pub fn due_ms(&self) -> Option<u64> {
        match &self.stage {
            Stage::NotStarted => None,
            Stage::Joining { due_ms, .. } => *due_ms,
            Stage::Beating(heartbeats) => heartbeats.due_ms(),
        }
    }

    fn begin_to_beat(&mut self, machine: u64, identity: Identity, clock_ms: u64) {
        let open = OpenHeartbeats {
            identity,
            token: self.token,
            profile: profile_of(machine),
            join: self.join.clone(),
            clock_ms,
        };
        self.stage = Stage::Beating(Box::new(open.open()));
    }

    fn call(&mut self, machine: Option<u64>, call: MetaCall, out: &mut Effects) {
        self.ticket += 1;
        // Nobody answers where nobody is.
        let machine = machine.unwrap_or(u64::MAX);
        out.calls.push((machine, self.ticket, call));
    }
}

impl Node {
    /// The part of a start that concerns meta.
    pub(crate) fn start_heartbeats(&mut self, true_us: u64, out: &mut Effects) {
        let clock_ms = self.now_ms(true_us);
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        let options = StartOptions {
            founds: driver.init.is_some(),
            joins: driver.init.is_none(),
        };
        let draw = || self.rng.u64(..);
        let start = match Start::begin(options, &*self.disk.rows, || {}, draw) {
            Ok(start) => start,
            Err(error) => {
                out.failure = Some(error);
                return;
            }
        };
        let settings = driver.init.filter(|_| start.is_founder);
        driver.founder = settings.map(|it| start.founding(it, profile_of(self.id)));
        driver.token = start.token;
        driver.planned = None;
        // A node that knows of others is not told again whom to ask.
        let told = (1..=driver.told).filter(|_| options.joins && start.identity.nodes.is_empty());
        driver.join = told
            .map(|machine| address_of(machine).to_string())
            .collect();
        match start.identity.node {
            0 => {
                let (profile, join) = (profile_of(self.id), driver.join.clone());
                let newcomer =
                    Newcomer::new(start.identity, profile, join, driver.replace, clock_ms);
                driver.stage = Stage::Joining {
                    newcomer: Box::new(newcomer),
                    due_ms: Some(clock_ms),
                };
            }
            _ => driver.begin_to_beat(self.id, start.identity, clock_ms),
        }
        match MetaRecord::read(&*self.disk.rows) {
            Ok(Some(kept)) => self.open_meta(kept, true_us, out),
            Ok(None) => {}
            Err(error) => out.failure = Some(error),
        }
    }

    /// Something changed that meta should hear of, or meta has news.
    pub fn trigger_heartbeat(&mut self, true_us: u64) {
        let clock_ms = self.now_ms(true_us);
        if let Some(driver) = &mut self.heartbeats
            && let Stage::Beating(heartbeats) = &mut driver.stage
        {
            heartbeats.on_heartbeat_trigger(clock_ms);
        }
    }

    /// A heartbeat may be due.
    pub fn beat(&mut self, true_us: u64, out: &mut Effects) {
        let clock_ms = self.now_ms(true_us);
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        driver.planned = driver.planned.filter(|(_, at_us)| *at_us > true_us);
        if driver.due_ms().is_some_and(|due_ms| due_ms <= clock_ms) {
            match driver.stage {
                Stage::Joining { .. } => self.join_on(true_us, out),
                _ => self.on_heartbeats(true_us, out, |it, cx, asked| it.on_due(cx, asked)),
            }
        }
    }

    /// A newcomer makes its next step.
    fn join_on(&mut self, true_us: u64, out: &mut Effects) {
        let clock_ms = self.now_ms(true_us);
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        let Stage::Joining { newcomer, due_ms } = &mut driver.stage else {
            return;
        };
        match newcomer.step(clock_ms) {
            NewcomerStep::Ask(address) => {
                *due_ms = None;
                let call = MetaCall::Join(newcomer.join().clone());
                driver.call(machine_at(&address), call, out);
            }
            NewcomerStep::Wait { ms, .. } => *due_ms = Some(clock_ms + ms),
        }
    }

    /// No answer came in time.
    pub fn on_no_reply(&mut self, ticket: u64, true_us: u64, out: &mut Effects) {
        let refused = MetaAnswer::Refused("no answer in time");
        self.on_reply(ticket, refused, true_us, out);
    }

    pub fn on_reply(&mut self, ticket: u64, reply: MetaAnswer, true_us: u64, out: &mut Effects) {
        let clock_ms = self.now_ms(true_us);
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        if driver.ticket != ticket {
            return;
        }
        driver.ticket += 1; // so that nothing else answers this call
        let Stage::Joining { newcomer, .. } = &mut driver.stage else {
            self.on_heartbeats(true_us, out, |it, cx, asked| match reply {
                MetaAnswer::Refused(_) => it.on_no_answer(cx, asked),
                reply => it.on_answer(reply, cx, asked),
            });
            return;
        };
        let joined = match reply {
            MetaAnswer::Join(answer) => newcomer.on_answer(*answer, &*self.disk.rows, || {}),
            other => {
                newcomer.on_no_answer(format!("{other:?}"));
                Ok(None)
            }
        };
        match joined {
            Ok(Some(identity)) => driver.begin_to_beat(self.id, identity, clock_ms),
            Ok(None) => self.join_on(true_us, out),
            Err(error) => match said_to_replace(&error) {
                // The operator knows that the disk is lost, and says so.
                Some(replace) if driver.replace != replace => {
                    driver.replace = replace;
                    self.start_heartbeats(true_us, out);
                }
                _ => out.failure = Some(error),
            },
        }
    }

    /// Something happens to the heartbeats, and what follows is carried out.
    fn on_heartbeats(
        &mut self,
        true_us: u64,
        out: &mut Effects,
        event: impl FnOnce(&mut Heartbeats, &HeartbeatContext<'_>, &mut Vec<HeartbeatEffect>),
    ) {
        let (wall_ms, clock_ms) = (self.clock.own_ms(true_us), self.now_ms(true_us));
        let Some(driver) = &mut self.heartbeats else {
            return;
        };
        let Stage::Beating(heartbeats) = &mut driver.stage else {
            return;
        };
        let cx = HeartbeatContext {
            wall_ms,
            clock_ms,
            rows: &*self.disk.rows,
            pause: || {},
            is_here: &|region| self.places.contains_key(&region),
        };
        let mut asked = Vec::new();
        event(heartbeats, &cx, &mut asked);
        for effect in asked {
            self.carry_out_heartbeat(effect, true_us, out);
        }
    }

    fn carry_out_heartbeat(&mut self, effect: HeartbeatEffect, true_us: u64, out: &mut Effects) {
        let done = match effect {
            HeartbeatEffect::Report => {
                let cores = self.regions.owned.iter_mut();
                let mut replicas: Vec<_> = cores.flat_map(|it| it.reports()).collect();
                replicas.extend(self.meta.as_ref().and_then(Member::report));
                let is_well = self.failed.is_none() && self.stalled_ms(true_us).is_none();
                let report = NodeReport {
                    replicas,
                    trouble: if is_well { "" } else { "its disk" }.into(),
                    ..NodeReport::default()
                };
                self.on_heartbeats(true_us, out, |it, cx, asked| {
                    it.on_report(Some(report), cx, asked);
                });
                return;
            }
            HeartbeatEffect::Ask { target, call } => {
                let machine = match &target {
                    MetaTarget::ThisNode => Some(self.id),
                    MetaTarget::Address(address) => machine_at(address),
                };
                if let Some(driver) = &mut self.heartbeats {
                    driver.call(machine, MetaCall::clone(&call), out);
                }
                return;
            }
            // Routes are asked of the heartbeats themselves, and nobody reads a log.
            HeartbeatEffect::PublishRoutes(_)
            | HeartbeatEffect::TablesKnown
            | HeartbeatEffect::Notice(_) => return,
            HeartbeatEffect::ClusterTime { low_ms, high_ms } => {
                return self.clock.on_cluster_time(low_ms, high_ms);
            }
            HeartbeatEffect::ToMeta(order) => return self.on_meta_order(*order, true_us, out),
            HeartbeatEffect::Stop(why) => {
                out.failure = Some(format!("meta wants it to stop: {why}"));
                return;
            }
            // Tables are made known by the world.
            HeartbeatEffect::TakeTables(_) | HeartbeatEffect::TakeUsers(_) => Ok(()),
            HeartbeatEffect::Destroy { .. } if self.bug == Bug::NeverDestroy => Ok(()),
            HeartbeatEffect::Destroy { order, replica } => {
                let region = order.region;
                let mut removed = None;
                self.on_region(region, true_us, out, |owned, cx, asked| {
                    removed = owned.remove_replica(region as usize, &order, cx, asked);
                });
                match removed {
                    Some(_) => {
                        self.destroy(region);
                        out.facts.push(Fact::Destroyed { region, replica });
                        Ok(())
                    }
                    None => Err(NOT_DESTROYED.into()),
                }
            }
            HeartbeatEffect::Lead(order) => {
                self.on_region(order.region, true_us, out, |owned, cx, asked| {
                    owned.on_lead_order(order.region as usize, &order, cx, asked)
                })
            }
            HeartbeatEffect::Create(records) => {
                for record in records {
                    self.create(record, true_us, out);
                }
                Ok(())
            }
        };
        self.on_heartbeats(true_us, out, |it, cx, asked| it.on_done(done, cx, asked));
    }

    fn create(&mut self, record: ReplicaRecord, true_us: u64, out: &mut Effects) {
        let (region, replica) = (record.region(), record.replica);
        out.facts.push(Fact::Made { region, replica });
        make(&mut self.disk, &record);
        let place = Place {
            record,
            made_us: true_us,
        };
        self.places.insert(region, place);
        self.open(region, true_us, out);
    }

    fn on_meta_order(&mut self, order: Order, true_us: u64, out: &mut Effects) {
        if self.meta.is_some() {
            self.with_meta(true_us, out, |member, cx, asked| {
                member.on_order(&order, cx, asked);
            });
            return;
        }
        let Some(Action::Create(create)) = order.action else {
            return;
        };
        let (region, replica) = (order.region, create.replica);
        let (rows, log) = (&*self.disk.rows, &*self.disk.log);
        match MetaRecord::create(create, rows, log, || {}) {
            Ok(Some(made)) => {
                out.facts.push(Fact::Made { region, replica });
                out.is_news = true;
                self.open_meta(made, true_us, out);
            }
            Ok(None) => {}
            Err(error) => out.failure = Some(error),
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
        let stage = self.heartbeats.as_ref().map(|driver| &driver.stage);
        let reply = match (stage, call) {
            (Some(Stage::Beating(heartbeats)), MetaCall::Join(_)) => {
                MetaAnswer::Join(Box::new(join_elsewhere(heartbeats.routes())))
            }
            (Some(Stage::Beating(heartbeats)), MetaCall::Heartbeat(_)) => {
                MetaAnswer::Heartbeat(Box::new(heartbeat_elsewhere(heartbeats.routes())))
            }
            // Nobody here is an administrator.
            _ => MetaAnswer::Refused("the node is starting"),
        };
        out.replies.push((asker, reply));
    }
}

//! The thread "node": drives this node's heartbeats ([`Heartbeats`]), keeps time, and carries out what
//! they ask for.
//!
//! ```text
//!   heartbeat_triggers, clock ─► thread "node" ─► Heartbeats ┬─► reports of the cores ─► back
//!                                                ├─► calls of meta ─► answers ─► back
//!                                                ├─► replicas made, destroyed, ordered ─► back
//!                                                └─► routes, tables, the log
//! ```
//!
//! It waits for every outcome: while a call or an order is under way nothing else happens here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use base::cluster::ReplicaId;
use bytes::Bytes;
use keyspace::rows::Changes;
use meta::wire::{Capacity, HeartbeatAnswer, Join, JoinAnswer, Order, Profile, ReplicaReport};
use node::{
    HeartbeatContext, HeartbeatEffect, HeartbeatNotice, Heartbeats, MetaAnswer, MetaCall,
    MetaTarget, NOT_DESTROYED, NodeReport, OpenHeartbeats, Pace, forget_log,
};
use prost::Message;
use transport::{CallError, Target};

use super::meta_thread::MetaInput;
use super::regions::{self, Task};
use super::replica_record::{self, Identity, ReplicaRecord};
use super::sizes::Sizes;
use super::tables::take_tables;
use super::{Cluster, METHOD_HEARTBEAT, METHOD_JOIN};
use crate::Shared;
use crate::clock::{self, clock_ms};
use crate::durable::Durable;
use crate::shared::random_seed;
use crate::users::take_users;

const CALL: Duration = Duration::from_secs(2);
/// A core that does not answer for so long is busy.
const REPORT: Duration = Duration::from_secs(5);

/// A node whose log failed ends if others do not lead its regions after this time.
const HAND_OVER: Duration = Duration::from_secs(15);
/// So long it may take to end in good order.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Makes the thread beat soon.
#[derive(Clone)]
pub struct HeartbeatTrigger(Sender<()>);

impl HeartbeatTrigger {
    pub fn channel() -> (HeartbeatTrigger, Receiver<()>) {
        let (sender, receiver) = channel();
        (HeartbeatTrigger(sender), receiver)
    }

    pub fn trigger_heartbeat(&self) {
        let _ = self.0.send(());
    }
}

/// What the thread begins with.
pub struct Node {
    pub shared: Arc<Shared>,
    pub cluster: Arc<Cluster>,
    pub identity: Identity,
    /// Of this start: a join that is tried again is the same join.
    pub token: u64,
    pub profile: Profile,
    pub pace: Pace,
    /// Peer addresses given with `--join`.
    pub join: Vec<String>,
    pub heartbeat_triggers: Receiver<()>,
}

impl Node {
    /// Until the node stops.
    pub fn run(self) {
        self.check_join();
        let shared = self.shared.clone();
        let Some(durable) = &shared.durable else {
            return;
        };
        let heartbeats = OpenHeartbeats {
            identity: self.identity,
            token: self.token,
            profile: self.profile,
            join: self.join,
            clock_ms: clock_ms(),
        };
        let carrier = Carrier {
            shared: &shared,
            cluster: &self.cluster,
            durable,
            pace: self.pace,
        };
        carrier.run(heartbeats.open(), &self.heartbeat_triggers);
    }

    /// Says so if the addresses of `--join` are those of another cluster than the data's: the node
    /// stays with its own.
    fn check_join(&self) {
        for address in &self.join {
            let target = Target::Address(address.clone());
            let transport = &self.cluster.transport;
            let asked = transport.call_blocking(target, METHOD_JOIN, Bytes::new(), CALL);
            if let Err(CallError::Unreachable(why)) = asked
                && why.contains("wrong cluster")
            {
                tracing::warn!(
                    node = self.cluster.node,
                    "the data directory is that of a node of another cluster than {address} ({why}); \
                     it stays with its own. To join that one, use an empty directory"
                );
            }
        }
    }
}

/// Carries out what the heartbeats ask for.
struct Carrier<'a> {
    shared: &'a Shared,
    cluster: &'a Cluster,
    durable: &'a Durable,
    pace: Pace,
}

impl Carrier<'_> {
    fn run(&self, mut heartbeats: Heartbeats, heartbeat_triggers: &Receiver<()>) {
        let mut sizes = Sizes::default();
        let mut failed_since = None;
        while !self.shared.shutdown.is_asked()
            && let Some(due_ms) = heartbeats.due_ms()
        {
            let wait_ms = due_ms.saturating_sub(clock_ms());
            match heartbeat_triggers.recv_timeout(Duration::from_millis(wait_ms)) {
                Ok(()) => heartbeats.on_heartbeat_trigger(clock_ms()),
                Err(RecvTimeoutError::Timeout) => {
                    self.beat(&mut heartbeats, &mut sizes);
                    self.end_if_in_the_way(&heartbeats, &mut failed_since);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A node whose log failed has told everybody, and others lead its regions. If they do not, or meta cannot be asked
    /// whether they do, its process may be what keeps them from it: then it ends.
    fn end_if_in_the_way(&self, heartbeats: &Heartbeats, failed_since: &mut Option<Instant>) {
        if !self.durable.is_failed() {
            return;
        }
        let since = *failed_since.get_or_insert_with(Instant::now);
        let (node, routes) = (self.cluster.node, heartbeats.routes());
        let mut regions = routes.regions().map(|it| it.descriptor.region);
        let leads = regions.any(|region| routes.leader(region) == Some(node));
        if !leads || since.elapsed() < HAND_OVER {
            return;
        }
        tracing::error!(
            node,
            "this node cannot write, and nobody else leads its regions: the process ends, so that others may. Find \
             out why the disk failed, then start it again"
        );
        self.shared.shutdown.ask();
        std::thread::sleep(LAST_WORDS);
        std::process::exit(1);
    }

    /// Until the next heartbeat may be due.
    fn beat(&self, heartbeats: &mut Heartbeats, sizes: &mut Sizes) {
        let mut out = Vec::new();
        self.at_this_moment(|cx| heartbeats.on_due(cx, &mut out));
        while !out.is_empty() {
            for effect in std::mem::take(&mut out) {
                self.carry_out(effect, heartbeats, sizes, &mut out);
            }
        }
    }

    /// Tells the heartbeats of something that has just happened.
    fn at_this_moment(&self, event: impl FnOnce(&HeartbeatContext<'_>)) {
        event(&HeartbeatContext {
            wall_ms: clock::own_ms(),
            clock_ms: clock_ms(),
            rows: &*self.durable.stores.rows,
            pause: super::pause,
            is_here: &|region| self.cluster.table.place_of(region).is_some(),
        });
    }

    fn carry_out(
        &self,
        effect: HeartbeatEffect,
        heartbeats: &mut Heartbeats,
        sizes: &mut Sizes,
        out: &mut Vec<HeartbeatEffect>,
    ) {
        let done = match effect {
            HeartbeatEffect::Report => {
                let report = self.report(sizes);
                self.at_this_moment(|cx| heartbeats.on_report(report, cx, out));
                return;
            }
            HeartbeatEffect::Ask { target, call } => {
                let answer = self.ask(target, &call);
                self.at_this_moment(|cx| match answer {
                    Some(answer) => heartbeats.on_answer(answer, cx, out),
                    None => heartbeats.on_no_answer(cx, out),
                });
                return;
            }
            HeartbeatEffect::PublishRoutes(routes) => return self.cluster.publish_routes(routes),
            HeartbeatEffect::TablesKnown => {
                self.shared.users.now_known();
                return self.cluster.heard_tables.store(true, Ordering::Release);
            }
            HeartbeatEffect::ToMeta(order) => {
                return self.cluster.tell_meta(MetaInput::Order(order));
            }
            HeartbeatEffect::ClusterTime { low_ms, high_ms } => {
                return clock::on_cluster_time(low_ms, high_ms);
            }
            HeartbeatEffect::Notice(notice) => return self.log(notice),
            HeartbeatEffect::Stop(why) => return self.stop(&why),
            HeartbeatEffect::TakeTables(tables) => take_tables(self.shared, &tables),
            HeartbeatEffect::TakeUsers(users) => take_users(self.shared, &users),
            HeartbeatEffect::Destroy { order, replica } => self.destroy(order, replica),
            HeartbeatEffect::Lead(order) => self.lead(order),
            HeartbeatEffect::Create(records) => self.create(&records),
        };
        self.at_this_moment(|cx| heartbeats.on_done(done, cx, out));
    }

    fn ask(&self, target: MetaTarget, call: &MetaCall) -> Option<MetaAnswer> {
        let target = match target {
            MetaTarget::ThisNode => Target::Node(self.cluster.node),
            MetaTarget::Address(address) => Target::Address(address),
        };
        let transport = &self.cluster.transport;
        match call {
            MetaCall::Join(join) => {
                let answer = ask_to_join(transport, target, join).ok()?;
                Some(MetaAnswer::Join(Box::new(answer)))
            }
            MetaCall::Heartbeat(heartbeat) => {
                let body = Bytes::from(heartbeat.encode_to_vec());
                let answer = transport.call_blocking(target, METHOD_HEARTBEAT, body, CALL);
                let answer = HeartbeatAnswer::decode(answer.ok()?).ok()?;
                Some(MetaAnswer::Heartbeat(Box::new(answer)))
            }
            MetaCall::Admin(_) => None,
        }
    }

    /// This node is not wanted any more.
    fn stop(&self, why: &str) {
        tracing::error!(node = self.cluster.node, "this node has to stop: {why}");
        self.shared.shutdown.ask();
    }

    fn log(&self, notice: HeartbeatNotice) {
        let node = self.cluster.node;
        match notice {
            HeartbeatNotice::MetaSilent => tracing::warn!(
                node,
                "the meta service does not answer; data is served as before, but nothing is placed, \
                 repaired or balanced until it does"
            ),
            HeartbeatNotice::MetaAnswers => {
                tracing::info!(node, "the meta service answers again");
            }
            HeartbeatNotice::ClocksApart { apart_ms, is_ahead } => {
                let side = if is_ahead { "ahead of" } else { "behind" };
                tracing::warn!(
                    node,
                    "the clock of this node is {} s {side} that of the meta service's nodes: this node goes by \
                     the time of the cluster instead; set its clock",
                    apart_ms / 1000
                );
            }
            HeartbeatNotice::DiskFull { free_bytes, bytes } => tracing::warn!(
                node,
                "the disk is nearly full ({} MB of {} MB are free): no replicas are placed here",
                free_bytes >> 20,
                bytes >> 20
            ),
            HeartbeatNotice::TablesRefused { version, why } => tracing::warn!(
                node,
                version,
                "a change of the tables cannot be taken over: {why}"
            ),
            HeartbeatNotice::UsersRefused { version, why } => tracing::warn!(
                node,
                version,
                "a change of the users cannot be taken over: {why}"
            ),
            HeartbeatNotice::NotCreated(text) => tracing::warn!(node, "{text}"),
        }
    }

    fn report(&self, sizes: &mut Sizes) -> Option<NodeReport> {
        let mut replicas = self.replicas()?;
        sizes.put(&*self.durable.stores.rows, &mut replicas);
        Some(NodeReport {
            replicas,
            capacity: self.capacity(),
            tables_version: self.shared.catalogue_version(),
            trouble: self.durable.trouble().unwrap_or_default().to_owned(),
            users_version: self.shared.users_version(),
        })
    }

    /// How all replicas of this node stand. None while a core is too busy to say.
    fn replicas(&self) -> Option<Vec<ReplicaReport>> {
        let (to, from) = channel();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Task::Report { to: to.clone() }.into());
        }
        let mut all = Vec::new();
        for _ in &self.shared.mailboxes {
            all.append(&mut from.recv_timeout(REPORT).ok()?);
        }
        all.extend(self.cluster.meta_report());
        Some(all)
    }

    fn capacity(&self) -> Capacity {
        let settings = self.shared.settings.current();
        let (disk_bytes, disk_free_bytes) = crate::durable::disk(&settings.dir).unwrap_or_default();
        Capacity {
            disk_bytes,
            disk_free_bytes,
            memory_bytes: stats::memory::used_memory() as u64,
            cores: self.shared.map.cores() as u32,
            ..Capacity::default()
        }
    }

    /// Makes replicas: their records are on disk before they say a word.
    fn create(&self, records: &[ReplicaRecord]) -> Result<(), String> {
        let (stores, progress) = (&self.durable.stores, &self.durable.progress);
        regions::prepare(stores, records)?;
        for record in records {
            let Some(place) = self.cluster.table.take(record.region()) else {
                return Err("this node has no room for more replicas".into());
            };
            let seed = random_seed();
            let region = regions::open(stores, record, place, progress, self.pace, seed)?;
            self.to_core(place, Task::Add(region));
        }
        Ok(())
    }

    /// Removes a replica that is no member any more, its rows and its log.
    fn destroy(&self, order: Box<Order>, replica: ReplicaId) -> Result<(), String> {
        let id = order.region;
        let Some(place) = self.cluster.table.place_of(id) else {
            return Ok(());
        };
        let routes = self.cluster.routes();
        let region = routes.region(id);
        let segments = region.map_or_else(Vec::new, |it| it.descriptor.segments.clone());
        let (done, answer) = channel();
        self.to_core(place, Task::Remove { place, order, done });
        if answer.recv_timeout(CALL) != Ok(true) {
            return Err(NOT_DESTROYED.into());
        }
        self.durable.progress.set_region(place, 0, 0);
        let rows = &self.durable.stores.rows;
        let mut changes = Changes::new();
        replica_record::put_gone(&mut changes, id, replica);
        replica_record::write(&**rows, &changes, super::pause)?;
        rows.remove_region(id, &segments)
            .map_err(|error| error.to_string())?;
        forget_log(&*self.durable.stores.log, id)?;
        self.cluster.table.free(id);
        let (node, region) = (self.cluster.node, id);
        tracing::info!(node, region, "replica {replica} of region {region} is gone");
        Ok(())
    }

    /// An order to a leader goes to its core.
    fn lead(&self, order: Box<Order>) -> Result<(), String> {
        let Some(place) = self.cluster.table.place_of(order.region) else {
            return Ok(());
        };
        let (failed, why) = channel();
        let task = Task::Lead {
            place,
            order,
            failed,
        };
        self.to_core(place, task);
        match why.recv_timeout(CALL) {
            Ok(why) => Err(why),
            Err(_) => Ok(()),
        }
    }

    fn to_core(&self, place: usize, task: Task) {
        let core = self.shared.map.core_of(place);
        if let Some(mailbox) = self.shared.mailboxes.get(core) {
            mailbox.send(task.into());
        }
    }
}

/// Asks one node to be let in.
pub fn ask_to_join(
    transport: &transport::Transport,
    target: Target,
    join: &Join,
) -> Result<JoinAnswer, CallError> {
    let body = Bytes::from(join.encode_to_vec());
    let answer = transport.call_blocking(target, METHOD_JOIN, body, CALL)?;
    JoinAnswer::decode(answer)
        .map_err(|_| CallError::Rejected("an answer that makes no sense".into()))
}

//! The node's own thread: heartbeats to meta, and what meta orders.
//!
//! ```text
//!   every second, or when something changed:
//!     cores ─► reports ─► Heartbeat ─► meta's leader ─► answer: orders, routes
//!                                                         │        └─► route table, addresses
//!                                                         └─► create, destroy here; the rest: cores
//! ```
//!
//! While meta is not to be reached everything else goes on: routes are as last heard, and replicas
//! know best themselves who leads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use keyspace::rows::Changes;
use meta::wire::{
    Action, Address, Capacity, Heartbeat, HeartbeatAnswer, Join, JoinAnswer, Order, OrderReport,
    Profile, ReplicaReport, Standing,
};
use prost::Message;
use transport::{CallError, Target};

use super::meta_thread::MetaInput;
use super::regions::{self, Task};
use super::seats::{self, Identity, ReplicaRecord};
use super::sizes::Sizes;
use super::tables::take_tables;
use super::{Cluster, METHOD_HEARTBEAT, METHOD_JOIN};
use crate::Shared;
use crate::shared::{now_ms, random_seed};
use node::{Pace, forget_log};

const BEAT: Duration = Duration::from_secs(1);
/// Orders and changes make the next heartbeat come sooner, but not at once: more may follow.
const SOON: Duration = Duration::from_millis(20);
const CALL: Duration = Duration::from_secs(2);
/// A core that does not answer for so long is busy.
const REPORT: Duration = Duration::from_secs(5);

/// A disk with less room takes no more replicas, however large it is.
const FULL_BYTES: u64 = 1 << 30;
/// Clocks that differ by more are told of; heartbeats take a while, too.
const CLOCKS_APART_MS: u64 = 10_000;

/// Makes the thread beat soon.
#[derive(Clone)]
pub struct Nudge(Sender<()>);

impl Nudge {
    pub fn channel() -> (Nudge, Receiver<()>) {
        let (sender, receiver) = channel();
        (Nudge(sender), receiver)
    }

    pub fn nudge(&self) {
        let _ = self.0.send(());
    }
}

/// Who the node is and how it lives.
pub struct Node {
    pub shared: Arc<Shared>,
    pub cluster: Arc<Cluster>,
    pub identity: Identity,
    pub profile: Profile,
    pub pace: Pace,
    /// Peer addresses given with `--join`.
    pub join: Vec<String>,
    pub nudges: Receiver<()>,
    /// Of this start: a join that is tried again is the same join.
    pub token: u64,
}

/// What goes on between heartbeats.
struct Course {
    number: u64,
    /// Where meta's leader was last.
    leader: Option<Target>,
    /// How often meta was looked for.
    turn: usize,
    /// Accepted by meta since this start.
    has_joined: bool,
    failures: Vec<OrderReport>,
    /// Since when meta does not answer, and whether it was told.
    silent_since: Option<Instant>,
    told: bool,
    /// It was said that the clocks differ, that the disk is full.
    told_clocks: bool,
    told_full: bool,
    /// The version of the tables that could not be taken over.
    told_tables: u64,
    sizes: Sizes,
}

impl Node {
    /// Until the node stops.
    pub fn run(mut self) {
        let mut course = Course {
            number: 0,
            leader: None,
            turn: 0,
            has_joined: false,
            failures: Vec::new(),
            silent_since: None,
            told: false,
            told_clocks: false,
            told_full: false,
            told_tables: 0,
            sizes: Sizes::default(),
        };
        self.check_join();
        let mut next = Instant::now();
        while !self.shared.shutdown.is_asked() {
            let wait = next.saturating_duration_since(Instant::now());
            match self.nudges.recv_timeout(wait) {
                Ok(()) => {
                    next = next.min(Instant::now() + SOON);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            next = Instant::now() + BEAT;
            if !course.has_joined {
                course.has_joined = self.join_again(&mut course);
            }
            if course.has_joined && self.beat(&mut course) {
                next = Instant::now() + SOON;
            }
        }
    }

    /// A node that is known comes back: meta hears where it lives now.
    fn join_again(&mut self, course: &mut Course) -> bool {
        let join = Join {
            cluster: self.identity.cluster,
            node: self.identity.node,
            token: self.token,
            start_count: self.identity.start_count,
            profile: self.profile.clone(),
        };
        let mut targets = self.targets(course);
        let mut at = 0;
        while let Some(target) = targets.get(at).cloned() {
            at += 1;
            match ask_to_join(&self.cluster.transport, target, &join) {
                Ok(answer) if answer.node == self.identity.node => return true,
                Ok(answer) if !answer.refused.is_empty() && !answer.retry => {
                    // Its replicas would only disturb those that took their place.
                    let text = format!("meta does not take this node back: {}", answer.refused);
                    self.stop(&text);
                    return false;
                }
                // Meta may have moved away from all this node knew of.
                Ok(answer) => add_targets(&mut targets, answer.leader.iter().chain(&answer.meta)),
                Err(_) => {}
            }
        }
        self.tell_silence(course);
        false
    }

    /// One heartbeat; true if another should follow soon.
    fn beat(&mut self, course: &mut Course) -> bool {
        let Some(mut replicas) = self.reports() else {
            return true;
        };
        if let Some(durable) = &self.shared.durable {
            course.sizes.put(&*durable.stores.rows, &mut replicas);
        }
        course.number += 1;
        let heartbeat = Heartbeat {
            cluster: self.identity.cluster,
            node: self.identity.node,
            start_count: self.identity.start_count,
            number: course.number,
            route_version: self.cluster.routes().version(),
            replicas,
            capacity: self.capacity(course),
            orders: std::mem::take(&mut course.failures),
            tables_version: self.shared.catalogue_version(),
        };
        let body = Bytes::from(heartbeat.encode_to_vec());
        let mut targets = self.targets(course);
        let mut at = 0;
        while let Some(target) = targets.get(at).cloned() {
            at += 1;
            let transport = &self.cluster.transport;
            let answer =
                transport.call_blocking(target.clone(), METHOD_HEARTBEAT, body.clone(), CALL);
            let Some(answer) = answer.ok().and_then(|it| HeartbeatAnswer::decode(it).ok()) else {
                continue;
            };
            match answer.standing() {
                Standing::Accepted => {
                    course.leader = Some(target);
                    course.silent_since = None;
                    if std::mem::take(&mut course.told) {
                        tracing::info!(node = self.cluster.node, "the meta service answers again");
                    }
                    self.compare_clocks(course, answer.wall_ms);
                    return self.on_answer(course, answer);
                }
                Standing::NotLeader => {
                    course.leader = answer
                        .leader
                        .map(|node| Target::Address(node.peer.to_string()));
                    if course.leader.is_some() {
                        return true;
                    }
                    add_targets(&mut targets, answer.meta.iter().map(|node| &node.peer));
                }
                Standing::Unknown => {
                    course.has_joined = false;
                    return true;
                }
                Standing::Superseded | Standing::Gone | Standing::WrongCluster => {
                    self.stop(&answer.text);
                    return false;
                }
            }
        }
        course.leader = None;
        self.tell_silence(course);
        false
    }

    /// This node is not wanted any more.
    fn stop(&self, why: &str) {
        tracing::error!(
            node = self.cluster.node,
            "this node has to stop: {why}. To take part again, start it with an empty data \
             directory and --join"
        );
        self.shared.shutdown.ask();
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

    /// Keys expire by the clock of whoever leads them: clocks that differ much are worth a word.
    fn compare_clocks(&self, course: &mut Course, theirs_ms: u64) {
        let ours_ms = now_ms();
        let apart_ms = ours_ms.abs_diff(theirs_ms);
        if theirs_ms == 0 || apart_ms < CLOCKS_APART_MS {
            course.told_clocks = false;
            return;
        }
        if !std::mem::replace(&mut course.told_clocks, true) {
            let side = if ours_ms > theirs_ms {
                "ahead of"
            } else {
                "behind"
            };
            tracing::warn!(
                node = self.cluster.node,
                "the clock of this node is {} s {side} that of the meta service's leader: keys may \
                 expire too early or too late; set the clocks",
                apart_ms / 1000
            );
        }
    }

    fn tell_silence(&self, course: &mut Course) {
        let since = *course.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() > 5 * BEAT && !course.told {
            course.told = true;
            tracing::warn!(
                node = self.cluster.node,
                "the meta service does not answer; data is served as before, but nothing is placed, \
                 repaired or balanced until it does"
            );
        }
    }

    /// Whom to ask, the likeliest first. The last is one of the other nodes: meta may have moved away
    /// from all that this node last heard of. One at a time, for those that are dead cost a while.
    fn targets(&self, course: &mut Course) -> Vec<Target> {
        let mut targets: Vec<Target> = course.leader.iter().cloned().collect();
        targets.push(Target::Node(self.identity.node));
        let known = self.identity.meta.iter().chain(&self.join);
        for address in known {
            let target = Target::Address(address.clone());
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let is_asked = |address: &str| targets.contains(&Target::Address(address.to_string()));
        let other = self.identity.somebody_else(course.turn, is_asked);
        targets.extend(other.map(|address| Target::Address(address.to_string())));
        course.turn = course.turn.wrapping_add(1);
        targets
    }

    /// How all replicas of this node stand. None while a core is too busy to say: what is left out
    /// would count as gone.
    fn reports(&self) -> Option<Vec<ReplicaReport>> {
        let (to, from) = channel();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Task::Report { to: to.clone() }.into());
        }
        let mut all = Vec::new();
        for _ in &self.shared.mailboxes {
            all.append(&mut from.recv_timeout(REPORT).ok()?);
        }
        all.extend(self.cluster.meta_report());
        self.cluster.hear_replicas(&all);
        let routes = self.cluster.routes();
        for report in &mut all {
            if routes.meta_knows(report.region, report.epoch) {
                report.descriptor = None;
            }
        }
        Some(all)
    }

    fn capacity(&self, course: &mut Course) -> Capacity {
        let settings = self.shared.settings.current();
        let (disk_bytes, disk_free_bytes) = disk(&settings.dir);
        let disk_full = disk_free_bytes < (disk_bytes / 50).min(FULL_BYTES);
        if disk_full && !course.told_full {
            tracing::warn!(
                node = self.cluster.node,
                "the disk is nearly full ({} MB of {} MB are free): no replicas are placed here",
                disk_free_bytes >> 20,
                disk_bytes >> 20
            );
        }
        course.told_full = disk_full;
        Capacity {
            disk_bytes,
            disk_free_bytes,
            disk_full,
            memory_bytes: stats::memory::used_memory() as u64,
            cores: self.shared.map.cores() as u32,
            load: 0,
        }
    }

    fn on_answer(&mut self, course: &mut Course, answer: HeartbeatAnswer) -> bool {
        let mut changed = false;
        if let Some(table) = &answer.routes {
            self.cluster.update_routes(table);
            changed = self.learn_addresses(&answer);
        }
        if changed && let Some(durable) = &self.shared.durable {
            let _ = self.identity.keep(&*durable.stores.rows, super::pause);
        }
        let mut creates = Vec::new();
        let mut again = false;
        if let Some(tables) = &answer.tables
            && tables.version > self.shared.catalogue_version()
        {
            match take_tables(&self.shared, tables) {
                // Meta hears of it soon: somebody waits.
                Ok(()) => again = true,
                Err(why) => self.tell_tables(course, tables.version, &why),
            }
        }
        self.cluster.heard_tables.store(true, Ordering::Release);
        for order in answer.orders {
            let id = (order.id, order.region);
            let result = match order.action.clone() {
                Some(Action::Create(create)) => {
                    creates.push((order.clone(), create));
                    Ok(())
                }
                Some(Action::Destroy(destroy)) => {
                    again = true;
                    self.destroy(&order, destroy.replica)
                }
                _ => self.lead(&order),
            };
            if let Err(text) = result {
                let (order, region) = id;
                course.failures.push(OrderReport {
                    order,
                    region,
                    text,
                });
            }
        }
        if !creates.is_empty() {
            again = true;
            if let Err(text) = self.create(creates) {
                tracing::warn!(node = self.cluster.node, "{text}");
            }
        }
        again
    }

    /// Once for each version; it comes with every answer.
    fn tell_tables(&self, course: &mut Course, version: u64, why: &str) {
        if course.told_tables != version {
            course.told_tables = version;
            tracing::warn!(
                node = self.cluster.node,
                version,
                "a change of the tables cannot be taken over: {why}"
            );
        }
    }

    /// Addresses of nodes, from the route table; true if there is something new to keep.
    fn learn_addresses(&mut self, answer: &HeartbeatAnswer) -> bool {
        let routes = self.cluster.routes();
        let nodes: Vec<String> = routes
            .nodes()
            .map(|node| format!("{}@{}", node.node, node.peer))
            .collect();
        let meta: Vec<String> = answer.meta.iter().map(|it| it.peer.to_string()).collect();
        let changed = nodes != self.identity.nodes || meta != self.identity.meta;
        self.identity.nodes = nodes;
        self.identity.meta = meta;
        changed
    }

    /// Makes replicas: their seats are on disk before they say a word.
    fn create(&self, creates: Vec<(Order, meta::wire::Create)>) -> Result<(), String> {
        let Some(durable) = &self.shared.durable else {
            return Ok(());
        };
        let rows = &durable.stores.rows;
        let mut made = Vec::new();
        for (order, create) in creates {
            if order.region == base::cluster::META_REGION {
                self.cluster.tell_meta(MetaInput::Order(Box::new(order)));
                continue;
            }
            let is_here = self.cluster.table.place_of(order.region).is_some();
            if is_here || seats::gone(&**rows, order.region)? >= create.replica {
                continue;
            }
            made.push(ReplicaRecord::made(create));
        }
        if made.is_empty() {
            return Ok(());
        }
        regions::prepare(&durable.stores, &made)?;
        for seat in made {
            let Some(place) = self.cluster.table.take(seat.region()) else {
                return Err("this node has no room for more replicas".into());
            };
            let (stores, progress) = (&durable.stores, &durable.progress);
            let region = regions::open(stores, &seat, place, progress, self.pace, random_seed())?;
            self.to_core(place, Task::Add(region));
        }
        Ok(())
    }

    /// Removes a replica that is no member any more, its rows and its log.
    fn destroy(&self, order: &Order, replica: u64) -> Result<(), String> {
        if order.region == base::cluster::META_REGION {
            self.cluster
                .tell_meta(MetaInput::Order(Box::new(order.clone())));
            return Ok(());
        }
        let (Some(place), Some(durable)) = (
            self.cluster.table.place_of(order.region),
            &self.shared.durable,
        ) else {
            return Ok(());
        };
        let routes = self.cluster.routes();
        let region = routes.region(order.region);
        let segments = region.map_or_else(Vec::new, |it| it.descriptor.segments.clone());
        let (done, answer) = channel();
        self.to_core(
            place,
            Task::Remove {
                place,
                order: Box::new(order.clone()),
                done,
            },
        );
        if answer.recv_timeout(CALL) != Ok(true) {
            return Err("the replica is busy, or a member after all".into());
        }
        durable.progress.set_region(place, 0, 0);
        let rows = &durable.stores.rows;
        let mut changes = Changes::new();
        seats::put_gone(&mut changes, order.region, replica);
        seats::write(&**rows, &changes, super::pause)?;
        rows.remove_region(order.region, &segments)
            .map_err(|error| error.to_string())?;
        forget_log(&*durable.stores.log, order.region)?;
        self.cluster.table.free(order.region);
        let (node, region) = (self.cluster.node, order.region);
        tracing::info!(node, region, "replica {replica} of region {region} is gone");
        Ok(())
    }

    /// An order to a leader goes to its core.
    fn lead(&self, order: &Order) -> Result<(), String> {
        if order.region == base::cluster::META_REGION {
            self.cluster
                .tell_meta(MetaInput::Order(Box::new(order.clone())));
            return Ok(());
        }
        let Some(place) = self.cluster.table.place_of(order.region) else {
            return Err("no replica of this region is here".into());
        };
        let (failed, why) = channel();
        self.to_core(
            place,
            Task::Lead {
                place,
                order: Box::new(order.clone()),
                failed,
            },
        );
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

/// Others to be asked, behind those that are known.
fn add_targets<'a>(targets: &mut Vec<Target>, more: impl Iterator<Item = &'a Address>) {
    for address in more {
        let target = Target::Address(address.to_string());
        if !targets.contains(&target) {
            targets.push(target);
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

/// Size and room of the disk that a folder is on.
fn disk(folder: &std::path::Path) -> (u64, u64) {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else {
        return (0, 0);
    };
    // SAFETY: plain data that the call fills; the path ends with a zero byte.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &mut found) != 0 {
            return (0, 0);
        }
        let block = found.f_frsize;
        (found.f_blocks * block, found.f_bavail * block)
    }
}

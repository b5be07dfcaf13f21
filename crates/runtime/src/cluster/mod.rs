//! A node among others: regions with peers, and the way to the node that leads a slot.
//!
//! ```text
//!   redirect   where a command has to go
//!   peers      messages, ticks, reads             regions   replicas that come and go
//!   snapshots  whole regions, out and in
//!   heartbeats heartbeats to meta, its orders     meta_thread  this node's member of meta
//!   digests    whether all replicas are the same    tables    the catalogue of tables, from meta
//!   leadership log lines about who leads            recovery  what is left when a majority is lost
//!   unwell     nodes that are heard and cannot write
//!   secret     what peers have to prove
//!   users      the users, from meta
//! ```
//!
//! A command runs as on a node that is alone, on the core of its region. What differs: the region may
//! be led elsewhere, its entries count when a majority has them, and a read needs proof that nobody
//! else leads.
//!
//! *Invariants*: nothing is acknowledged that a majority has not on disk; nothing is read that is not
//! committed, or by a replica that may have been deposed; only the region's core touches its replica.

mod digests;
mod heartbeats;
pub(crate) mod leadership;
mod meta_thread;
mod peers;
pub mod recovery;
mod redirect;
mod regions;
mod secret;
mod sizes;
mod snapshots;
mod start;
mod tables;
mod unwell;
mod users;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base::cluster::{ClusterId, NodeId};
use bytes::Bytes;
use meta::route::{Routes, SlotRange};
use meta::wire::{ReplicaReport, RouteNode};
use replica::Unfit;
use transport::{RaftMessage, Transport};

pub use ::node::replica_record;
pub use ::node::{Newcomers, Peers, Serving, TIMEOUT_MS, Unserved, lead, report_of_replica};
pub(crate) use digests::take_digest;
pub use peers::Outbox;
pub use redirect::{CHOOSING, Leads, no_leader};
pub use regions::{Table, Task};
pub use secret::{SECRET_FILE, SecretOrder};
pub use start::{PeerDoor, is_cluster_data, open_cluster, other_nodes};
pub use tables::change_tables;
pub use users::change_users;

use crate::cores::{Place, Places};
use heartbeats::HeartbeatTrigger;
use meta_thread::MetaInput;
use snapshots::Received;

/// Calls between nodes, and of `neokv ctl`.
pub const METHOD_JOIN: u16 = 1;
pub const METHOD_HEARTBEAT: u16 = 2;
pub const METHOD_ADMIN: u16 = 3;
pub const METHOD_DIGEST: u16 = 4;
pub const METHOD_DIGEST_OF: u16 = 5;
pub const METHOD_SECRET: u16 = 6;

/// In place of a region in a message: meta has news for the node, which had better ask.
const NEWS: u64 = u64::MAX;
/// How long something about a peer is not logged again.
const TELL_AGAIN: Duration = Duration::from_secs(5);

/// What the threads of a cluster node share.
pub struct Cluster {
    pub id: ClusterId,
    pub node: NodeId,
    pub places: Arc<Places>,
    routes: ArcSwap<Routes>,
    pub transport: Transport,
    table: Table,
    received: Received,
    digests: digests::Made,
    meta: Sender<MetaInput>,
    /// How this node's member of meta stands, for the next heartbeat.
    meta_report: Mutex<Option<ReplicaReport>>,
    heartbeat_trigger: HeartbeatTrigger,
    /// Nodes that say that they cannot write.
    unwell: unwell::Unwell,
    /// Places whose replica led and does not know who does now.
    lost: Mutex<BTreeSet<Place>>,
    tick_ms: u64,
    /// Meta has said since the start which tables there are.
    heard_tables: AtomicBool,
    /// When a message that was not taken in was last told of.
    unfit_told: Mutex<Option<Instant>>,
    /// Reads of READONLY sessions may be answered by followers.
    pub follower_read: bool,
    /// Clients are told where to go; else their commands are taken there.
    pub redirects: bool,
}

impl Cluster {
    /// Whether meta has said since the start which tables there are.
    pub fn has_heard_tables(&self) -> bool {
        self.heard_tables.load(Ordering::Acquire)
    }

    #[inline]
    pub fn routes(&self) -> arc_swap::Guard<Arc<Routes>> {
        self.routes.load()
    }

    /// The cores go by these routes from now on. Only the thread "node" calls it.
    fn publish_routes(&self, routes: Routes) {
        for node in routes.nodes() {
            self.transport.set_peer(node.node, node.peer.to_string());
        }
        // Whoever was removed is not heard any more.
        for (node, _) in self.transport.peers() {
            if routes.node(node).is_none() {
                self.transport.remove_peer(node);
            }
        }
        self.routes.store(Arc::new(routes));
    }

    /// Where HTTP is spoken by the node that leads a slot, as far as this node knows.
    pub fn http_of(&self, slot: base::Slot) -> Option<String> {
        Some(self.routes().leader_of(slot)?.http()?.to_string())
    }

    pub fn http_of_node(&self, node: NodeId) -> Option<String> {
        Some(self.routes().node(node)?.http()?.to_string())
    }

    /// The same of the node that speaks Redis at this address: where a MOVED leads.
    pub fn http_of_redis(&self, address: &str) -> Option<String> {
        let routes = self.routes();
        let mut nodes = routes.nodes();
        let node = nodes.find(|node| node.redis.to_string() == address)?;
        Some(node.http()?.to_string())
    }

    /// A replica here has lost its region, or knows who leads it now.
    pub(crate) fn set_lost(&self, place: Place, is_lost: bool) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        match is_lost {
            true => lost.insert(place),
            false => lost.remove(&place),
        };
    }

    /// Slots and who has them, for clients that ask. Routes say that this node leads until meta says otherwise, and a
    /// node that is cut off does not hear of it: a client that believed it would stay here. The others know better, so
    /// one of them is named, now this one and now that.
    pub fn ranges(&self) -> Vec<SlotRange> {
        let mut ranges = self.routes().ranges();
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_empty() {
            return ranges;
        }
        for range in &mut ranges {
            let place = self.places.of_slot(*range.slots.start());
            if range.leader == Some(self.node) && lost.contains(&place) {
                let turn =
                    (crate::clock::clock_ms() / 1000) as usize % range.followers.len().max(1);
                if let Some(other) = range.followers.get_mut(turn) {
                    range.leader = Some(std::mem::replace(other, self.node));
                }
            }
        }
        ranges
    }

    /// Nodes that can be heard and can write, as far as they say, this one among them; ascending.
    fn heard_nodes(&self) -> Vec<NodeId> {
        let mut nodes = self.transport.up_nodes();
        let now = std::time::Instant::now();
        nodes.retain(|&node| !self.unwell.has(node, now));
        nodes.push(self.node);
        nodes.sort_unstable();
        nodes
    }

    fn send(&self, node: NodeId, messages: Vec<(u64, Bytes)>) {
        let messages = messages.into_iter();
        let messages = messages.map(|(region, body)| RaftMessage {
            region,
            body,
            overtakes: false,
        });
        self.transport.send_batch(node, messages.collect());
    }

    fn tell_meta(&self, input: MetaInput) {
        let _ = self.meta.send(input);
    }

    fn meta_report(&self) -> Option<ReplicaReport> {
        let report = self.meta_report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_meta_report(&self, report: Option<ReplicaReport>) {
        let kept = self.meta_report.lock();
        *kept.unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// A message of a peer was not taken in: no honest node sends such ones. At most a line every few seconds.
    pub(crate) fn tell_of_unfit(&self, from: NodeId, region: u64, why: &Unfit) {
        let mut told = self
            .unfit_told
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() > TELL_AGAIN) {
            *told = Some(Instant::now());
            tracing::warn!(
                peer = from,
                region,
                "a message of node {from} for region {region} was refused: {why}"
            );
        }
    }

    /// Nodes that are members of meta, as far as this node has heard.
    fn meta_nodes(&self) -> Vec<RouteNode> {
        self.routes().meta_nodes().cloned().collect()
    }

    /// Meta should hear of something soon.
    pub(crate) fn trigger_heartbeat(&self) {
        self.heartbeat_trigger.trigger_heartbeat();
    }

    pub fn stop(&self) {
        self.tell_meta(MetaInput::Stop);
        self.trigger_heartbeat();
        self.transport.stop();
    }
}

/// Between two attempts to write to a store that is busy, on threads that may wait.
pub(crate) fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

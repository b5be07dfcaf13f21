//! The handle: start, introduce peers, send, call.
//!
//! One thread named `peer` serves all connections; one named `snapshot` the transfers, whose disk
//! work is done by up to four more. The handle only puts things into queues.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::accept::{self, Doorkeeper};
use crate::call::{CallError, CallResult, CallTable, PendingCall, Reply, Target};
use crate::config::Config;
use crate::counters::{Counters, Tally, add};
use crate::drain::PART_BYTES;
use crate::handler::Handler;
use crate::link::{self, Link};
use crate::liveness::{self, Liveness};
use crate::notice::Notices;
use crate::outbox::Bounds;
use crate::reload;
use crate::secret::Secrets;
use crate::snapshot::{OutgoingSnapshot, Transfer, Transfers};
use crate::stream::Clock;
use crate::tls::Armour;
use crate::wire::{Call, OVERHEAD_BYTES, RaftMessage};

/// Who this node is; both 0 until it has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: u64,
    pub node: u64,
}

/// A running transport. Clones are the same one; it stops with the last of them.
#[derive(Clone)]
pub struct Transport {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
    local_address: Option<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stop: CancellationToken,
}

/// What all tasks see.
pub struct Shared {
    pub config: Config,
    pub handler: Arc<dyn Handler>,
    armour: ArcSwapOption<Armour>,
    /// None if TLS is in their place, or nothing.
    pub secrets: Option<Secrets>,
    pub clock: Clock,
    pub incarnation: u64,
    pub calls: Arc<CallTable>,
    pub liveness: Liveness,
    pub door: Doorkeeper,
    pub transfers: Transfers,
    pub snapshot_runtime: Handle,
    peer_runtime: Handle,
    identity: ArcSwap<Identity>,
    /// Read by every send; replaced as a whole.
    links: ArcSwap<HashMap<u64, Arc<Link>>>,
    /// Held while `links` is replaced.
    introducing: Mutex<()>,
    addresses: Mutex<HashMap<String, Arc<Link>>>,
    tallies: Mutex<HashMap<u64, Arc<Tally>>>,
    next_link: AtomicU64,
    notices: Notices,
    stopped: AtomicBool,
}

/// Differs from call to call and from process to process; nothing secret hangs on it.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn identity(&self) -> Identity {
        **self.identity.load()
    }

    pub fn armour(&self) -> Option<Arc<Armour>> {
        self.armour.load_full()
    }

    /// For connections made from now on.
    pub fn set_armour(&self, armour: Armour) {
        self.armour.store(Some(Arc::new(armour)));
    }

    pub fn notice(&self, kind: &str, line: &str) {
        if let Some(line) = self.notices.admit(kind, line) {
            self.handler.on_notice(&line);
        }
    }

    /// The numbers of a node. Ids beyond any cluster's size share those of nobody.
    pub fn tally(&self, node: u64) -> Arc<Tally> {
        let mut tallies = locked(&self.tallies);
        let full = tallies.len() >= liveness::NODES_MAX && !tallies.contains_key(&node);
        let node = if full { 0 } else { node };
        tallies.entry(node).or_default().clone()
    }

    pub fn has_open_link(&self, node: u64) -> bool {
        let links = self.links.load();
        links.get(&node).is_some_and(|link| link.outbox.is_open())
    }

    pub fn address_of(&self, node: u64) -> Option<String> {
        let links = self.links.load();
        links.get(&node).map(|link| link.address.clone())
    }

    pub fn forget_address(&self, link: &Arc<Link>) {
        let mut addresses = locked(&self.addresses);
        let known = addresses.get(&link.address);
        if known.is_some_and(|known| Arc::ptr_eq(known, link)) {
            addresses.remove(&link.address);
        }
    }

    fn address_link(self: &Arc<Self>, address: &str) -> Arc<Link> {
        let mut addresses = locked(&self.addresses);
        if let Some(link) = addresses.get(address).filter(|it| it.outbox.is_open()) {
            return link.clone();
        }
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(Link::new(id, 0, address.to_owned(), self.tally(0)));
        addresses.insert(address.to_owned(), link.clone());
        self.peer_runtime
            .spawn(link::visit(self.clone(), link.clone()));
        link
    }
}

impl Transport {
    /// Reads certificates, binds the port and starts the threads.
    pub fn start(config: Config, handler: Arc<dyn Handler>) -> io::Result<Transport> {
        config.check()?;
        let armour = config.tls.as_ref().map(Armour::load).transpose()?;
        let secrets = config.secrets.clone().filter(|_| armour.is_none());
        let listener = config.listen.map(std::net::TcpListener::bind).transpose()?;
        let local_address = listener.as_ref().map(|it| it.local_addr()).transpose()?;
        let peer = Builder::new_current_thread().enable_all().build()?;
        let snapshot = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_name("snapshot-disk")
            .build()?;
        let shared = Arc::new(Shared {
            transfers: Transfers::new(&config.snapshots),
            identity: ArcSwap::from_pointee(Identity {
                cluster: config.cluster_id,
                node: config.node_id,
            }),
            config,
            handler,
            armour: ArcSwapOption::from_pointee(armour),
            secrets,
            clock: Clock::start(),
            incarnation: random() | 1,
            calls: Arc::default(),
            liveness: Liveness::default(),
            door: Doorkeeper::default(),
            snapshot_runtime: snapshot.handle().clone(),
            peer_runtime: peer.handle().clone(),
            links: ArcSwap::default(),
            introducing: Mutex::default(),
            addresses: Mutex::default(),
            tallies: Mutex::default(),
            next_link: AtomicU64::new(1),
            notices: Notices::default(),
            stopped: AtomicBool::new(false),
        });
        if let Some(listener) = listener {
            listener.set_nonblocking(true)?;
            let _inside = peer.enter();
            let listener = tokio::net::TcpListener::from_std(listener)?;
            peer.spawn(accept::listen(shared.clone(), listener));
        }
        let (calls, watched) = (shared.calls.clone(), shared.clone());
        peer.spawn(async move { calls.sweep().await });
        peer.spawn(async move { liveness::watch(&watched).await });
        snapshot.spawn(reload::watch(shared.clone()));
        let stop = CancellationToken::new();
        let threads = vec![
            run("peer", peer, stop.clone())?,
            run("snapshot", snapshot, stop.clone())?,
        ];
        Ok(Transport {
            owner: Arc::new(Owner {
                shared,
                local_address,
                threads: Mutex::new(threads),
                stop,
            }),
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Where peers reach this node: the port that was chosen if it was left open.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.owner.local_address
    }

    pub fn identity(&self) -> Identity {
        self.shared().identity()
    }

    /// The node has joined: from here on it lets peers in.
    pub fn set_identity(&self, cluster_id: u64, node_id: u64) {
        self.shared().identity.store(Arc::new(Identity {
            cluster: cluster_id,
            node: node_id,
        }));
    }

    /// What connections are under, to be replaced while they stand. None: TLS, or nothing.
    pub fn secrets(&self) -> Option<&Secrets> {
        self.shared().secrets.as_ref()
    }

    /// Introduces a peer, or says that it has moved. Connects at once and stays connected.
    pub fn set_peer(&self, node: u64, address: impl Into<String>) {
        let (shared, address) = (self.shared(), address.into());
        if node == 0 || node == shared.identity().node || shared.stopped() {
            return;
        }
        // One writer at a time; readers are not held up.
        let writing = locked(&shared.introducing);
        let links = shared.links.load_full();
        if links.get(&node).is_some_and(|it| it.address == address) {
            return;
        }
        let id = shared.next_link.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(Link::new(id, node, address, shared.tally(node)));
        let mut links = HashMap::clone(&links);
        let earlier = links.insert(node, link.clone());
        shared.links.store(Arc::new(links));
        drop(writing);
        let state = shared.liveness.introduce(node);
        if let Some(earlier) = earlier {
            earlier.stop.cancel();
        }
        shared
            .peer_runtime
            .spawn(link::keep(shared.clone(), link, state));
    }

    /// Closes the connection to the peer. No `on_down` is said.
    pub fn remove_peer(&self, node: u64) {
        let shared = self.shared();
        let writing = locked(&shared.introducing);
        let mut links = HashMap::clone(&shared.links.load());
        let link = links.remove(&node);
        shared.links.store(Arc::new(links));
        drop(writing);
        shared.liveness.forget(node);
        if let Some(link) = link {
            link.stop.cancel();
        }
    }

    /// Peers that were introduced, with their addresses.
    pub fn peers(&self) -> Vec<(u64, String)> {
        let links = self.shared().links.load();
        let of_link = |link: &Arc<Link>| (link.node, link.address.clone());
        let mut peers: Vec<_> = links.values().map(of_link).collect();
        peers.sort();
        peers
    }

    /// Never waits. False: all were dropped (no connection, queue full, unknown node); the caller
    /// may tell Raft that the node cannot be reached.
    pub fn send_batch(&self, node: u64, mut messages: Vec<RaftMessage>) -> bool {
        let shared = self.shared();
        if messages.is_empty() {
            return true;
        }
        let links = shared.links.load();
        let Some(link) = links.get(&node) else {
            return false;
        };
        let config = &shared.config;
        let longest = config.frame_bytes_max.saturating_sub(OVERHEAD_BYTES);
        if messages.iter().any(|message| message.body.len() > longest) {
            let before = messages.len();
            messages.retain(|message| message.body.len() <= longest);
            add(&link.tally.dropped_messages, before - messages.len());
            let line = format!("a Raft message for node {node} is longer than {longest} bytes");
            shared.notice(&format!("long {node}"), &line);
            if messages.is_empty() {
                return false;
            }
        }
        let count = messages.len();
        let dropped = link.outbox.push_raft(messages, config.bounds());
        if dropped > 0 {
            add(&link.tally.dropped_messages, dropped);
        }
        dropped < count
    }

    /// Whether a message of so many bytes would be taken: a large one is not while another is on its way. Who asks
    /// first need not make one in vain.
    pub fn has_room(&self, node: u64, bytes: usize) -> bool {
        let shared = self.shared();
        let bounds = shared.config.bounds();
        if bytes <= bounds.large {
            return true;
        }
        let links = shared.links.load();
        let link = links.get(&node);
        link.is_none_or(|link| link.outbox.has_room(bytes, bounds))
    }

    /// One message; many go better as a batch.
    pub fn send(&self, node: u64, region: u64, body: impl Into<Bytes>) -> bool {
        let body = body.into();
        self.send_batch(
            node,
            vec![RaftMessage {
                region,
                body,
                overtakes: false,
            }],
        )
    }

    /// Asks a node or an address. The call is under way when this returns; await the result in any
    /// runtime, or block on it with [`PendingCall::wait`]. This node's own id works too.
    pub fn call(
        &self,
        target: impl Into<Target>,
        method: u16,
        body: impl Into<Bytes>,
        timeout: Duration,
    ) -> PendingCall {
        let (shared, body) = (self.shared(), body.into());
        if shared.stopped() {
            return PendingCall::failed(CallError::Stopped);
        }
        if body.len() + OVERHEAD_BYTES > shared.config.frame_bytes_max {
            return PendingCall::failed(CallError::TooLarge);
        }
        let link = match target.into() {
            Target::Node(node) if node != 0 && node == shared.identity().node => {
                return self.call_self(node, method, body);
            }
            Target::Node(node) => match shared.links.load().get(&node) {
                Some(link) => link.clone(),
                None => return PendingCall::failed(CallError::UnknownNode(node)),
            },
            Target::Address(address) => shared.address_link(&address),
        };
        if !link.outbox.is_open() {
            return PendingCall::failed(CallError::Unreachable(link.failure()));
        }
        link.note_use(shared.clock.now_ms());
        let deadline = Instant::now() + timeout;
        let calls_max = shared.config.calls_max;
        let Some((id, pending)) = shared.calls.register(link.id, deadline, calls_max) else {
            return PendingCall::failed(CallError::Busy);
        };
        add(&link.tally.calls_made, 1);
        link.outbox.push_call(Call {
            id,
            method: method.into(),
            body,
        });
        if !link.outbox.is_open() {
            // Closed between the two looks: nobody else may see this call any more.
            let error = CallError::Unreachable(link.failure());
            shared.calls.fail_or_answer(id, Err(error));
        }
        pending
    }

    /// [`Transport::call`], blocking the thread. Not for threads that run a tokio runtime.
    pub fn call_blocking(
        &self,
        target: impl Into<Target>,
        method: u16,
        body: impl Into<Bytes>,
        timeout: Duration,
    ) -> CallResult {
        self.call(target, method, body, timeout).wait()
    }

    fn call_self(&self, node: u64, method: u16, body: Bytes) -> PendingCall {
        let (sender, pending) = PendingCall::local();
        let handler = self.shared().handler.clone();
        // On the peer thread, as any other call: the caller may hold what the handler needs.
        self.shared().peer_runtime.spawn(async move {
            handler.on_call(node, method, body, Reply::local(sender));
        });
        pending
    }

    /// Sends the files of a snapshot; see [`Transfer`]. Ends with `Handler::on_snapshot_sent`.
    pub fn send_snapshot(&self, to: u64, snapshot: OutgoingSnapshot) -> Transfer {
        crate::snapshot::start(self.shared(), to, snapshot)
    }

    /// Bytes per second of all snapshots, in each direction; 0: no limit. Holds at once.
    pub fn set_snapshot_rate(&self, rate_bytes: u64) {
        self.shared().transfers.set_rate(rate_bytes);
    }

    pub fn is_up(&self, node: u64) -> bool {
        self.shared().liveness.is_up(node)
    }

    /// All nodes that can be heard now.
    pub fn up_nodes(&self) -> Vec<u64> {
        self.shared().liveness.up_nodes()
    }

    /// The numbers of every node ever met, by node id; 0: callers and addresses without one.
    pub fn counters(&self) -> Vec<(u64, Counters)> {
        let shared = self.shared();
        let links = shared.links.load();
        let mut all: Vec<_> = locked(&shared.tallies)
            .iter()
            .map(|(node, tally)| {
                let mut counters = tally.read();
                counters.up = shared.liveness.is_up(*node);
                if let Some(link) = links.get(node) {
                    counters.connected = link.connected.load(Ordering::Relaxed);
                    counters.waiting_bytes = link.outbox.waiting_bytes() as u64;
                }
                (*node, counters)
            })
            .collect();
        all.sort_by_key(|(node, _)| *node);
        all
    }

    /// Closes everything and waits for the threads. Calls under way fail.
    pub fn stop(&self) {
        self.owner.stop();
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Config {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            bytes: self.queue_bytes,
            messages: self.queue_messages,
            large: self.batch_bytes.max(PART_BYTES),
        }
    }
}

fn run(name: &str, runtime: Runtime, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(move || {
        runtime.block_on(stop.cancelled());
        // Drops all tasks, then waits for disk work that is under way.
        runtime.shutdown_timeout(Duration::from_secs(5));
    })
}

impl Owner {
    fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.stop.cancel();
        for thread in locked(&self.threads).drain(..) {
            // The last handle may be dropped by a handler, on one of these very threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        self.shared.calls.fail_all();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

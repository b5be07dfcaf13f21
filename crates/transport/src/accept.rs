//! Connections others dial: the handshake, what may be asked on each, and the question whether two processes have one id.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::call::Asked;
use crate::connection::{Connection, Ended, Side};
use crate::handshake::{Opening, answer_hello, answer_version, check_hello, receive_opening};
use crate::liveness;
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::secret::Secret;
use crate::snapshot;
use crate::strangers::Strangers;
use crate::stream::{LastHeard, Stream};
use crate::transport::Shared;
use crate::wire::{Hello, Purpose};

/// Who is connected to us as a peer.
#[derive(Default)]
pub struct Doorkeeper {
    peers: Mutex<HashMap<u64, Arc<Guest>>>,
    connections: AtomicUsize,
    strangers: Strangers,
}

struct Guest {
    incarnation: u64,
    address: SocketAddr,
    heard: Arc<LastHeard>,
    stop: CancellationToken,
}

impl Doorkeeper {
    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Arc<Guest>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, node: u64, guest: &Arc<Guest>) {
        let mut peers = self.peers();
        if peers.get(&node).is_some_and(|it| Arc::ptr_eq(it, guest)) {
            peers.remove(&node);
        }
    }
}

/// Accepts connections, for ever.
pub async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Mostly: no file descriptors left. They come back; spinning would not help.
                shared.notice("accept", &format!("cannot accept a peer: {error}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Some((stream, hello, secret)) = shake_hands(&shared, socket, address).await {
                greet(shared, stream, address, hello, secret).await;
            }
        });
    }
}

/// One of `connections_max`.
pub struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Option<Counted> {
        let before = shared.door.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(shared.clone());
        (before < shared.config.connections_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.door.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection of somebody nobody knows yet: one of few, until it has proved that it is one of us.
async fn shake_hands(
    shared: &Arc<Shared>,
    socket: TcpStream,
    address: SocketAddr,
) -> Option<(Stream, Hello, Option<Secret>)> {
    let source = address.ip();
    let config = &shared.config;
    let (place, crowded) =
        shared
            .door
            .strangers
            .enter(source, config.strangers_max, config.strangers_of_source_max);
    if crowded {
        let line = format!(
            "many connect to the port for peers and do not shake hands, the last from {address}: the oldest of them \
             are closed"
        );
        shared.notice("crowded", &line);
    }
    let opening = tokio::select! {
        opening = receive_opening(shared, socket, || place.prove()) => opening,
        () = place.lost() => return None,
        () = tokio::time::sleep(config.connect_timeout) => {
            let kind = format!("stranger {source}");
            shared.notice(&kind, &format!("what connects from {address} says nothing"));
            return None;
        }
    };
    drop(place);
    let refused = |refusal: &Refusal| {
        let kind = format!("refuse {source} {:?}", refusal.kind);
        let line = format!("refused a connection from {address}: {refusal}");
        shared.notice(&kind, &line);
    };
    match opening {
        Ok(Opening::Hello(stream, hello, secret)) => return Some((stream, hello, secret)),
        Ok(Opening::Told(refusal)) => refused(&refusal),
        Ok(Opening::Refused(mut stream, refusal)) => {
            refused(&refusal);
            let goodbye = answer_version(&mut stream, &refusal);
            let _ = tokio::time::timeout(config.connect_timeout, goodbye).await;
        }
        Err(error) => {
            let line = match error.kind() {
                io::ErrorKind::UnexpectedEof => "closed the connection before a word".into(),
                _ => error.to_string(),
            };
            let kind = format!("stranger {source}");
            shared.notice(&kind, &format!("what connects from {address} {line}"));
        }
    }
    None
}

/// Somebody who has proved to be one of us: what it wants, and whether it may.
async fn greet(
    shared: Arc<Shared>,
    mut stream: Stream,
    address: SocketAddr,
    hello: Hello,
    secret: Option<Secret>,
) {
    let me = shared.identity();
    let Some(counted) = Counted::new(&shared) else {
        let refusal = Refusal::new(RefusalKind::Busy, "too many connections");
        return refuse(&shared, stream, address, &refusal).await;
    };
    if let Err(refusal) = check_hello(&me, shared.incarnation, &hello) {
        return refuse(&shared, stream, address, &refusal).await;
    }
    if hello.purpose() != Purpose::Calls
        && let Err(refusal) = recognize(&shared, hello.from).await
    {
        return refuse(&shared, stream, address, &refusal).await;
    }
    let guest = match hello.purpose() {
        Purpose::Peer => match admit(&shared, &hello, address).await {
            Ok(guest) => Some(guest),
            Err(refusal) => return refuse(&shared, stream, address, &refusal).await,
        },
        _ => None,
    };
    let answered = answer_hello(&mut stream, &me, None).await;
    match guest {
        Some(guest) => {
            if answered.is_ok() {
                let mut hosting = pin!(host(&shared, &hello, &guest, stream, address));
                tokio::select! {
                    () = &mut hosting => {}
                    () = retired(&shared, secret.as_ref()) => {
                        guest.stop.cancel();
                        hosting.await;
                    }
                }
            }
            shared.door.leave(hello.from, &guest);
        }
        None if answered.is_err() => {}
        None if hello.purpose() == Purpose::Snapshot => {
            let from = hello.from;
            shared.snapshot_runtime.clone().spawn(async move {
                let until = retired(&shared, secret.as_ref());
                tokio::select! {
                    () = snapshot::receive(shared.clone(), stream, from) => {}
                    () = until => {}
                }
                drop(counted);
            });
        }
        None => {
            let connection = accepted(&shared, hello.from, Arc::new(LastHeard::default()), None);
            tokio::select! {
                ended = connection.run(stream) => note_garbage(&shared, hello.from, address, &ended),
                () = retired(&shared, secret.as_ref()) => {}
            }
        }
    }
}

/// Returns when the secret of a connection is not accepted any more. The other side dials again, with another one.
async fn retired(shared: &Shared, secret: Option<&Secret>) {
    match (&shared.secrets, secret) {
        (Some(secrets), Some(secret)) => secrets.retired(secret).await,
        _ => std::future::pending().await,
    }
}

/// Waits a little for a node that was not introduced: it may have joined just now.
async fn recognize(shared: &Shared, node: u64) -> Result<(), Refusal> {
    if !shared.config.known_only || shared.address_of(node).is_some() {
        return Ok(());
    }
    shared.handler.on_unknown(node);
    let pause = (shared.config.heartbeat / 10).max(Duration::from_millis(1));
    for _ in 0..20 {
        tokio::time::sleep(pause).await;
        if shared.address_of(node).is_some() {
            return Ok(());
        }
    }
    Err(Refusal::new(
        RefusalKind::UnknownNode,
        format!("node {node} is no node of this cluster, as far as this one has heard"),
    ))
}

async fn refuse(shared: &Shared, mut stream: Stream, address: SocketAddr, refusal: &Refusal) {
    let kind = format!("refuse {} {:?}", address.ip(), refusal.kind);
    shared.notice(
        &kind,
        &format!("refused a connection from {address}: {refusal}"),
    );
    let me = shared.identity();
    let goodbye = answer_hello(&mut stream, &me, Some(refusal));
    let _ = tokio::time::timeout(shared.config.connect_timeout, goodbye).await;
}

fn note_garbage(shared: &Shared, node: u64, address: SocketAddr, ended: &Ended) {
    if let Ended::Garbage(what) = ended {
        let line = format!("closed the connection from node {node} at {address}: it sent {what}");
        shared.notice(&format!("garbage {}", address.ip()), &line);
    }
}

fn accepted(
    shared: &Arc<Shared>,
    node: u64,
    heard: Arc<LastHeard>,
    node_heard: Option<Arc<LastHeard>>,
) -> Connection {
    let outbox = Arc::new(Outbox::default());
    outbox.open();
    let asked = Arc::new(Asked {
        outbox: outbox.clone(),
        open: AtomicUsize::new(0),
        answer_bytes_max: shared.config.queue_bytes,
        frame_bytes_max: shared.config.frame_bytes_max,
    });
    let raft = node_heard.is_some();
    Connection {
        shared: shared.clone(),
        node,
        side: Side::Accepted { asked, raft },
        outbox,
        tally: shared.tally(node),
        heard,
        node_heard,
    }
}

/// Serves a peer until its connection ends or another one takes its place.
async fn host(
    shared: &Arc<Shared>,
    hello: &Hello,
    guest: &Arc<Guest>,
    stream: Stream,
    address: SocketAddr,
) {
    let node = hello.from;
    let state = shared.liveness.node(node);
    let connection = accepted(shared, node, guest.heard.clone(), Some(state.heard.clone()));
    liveness::on_connected(shared, node, &state);
    let was_stopped = tokio::select! {
        ended = connection.run(stream) => {
            note_garbage(shared, node, address, &ended);
            false
        }
        // Another one took its place, or its secret is retired and it dials again: not a sign that it is gone.
        () = guest.stop.cancelled() => {
            connection.outbox.close(connection.shared.config.bounds());
            true
        }
    };
    // Our own connection to it will tell, if we have one and it stands or is being made.
    let no_more = !was_stopped && !shared.has_open_link(node);
    liveness::on_disconnected(shared, node, &state, no_more);
}

/// A place for the peer. If a process with its id is here already, and another one: that one stays
/// if it says a word within two heartbeats, else it is gone and this is the same node restarted.
async fn admit(shared: &Shared, hello: &Hello, address: SocketAddr) -> Result<Arc<Guest>, Refusal> {
    let node = hello.from;
    let guest = Arc::new(Guest {
        incarnation: hello.incarnation,
        address,
        heard: Arc::new(LastHeard::default()),
        stop: CancellationToken::new(),
    });
    guest.heard.note(shared.clock.now_ms());
    let pause = (shared.config.heartbeat / 10).max(Duration::from_millis(1));
    let arrived_ms = shared.clock.now_ms();
    let timeout_ms = 2 * liveness::millis(shared.config.heartbeat);
    loop {
        {
            let mut peers = shared.door.peers();
            let stays = peers.get(&node).filter(|earlier| {
                earlier.incarnation != hello.incarnation
                    && shared.clock.now_ms() <= arrived_ms + timeout_ms
            });
            let Some(earlier) = stays else {
                if let Some(earlier) = peers.insert(node, guest.clone()) {
                    earlier.stop.cancel();
                }
                return Ok(guest);
            };
            if earlier.heard.at_ms.load(Ordering::Relaxed) > arrived_ms {
                return Err(Refusal::new(
                    RefusalKind::SameId,
                    format!(
                        "a node with this id connected from elsewhere: node {node} is here from {}",
                        earlier.address
                    ),
                ));
            }
        }
        tokio::time::sleep(pause).await;
    }
}

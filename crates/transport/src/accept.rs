//! Connections others dial: the handshake, and the question whether two processes have one id.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::call::Asked;
use crate::connection::{Connection, Ended, Side};
use crate::handshake::{answer_hello, check_hello, receive_hello};
use crate::liveness;
use crate::outbox::Outbox;
use crate::refusal::{Refusal, RefusalKind};
use crate::snapshot;
use crate::stream::{LastHeard, Stream};
use crate::transport::Shared;
use crate::wire::{Hello, Purpose};

/// Who is connected to us as a peer.
#[derive(Default)]
pub struct Doorkeeper {
    peers: Mutex<HashMap<u64, Arc<Guest>>>,
    connections: AtomicUsize,
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
        if shared.door.connections.load(Ordering::Relaxed) >= shared.config.connections_max {
            let line = format!("a peer from {address} was turned away: too many connections");
            shared.notice("too many", &line);
            continue;
        }
        let counted = Counted::new(&shared);
        let shared = shared.clone();
        tokio::spawn(async move { greet(shared, socket, address, counted).await });
    }
}

/// One of `connections_max`.
pub struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Counted {
        shared.door.connections.fetch_add(1, Ordering::Relaxed);
        Counted(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.door.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn greet(shared: Arc<Shared>, socket: TcpStream, address: SocketAddr, counted: Counted) {
    let greeting = async {
        socket.set_nodelay(true)?;
        let mut stream = match &shared.armour {
            Some(armour) => armour.accept(socket).await.map_err(|error| {
                io::Error::new(error.kind(), format!("does not pass TLS: {error}"))
            })?,
            None => Stream::Plain(socket),
        };
        let hello = receive_hello(&mut stream).await?;
        Ok::<_, io::Error>((stream, hello))
    };
    let (mut stream, hello) =
        match tokio::time::timeout(shared.config.connect_timeout, greeting).await {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(error)) => {
                let kind = format!("stranger {}", address.ip());
                let line = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "closed the connection before a word".into(),
                    _ => error.to_string(),
                };
                shared.notice(&kind, &format!("what connects from {address} {line}"));
                return;
            }
            Err(_) => {
                let kind = format!("stranger {}", address.ip());
                shared.notice(&kind, &format!("what connects from {address} says nothing"));
                return;
            }
        };
    let me = shared.identity();
    let checked = match hello {
        Ok(hello) => check_hello(&me, shared.incarnation, &hello).map(|()| hello),
        Err(refusal) => Err(refusal),
    };
    let (hello, guest) = match checked {
        Ok(hello) if hello.purpose() == Purpose::Peer => {
            match admit(&shared, &hello, address).await {
                Ok(guest) => (hello, Some(guest)),
                Err(refusal) => return refuse(&shared, stream, address, &refusal).await,
            }
        }
        Ok(hello) => (hello, None),
        Err(refusal) => return refuse(&shared, stream, address, &refusal).await,
    };
    let answered = answer_hello(&mut stream, &me, None).await;
    match guest {
        Some(guest) => {
            if answered.is_ok() {
                host(&shared, &hello, &guest, stream, address).await;
            }
            shared.door.leave(hello.from, &guest);
        }
        None if answered.is_err() => {}
        None if hello.purpose() == Purpose::Snapshot => {
            let from = hello.from;
            shared.snapshot_runtime.clone().spawn(async move {
                snapshot::receive(shared, stream, from).await;
                drop(counted);
            });
        }
        None => {
            let connection = accepted(&shared, hello.from, Arc::new(LastHeard::default()), None);
            let ended = connection.run(stream).await;
            note_garbage(&shared, hello.from, address, &ended);
        }
    }
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
    tokio::select! {
        ended = connection.run(stream) => note_garbage(shared, node, address, &ended),
        () = guest.stop.cancelled() => { connection.outbox.close(connection.shared.config.bounds()); }
    }
    // Our own connection to it will tell, if we have one and it stands or is being made.
    let no_more = !shared.has_open_link(node);
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

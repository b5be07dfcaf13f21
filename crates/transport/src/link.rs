//! Connections this node dials: one to each peer, kept for ever, and short ones to addresses.
//!
//! ```text
//!            ┌───────── broke after a while ──────────┐
//!            ▼                                        │
//!   ──► connecting ──── handshake ────────────► connected
//!            ▲  │                                     │
//!            │  └── failed, refused ──► waiting ◄─────┘ broke at once
//!            └───────────────────────────┘
//!              backoff_min × 2ⁿ ≤ backoff_max, less a random part
//! ```
//!
//! While connecting or connected, messages and calls wait in the outbox; while waiting to try
//! again, messages are dropped and calls fail with the reason of the last failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::call::CallError;
use crate::connection::{Connection, Ended, Side};
use crate::counters::{Tally, add};
use crate::handshake::{DialError, dial};
use crate::liveness::{self, NodeState, millis};
use crate::outbox::Outbox;
use crate::stream::{LastHeard, Stream};
use crate::transport::Shared;
use crate::wire::Purpose;

/// A connection to an address is closed when no call was made on it for so long.
const IDLE: Duration = Duration::from_secs(10);

pub struct Link {
    pub id: u64,
    /// 0: whoever lives at the address.
    pub node: u64,
    pub address: String,
    pub outbox: Arc<Outbox>,
    pub tally: Arc<Tally>,
    pub stop: CancellationToken,
    pub connected: AtomicBool,
    used_ms: AtomicU64,
    failure: Mutex<String>,
}

impl Link {
    pub fn new(id: u64, node: u64, address: String, tally: Arc<Tally>) -> Link {
        let outbox = Arc::new(Outbox::default());
        // Before its task first runs: what is sent meanwhile waits.
        outbox.open();
        Link {
            id,
            node,
            address,
            outbox,
            tally,
            stop: CancellationToken::new(),
            connected: AtomicBool::new(false),
            used_ms: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    pub fn failure(&self) -> String {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn note_use(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// No connection for now: nothing may wait.
    fn fail(&self, shared: &Shared, why: &str) {
        why.clone_into(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner));
        let lost = self.outbox.close(shared.config.bounds());
        add(&self.tally.dropped_messages, lost);
        let error = CallError::Unreachable(why.to_owned());
        shared.calls.fail_link(self.id, &error);
    }

    fn connection(&self, shared: &Arc<Shared>, node: u64, heard: Option<&NodeState>) -> Connection {
        Connection {
            shared: shared.clone(),
            node,
            side: Side::Dialled { link: self.id },
            outbox: self.outbox.clone(),
            tally: self.tally.clone(),
            heard: Arc::new(LastHeard::default()),
            node_heard: heard.map(|state| state.heard.clone()),
        }
    }
}

/// Keeps the connection to a peer until the link is stopped.
pub async fn keep(shared: Arc<Shared>, link: Arc<Link>, state: Arc<NodeState>) {
    let mut backoff = Backoff::new(&shared);
    loop {
        link.outbox.open();
        let dialled = tokio::select! {
            biased;
            () = link.stop.cancelled() => break,
            dialled = dial(&shared, &link.address, link.node, Purpose::Peer) => dialled,
        };
        let began = Instant::now();
        match dialled {
            Ok((stream, _)) => {
                if !stay(&shared, &link, &state, stream).await {
                    break;
                }
                if began.elapsed() > shared.config.backoff_max {
                    backoff.reset();
                    continue;
                }
            }
            Err(error) => on_failed(&shared, &link, &state, &error),
        }
        link.outbox.close(shared.config.bounds());
        tokio::select! {
            () = link.stop.cancelled() => break,
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
    link.fail(&shared, "the peer was removed");
}

/// Until the connection ends; false if the link was stopped.
async fn stay(shared: &Arc<Shared>, link: &Arc<Link>, state: &NodeState, stream: Stream) -> bool {
    let node = link.node;
    add(&link.tally.connects, 1);
    link.connected.store(true, Ordering::Relaxed);
    tracing::debug!(target: "transport", peer = node, address = %link.address, "connected");
    liveness::on_connected(shared, node, state);
    let connection = link.connection(shared, node, Some(state));
    let ended = tokio::select! {
        ended = connection.run(stream) => Some(ended),
        () = link.stop.cancelled() => None,
    };
    link.connected.store(false, Ordering::Relaxed);
    liveness::on_disconnected(shared, node, state, false);
    shared.calls.fail_link(link.id, &CallError::Disconnected);
    let Some(ended) = ended else {
        return false;
    };
    let why = ended.to_string();
    why.clone_into(&mut link.failure.lock().unwrap_or_else(PoisonError::into_inner));
    shared.notice(
        &format!("broke {node}"),
        &format!("connection to node {node} at {}: {why}", link.address),
    );
    shared.handler.on_broken(node);
    true
}

fn on_failed(shared: &Shared, link: &Link, state: &NodeState, error: &DialError) {
    add(&link.tally.connect_failures, 1);
    let why = error.to_string();
    link.fail(shared, &why);
    liveness::on_unreachable(shared, link.node, state);
    let (node, address) = (link.node, &link.address);
    if let DialError::Refused(refusal) = error {
        shared.handler.on_refused(node, refusal);
        let line = format!("node {node} at {address} refuses this node: {why}");
        shared.notice(&format!("refused {node}"), &line);
    } else {
        let line = format!("cannot connect to node {node} at {address}: {why}");
        shared.notice(&format!("dial {node}"), &line);
    }
}

/// A connection for calls to an address: no second attempt, closed when it is not used.
pub async fn visit(shared: Arc<Shared>, link: Arc<Link>) {
    let dialled = tokio::select! {
        biased;
        () = link.stop.cancelled() => Err(DialError::TimedOut),
        dialled = dial(&shared, &link.address, 0, Purpose::Calls) => dialled,
    };
    match dialled {
        Ok((stream, node)) => {
            let connection = link.connection(&shared, node, None);
            let ended = tokio::select! {
                ended = connection.run(stream) => ended,
                () = unused(&shared, &link) => Ended::Closed,
                () = link.stop.cancelled() => Ended::Closed,
            };
            shared.forget_address(&link);
            link.outbox.close(shared.config.bounds());
            shared.calls.fail_link(link.id, &CallError::Disconnected);
            if let Ended::Garbage(what) = ended {
                let line = format!("connection to {}: it sent {what}", link.address);
                shared.notice(&format!("broke {}", link.address), &line);
            }
        }
        Err(error) => {
            shared.forget_address(&link);
            link.fail(&shared, &error.to_string());
        }
    }
}

async fn unused(shared: &Shared, link: &Link) {
    loop {
        tokio::time::sleep(IDLE / 4).await;
        let since_ms = link.used_ms.load(Ordering::Relaxed);
        let idle = shared.clock.now_ms().saturating_sub(since_ms) > millis(IDLE);
        if idle && !shared.calls.has_link(link.id) {
            return;
        }
    }
}

/// Pauses between attempts: they double, and no two nodes wait equally long.
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    pub fn new(shared: &Shared) -> Backoff {
        let (min, max) = (shared.config.backoff_min, shared.config.backoff_max);
        Backoff {
            min,
            max,
            next: min,
            random: fastrand::Rng::with_seed(crate::transport::random()),
        }
    }

    pub fn reset(&mut self) {
        self.next = self.min;
    }

    pub fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause.mul_f64(0.5 + 0.5 * self.random.f64())
    }
}

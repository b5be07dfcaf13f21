//! Which nodes can be heard.
//!
//! ```text
//!            a handshake, either direction
//!   unknown ──────────────────────────────► up ◄─────────────────────────────┐
//!                                            │                               │ a handshake
//!                                            ▼                               │
//!          nothing heard for `down_after`, or no connection stands ──► down ─┘
//!          and the attempt to make one failed
//! ```
//!
//! Every connection says something at least every `heartbeat`, so silence means something. A node
//! that was itself stopped for a while (SIGSTOP, a machine put to sleep) would take its own absence
//! for that of all others: a check that comes far too late counts as hearing everybody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::stream::LastHeard;
use crate::transport::Shared;

/// Nodes remembered: somebody who makes up ids must not fill the memory.
pub const NODES_MAX: usize = 4096;

#[derive(Default)]
pub struct Liveness {
    nodes: Mutex<HashMap<u64, Arc<NodeState>>>,
}

#[derive(Default)]
pub struct NodeState {
    pub heard: Arc<LastHeard>,
    /// Connections with it, of both directions, that have shaken hands.
    connections: AtomicUsize,
    up: AtomicBool,
    /// `remove_peer`: nothing is said of it until it is introduced again.
    forgotten: AtomicBool,
}

impl Liveness {
    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, Arc<NodeState>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn node(&self, node: u64) -> Arc<NodeState> {
        let mut nodes = self.nodes();
        if nodes.len() >= NODES_MAX {
            // Held by a link or a connection, or of no use to anybody.
            nodes.retain(|_, state| Arc::strong_count(state) > 1);
        }
        nodes.entry(node).or_default().clone()
    }

    /// The node was introduced, perhaps again.
    pub fn introduce(&self, node: u64) -> Arc<NodeState> {
        let state = self.node(node);
        state.forgotten.store(false, Ordering::Relaxed);
        state
    }

    pub fn forget(&self, node: u64) {
        if let Some(state) = self.nodes().get(&node) {
            state.forgotten.store(true, Ordering::Relaxed);
            state.up.store(false, Ordering::Relaxed);
        }
    }

    pub fn is_up(&self, node: u64) -> bool {
        self.nodes()
            .get(&node)
            .is_some_and(|state| state.up.load(Ordering::Relaxed))
    }

    pub fn up_nodes(&self) -> Vec<u64> {
        let nodes = self.nodes();
        let up = nodes
            .iter()
            .filter(|(_, state)| state.up.load(Ordering::Relaxed));
        up.map(|(node, _)| *node).collect()
    }
}

/// A handshake succeeded.
pub fn on_connected(shared: &Shared, node: u64, state: &NodeState) {
    state.heard.note(shared.clock.now_ms());
    state.connections.fetch_add(1, Ordering::Relaxed);
    set_up(shared, node, state);
}

fn set_up(shared: &Shared, node: u64, state: &NodeState) {
    if !state.forgotten.load(Ordering::Relaxed) && !state.up.swap(true, Ordering::Relaxed) {
        tracing::info!(target: "transport", peer = node, "node {node} can be heard");
        shared.handler.on_up(node);
    }
}

/// A connection ended. `no_more`: an attempt to make another one failed or will not be made.
pub fn on_disconnected(shared: &Shared, node: u64, state: &NodeState, no_more: bool) {
    state.connections.fetch_sub(1, Ordering::Relaxed);
    if no_more {
        on_unreachable(shared, node, state);
    }
}

/// The attempt to connect to the node failed.
pub fn on_unreachable(shared: &Shared, node: u64, state: &NodeState) {
    if state.connections.load(Ordering::Relaxed) == 0 {
        set_down(shared, node, state);
    }
}

fn set_down(shared: &Shared, node: u64, state: &NodeState) {
    if state.up.swap(false, Ordering::Relaxed) && !state.forgotten.load(Ordering::Relaxed) {
        tracing::info!(target: "transport", peer = node, "node {node} cannot be heard");
        shared.handler.on_down(node);
    }
}

/// Looks for silent nodes, for ever.
pub async fn watch(shared: &Shared) {
    let pause = pause(shared);
    let mut before_ms = shared.clock.now_ms();
    loop {
        tokio::time::sleep(pause).await;
        let now_ms = shared.clock.now_ms();
        let absent = was_absent(shared, pause, before_ms, now_ms);
        before_ms = now_ms;
        let nodes: Vec<_> = {
            let nodes = shared.liveness.nodes();
            nodes.iter().map(|(node, it)| (*node, it.clone())).collect()
        };
        for (node, state) in nodes {
            if !state.up.load(Ordering::Relaxed) {
                // Introduced while it was connected to us already.
                let near = state.connections.load(Ordering::Relaxed) > 0
                    && state.heard.silent_ms(now_ms) <= millis(shared.config.down_after);
                if near {
                    set_up(shared, node, &state);
                }
            } else if absent {
                state.heard.note(now_ms);
            } else if state.heard.silent_ms(now_ms) > millis(shared.config.down_after) {
                set_down(shared, node, &state);
            }
        }
    }
}

/// Returns when nothing was heard on the connection for `down_after`.
pub async fn silence(shared: &Shared, heard: &LastHeard) {
    let pause = pause(shared);
    let mut before_ms = shared.clock.now_ms();
    loop {
        tokio::time::sleep(pause).await;
        let now_ms = shared.clock.now_ms();
        if was_absent(shared, pause, before_ms, now_ms) {
            heard.note(now_ms);
        } else if heard.silent_ms(now_ms) > millis(shared.config.down_after) {
            return;
        }
        before_ms = now_ms;
    }
}

fn pause(shared: &Shared) -> Duration {
    (shared.config.down_after / 8).max(Duration::from_millis(1))
}

/// Was this process itself stopped between two checks?
fn was_absent(shared: &Shared, pause: Duration, before_ms: u64, now_ms: u64) -> bool {
    let expected = millis(pause);
    now_ms.saturating_sub(before_ms) > expected + millis(shared.config.down_after) / 2
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

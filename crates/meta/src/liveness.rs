//! Alive, down, dead: what a node's silence means.
//!
//! ```text
//!        heartbeat            down_after               dead_after
//!  Unheard ───► Alive ───────────────────► Down ───────────────────► Dead
//!     │                                     ▲                          ▲
//!     └──── silent for down_after ──────────┘     removed, replaced ───┘
//! ```
//!
//! A node that says it cannot write counts as silent since it could: it is down at once, and dead when that lasts.
//!
//! Silence is counted from the last heartbeat *this* leader got, or from the moment it learned of
//! the node: after a change of meta's leader nobody is down or dead before he had his full time.

use base::cluster::NodeId;

use crate::limits::Limits;
use crate::state::{Node, State};
use crate::view::View;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Heard of lately.
    Alive,
    /// This leader has not heard of it yet, and not waited long enough either.
    Unheard,
    /// Silent, or it cannot write: nothing is planned with it, nothing is done against it.
    Down,
    /// Silent for too long, or gone by decision: its replicas are rebuilt.
    Dead,
}

impl Life {
    pub fn of(node: &Node, view: &View, now_ms: u64, limits: &Limits) -> Life {
        if !node.is_up() {
            return Life::Dead;
        }
        let Some(heard) = view.heard(node.id) else {
            return Life::Unheard;
        };
        match now_ms.saturating_sub(heard.at_ms) {
            silent if silent >= limits.dead_after_ms.max(limits.down_after_ms) => Life::Dead,
            silent if silent >= limits.down_after_ms => Life::Down,
            _ if view.trouble(node.id).is_some() => Life::Down,
            _ if heard.last.is_none() => Life::Unheard,
            _ => Life::Alive,
        }
    }

    /// Down or dead.
    pub fn is_silent(self) -> bool {
        matches!(self, Life::Down | Life::Dead)
    }

    pub fn name(self) -> &'static str {
        match self {
            Life::Alive => "up",
            Life::Unheard => "unheard",
            Life::Down => "down",
            Life::Dead => "dead",
        }
    }
}

/// Nodes that are not known to be silent: what a join is checked against. To be on the safe side,
/// one that had no time to report yet counts as alive.
pub fn maybe_alive(state: &State, view: &View, now_ms: u64, limits: &Limits) -> Vec<NodeId> {
    state
        .nodes()
        .filter(|node| !Life::of(node, view, now_ms, limits).is_silent())
        .map(|node| node.id)
        .collect()
}

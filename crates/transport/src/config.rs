//! Everything about a transport that may be chosen, with the defaults of the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::Secrets;

/// What [`Transport::start`](crate::Transport::start) needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// 0 while the node has joined no cluster; see `Transport::set_identity`.
    pub cluster_id: u64,
    /// 0 likewise. A transport without a node id can only make calls.
    pub node_id: u64,
    /// Where peers connect to. None: a client, such as `neokv ctl`.
    pub listen: Option<SocketAddr>,
    /// Mutual TLS, in place of the secret. All nodes of a cluster have it, or none.
    pub tls: Option<Tls>,
    /// What every connection is under if there is no TLS. None: plain TCP, for loopback only.
    pub secrets: Option<Secrets>,
    /// Raft messages and snapshots only from nodes that were introduced (`Transport::set_peer`).
    pub known_only: bool,

    /// Something is said on every connection at least this often.
    pub heartbeat: Duration,
    /// A node of which nothing was heard for this long is down.
    pub down_after: Duration,
    /// From the first packet to the end of the handshake.
    pub connect_timeout: Duration,
    /// Pause after the first failed attempt to connect; doubles up to `backoff_max`.
    pub backoff_min: Duration,
    pub backoff_max: Duration,

    /// What may wait for one peer; more is dropped.
    pub queue_bytes: usize,
    pub queue_messages: usize,
    /// What is written at once, about.
    pub batch_bytes: usize,
    /// No frame is longer, in either direction; so no message, call or answer.
    pub frame_bytes_max: usize,
    /// Calls under way: made by this node, and, per connection, made to it.
    pub calls_max: usize,
    /// Connections from elsewhere that have shaken hands.
    pub connections_max: usize,
    /// Connections that have not: of all sources, and of one. One more ends the oldest.
    pub strangers_max: usize,
    pub strangers_of_source_max: usize,

    pub snapshots: Snapshots,
}

/// Bounds of snapshot transfers.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// For the node, each direction; 0: as fast as it goes. `Transport::set_snapshot_rate` changes it.
    pub rate_bytes: u64,
    /// Transfers at once; further incoming ones are told to come again, outgoing ones wait.
    pub incoming_max: usize,
    pub outgoing_max: usize,
    pub chunk_bytes: usize,
    /// A transfer on which nothing moved for this long is broken.
    pub stalled_after: Duration,
    /// A sender gives up when no attempt in this time got any further.
    pub timeout: Duration,
}

/// Mutual TLS: this node's certificate, and the authority that signed those of all nodes.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
    /// The name in all nodes' certificates. None: each must be valid for the host it is dialled by.
    pub name: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cluster_id: 0,
            node_id: 0,
            listen: None,
            tls: None,
            secrets: None,
            known_only: false,
            heartbeat: Duration::from_millis(500),
            down_after: Duration::from_millis(2000),
            connect_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            queue_bytes: 64 << 20,
            queue_messages: 1 << 17,
            batch_bytes: 256 << 10,
            frame_bytes_max: 16 << 20,
            calls_max: 4096,
            connections_max: 1024,
            strangers_max: 256,
            strangers_of_source_max: 64,
            snapshots: Snapshots::default(),
        }
    }
}

impl Config {
    /// Settings with which nothing would work.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wrong = if self.heartbeat < Duration::from_millis(1) {
            "heartbeat must be at least a millisecond"
        } else if self.down_after < 2 * self.heartbeat {
            "down_after must be at least two heartbeats"
        } else if !(4096..=1 << 30).contains(&self.frame_bytes_max) {
            "frame_bytes_max must be between 4 KiB and 1 GiB"
        } else if self.batch_bytes == 0 {
            "batch_bytes must not be 0"
        } else if self.strangers_max == 0 || self.strangers_of_source_max == 0 {
            "somebody has to be let in before the handshake"
        } else if (self.cluster_id == 0) != (self.node_id == 0) {
            "a node id and a cluster id belong together"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    }
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            rate_bytes: 100 << 20,
            incoming_max: 4,
            outgoing_max: 4,
            chunk_bytes: 256 << 10,
            stalled_after: Duration::from_secs(20),
            timeout: Duration::from_secs(60),
        }
    }
}

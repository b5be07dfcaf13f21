//! A node presents itself: at its first start to get an id, at every later one to say that it is
//! back, and where.

use std::collections::BTreeMap;

use base::cluster::{ClusterId, NodeId};
use prost::Message;

/// A host (name or address) and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Message)]
pub struct Address {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

impl Address {
    pub fn new(host: impl Into<String>, port: u16) -> Address {
        Address {
            host: host.into(),
            port: u32::from(port),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Profile {
    /// As clients see it: redirects and topology answers name this address.
    #[prost(message, required, tag = "1")]
    pub redis: Address,
    /// As other nodes see it.
    #[prost(message, required, tag = "2")]
    pub peer: Address,
    #[prost(uint32, tag = "3")]
    pub http_port: u32,
    /// For clients that speak TLS; 0: none. A node without a plain port has this one in `redis`, too.
    #[prost(uint32, tag = "20")]
    pub tls_port: u32,
    /// `zone`, `rack` and `host` decide placement; others are kept for the reader.
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
    /// May hold replicas of data regions (`neokv server`, `neokv store`).
    #[prost(bool, tag = "5")]
    pub stores: bool,
    /// May hold a replica of meta (`neokv server`, `neokv meta`).
    #[prost(bool, tag = "6")]
    pub metas: bool,
    /// Newest format of entries and rows this node can read: the version barrier.
    #[prost(uint32, tag = "7")]
    pub format: u32,
    /// The software's version, for the reader.
    #[prost(string, tag = "8")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Join {
    /// The cluster of the data directory; 0 if it has none yet.
    #[prost(uint64, tag = "1")]
    pub cluster: ClusterId,
    /// The id in the data directory; 0 if it has none yet.
    #[prost(uint64, tag = "2")]
    pub node: NodeId,
    /// Random, not 0, drawn once per start and kept while the join is tried again: the same token
    /// gets the same answer. A first join should store it before it asks.
    #[prost(uint64, tag = "3")]
    pub token: u64,
    /// How often this data directory was started, this time included; stored before the join.
    #[prost(uint64, tag = "4")]
    pub start_count: u64,
    #[prost(message, required, tag = "5")]
    pub profile: Profile,
    /// Of a node without an id: the node at this address whose data is lost, and whose place it takes (`--replace`).
    #[prost(uint64, tag = "6")]
    pub replace: NodeId,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct JoinAnswer {
    /// 0 if the node was not accepted.
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    #[prost(uint64, tag = "2")]
    pub cluster: ClusterId,
    /// Why not; empty if accepted or if this is not meta's leader.
    #[prost(string, tag = "3")]
    pub refused: String,
    /// Worth asking again later, here or at one of `meta`.
    #[prost(bool, tag = "4")]
    pub retry: bool,
    /// The leader of meta, if another node is.
    #[prost(message, optional, tag = "5")]
    pub leader: Option<Address>,
    /// Peer addresses of all of meta's members, for the next time.
    #[prost(message, repeated, tag = "6")]
    pub meta: Vec<Address>,
}

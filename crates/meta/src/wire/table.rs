//! The route table as it is pushed to all nodes: every region with its members and leader, every
//! node with its addresses. Whole, or what changed since a version.

use base::cluster::{Descriptor, NodeId, RegionId, ReplicaId};
use prost::Message;

use super::Address;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RouteTable {
    /// Grows with every change, also over changes of meta's leader. A node says it back.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// All regions and nodes; otherwise only those that changed.
    #[prost(bool, tag = "2")]
    pub full: bool,
    #[prost(message, repeated, tag = "3")]
    pub regions: Vec<RouteRegion>,
    #[prost(message, repeated, tag = "4")]
    pub nodes: Vec<RouteNode>,
    /// Of a table that is not full: regions that are no more.
    #[prost(uint64, repeated, tag = "5")]
    pub removed_regions: Vec<RegionId>,
    /// Of a table that is not full: nodes that are no more.
    #[prost(uint64, repeated, tag = "6")]
    pub removed_nodes: Vec<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RouteRegion {
    #[prost(message, required, tag = "1")]
    pub descriptor: Descriptor,
    /// The last leader heard of; it may be dead by now.
    #[prost(message, optional, tag = "2")]
    pub leader: Option<Leadership>,
}

/// Another port at the host that clients know.
pub(super) fn http(redis: &Address, port: u32) -> Option<Address> {
    let host = redis.host.clone();
    (port != 0).then_some(Address { host, port })
}

impl RouteNode {
    /// Where it speaks TLS with Redis clients, if it does.
    pub fn tls(&self) -> Option<Address> {
        http(&self.redis, self.tls_port)
    }

    /// Whether TLS is all it speaks with Redis clients.
    pub fn is_tls_only(&self) -> bool {
        self.tls_port != 0 && self.tls_port == self.redis.port
    }

    /// Where a client is sent: to the port for what it speaks.
    pub fn for_client(&self, is_tls: bool) -> Address {
        let tls = self.tls().filter(|_| is_tls);
        tls.unwrap_or_else(|| self.redis.clone())
    }

    /// Where it speaks HTTP, if it does: at the host that clients know.
    pub fn http(&self) -> Option<Address> {
        http(&self.redis, self.http_port)
    }
}

/// Who leads, since which term. Of two the one with the higher term is newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Leadership {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint64, tag = "2")]
    pub replica: ReplicaId,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RouteNode {
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    #[prost(message, required, tag = "2")]
    pub redis: Address,
    #[prost(message, required, tag = "3")]
    pub peer: Address,
    #[prost(uint32, tag = "4")]
    pub http_port: u32,
    /// For clients that speak TLS; 0: none.
    #[prost(uint32, tag = "20")]
    pub tls_port: u32,
    /// Has been heard of lately, as meta sees it.
    #[prost(bool, tag = "5")]
    pub alive: bool,
}

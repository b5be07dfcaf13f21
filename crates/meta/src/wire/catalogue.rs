//! The catalogue of tables: which there are and what fields they have. Meta keeps it and hands it to
//! all nodes; what the bytes mean is the nodes' affair.

use base::cluster::NodeId;
use prost::Message;

use super::Address;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Catalogue {
    /// 0 for none; every change adds 1.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
}

/// How the catalogue stands.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CatalogueAnswer {
    /// The newest.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Of a change: it was made. If not, somebody else's was, and `newer` has it.
    #[prost(bool, tag = "2")]
    pub was_set: bool,
    /// If newer than what the asker has.
    #[prost(message, optional, tag = "3")]
    pub newer: Option<Catalogue>,
    /// Nodes that may be alive and have not published the version asked about.
    #[prost(message, repeated, tag = "4")]
    pub behind: Vec<Behind>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Behind {
    #[prost(uint64, tag = "1")]
    pub node: NodeId,
    #[prost(message, required, tag = "2")]
    pub redis: Address,
    /// What it has published, as far as it has said.
    #[prost(uint64, tag = "3")]
    pub version: u64,
}

//! Why a node did not let another one in: a kind for programs, a sentence for people.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RefusalKind {
    /// Not something that speaks our protocol.
    Malformed = 1,
    /// Another version of the protocol.
    Version = 2,
    /// A node of another cluster.
    WrongCluster = 3,
    /// Another node lives at that address.
    WrongNode = 4,
    /// The dialler has the id of the node it dials, or of one that is connected from elsewhere.
    SameId = 5,
    /// The node that was dialled has joined no cluster yet.
    NotJoined = 6,
    /// The dialler wants more than a caller without an id may have.
    NoId = 7,
    /// Too many connections.
    Busy = 8,
    /// A kind this version does not know.
    Unknown = 9,
    /// No secret, or another one than the cluster's.
    Secret = 10,
    /// The dialler has an id that no node of the cluster has, as far as the acceptor knows.
    UnknownNode = 11,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, reason: impl Into<String>) -> Refusal {
        Refusal {
            kind,
            reason: reason.into(),
        }
    }
}

impl RefusalKind {
    pub(crate) fn from_wire(kind: u32) -> RefusalKind {
        use RefusalKind::*;
        [
            Malformed,
            Version,
            WrongCluster,
            WrongNode,
            SameId,
            NotJoined,
            NoId,
            Busy,
            Secret,
            UnknownNode,
        ]
        .into_iter()
        .find(|known| *known as u32 == kind)
        .unwrap_or(Unknown)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

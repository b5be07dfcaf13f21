//! What a node does that others notice, and what the checkers are told of it.

use std::rc::Rc;
use std::sync::Arc;

use base::cluster::Descriptor;
use node::{MetaAnswer, MetaCall};
use replica::{Message, SnapshotHead};
use table::RowId;

use crate::check::agree::Applied;
use crate::check::written::Cached;
use crate::client::{Answer, Request};
use crate::database::Ask;
use crate::heartbeats::Asker;
use crate::state::Files;

/// What a node does that others notice.
#[derive(Default)]
pub struct Effects {
    /// With their region.
    pub messages: Vec<(u64, Message)>,
    pub answers: Vec<(Request, Answer)>,
    /// Regions that wait for entries from the log.
    pub fetches: Vec<u64>,
    /// What takes a while: numbers of the node.
    pub works: Vec<u64>,
    /// Messages between cores of the node: for which core.
    pub mails: Vec<usize>,
    /// Snapshots made: region, for whom.
    pub snapshots: Vec<(u64, u64, SnapshotHead, Rc<Files>)>,
    pub facts: Vec<Fact>,
    /// What this node asks of others: machine, and number.
    pub calls: Vec<(u64, u64, MetaCall)>,
    pub replies: Vec<(Asker, MetaAnswer)>,
    /// Nodes that should ask meta soon.
    pub news: Vec<u64>,
    /// This node should tell meta soon.
    pub is_news: bool,
    /// To the database: region, write-back, number.
    pub statements: Vec<(u64, u64, u64, Ask)>,
    /// The others hear that it cannot write.
    pub is_unwell: bool,
    /// The node cannot go on.
    pub failure: Option<String>,
}

/// What the checkers hear.
#[derive(Debug)]
pub enum Fact {
    Started {
        region: u64,
        replica: u64,
        applied: u64,
    },
    Leads {
        region: u64,
        replica: u64,
        term: u64,
    },
    Applied(Applied),
    /// All rows of a replica, as of an index.
    Digest {
        region: u64,
        replica: u64,
        index: u64,
        digest: u64,
    },
    Installed {
        region: u64,
        replica: u64,
        index: u64,
        digest: u64,
    },
    /// A replica counts with these members from this index on.
    Members {
        replica: u64,
        index: u64,
        descriptor: Descriptor,
    },
    /// An entry was about this row.
    Row {
        region: u64,
        replica: u64,
        id: RowId,
        cached: Option<Cached>,
    },
    /// The replica begins with these rows.
    Rows {
        replica: u64,
        rows: Vec<(RowId, Cached)>,
    },
    /// A member of meta has come to this state.
    Meta {
        replica: u64,
        descriptors: Vec<Descriptor>,
    },
    /// Meta ordered it, and it was done.
    Made {
        region: u64,
        replica: u64,
    },
    Destroyed {
        region: u64,
        replica: u64,
    },
}

/// What a node knows of tables.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// There are tables in this run.
    pub is_used: bool,
    pub catalogue: Arc<node::Catalogue>,
    pub limits: table::leader::Limits,
}

/// How a replica is set up; the same on all nodes of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub keep_entries: u64,
    pub quiet_ticks: usize,
    /// Rows that one effect batch may make.
    pub most_change_bytes: usize,
    /// The node has no peers.
    pub is_alone: bool,
}

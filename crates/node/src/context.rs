//! What a region needs to know of the world around it, given with every event.

use std::cell::Cell;
use std::sync::Arc;

use base::Refusal;
use base::cluster::{NodeId, RegionId};
use keyspace::rows::RowStore;
use keyspace::{Garbage, Tuning};
use replica::{Ready, Replica, SnapshotHead, Unfit};
use resp::Args;

use crate::{Batch, Catalogue, DataSet, Map, Peers, Place, ReplicaRecord, Specs};

pub struct Context<'a> {
    pub specs: &'a Specs,
    pub map: &'a Map,
    pub tuning: &'a Tuning,
    /// The moment of this event, Unix milliseconds.
    pub now_ms: u64,
    /// The same moment by the clock of leases, which never jumps.
    pub clock_ms: u64,
    pub seeds: &'a Seeds,
    /// The rows of all regions; `None` on a node without a disk.
    pub rows: Option<&'a Arc<dyn RowStore>>,
    /// Whether the node is one of a cluster: its regions have peers.
    pub is_cluster: bool,
    /// Rows that one effect batch may make.
    pub most_change_bytes: usize,
    pub catalogue: &'a Catalogue,
    pub host: &'a dyn Host,
}

impl Context<'_> {
    /// Why nothing can be written any more, if that is so.
    pub fn failure(&self) -> Option<Refusal> {
        self.host.failure()
    }

    pub fn seed(&self) -> u64 {
        self.seeds.next()
    }
}

/// A source of seeds for single commands.
#[derive(Debug)]
pub struct Seeds(Cell<u64>);

impl Seeds {
    pub fn new(seed: u64) -> Self {
        Seeds(Cell::new(seed))
    }

    #[inline]
    pub fn next(&self) -> u64 {
        let seed = self
            .0
            .get()
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0.set(seed);
        seed ^ (seed >> 29)
    }
}

/// An entry that was executed.
pub struct Executing<'a> {
    pub index: u64,
    pub term: u64,
    pub payload: &'a [u8],
}

/// The process around the regions of a core: it counts, logs, and knows at once whether the node
/// has failed and which files have arrived.
pub trait Host {
    /// A command of a batch ran; whether it was refused.
    fn on_command(&self, _batch: &Batch, _stat: usize, _args: &Args<'_>, _refused: bool) {}

    /// A command was refused before it ran.
    fn on_rejected(&self, _stat: usize) {}

    /// A client is told this.
    fn on_refusal(&self, _refusal: &Refusal) {}

    /// A read panicked.
    fn on_panic(&self) {}

    /// Keys were removed because their time had come, or to make room.
    fn on_removed(&self, _expired: u64, _evicted: u64) {}

    /// An entry of so many commands was proposed.
    fn on_proposed(&self, _commands: usize) {}

    /// A message of a node for a region was not taken in, and why.
    fn on_unfit_message(&self, _from: NodeId, _region: u64, _why: &Unfit) {}

    /// A replica has executed an entry.
    fn on_executed(&self, _place: Place, _replica: &Replica, _entry: &Executing<'_>) {}

    /// A replica's role or leader may have changed, as `ready` says.
    fn on_ready(&self, _place: Place, _replica: &Replica, _peers: &Peers, _ready: &Ready) {}

    /// The members of a region changed.
    fn on_members(&self, _place: Place, _index: u64, _record: &ReplicaRecord) {}

    /// Memory that is not needed any more; freeing it may take a while.
    fn discard(&self, _garbage: Garbage) {}

    /// What all regions of the node weigh, if somebody counts that.
    fn data_set(&self) -> Option<&Arc<DataSet>> {
        None
    }

    /// Whether keys are not to be removed now, even if their time has come (CLIENT PAUSE).
    fn is_expiry_paused(&self) -> bool {
        false
    }

    /// A replica of this node is quarantined: some of its rows cannot be read.
    fn on_damage(&self, _place: Place, _region: RegionId, _why: &str) {}

    /// Whether the files of a snapshot that a message announces are here. They are this region's from
    /// now on.
    fn claim_snapshot(&self, _peers: &mut Peers, _head: &SnapshotHead) -> bool {
        false
    }

    /// What the leader of one region may use of the cache of SQL rows.
    fn table_limits(&self) -> table::leader::Limits {
        table::leader::Limits::default()
    }

    /// For how long the disk of the log has taken nothing, if that is too long ([`replica::LogWatch`]): others should
    /// lead.
    fn log_stalled_ms(&self) -> Option<u64> {
        None
    }

    /// The log or the store failed: nothing more is written.
    fn fail(&self, reason: &str);

    /// Why nothing can be written any more, if that is so.
    fn failure(&self) -> Option<Refusal>;

    /// The disk is full, and what waits for the store waits until it is not.
    fn awaits_room(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        self.failure().is_some()
    }
}

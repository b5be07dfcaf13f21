//! What became of a command: a result or a clear refusal, both data.

use std::fmt;

use base::cluster::{ClusterId, NodeId, RegionId, ReplicaId};

use crate::wire::Address;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Registered {
        node: NodeId,
        /// The node that this one came in place of.
        replaced: Option<NodeId>,
    },
    Bootstrapped {
        regions: u32,
    },
    Planned {
        replica: ReplicaId,
    },
    Ids {
        first: u64,
        count: u64,
    },
    /// The catalogue of tables is this one now.
    TablesSet {
        version: u64,
    },
    /// The users are these now.
    UsersSet {
        version: u64,
    },
    /// Something else changed.
    Changed,
    /// It was so already.
    Unchanged,
    Refused(Refused),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    UnknownCommand,
    NotFounded,
    AlreadyFounded(ClusterId),
    WrongCluster {
        ours: ClusterId,
        theirs: ClusterId,
    },
    BadSettings(&'static str),
    BadJoin(&'static str),
    /// The address belongs to a node that is alive.
    AddressInUse {
        address: Address,
        node: NodeId,
    },
    /// Another process with this id is alive at another address.
    AliveElsewhere {
        node: NodeId,
        address: Address,
    },
    /// The data directory was started more often than the joiner knows: an old copy.
    OldDirectory {
        node: NodeId,
        started: u64,
        known: u64,
    },
    /// Two processes started from copies of one data directory.
    CopiedDirectory {
        node: NodeId,
    },
    NodeGone {
        node: NodeId,
        replaced_by: NodeId,
    },
    /// An empty data directory at the address of a node that is not alive.
    NotAskedToReplace {
        address: Address,
        node: NodeId,
    },
    /// `--replace` names a node at another address.
    ReplacesElsewhere {
        node: NodeId,
        address: Address,
    },
    /// Without the node, regions have no majority: what it holds may be all there is.
    NeededForQuorum {
        node: NodeId,
        regions: Vec<RegionId>,
    },
    OldFormat {
        node_reads: u32,
        cluster_writes: u32,
    },
    UnknownNode(NodeId),
    NodeAlive(NodeId),
    UnknownRegion(RegionId),
    UnknownReplica(RegionId, ReplicaId),
    AlreadyBootstrapped,
    TooFewNodes {
        have: usize,
        need: usize,
    },
    /// The region has a member or a plan on that node.
    AlreadyThere {
        region: RegionId,
        node: NodeId,
    },
    /// The node cannot hold replicas of such a region.
    WrongKind(NodeId),
    NotPlanned(ReplicaId),
    TooMany {
        asked: u64,
        most: u64,
    },
    Exhausted(String),
    /// The catalogue of tables was changed by somebody else.
    OtherTables {
        version: u64,
    },
    CatalogueTooLarge {
        bytes: usize,
        most: usize,
    },
    /// The users were changed by somebody else.
    OtherUsers {
        version: u64,
    },
    UsersTooLarge {
        bytes: usize,
        most: usize,
    },
}

impl Refused {
    /// The same may be accepted later, without anybody doing anything.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Refused::AddressInUse { .. }
                | Refused::AliveElsewhere { .. }
                | Refused::NotFounded
                | Refused::NeededForQuorum { .. }
        )
    }
}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Outcome {
        Outcome::Refused(refused)
    }
}

impl From<Result<Outcome, Refused>> for Outcome {
    fn from(result: Result<Outcome, Refused>) -> Outcome {
        result.unwrap_or_else(Outcome::Refused)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::UnknownCommand => write!(f, "a command this version does not know"),
            Refused::NotFounded => write!(f, "the cluster has not been founded yet"),
            Refused::AlreadyFounded(id) => write!(f, "cluster {id:016x} has been founded already"),
            Refused::WrongCluster { ours, theirs } => write!(
                f,
                "the data directory belongs to cluster {theirs:016x}, this is cluster {ours:016x}"
            ),
            Refused::BadSettings(text) => write!(f, "settings: {text}"),
            Refused::BadJoin(text) => write!(f, "join: {text}"),
            Refused::AddressInUse { address, node } => {
                write!(f, "{address} is the address of node {node}, which is alive")
            }
            Refused::AliveElsewhere { node, address } => write!(
                f,
                "node {node} is alive at {address}: is its data directory in use twice?"
            ),
            Refused::OldDirectory {
                node,
                started,
                known,
            } => write!(
                f,
                "an old copy of the data directory of node {node} (start {started}, start {known} \
                 has been seen): it may have forgotten what it promised. Empty it to join as a \
                 new node"
            ),
            Refused::CopiedDirectory { node } => write!(
                f,
                "another process has already started from this data directory of node {node}"
            ),
            Refused::NodeGone {
                node,
                replaced_by: 0,
            } => write!(
                f,
                "node {node} was removed from the cluster: empty its data directory to join as a \
                 new node"
            ),
            Refused::NodeGone { node, replaced_by } => write!(
                f,
                "node {node} was replaced by node {replaced_by}: start it again with its data to take it back"
            ),
            Refused::NotAskedToReplace { address, node } => write!(
                f,
                "{address} is the address of node {node}, which does not run, and this data directory is empty. Is its disk \
                 not mounted? Then mount it and start again. If the data of node {node} is lost for good, start once \
                 with --replace {node}"
            ),
            Refused::ReplacesElsewhere { node, address } => write!(
                f,
                "--replace {node}: node {node} is at {address}, not at this address. If its data is lost for good, say so by \
                 `neokv ctl remove-node {node}` and start this one without --replace"
            ),
            Refused::NeededForQuorum { node, regions } => {
                let (count, first) = (regions.len(), regions.first().copied().unwrap_or(0));
                write!(
                    f,
                    "node {node} is needed: without it {count} regions (region {first} among them) have no majority of \
                     replicas that answer. Start the other nodes first; if their data is lost for good as well, see \
                     `neokv ctl unsafe-recover`"
                )
            }
            Refused::OldFormat {
                node_reads,
                cluster_writes,
            } => write!(
                f,
                "this version reads formats up to {node_reads}, the cluster writes \
                 {cluster_writes}: use a newer version"
            ),
            Refused::UnknownNode(node) => write!(f, "there is no node {node}"),
            Refused::NodeAlive(node) => write!(
                f,
                "node {node} is alive, or was a moment ago: stop it first, and wait until it \
                 counts as down"
            ),
            Refused::UnknownRegion(region) => write!(f, "there is no region {region}"),
            Refused::UnknownReplica(region, replica) => {
                write!(f, "region {region} has no replica {replica}")
            }
            Refused::AlreadyBootstrapped => write!(f, "the regions have been made already"),
            Refused::TooFewNodes { have, need } => {
                write!(f, "{need} nodes are needed, {have} are there")
            }
            Refused::AlreadyThere { region, node } => {
                write!(f, "region {region} has a replica on node {node} already")
            }
            Refused::WrongKind(node) => write!(f, "node {node} does not hold such regions"),
            Refused::NotPlanned(replica) => write!(f, "replica {replica} is not a plan any more"),
            Refused::TooMany { asked, most } => {
                write!(f, "{asked} numbers at once are too many (most: {most})")
            }
            Refused::Exhausted(sequence) => write!(f, "sequence {sequence} has no more numbers"),
            Refused::OtherTables { version } => write!(
                f,
                "the tables were changed by somebody else (version {version})"
            ),
            Refused::CatalogueTooLarge { bytes, most } => write!(
                f,
                "the catalogue of tables would have {bytes} bytes (most: {most})"
            ),
            Refused::OtherUsers { version } => write!(
                f,
                "the users were changed by somebody else (version {version})"
            ),
            Refused::UsersTooLarge { bytes, most } => {
                write!(f, "all users would have {bytes} bytes (most: {most})")
            }
        }
    }
}

//! What a command is like, as `COMMAND` tells it and as the server acts on it.

bitflags::bitflags! {
    /// Redis' command flags that mean something here, and its ACL categories that do not follow
    /// from them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u32 {
        const WRITE = 1;
        const READONLY = 1 << 1;
        /// Refused when memory is short.
        const DENYOOM = 1 << 2;
        const ADMIN = 1 << 3;
        const FAST = 1 << 4;
        const NOSCRIPT = 1 << 5;
        const BLOCKING = 1 << 6;
        const LOADING = 1 << 7;
        const STALE = 1 << 8;
        const NO_AUTH = 1 << 9;
        const NO_MULTI = 1 << 10;
        const SKIP_SLOWLOG = 1 << 11;
        const SKIP_MONITOR = 1 << 12;
        const MOVABLEKEYS = 1 << 13;
        const PUBSUB = 1 << 14;
        const ALLOW_BUSY = 1 << 15;
        const NO_ASYNC_LOADING = 1 << 16;
        /// ACL category @dangerous beyond what ADMIN implies.
        const DANGEROUS = 1 << 17;
        /// What it changes depends on how values lie in memory: a replicated log carries what it
        /// changed instead of the command.
        const BY_EFFECT = 1 << 18;
        /// The server says it to itself, through the log. Clients do not know of it.
        const INTERNAL = 1 << 19;
    }
}

/// The family of a command: its documentation group and ACL category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Generic,
    String,
    Bitmap,
    Hash,
    List,
    Set,
    SortedSet,
    Row,
    Transactions,
    Connection,
    Cluster,
    Scripting,
    Server,
}

impl Group {
    /// As `COMMAND DOCS` names it.
    pub fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Row => "row",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Cluster => "cluster",
            Group::Scripting => "scripting",
            Group::Server => "server",
        }
    }
}

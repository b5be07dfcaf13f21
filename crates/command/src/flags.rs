//! What a command is like, as `COMMAND` tells it and as the server acts on it.

bitflags::bitflags! {
    /// Redis' command flags that mean something here, and its ACL categories that do not follow
    /// from them. Redis' flag `write` is not among them: it follows from the specification's `run`
    /// ([`crate::Command::is_write`]). What is ours alone is in [`Traits`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Flags: u32 {
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
        /// ACL category @admin without the flag.
        const ADMIN_CATEGORY = 1 << 18;
        /// `COMMAND` calls a session command that changes no key a write, as Redis does.
        const LISTED_AS_WRITE = 1 << 19;
    }
}

bitflags::bitflags! {
    /// What the server does differently for a command. Clients do not see these.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Traits: u32 {
        /// The server says it to itself, through the log. Clients do not know of it.
        const INTERNAL = 1;
        /// What it changes depends on how values lie in memory: a replicated log carries what it
        /// changed instead of the command.
        const BY_EFFECT = 1 << 1;
        /// It runs at once between MULTI and EXEC; other commands are queued there.
        const NOT_QUEUED = 1 << 2;
        /// It runs the queued commands: it writes if one of them does, and monitors see it behind
        /// them. If it is refused, the transaction ends.
        const RUNS_QUEUE = 1 << 3;
        /// It changes nothing that commands on other cores could tell: it may run while replies of
        /// earlier commands are pending.
        const RUNS_BESIDE_PENDING = 1 << 4;
        /// It may wait for long and changes nothing: it ends when its client disconnects.
        const ENDS_WITH_CLIENT = 1 << 5;
        /// It may put something at a key that was empty, without the flag DENYOOM.
        const FILLS_KEYS = 1 << 6;
        /// It lets a row of a table go from the cache: it needs no row there, and a command behind
        /// it may need the row again.
        const RELEASES_ROW = 1 << 7;
        /// It marks keys as used even for a session that has set CLIENT NO-TOUCH.
        const ALWAYS_TOUCHES = 1 << 8;
        /// It answers how many keys the database has, which the regions' statistics tell too.
        const COUNTS_DATABASE = 1 << 9;
        /// Argument 1 names a table of SQL, and it reads any of its rows: a user needs the right to
        /// read all of `table:*`.
        const READS_TABLE = 1 << 10;
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

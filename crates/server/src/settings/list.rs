//! The list: one row per setting. It drives `CONFIG`, the flags of `neokv server`, the keys of its
//! configuration file, its environment variables and `docs/operations/configuration.md`.
//!
//! Only settings that mean something here; Redis' names and defaults where Redis has them.

use super::kind::Kind;

/// When a setting may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// By `CONFIG SET` at any time.
    Always,
    /// As [`Change::Always`], if `enable-protected-configs` lets the client.
    Protected,
    /// At start; `CONFIG SET` accepts only the value it has.
    Start,
    /// At start; `CONFIG SET` is refused.
    Never,
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// As `CONFIG` knows it.
    pub name: &'static str,
    /// Other names `CONFIG` knows it by.
    pub aliases: &'static [&'static str],
    /// The flag and configuration key, if not the name; the name works too.
    pub flag: Option<&'static str>,
    pub kind: Kind,
    pub default: &'static str,
    pub change: Change,
    pub doc: &'static str,
    /// Whether the value must not be shown in logs.
    pub secret: bool,
}

const BASE: Setting = Setting {
    name: "",
    aliases: &[],
    flag: None,
    kind: Kind::Text,
    default: "",
    change: Change::Always,
    doc: "",
    secret: false,
};

const fn row(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting {
        name,
        kind,
        default,
        doc,
        ..BASE
    }
}

const fn aliased(setting: Setting, aliases: &'static [&'static str]) -> Setting {
    Setting { aliases, ..setting }
}

const fn change(setting: Setting, change: Change) -> Setting {
    Setting { change, ..setting }
}

const fn flag(setting: Setting, flag: &'static str) -> Setting {
    Setting {
        flag: Some(flag),
        ..setting
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

const COUNT: Kind = int(0, i64::MAX);
const SMALL: Kind = int(0, i32::MAX as i64);
const BYTES: Kind = Kind::Bytes {
    min: 0,
    max: u64::MAX,
};
const ALLOWED: Kind = Kind::Choice(&["no", "yes", "local"]);

/// Every setting, in the order of the reference page.
pub const ALL: &[Setting] = &[
    // What only the start can decide.
    change(
        row(
            "engine",
            Kind::Choice(&["rocksdb", "memory"]),
            "rocksdb",
            "Where data lives. `rocksdb`: on disk, what fits in memory too; every write is in the log before it is acknowledged. `memory`: in memory only, saved to an RDB file.",
        ),
        Change::Start,
    ),
    change(
        row(
            "num-shards",
            int(0, 1024),
            "0",
            "Number of cores: threads, each with its own connections and part of the data. 0: one per CPU.",
        ),
        Change::Start,
    ),
    change(
        row(
            "sched-batch",
            Kind::Bool,
            "yes",
            "Threads that are woken do not preempt others (SCHED_BATCH): less CPU per command on busy machines. Turn it off if other programs keep the CPUs busy and latency counts more.",
        ),
        Change::Start,
    ),
    flag(
        change(
            row("port", int(1, 65535), "6379", "TCP port for Redis clients."),
            Change::Start,
        ),
        "redis-port",
    ),
    change(
        row(
            "http-port",
            int(0, 65535),
            "8379",
            "TCP port for HTTP: gRPC for tables, `/metrics`, `/healthz`; 0: none. If it is taken, a server that was not given one goes on without.",
        ),
        Change::Start,
    ),
    change(
        row(
            "bind",
            Kind::Addresses,
            "127.0.0.1 -::1",
            "Addresses to listen on; `*` for all. An address with `-` in front may be missing on this machine.",
        ),
        Change::Start,
    ),
    change(
        row(
            "tcp-backlog",
            SMALL,
            "511",
            "Connections that may wait to be accepted.",
        ),
        Change::Never,
    ),
    change(
        row(
            "databases",
            int(16, 16),
            "16",
            "Number of databases; fixed.",
        ),
        Change::Never,
    ),
    change(
        row(
            "daemonize",
            Kind::Off("start it in the background by your service manager"),
            "no",
            "The server stays in the foreground.",
        ),
        Change::Never,
    ),
    aliased(
        change(
            row(
                "replicaof",
                Kind::Empty("this server does not replicate from another"),
                "",
                "There is no replication of the Redis kind.",
            ),
            Change::Never,
        ),
        &["slaveof"],
    ),
    // A node among others.
    change(
        row(
            "cluster-init",
            Kind::Bool,
            "no",
            "Found a cluster on an empty data directory: this node is its first. Others come with `join`.",
        ),
        Change::Start,
    ),
    change(
        row(
            "join",
            Kind::Text,
            "",
            "Be a node of a cluster: `host:peer-port` of one or more of its nodes, separated by commas. Asked at every start; once joined, the addresses in the data directory work too.",
        ),
        Change::Start,
    ),
    change(
        row(
            "roles",
            Kind::Choice(&["meta,store", "store,meta", "store", "meta"]),
            "meta,store",
            "What a cluster node does: hold regions (`store`), take part in the service that places them (`meta`), or both.",
        ),
        Change::Start,
    ),
    change(
        row(
            "replicas",
            int(1, 9),
            "3",
            "With `cluster-init`: how many replicas a region has. The first regions are made when so many nodes are there.",
        ),
        Change::Start,
    ),
    change(
        row(
            "regions",
            int(0, 8192),
            "0",
            "With `cluster-init`: how many regions the slots are divided into at first; 0: four per replica.",
        ),
        Change::Start,
    ),
    change(
        row(
            "meta-replicas",
            int(1, 9),
            "3",
            "With `cluster-init`: how many nodes take part in the meta service.",
        ),
        Change::Start,
    ),
    change(
        row(
            "peer-port",
            int(0, 65535),
            "0",
            "TCP port for the other nodes of a cluster; 0: the Redis port + 10000.",
        ),
        Change::Start,
    ),
    flag(
        change(
            row(
                "cluster-announce-ip",
                Kind::Text,
                "",
                "Address that clients and other nodes are told to reach this node at; empty: the first of `bind`.",
            ),
            Change::Start,
        ),
        "redis-advertise-ip",
    ),
    flag(
        change(
            row(
                "cluster-announce-port",
                int(0, 65535),
                "0",
                "Redis port that clients are told; 0: `redis-port`.",
            ),
            Change::Start,
        ),
        "redis-advertise-port",
    ),
    change(
        row(
            "labels",
            Kind::Text,
            "",
            "Where this node is: `zone=a,rack=7,host=h3`; replicas of a region are spread over them.",
        ),
        Change::Start,
    ),
    flag(
        change(
            row(
                "cluster-redirect",
                Kind::Bool,
                "yes",
                "On a cluster node: redirect clients to the node that leads a slot, as Redis Cluster does. `no`: forward commands there, so that plain clients work with any node.",
            ),
            Change::Start,
        ),
        "redis-cluster-enabled",
    ),
    row(
        "enable-follower-read",
        Kind::Bool,
        "no",
        "On a cluster node: after READONLY a session's reads are answered by any replica, linearizable still (it asks the leader how far it must be).",
    ),
    change(
        row(
            "election-timeout",
            int(100, 60_000),
            "1000",
            "Milliseconds without a word of its leader after which a replica asks for votes; up to twice as many.",
        ),
        Change::Start,
    ),
    change(
        row(
            "node-dead-after",
            int(1_000, 86_400_000),
            "30000",
            "Milliseconds without a heartbeat after which a node counts as lost and its replicas are made anew elsewhere.",
        ),
        Change::Start,
    ),
    change(
        row(
            "log-keep-entries",
            int(0, 10_000_000),
            "10000",
            "On a cluster node: entries of a region's log that are kept for replicas that lag, when the log is cut (`log-size`). One that lacks more gets a snapshot.",
        ),
        Change::Start,
    ),
    row(
        "log-keep-bytes",
        BYTES,
        "256mb",
        "On a cluster node: bytes of log that are kept for replicas that lag, in equal parts for all regions of the node (1 MB each at least), when the log is cut; no more than `log-keep-entries` allows.",
    ),
    change(
        row(
            "snapshot-rate",
            BYTES,
            "100mb",
            "Bytes per second that this node sends or receives to bring up replicas; 0: as fast as it goes.",
        ),
        Change::Start,
    ),
    change(
        row(
            "peer-tls-cert",
            Kind::Text,
            "",
            "Certificate of this node (PEM) for connections between nodes; with `peer-tls-key` and `peer-tls-ca`, on all nodes or none.",
        ),
        Change::Start,
    ),
    change(
        row(
            "peer-tls-key",
            Kind::Text,
            "",
            "Key of that certificate (PEM).",
        ),
        Change::Start,
    ),
    change(
        row(
            "peer-tls-ca",
            Kind::Text,
            "",
            "Authority that signed the certificates of all nodes (PEM).",
        ),
        Change::Start,
    ),
    // Tables.
    Setting {
        secret: true,
        ..change(
            row(
                "table-backend",
                Kind::Backends,
                "",
                "SQL databases behind tables: `main=postgres://user:password@host/database games=mysql://…`; may be repeated. A node alone that is given none uses SQLite, `tables.db` in its data directory; all nodes of a cluster must be given the same.",
            ),
            Change::Start,
        )
    },
    change(
        row(
            "table-cache-soft-bytes",
            BYTES,
            "0",
            "Bytes of cached rows of a node above which the coldest that SQL has leave; 0: an eighth of the machine's memory.",
        ),
        Change::Start,
    ),
    change(
        row(
            "table-cache-hard-bytes",
            BYTES,
            "0",
            "Bytes of cached rows of a node above which clients whose row must be loaded or grows are told to try again; 0: a third above the soft limit.",
        ),
        Change::Start,
    ),
    change(
        row(
            "table-flush-linger-ms",
            int(0, 60_000),
            "50",
            "Milliseconds that a changed row waits for further changes before it is written to SQL; ten times that, but at most 500, when 512 rows of its table and region wait.",
        ),
        Change::Start,
    ),
    change(
        row(
            "table-pool-size",
            int(1, 1024),
            "8",
            "Most connections of a node to each SQL database.",
        ),
        Change::Start,
    ),
    change(
        row(
            "table-statement-timeout-ms",
            int(10, 3_600_000),
            "5000",
            "Milliseconds an SQL statement may take, waiting for locks included.",
        ),
        Change::Start,
    ),
    // Clients.
    Setting {
        secret: true,
        ..row(
            "requirepass",
            Kind::Text,
            "",
            "Password clients must give with AUTH or HELLO; empty: none.",
        )
    },
    row(
        "protected-mode",
        Kind::Bool,
        "yes",
        "With no password, refuse clients from other machines.",
    ),
    row(
        "maxclients",
        int(1, u32::MAX as i64),
        "10000",
        "Most clients at a time; further ones get an error and are closed.",
    ),
    row(
        "timeout",
        SMALL,
        "0",
        "Close a client idle for so many seconds; 0: never.",
    ),
    row(
        "tcp-keepalive",
        SMALL,
        "300",
        "Seconds between TCP keepalive probes; 0: none.",
    ),
    row(
        "client-query-buffer-limit",
        Kind::Bytes {
            min: 1 << 20,
            max: i64::MAX as u64,
        },
        "1gb",
        "A client whose unfinished input is longer is closed.",
    ),
    row(
        "client-output-buffer-limit",
        Kind::OutputLimits,
        "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        "A client that leaves more unread replies than this is closed, per class of client.",
    ),
    row(
        "proto-max-bulk-len",
        Kind::Bytes {
            min: 1 << 20,
            max: i64::MAX as u64,
        },
        "512mb",
        "Longest argument a client may send, and longest string.",
    ),
    change(
        row(
            "enable-debug-command",
            ALLOWED,
            "local",
            "Who may use DEBUG; `local`: clients from this machine.",
        ),
        Change::Never,
    ),
    change(
        row(
            "enable-protected-configs",
            ALLOWED,
            "no",
            "Who may change `dir` and `dbfilename` by CONFIG SET; `local`: clients from this machine.",
        ),
        Change::Never,
    ),
    // Memory.
    row(
        "maxmemory",
        BYTES,
        "0",
        "Memory for data; when reached, keys are evicted or writes refused as `maxmemory-policy` says. 0: no limit.",
    ),
    row(
        "maxmemory-policy",
        Kind::Choice(&[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ]),
        "noeviction",
        "Which keys to give up when memory is short.",
    ),
    row(
        "maxmemory-samples",
        int(1, i32::MAX as i64),
        "5",
        "Keys looked at to find one to evict: more is more exact and slower.",
    ),
    row(
        "lfu-log-factor",
        SMALL,
        "10",
        "How slowly the access counter of the LFU policies grows.",
    ),
    row(
        "lfu-decay-time",
        SMALL,
        "1",
        "Minutes after which the access counter of the LFU policies is lowered by one.",
    ),
    row(
        "lazyfree-lazy-eviction",
        Kind::Bool,
        "no",
        "Accepted for compatibility: big values are always freed in the background.",
    ),
    row(
        "lazyfree-lazy-expire",
        Kind::Bool,
        "no",
        "As lazyfree-lazy-eviction.",
    ),
    row(
        "lazyfree-lazy-server-del",
        Kind::Bool,
        "no",
        "As lazyfree-lazy-eviction.",
    ),
    row(
        "lazyfree-lazy-user-del",
        Kind::Bool,
        "no",
        "As lazyfree-lazy-eviction.",
    ),
    row(
        "lazyfree-lazy-user-flush",
        Kind::Bool,
        "no",
        "As lazyfree-lazy-eviction.",
    ),
    row(
        "active-expire-effort",
        int(1, 10),
        "1",
        "How much time may go into removing expired keys, 1 to 10.",
    ),
    row("hz", int(1, 500), "10", "Rounds of upkeep per second."),
    row(
        "activerehashing",
        Kind::Bool,
        "yes",
        "Accepted for compatibility: tables always grow in small steps.",
    ),
    // How collections are kept.
    aliased(
        row(
            "hash-max-listpack-entries",
            COUNT,
            "512",
            "A hash with more fields is indexed.",
        ),
        &["hash-max-ziplist-entries"],
    ),
    aliased(
        row(
            "hash-max-listpack-value",
            BYTES_LONG,
            "64",
            "A hash with a longer field or value is indexed.",
        ),
        &["hash-max-ziplist-value"],
    ),
    aliased(
        row(
            "list-max-listpack-size",
            int(i32::MIN as i64, i32::MAX as i64),
            "-2",
            "Elements in a list's chunk if > 0; −1 … −5: chunks of 4, 8, 16, 32, 64 KiB.",
        ),
        &["list-max-ziplist-size"],
    ),
    row(
        "list-compress-depth",
        SMALL,
        "0",
        "Accepted for compatibility: chunks of lists are not compressed.",
    ),
    row(
        "set-max-intset-entries",
        COUNT,
        "512",
        "A set of integers with more members is indexed.",
    ),
    aliased(
        row(
            "zset-max-listpack-entries",
            COUNT,
            "128",
            "A sorted set with more members is indexed.",
        ),
        &["zset-max-ziplist-entries"],
    ),
    aliased(
        row(
            "zset-max-listpack-value",
            BYTES_LONG,
            "64",
            "A sorted set with a longer member is indexed.",
        ),
        &["zset-max-ziplist-value"],
    ),
    // Saving.
    flag(
        change(
            row("dir", Kind::Folder, ".", "Folder of the data."),
            Change::Protected,
        ),
        "data-dir",
    ),
    change(
        row(
            "dbfilename",
            Kind::FileName,
            "dump.rdb",
            "Name of the RDB file in `dir`.",
        ),
        Change::Protected,
    ),
    change(
        row(
            "import",
            Kind::Path,
            "",
            "Engine rocksdb: RDB file that a new data folder begins with, read once. Without it, `dbfilename` in the folder is imported, if it is there and the folder is new.",
        ),
        Change::Start,
    ),
    row(
        "log-sync",
        Kind::Choice(&["always", "everysec", "no"]),
        "always",
        "Engine rocksdb: when a write is acknowledged. `always`: when it is on disk; `everysec`: at once, it is on disk a second later; `no`: at once, the system decides.",
    ),
    row(
        "cache-size",
        BYTES,
        "0",
        "Engine rocksdb: memory for values; the least used leave it and stay on disk. 0: a third of the machine's memory.",
    ),
    change(
        row(
            "block-cache-size",
            BYTES,
            "0",
            "Engine rocksdb: memory for blocks of files. 0: a twelfth of the machine's memory.",
        ),
        Change::Start,
    ),
    row(
        "log-size",
        BYTES,
        "64mb",
        "Engine rocksdb: the log is cut when it has grown to this size; a start after a crash replays at most about so much.",
    ),
    change(
        row(
            "binlog",
            Kind::Bool,
            "no",
            "Engine rocksdb: keep a feed of all changes beside the data; `neokv feed` shows it.",
        ),
        Change::Start,
    ),
    change(
        row(
            "binlog-size",
            BYTES,
            "1gb",
            "Engine rocksdb: the feed's oldest part goes when it is larger than this.",
        ),
        Change::Start,
    ),
    row(
        "save",
        Kind::Save,
        "3600 1 300 100 60 10000",
        "Engine memory (with rocksdb only if given): save when so many seconds have passed since the last time with at least so many changes; empty: only when asked.",
    ),
    row(
        "rdbcompression",
        Kind::Bool,
        "yes",
        "Compress strings in the RDB file.",
    ),
    change(
        row(
            "rdbchecksum",
            Kind::Bool,
            "yes",
            "Write and check a checksum at the end of the RDB file.",
        ),
        Change::Never,
    ),
    row(
        "rdb-key-save-delay",
        int(i32::MIN as i64, i32::MAX as i64),
        "0",
        "For tests: wait so many microseconds after each key that is saved.",
    ),
    row(
        "stop-writes-on-bgsave-error",
        Kind::Bool,
        "yes",
        "Refuse writes when the last background save failed.",
    ),
    row(
        "appendonly",
        Kind::Off(
            "there is no append-only file here; use the engine rocksdb, whose log is always on",
        ),
        "no",
        "There is no append-only file: the log of the engine rocksdb is what Redis' file is, see `log-sync`.",
    ),
    row(
        "shutdown-on-sigterm",
        Kind::Choice(&["default", "save", "nosave", "now", "force"]),
        "default",
        "What SIGTERM does; `default`: save if `save` is set.",
    ),
    row(
        "shutdown-on-sigint",
        Kind::Choice(&["default", "save", "nosave", "now", "force"]),
        "default",
        "As shutdown-on-sigterm, for SIGINT.",
    ),
    // Watching it.
    row(
        "slowlog-log-slower-than",
        int(-1, i64::MAX),
        "10000",
        "Microseconds from which a command is logged by SLOWLOG; −1: none, 0: all.",
    ),
    row(
        "slowlog-max-len",
        COUNT,
        "128",
        "Commands SLOWLOG remembers.",
    ),
    row(
        "latency-monitor-threshold",
        COUNT,
        "0",
        "Milliseconds from which LATENCY remembers an event; 0: none.",
    ),
    row(
        "latency-tracking",
        Kind::Bool,
        "yes",
        "Keep a histogram of each command's time.",
    ),
    row(
        "latency-tracking-info-percentiles",
        Kind::Percentiles,
        "50 99 99.9",
        "Percentiles INFO latencystats shows.",
    ),
    row(
        "loglevel",
        Kind::Choice(&["debug", "verbose", "notice", "warning", "nothing"]),
        "notice",
        "What is written to standard error.",
    ),
    row(
        "notify-keyspace-events",
        Kind::Empty(
            "keyspace events need PUBLISH and SUBSCRIBE, which this server does not have yet",
        ),
        "",
        "Keyspace events are not sent yet.",
    ),
    aliased(
        row(
            "busy-reply-threshold",
            COUNT,
            "5000",
            "Milliseconds a script may run before others are told BUSY; no effect until scripts come.",
        ),
        &["lua-time-limit"],
    ),
];

const BYTES_LONG: Kind = Kind::Bytes {
    min: 0,
    max: i64::MAX as u64,
};

/// Position in [`ALL`] of the setting of this name, flag or alias, in any case.
pub fn find(name: &str) -> Option<usize> {
    ALL.iter().position(|setting| setting.is_called(name))
}

impl Setting {
    pub fn is_called(&self, name: &str) -> bool {
        self.names().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The names `CONFIG` knows it by.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The flag of `neokv server` and key of its configuration file.
    pub fn flag(&self) -> &'static str {
        self.flag.unwrap_or(self.name)
    }
}

//! The process: its engine, its threads, where it listens. Nearly all of it is decided at the start.
//!
//! Rows of Redis for what this server does not do (`daemonize`, `replicaof`) are here, too: they
//! accept what asks for nothing and refuse the rest with a reason.

use super::{SMALL, Setting, aliased, at_start, fixed, flagged, int, row};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    at_start(row(
        "engine",
        Kind::Choice(&["rocksdb", "memory"]),
        "rocksdb",
        "Where data lives. `rocksdb`: on disk, what fits in memory too; every write is in the log before it is acknowledged. `memory`: in memory only, saved to an RDB file.",
    )),
    at_start(row(
        "num-shards",
        int(0, 1024),
        "0",
        "Number of cores: threads, each with its own connections and part of the data. 0: by the number of CPUs; one in eight, at least one, is left to the log writer and to other programs.",
    )),
    flagged(
        "redis-port",
        row(
            "port",
            int(0, 65535),
            "6379",
            "TCP port for Redis clients; 0: none, if there is a `tls-port`. Nodes of a cluster do not change it, nor `tls-port` and `bind`.",
        ),
    ),
    at_start(row(
        "http-port",
        int(0, 65535),
        "8379",
        "TCP port for HTTP: gRPC for tables, `/metrics`, `/healthz`; 0: none. If it is taken, a server that was not given one goes on without.",
    )),
    row(
        "bind",
        Kind::Addresses,
        "127.0.0.1 -::1",
        "Addresses to listen on; `*` for all. An address with `-` in front may be missing on this machine. By CONFIG SET for Redis clients only, not for HTTP.",
    ),
    fixed(row(
        "tcp-backlog",
        SMALL,
        "511",
        "Connections that may wait to be accepted.",
    )),
    fixed(row(
        "databases",
        int(16, 16),
        "16",
        "Number of databases; fixed.",
    )),
    fixed(row(
        "daemonize",
        Kind::Off("start it in the background by your service manager"),
        "no",
        "The server stays in the foreground.",
    )),
    aliased(
        &["slaveof"],
        fixed(row(
            "replicaof",
            Kind::Empty("this server does not replicate from another"),
            "",
            "There is no replication of the Redis kind.",
        )),
    ),
];

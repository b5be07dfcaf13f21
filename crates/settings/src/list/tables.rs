//! Tables: the SQL databases behind them, and what rows in memory may cost. Read together in
//! `settings::tables`.

use super::{BYTES, Setting, at_start, int, row, secret};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    secret(at_start(row(
        "table-backend",
        Kind::Backends,
        "",
        "SQL databases behind tables: `main=postgres://user:password@host/database games=mysql://…`; may be repeated. A node alone that is given none uses SQLite, `tables.db` in its data directory; all nodes of a cluster must be given the same.",
    ))),
    at_start(row(
        "table-cache-soft-bytes",
        BYTES,
        "0",
        "Bytes of cached rows of a node above which the coldest that SQL has leave; 0: an eighth of the machine's memory.",
    )),
    at_start(row(
        "table-cache-hard-bytes",
        BYTES,
        "0",
        "Bytes of cached rows of a node above which clients whose row must be loaded or grows are told to try again; 0: a third above the soft limit.",
    )),
    at_start(row(
        "table-flush-linger-ms",
        int(0, 60_000),
        "50",
        "Milliseconds that a changed row waits for further changes before it is written to SQL; ten times that, but at most 500, when 512 rows of its table and region wait.",
    )),
    at_start(row(
        "table-pool-size",
        int(1, 1024),
        "8",
        "Most connections of a node to each SQL database.",
    )),
    at_start(row(
        "table-statement-timeout-ms",
        int(10, 3_600_000),
        "5000",
        "Milliseconds an SQL statement may take, waiting for locks included.",
    )),
];

//! Clients: who may come, how much each may send and leave unread, and what it may do that others
//! may not.

use super::{SMALL, Setting, fixed, int, row, secret};
use crate::kind::Kind;

/// Who may do what can harm.
const ALLOWED: Kind = Kind::Choice(&["no", "yes", "local"]);

pub(super) const ROWS: &[Setting] = &[
    secret(row(
        "requirepass",
        Kind::Text,
        "",
        "Password clients must give with AUTH or HELLO; empty: none.",
    )),
    secret(fixed(row(
        "user",
        Kind::Text,
        "",
        "Users of a node that is alone, one per line: a name, then ACL rules. In the configuration file a list of such lines.",
    ))),
    fixed(row(
        "aclfile",
        Kind::Text,
        "",
        "File of users of a node that is alone, for ACL LOAD and ACL SAVE; empty: users are kept in the data directory.",
    )),
    row(
        "acl-pubsub-default",
        Kind::Choice(&["resetchannels", "allchannels"]),
        "resetchannels",
        "Channels that new users may use: none, or all.",
    ),
    row(
        "acllog-max-len",
        SMALL,
        "128",
        "Entries of ACL LOG that are kept.",
    ),
    row(
        "auth-failures-per-minute",
        int(0, 1_000_000),
        "300",
        "Failed logins per minute and source address; further ones are refused unseen. 0: no limit.",
    ),
    row(
        "http-open-pages",
        Kind::Bool,
        "no",
        "Show /metrics and /healthz of the HTTP port without a password, even if the default user has one.",
    ),
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
        "Most clients at a time; further ones get an error and are closed. Lowered at start to what `ulimit -n` allows. At most half of them may be clients that have yet to authenticate, for a minute each.",
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
            max: base::limits::MOST_BULK_BYTES as u64,
        },
        "512mb",
        "Longest argument a client may send, and longest string.",
    ),
    fixed(row(
        "enable-debug-command",
        ALLOWED,
        "local",
        "Who may use DEBUG; `local`: clients from this machine.",
    )),
    fixed(row(
        "enable-protected-configs",
        ALLOWED,
        "no",
        "Who may change `dir` and `dbfilename` by CONFIG SET; `local`: clients from this machine.",
    )),
];

//! Watching the server: slow commands, latency, the log.

use super::{COUNT, Setting, aliased, at_start, fixed, int, row};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
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
        Kind::LogLevels,
        "notice",
        "What is logged, also by module: notice,transport=debug; see logging.md.",
    ),
    at_start(row(
        "log-format",
        Kind::Choice(&["text", "json"]),
        "text",
        "One line per event, as text or as a JSON object.",
    )),
    fixed(row(
        "logfile",
        Kind::Path,
        "",
        "File the log is appended to; empty: standard output. It may be renamed at any time: a new one is made.",
    )),
    row(
        "notify-keyspace-events",
        Kind::Empty(
            "keyspace events need PUBLISH and SUBSCRIBE, which this server does not have yet",
        ),
        "",
        "Keyspace events are not sent yet.",
    ),
    aliased(
        &["lua-time-limit"],
        row(
            "busy-reply-threshold",
            COUNT,
            "5000",
            "Milliseconds a script may run before others are told BUSY; no effect until scripts come.",
        ),
    ),
];

//! Memory: how much there may be, what leaves when it is short, and how much time upkeep may take.
//!
//! Rows of Redis for what is always so here (`lazyfree-*`, `activerehashing`) are accepted and change
//! nothing.

use super::{BYTES, SMALL, Setting, int, row};
use crate::kind::Kind;

pub(super) const ROWS: &[Setting] = &[
    row(
        "maxmemory",
        BYTES,
        "0",
        "Memory for data; when reached, keys are evicted or writes refused as `maxmemory-policy` says. Engine rocksdb: with a policy it limits the data set, in memory or on disk, and evicted keys are gone from disk, too; with `noeviction` it limits memory, and writes are refused when values that leave it do not help. 0: no limit.",
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
        "Which keys to give up when `maxmemory` is reached.",
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
];

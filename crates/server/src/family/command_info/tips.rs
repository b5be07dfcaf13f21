//! Tips of COMMAND INFO: what a client that routes commands itself should know of some of them.
//!
//! `nondeterministic_output` and `nondeterministic_output_order`: the same data gives other replies, or other orders.
//! `request_policy` and `response_policy`: which nodes of a cluster to ask, and how to make one reply of theirs. The words are
//! Redis'; a command that is not here needs neither.

use command::Command;

pub fn of(row: &Command) -> &'static [&'static str] {
    match row.name {
        "client|info"
        | "client|list"
        | "cluster|bumpepoch"
        | "cluster|count-failure-reports"
        | "cluster|getkeysinslot"
        | "cluster|info"
        | "cluster|links"
        | "cluster|nodes"
        | "cluster|replicas"
        | "cluster|shards"
        | "cluster|slaves"
        | "cluster|slots"
        | "hrandfield"
        | "hscan"
        | "lastsave"
        | "object|encoding"
        | "object|freq"
        | "object|idletime"
        | "object|refcount"
        | "pttl"
        | "spop"
        | "srandmember"
        | "sscan"
        | "time"
        | "ttl"
        | "zrandmember"
        | "zscan" => &["nondeterministic_output"],
        "latency|doctor" | "latency|graph" | "latency|histogram" | "latency|history"
        | "latency|latest" => &[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
        "function|stats" | "info" | "memory|doctor" | "memory|malloc-stats" | "memory|stats" => &[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
        "scan" => &["nondeterministic_output", "request_policy:special"],
        "command" | "command|docs" | "command|info" | "command|list" | "function|list"
        | "hgetall" | "hkeys" | "hvals" | "module|list" | "sdiff" | "sinter" | "smembers"
        | "sunion" => &["nondeterministic_output_order"],
        "slowlog|get" => &["request_policy:all_nodes", "nondeterministic_output"],
        "slowlog|len" => &[
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ],
        "config|set" | "latency|reset" | "slowlog|reset" => {
            &["request_policy:all_nodes", "response_policy:all_succeeded"]
        }
        "randomkey" => &["request_policy:all_shards", "nondeterministic_output"],
        "keys" => &["request_policy:all_shards", "nondeterministic_output_order"],
        "wait" | "waitaof" => &["request_policy:all_shards", "response_policy:agg_min"],
        "dbsize" => &["request_policy:all_shards", "response_policy:agg_sum"],
        "flushall" | "flushdb" | "function|flush" | "memory|purge" | "ping" => {
            &["request_policy:all_shards", "response_policy:all_succeeded"]
        }
        "mget" => &["request_policy:multi_shard"],
        "msetnx" => &["request_policy:multi_shard", "response_policy:agg_min"],
        "del" | "exists" | "touch" | "unlink" => {
            &["request_policy:multi_shard", "response_policy:agg_sum"]
        }
        "mset" => &[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ],
        _ => &[],
    }
}

//! One command as COMMAND INFO and COMMAND DOCS give it.

use command::{Command, Flags, Group, Keys};
use resp::Reply;

use super::specs;

const FLAG_NAMES: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];

/// The ten elements of a COMMAND INFO row.
pub fn info(row: &Command, reply: &mut Reply) {
    reply.array(10);
    reply.bulk(row.name.as_bytes());
    reply.int(row.arity.as_redis());
    let mut flags: Vec<&str> = FLAG_NAMES
        .iter()
        .filter(|(flag, _)| row.flags.contains(*flag))
        .map(|(_, name)| *name)
        .collect();
    let counted = matches!(
        row.keys,
        Keys::Counted { .. } | Keys::DestinationAndCounted { .. } | Keys::Sort
    );
    if counted && !row.flags.contains(Flags::MOVABLEKEYS) {
        flags.push("movablekeys");
    }
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = match row.keys {
        Keys::Range { first, last, step } => (first as i64, last as i64, step as i64),
        Keys::DestinationAndCounted { .. } | Keys::Sort => (1, 1, 1),
        _ => (0, 0, 0),
    };
    reply.int(first);
    reply.int(last);
    reply.int(step);
    let categories = categories(row);
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(name));
    // Tips.
    reply.set(0);
    specs::write(row, reply);
    reply.array(row.subcommands.len());
    row.subcommands.iter().for_each(|sub| info(sub, reply));
}

/// The ACL categories of a command.
pub fn categories(row: &Command) -> Vec<&'static str> {
    let has = |flag: Flags| row.flags.contains(flag);
    let mut list = Vec::new();
    let group = match row.group {
        Group::Generic => "@keyspace",
        Group::String => "@string",
        Group::Bitmap => "@bitmap",
        Group::Hash => "@hash",
        Group::List => "@list",
        Group::Set => "@set",
        Group::SortedSet => "@sortedset",
        Group::Row => "@row",
        Group::Transactions => "@transaction",
        Group::Connection => "@connection",
        Group::Server => "",
    };
    for (name, set) in [
        ("@keyspace", group == "@keyspace"),
        ("@write", has(Flags::WRITE)),
        ("@read", has(Flags::READONLY)),
        (group, !group.is_empty() && group != "@keyspace"),
        ("@pubsub", has(Flags::PUBSUB)),
        ("@admin", has(Flags::ADMIN)),
        ("@fast", has(Flags::FAST)),
        ("@slow", !has(Flags::FAST)),
        ("@blocking", has(Flags::BLOCKING)),
        ("@dangerous", has(Flags::ADMIN) || has(Flags::DANGEROUS)),
    ] {
        if set {
            list.push(name);
        }
    }
    list
}

/// The value of a COMMAND DOCS entry.
pub fn docs(row: &Command, reply: &mut Reply) {
    let has_subcommands = !row.subcommands.is_empty();
    reply.map(4 + usize::from(has_subcommands));
    for (name, text) in [
        ("summary", row.summary),
        ("since", row.since),
        ("group", row.group.name()),
        ("complexity", row.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(row.subcommands.len());
        for sub in row.subcommands {
            reply.bulk(sub.name.as_bytes());
            docs(sub, reply);
        }
    }
}

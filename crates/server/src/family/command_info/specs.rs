//! Where the keys of a command are and what it does to them, as COMMAND INFO describes it.

use command::syntax::{Argument, Kind};
use command::{Command, Keys};
use resp::{Args, Reply};

/// Commands whose first key is a destination.
const STORE: &[&str] = &[
    "bitop",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// What a command does to its `number`-th key.
pub fn access(row: &Command, args: &Args<'_>, number: usize) -> &'static [&'static str] {
    let has = |word| (2..args.len()).any(|i| args.is(i, word));
    match row.name {
        "set" if has("GET") => READ_UPDATE,
        "set" => OVERWRITE,
        "bitfield" if has("SET") || has("INCRBY") => READ_UPDATE,
        "bitfield" => READ,
        _ => of_row(row, number),
    }
}

const READ: &[&str] = &["RO", "access"];
const READ_UPDATE: &[&str] = &["RW", "access", "update"];
const OVERWRITE: &[&str] = &["OW", "update"];

/// The same without arguments to look at: whether the key is read or written, and what becomes of
/// the data a client gave or gets. The words are Redis'.
fn of_row(row: &Command, number: usize) -> &'static [&'static str] {
    match (row.name, number) {
        // About the key, not its data.
        (
            "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "memory|usage" | "object|encoding"
            | "object|freq" | "object|idletime" | "object|refcount" | "scard" | "sismember"
            | "strlen" | "touch" | "type" | "watch" | "zcard",
            _,
        ) => &["RO"],
        ("sort" | "copy", 0) => READ,
        _ if !row.is_write() => READ,
        ("set" | "bitfield", _) => &["RW", "access", "update", "variable_flags"],
        ("mset" | "psetex" | "setex", _) | ("sort" | "copy" | "rename", 1) => OVERWRITE,
        ("msetnx" | "setnx", _) | ("renamenx", 1) => &["OW", "insert"],
        ("del" | "unlink", _) => &["RM", "delete"],
        ("sinterstore", 0)
        | (
            "expire" | "expireat" | "hmset" | "hset" | "lset" | "persist" | "pexpire" | "pexpireat"
            | "setrange" | "zadd",
            _,
        ) => &["RW", "update"],
        (name, 0) if STORE.contains(&name) => OVERWRITE,
        (name, _) if STORE.contains(&name) => READ,
        ("blmove" | "brpoplpush" | "lmove" | "rpoplpush" | "smove", 1)
        | ("append" | "hsetnx" | "linsert" | "lpush" | "lpushx" | "rpush" | "rpushx" | "sadd", _) => {
            &["RW", "insert"]
        }
        ("blmove" | "brpoplpush" | "lmove" | "rpoplpush" | "smove" | "rename" | "renamenx", _)
        | (
            "blmpop" | "blpop" | "brpop" | "bzmpop" | "bzpopmax" | "bzpopmin" | "getdel" | "lmpop"
            | "lpop" | "rpop" | "spop" | "zmpop" | "zpopmax" | "zpopmin",
            _,
        ) => &["RW", "access", "delete"],
        (
            "hdel" | "lrem" | "ltrim" | "srem" | "zrem" | "zremrangebylex" | "zremrangebyrank"
            | "zremrangebyscore",
            _,
        ) => &["RW", "delete"],
        _ => READ_UPDATE,
    }
}

/// How many key specifications a row has.
pub fn count(row: &Command) -> usize {
    match row.keys {
        Keys::None | Keys::Everything | Keys::Cursor => 0,
        Keys::Range { last, .. } => {
            let apart = last == 2 && of_row(row, 0) != of_row(row, 1);
            1 + usize::from(apart || STORE.contains(&row.name) && last < 0)
        }
        Keys::Counted { .. } => 1,
        Keys::DestinationAndCounted { .. } => 2,
        Keys::Sort { stores } => 2 + usize::from(stores),
    }
}

/// The key specification that a key argument, or a pattern for keys, is about; `seen`: keys before it.
pub fn index_of(row: &Command, argument: &Argument, seen: &mut usize) -> Option<usize> {
    let most = count(row).checked_sub(1)?;
    match (row.keys, argument.kind, &*argument.name) {
        (Keys::Sort { .. }, Kind::Pattern, _) => Some(1),
        (Keys::Sort { .. }, Kind::Key, "destination") => Some(2),
        (_, Kind::Key, _) => {
            *seen += 1;
            Some(most.min(*seen - 1))
        }
        _ => None,
    }
}

/// The key specifications of a row.
pub fn write(row: &Command, reply: &mut Reply) {
    match row.keys {
        Keys::None | Keys::Everything | Keys::Cursor => reply.set(0),
        Keys::Range { first, last, step } => {
            // A destination, or a source and a destination, are described apart.
            let apart = last == 2 && of_row(row, 0) != of_row(row, 1);
            let split = STORE.contains(&row.name) && last < 0;
            if apart {
                reply.set(2);
                spec(row, 0, first, reply, |reply| range(reply, 0, 1));
                spec(row, 1, first + 1, reply, |reply| range(reply, 0, 1));
            } else if split {
                reply.set(2);
                spec(row, 0, first, reply, |reply| range(reply, 0, 1));
                spec(row, 1, first + 1, reply, |reply| {
                    range(reply, last as i64, step)
                });
            } else {
                let last = if last < 0 {
                    last as i64
                } else {
                    last as i64 - first as i64
                };
                reply.set(1);
                spec(row, 0, first, reply, |reply| range(reply, last, step));
            }
        }
        Keys::Counted { count_at } => {
            reply.set(1);
            spec(row, 0, count_at, reply, counted);
        }
        Keys::DestinationAndCounted { count_at } => {
            reply.set(2);
            spec(row, 0, 1, reply, |reply| range(reply, 0, 1));
            spec(row, 1, count_at, reply, counted);
        }
        Keys::Sort { stores } => {
            reply.set(count(row));
            spec(row, 0, 1, reply, |reply| range(reply, 0, 1));
            unknown(
                "Keys that BY and GET patterns name are found while sorting.",
                READ,
                reply,
            );
            if stores {
                unknown(
                    "The key behind STORE, which may stand anywhere among the options.",
                    OVERWRITE,
                    reply,
                );
            }
        }
    }
}

/// One specification: keys begin at an argument, `find` says how to go on.
fn spec(row: &Command, number: usize, begin: usize, reply: &mut Reply, find: impl Fn(&mut Reply)) {
    let flags = of_row(row, number);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.int(begin as i64);
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    find(reply);
}

/// Keys that nothing tells where they are.
fn unknown(why: &str, flags: &[&str], reply: &mut Reply) {
    reply.map(4);
    reply.bulk(b"notes");
    reply.bulk(why.as_bytes());
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    for part in ["begin_search", "find_keys"] {
        reply.bulk(part.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        fields(reply, b"unknown", &[]);
    }
}

fn range(reply: &mut Reply, last: i64, step: usize) {
    fields(
        reply,
        b"range",
        &[("lastkey", last), ("keystep", step as i64), ("limit", 0)],
    );
}

fn counted(reply: &mut Reply) {
    fields(
        reply,
        b"keynum",
        &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
    );
}

fn fields(reply: &mut Reply, kind: &[u8], list: &[(&str, i64)]) {
    reply.bulk(kind);
    reply.bulk(b"spec");
    reply.map(list.len());
    for (name, value) in list {
        reply.bulk(name.as_bytes());
        reply.int(*value);
    }
}

//! Where the keys of a command are and what it does to them, as COMMAND INFO describes it.

use command::{Command, Keys};
use resp::{Args, Reply};

/// Commands that set the whole value without looking at the old one.
const OVERWRITE: &[&str] = &["mset", "msetnx", "psetex", "restore", "setex", "setnx"];
/// Commands that remove the key.
const REMOVE: &[&str] = &["del", "unlink"];
/// Commands whose first key is a destination that is overwritten.
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
    if row.name == "set" && !(3..args.len()).any(|i| args.is(i, "GET")) {
        return &["OW", "update"];
    }
    of_row(row, number)
}

/// The same without arguments to look at.
fn of_row(row: &Command, number: usize) -> &'static [&'static str] {
    let name = row.name;
    if !row.is_write() {
        return &["RO", "access"];
    }
    if OVERWRITE.contains(&name) || (STORE.contains(&name) && number == 0) {
        return &["OW", "update"];
    }
    if REMOVE.contains(&name) {
        return &["RM", "delete"];
    }
    match (name, number) {
        ("sort", 0) | ("copy", 0) => &["RO", "access"],
        ("sort", _) | ("copy", _) | ("rename" | "renamenx", 1) => &["OW", "update"],
        ("rename" | "renamenx", 0) => &["RW", "access", "delete"],
        _ if STORE.contains(&name) => &["RO", "access"],
        _ => &["RW", "access", "update"],
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
        Keys::Sort => {
            reply.set(1);
            spec(row, 0, 1, reply, |reply| range(reply, 0, 1));
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

//! Where the keys of a command are and what it does to them, as COMMAND INFO describes it.

use command::syntax::{Argument, Kind};
use command::{CommandSpec, KeyUse, Keys};
use resp::Reply;

/// How many key specifications a row has.
pub fn count(command: &CommandSpec) -> usize {
    match command.keys {
        Keys::None | Keys::Everything | Keys::Cursor => 0,
        Keys::Range { last, .. } => 1 + usize::from(is_first_apart(command, last)),
        Keys::Counted { .. } => 1,
        Keys::DestinationAndCounted { .. } => 2,
        Keys::Sort { stores } => 2 + usize::from(stores),
    }
}

/// A destination, or a source and a destination, are described apart.
fn is_first_apart(command: &CommandSpec, last: isize) -> bool {
    (last == 2 || last < 0) && command.key_use(0) != command.key_use(1)
}

/// The key specification that a key argument, or a pattern for keys, is about; `seen`: keys before it.
pub fn index_of(command: &CommandSpec, argument: &Argument, seen: &mut usize) -> Option<usize> {
    let most = count(command).checked_sub(1)?;
    match (command.keys, argument.kind, &*argument.name) {
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
pub fn write(command: &CommandSpec, reply: &mut Reply) {
    match command.keys {
        Keys::None | Keys::Everything | Keys::Cursor => reply.set(0),
        Keys::Range { first, last, step } => {
            if is_first_apart(command, last) {
                reply.set(2);
                spec(command, 0, first, reply, |reply| range(reply, 0, 1));
                // From the second key to itself, or to the last argument.
                let last = (last as i64).min(0);
                spec(command, 1, first + 1, reply, |reply| {
                    range(reply, last, step)
                });
            } else {
                let last = if last < 0 {
                    last as i64
                } else {
                    last as i64 - first as i64
                };
                reply.set(1);
                spec(command, 0, first, reply, |reply| range(reply, last, step));
            }
        }
        Keys::Counted { count_at } => {
            reply.set(1);
            spec(command, 0, count_at, reply, counted);
        }
        Keys::DestinationAndCounted { count_at } => {
            reply.set(2);
            spec(command, 0, 1, reply, |reply| range(reply, 0, 1));
            spec(command, 1, count_at, reply, counted);
        }
        Keys::Sort { stores } => {
            reply.set(count(command));
            spec(command, 0, 1, reply, |reply| range(reply, 0, 1));
            unknown(
                "Keys that BY and GET patterns name are found while sorting.",
                KeyUse::Reads.words(),
                reply,
            );
            if stores {
                unknown(
                    "The key behind STORE, which may stand anywhere among the options.",
                    KeyUse::Overwrites.words(),
                    reply,
                );
            }
        }
    }
}

/// One specification: keys begin at an argument, `find` says how to go on.
fn spec(
    command: &CommandSpec,
    number: usize,
    begin: usize,
    reply: &mut Reply,
    find: impl Fn(&mut Reply),
) {
    let flags = command.key_use(number).words();
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

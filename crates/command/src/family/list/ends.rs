//! Elements put at an end of a list and taken from there.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::{End, GROW, LIST, READ};
use crate::table::wrong_arity;
use crate::{Arity, CommandSpec, Flags, KeyUse, KeyUses, Run};

const PER_ELEMENT: &str = "O(N) where N is the number of elements named.";
const PER_RETURNED: &str = "O(N) where N is the number of elements returned.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "lpush",
        syntax: "key element...",
        arity: Arity::AtLeast(3),
        run: Run::Write(|txn, args, reply| push(txn, args, reply, End::Left)),
        flags: GROW.union(Flags::FAST),
        complexity: PER_ELEMENT,
        summary: "Puts elements before the head of a list, which is made if there is none.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "rpush",
        syntax: "key element...",
        arity: Arity::AtLeast(3),
        run: Run::Write(|txn, args, reply| push(txn, args, reply, End::Right)),
        flags: GROW.union(Flags::FAST),
        complexity: PER_ELEMENT,
        summary: "Puts elements after the tail of a list, which is made if there is none.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "lpushx",
        syntax: "key element...",
        arity: Arity::AtLeast(3),
        run: Run::Write(|txn, args, reply| push_existing(txn, args, reply, End::Left)),
        flags: GROW.union(Flags::FAST),
        since: "2.2.0",
        complexity: PER_ELEMENT,
        summary: "Puts elements before the head of a list that exists.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "rpushx",
        syntax: "key element...",
        arity: Arity::AtLeast(3),
        run: Run::Write(|txn, args, reply| push_existing(txn, args, reply, End::Right)),
        flags: GROW.union(Flags::FAST),
        since: "2.2.0",
        complexity: PER_ELEMENT,
        summary: "Puts elements after the tail of a list that exists.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "lpop",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Write(|txn, args, reply| pop(txn, args, reply, End::Left)),
        flags: Flags::FAST,
        complexity: PER_RETURNED,
        summary: "Takes elements from the head of a list; the last one takes the key with it.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
    CommandSpec {
        name: "rpop",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Write(|txn, args, reply| pop(txn, args, reply, End::Right)),
        flags: Flags::FAST,
        complexity: PER_RETURNED,
        summary: "Takes elements from the tail of a list; the last one takes the key with it.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
    CommandSpec {
        name: "llen",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(llen),
        flags: READ.union(Flags::FAST),
        summary: "Returns the number of elements of a list.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..LIST
    },
];

fn push(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply, end: End) -> Result<(), Refusal> {
    let mut list = txn.list_or_new(args.at(1))?;
    for element in args.iter_from(2) {
        end.push(&mut list, element);
    }
    reply.int(list.len() as i64);
    Ok(())
}

fn push_existing(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    end: End,
) -> Result<(), Refusal> {
    let Some(mut list) = txn.list_mut(args.at(1))? else {
        reply.int(0);
        return Ok(());
    };
    for element in args.iter_from(2) {
        end.push(&mut list, element);
    }
    reply.int(list.len() as i64);
    Ok(())
}

fn pop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply, end: End) -> Result<(), Refusal> {
    let count = match args.len() {
        2 => None,
        3 => match args.int(2) {
            Ok(count) if count >= 0 => Some(count as usize),
            _ => return Err(Refusal::new("ERR value is out of range, must be positive")),
        },
        _ => {
            return Err(wrong_arity(match end {
                End::Left => "lpop",
                End::Right => "rpop",
            }));
        }
    };
    match (txn.list_mut(args.at(1))?, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.null_array(),
        (Some(mut list), None) => end.pop_into(&mut list, reply),
        (Some(mut list), Some(count)) => end.pop_many_into(&mut list, count, reply),
    }
    Ok(())
}

fn llen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(view.list(args.at(1))?.map_or(0, |list| list.len()) as i64);
    Ok(())
}

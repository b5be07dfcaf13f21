//! From the end of one list to the client, or to an end of another list.

use base::Refusal;
use keyspace::Txn;
use resp::{Args, Reply};

use super::{End, GROW, LIST};
use crate::family::many_pop::ManyPop;
use crate::{Arity, Attempt, CommandSpec, Flags, KeyUse, KeyUses, Keys, Run};

pub(super) const TWO_KEYS: Keys = Keys::Range {
    first: 1,
    last: 2,
    step: 1,
};
pub(super) const MANY_KEYS: &str =
    "O(N+M) where N is the number of keys and M the number of elements returned.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "lmove",
        syntax: "source destination <LEFT|RIGHT> <LEFT|RIGHT>",
        arity: Arity::Exactly(5),
        keys: TWO_KEYS,
        run: Run::Write(lmove),
        flags: GROW,
        since: "6.2.0",
        summary: "Takes an element from an end of a list and puts it at an end of another.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "rpoplpush",
        syntax: "source destination",
        arity: Arity::Exactly(3),
        keys: TWO_KEYS,
        run: Run::Write(rpoplpush),
        flags: GROW,
        since: "1.2.0",
        summary: "Takes the tail of a list and puts it before the head of another.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "lmpop",
        syntax: "numkeys key... <LEFT|RIGHT> [COUNT count]",
        arity: Arity::AtLeast(4),
        keys: Keys::Counted { count_at: 1 },
        run: Run::Write(lmpop),
        flags: Flags::MOVABLEKEYS,
        since: "7.0.0",
        complexity: MANY_KEYS,
        summary: "Takes elements from an end of the first list that has some.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
];

fn lmove(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (from, to) = (End::parse(args, 3)?, End::parse(args, 4)?);
    or_null(move_one(txn, args, from, to, reply)?, reply)
}

fn rpoplpush(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    or_null(move_one(txn, args, End::Right, End::Left, reply)?, reply)
}

fn or_null(attempt: Attempt, reply: &mut Reply) -> Result<(), Refusal> {
    if attempt == Attempt::Empty {
        reply.null();
    }
    Ok(())
}

/// From the list at argument 1 to the one at argument 2.
pub(super) fn move_one(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    from: End,
    to: End,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    let (source, destination) = (args.at(1), args.at(2));
    let Some(list) = txn.list(source)? else {
        return Ok(Attempt::Empty);
    };
    let Some(element) = from.peek(list).map(|element| element.to_vec()) else {
        return Ok(Attempt::Empty);
    };
    if source == destination {
        // One edit: a list of one element must not disappear, nor its deadline, in between.
        if let Some(mut list) = txn.list_mut(source)? {
            from.drop_one(&mut list);
            to.push(&mut list, &element);
        }
    } else {
        to.push(&mut txn.list_or_new(destination)?, &element);
        if let Some(mut list) = txn.list_mut(source)? {
            from.drop_one(&mut list);
        }
    }
    reply.bulk(&element);
    Ok(Attempt::Served)
}

fn lmpop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let pop = ManyPop::parse(args, 1, End::WORDS)?;
    if pop_first(txn, args, &pop, reply)? == Attempt::Empty {
        reply.null_array();
    }
    Ok(())
}

/// Takes from the first of the keys that has a list.
pub(super) fn pop_first(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    pop: &ManyPop,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    let end = if pop.from_front {
        End::Left
    } else {
        End::Right
    };
    for key in pop.keys(args) {
        if let Some(mut list) = txn.list_mut(key)? {
            reply.array(2);
            reply.bulk(key);
            end.pop_many_into(&mut list, pop.count, reply);
            return Ok(Attempt::Served);
        }
    }
    Ok(Attempt::Empty)
}

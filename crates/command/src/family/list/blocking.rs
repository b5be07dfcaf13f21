//! Commands that wait for a list. Each function is one attempt; it reads the timeout only to refuse
//! a wrong one before any effect, the waiting is the server's.
//!
//! A later attempt may reach only the key that became ready: keys are looked at in order, and one
//! out of reach looks missing.

use base::Refusal;
use keyspace::Txn;
use resp::{Args, Reply};

use super::movement::{MANY_KEYS, TWO_KEYS, move_one, pop_first};
use super::{End, GROW, LIST};
use crate::family::many_pop::ManyPop;
use crate::{
    Arity, Attempt, Block, CommandSpec, Flags, KeyUse, KeyUses, Keys, Nil, Run, TimeoutAt, WaitOn,
};

const KEYS_THEN_TIMEOUT: Keys = Keys::Range {
    first: 1,
    last: -2,
    step: 1,
};
const WAITS: Flags = Flags::NOSCRIPT.union(Flags::BLOCKING);
const KEYS: &str = "O(N) where N is the number of keys.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "blpop",
        syntax: "key... timeout",
        arity: Arity::AtLeast(3),
        keys: KEYS_THEN_TIMEOUT,
        run: Run::Block(Block {
            run: |txn, args, reply| pop(txn, args, reply, End::Left),
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: WAITS,
        since: "2.0.0",
        complexity: KEYS,
        summary: "Takes the head of the first list that has one, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
    CommandSpec {
        name: "brpop",
        syntax: "key... timeout",
        arity: Arity::AtLeast(3),
        keys: KEYS_THEN_TIMEOUT,
        run: Run::Block(Block {
            run: |txn, args, reply| pop(txn, args, reply, End::Right),
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: WAITS,
        since: "2.0.0",
        complexity: KEYS,
        summary: "Takes the tail of the first list that has one, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
    CommandSpec {
        name: "blmove",
        syntax: "source destination <LEFT|RIGHT> <LEFT|RIGHT> timeout",
        arity: Arity::Exactly(6),
        keys: TWO_KEYS,
        run: Run::Block(Block {
            run: blmove,
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::FirstKey,
            nil: Nil::Bulk,
        }),
        flags: GROW.union(WAITS),
        since: "6.2.0",
        summary: "Moves an element from an end of a list to an end of another, waiting if there is none.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "brpoplpush",
        syntax: "source destination timeout",
        arity: Arity::Exactly(4),
        keys: TWO_KEYS,
        run: Run::Block(Block {
            run: brpoplpush,
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::FirstKey,
            nil: Nil::Bulk,
        }),
        flags: GROW.union(WAITS),
        since: "2.2.0",
        summary: "Moves the tail of a list before the head of another, waiting if there is none.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "blmpop",
        syntax: "timeout numkeys key... <LEFT|RIGHT> [COUNT count]",
        arity: Arity::AtLeast(5),
        keys: Keys::Counted { count_at: 2 },
        run: Run::Block(Block {
            run: blmpop,
            timeout: TimeoutAt::Arg(1),
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: Flags::BLOCKING.union(Flags::MOVABLEKEYS),
        since: "7.0.0",
        complexity: MANY_KEYS,
        summary: "Takes elements from an end of the first list that has some, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..LIST
    },
];

fn pop(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    end: End,
) -> Result<Attempt, Refusal> {
    TimeoutAt::Last.millis(args)?;
    for key in args.iter_from(1).take(args.len().saturating_sub(2)) {
        if let Some(mut list) = txn.list_mut(key)? {
            reply.array(2);
            reply.bulk(key);
            end.pop_into(&mut list, reply);
            return Ok(Attempt::Served);
        }
    }
    Ok(Attempt::Empty)
}

fn blmove(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<Attempt, Refusal> {
    let (from, to) = (End::parse(args, 3)?, End::parse(args, 4)?);
    TimeoutAt::Last.millis(args)?;
    move_one(txn, args, from, to, reply)
}

fn brpoplpush(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<Attempt, Refusal> {
    TimeoutAt::Last.millis(args)?;
    move_one(txn, args, End::Right, End::Left, reply)
}

fn blmpop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<Attempt, Refusal> {
    let pop = ManyPop::parse(args, 2, End::WORDS)?;
    TimeoutAt::Arg(1).millis(args)?;
    pop_first(txn, args, &pop, reply)
}

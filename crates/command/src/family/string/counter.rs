//! Strings that hold a number. The deadline stays; a refused sum leaves the value as it was.

use base::extended::{Extended, Read};
use base::{Atom, IntText, Refusal, number};
use keyspace::{Expire, Txn};
use resp::{Args, Reply};

use crate::{Arity, CommandSpec, Flags, Group, Keys, Run};

const FLAGS: Flags = Flags::DENYOOM.union(Flags::FAST);

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "incr",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Write(incr),
        flags: FLAGS,
        group: Group::String,
        summary: "Adds one to the integer at a key.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "decr",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Write(decr),
        flags: FLAGS,
        group: Group::String,
        summary: "Takes one from the integer at a key.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "incrby",
        syntax: "key increment",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(incrby),
        flags: FLAGS,
        group: Group::String,
        summary: "Adds an amount to the integer at a key.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "decrby",
        syntax: "key decrement",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(decrby),
        flags: FLAGS,
        group: Group::String,
        summary: "Takes an amount from the integer at a key.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "incrbyfloat",
        syntax: "key increment:double",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(incrbyfloat),
        flags: FLAGS,
        group: Group::String,
        since: "2.6.0",
        summary: "Adds an amount, decimals allowed, to the number at a key.",
        ..CommandSpec::BASE
    },
];

fn incr(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    add(txn, args.at(1), 1, reply)
}

fn decr(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    add(txn, args.at(1), -1, reply)
}

fn incrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    add(txn, args.at(1), args.int(2)?, reply)
}

fn decrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let amount = args
        .int(2)?
        .checked_neg()
        .ok_or(Refusal::new("ERR decrement would overflow"))?;
    add(txn, args.at(1), amount, reply)
}

fn add(txn: &mut Txn<'_>, key: &[u8], amount: i64, reply: &mut Reply) -> Result<(), Refusal> {
    if let Some(mut slot) = txn.string_mut(key)? {
        let value = match slot.atom() {
            Atom::Int(value) => value,
            Atom::Bytes(text) => number::parse_i64(text).ok_or(Refusal::NotInteger)?,
        };
        let sum = value.checked_add(amount).ok_or(Refusal::Overflow)?;
        slot.replace_int(sum);
        reply.int(sum);
        return Ok(());
    }
    txn.put_int(key, amount, Expire::Clear);
    reply.int(amount);
    Ok(())
}

fn incrbyfloat(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let text = {
        let mut room = IntText::default();
        let former = match &txn.string(key)? {
            Some(atom) => atom.bytes(&mut room),
            None => b"0",
        };
        float_sum(former, args.at(2))?
    };
    txn.put_string(key, text.as_bytes(), Expire::Keep);
    reply.bulk(text.as_bytes());
    Ok(())
}

/// The sum of two decimal texts as Redis writes it.
pub fn float_sum(a: &[u8], b: &[u8]) -> Result<String, Refusal> {
    let a = Extended::read(a).ok_or(Refusal::NotFloat)?;
    let b = Extended::read(b).ok_or(Refusal::NotFloat)?;
    let sum = match (a, b) {
        (Read::Number(a), Read::Number(b)) => a.plus(b),
        _ => None,
    };
    sum.map(Extended::to_text)
        .ok_or(Refusal::new("ERR increment would produce NaN or Infinity"))
}

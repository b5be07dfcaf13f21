//! Hashes: fields and values under one key.

use base::extended::{Extended, Read};
use base::{Atom, IntText, Refusal, number};
use keyspace::{Txn, View};
use resp::{Args, Protocol, Reply};

use super::string::counter::float_sum;
use super::{row, sample};
use crate::table::wrong_arity;
use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, OnRow, RowGrowth, Run};

const HASH: CommandSpec = CommandSpec {
    group: Group::Hash,
    keys: Keys::one(1),
    since: "2.0.0",
    ..CommandSpec::BASE
};
const GROW: Flags = Flags::FAST.union(Flags::DENYOOM);
const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = READ.union(Flags::FAST);

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "hset",
        syntax: "key <field value>...",
        arity: Arity::AtLeast(4),
        run: Run::Write(hset),
        on_row: OnRow::Write(row::hash::hset),
        flags: GROW,
        complexity: "O(N) where N is the number of fields set.",
        summary: "Sets fields of a hash; returns how many are new.",
        key_uses: KeyUses::All(KeyUse::Updates),
        row_growth: RowGrowth::By(row::sets::pairs),
        ..HASH
    },
    CommandSpec {
        name: "hsetnx",
        syntax: "key field value",
        arity: Arity::Exactly(4),
        run: Run::Write(hsetnx),
        on_row: OnRow::Write(row::hash::hsetnx),
        flags: GROW,
        summary: "Sets a field of a hash unless it exists.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..HASH
    },
    CommandSpec {
        name: "hmset",
        syntax: "key <field value>...",
        arity: Arity::AtLeast(4),
        run: Run::Write(hmset),
        on_row: OnRow::Write(row::hash::hmset),
        flags: GROW,
        complexity: "O(N) where N is the number of fields set.",
        summary: "Sets fields of a hash.",
        key_uses: KeyUses::All(KeyUse::Updates),
        row_growth: RowGrowth::By(row::sets::pairs),
        ..HASH
    },
    CommandSpec {
        name: "hget",
        syntax: "key field",
        arity: Arity::Exactly(3),
        run: Run::Read(hget),
        on_row: OnRow::Read(row::hash::hget),
        flags: READ_FAST,
        summary: "Returns a field of a hash.",
        ..HASH
    },
    CommandSpec {
        name: "hmget",
        syntax: "key field...",
        arity: Arity::AtLeast(3),
        run: Run::Read(hmget),
        on_row: OnRow::Read(row::hash::hmget),
        flags: READ_FAST,
        complexity: "O(N) where N is the number of fields asked for.",
        summary: "Returns several fields of a hash.",
        ..HASH
    },
    CommandSpec {
        name: "hgetall",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(hgetall),
        on_row: OnRow::Read(row::hash::hgetall),
        flags: READ,
        complexity: "O(N) where N is the size of the hash.",
        summary: "Returns all fields of a hash with their values.",
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    CommandSpec {
        name: "hkeys",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(hkeys),
        on_row: OnRow::Read(row::hash::hkeys),
        flags: READ,
        complexity: "O(N) where N is the size of the hash.",
        summary: "Returns all fields of a hash.",
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    CommandSpec {
        name: "hvals",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(hvals),
        on_row: OnRow::Read(row::hash::hvals),
        flags: READ,
        complexity: "O(N) where N is the size of the hash.",
        summary: "Returns all values of a hash.",
        tips: &["nondeterministic_output_order"],
        ..HASH
    },
    CommandSpec {
        name: "hdel",
        syntax: "key field...",
        arity: Arity::AtLeast(3),
        run: Run::Write(hdel),
        on_row: OnRow::Write(row::hash::hdel),
        flags: Flags::FAST,
        complexity: "O(N) where N is the number of fields named.",
        summary: "Removes fields of a hash; the last one takes the key with it.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..HASH
    },
    CommandSpec {
        name: "hlen",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(hlen),
        on_row: OnRow::Read(row::hash::hlen),
        flags: READ_FAST,
        summary: "Returns the number of fields of a hash.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..HASH
    },
    CommandSpec {
        name: "hstrlen",
        syntax: "key field",
        arity: Arity::Exactly(3),
        run: Run::Read(hstrlen),
        on_row: OnRow::Read(row::hash::hstrlen),
        flags: READ_FAST,
        since: "3.2.0",
        summary: "Returns the length of a field's value.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..HASH
    },
    CommandSpec {
        name: "hexists",
        syntax: "key field",
        arity: Arity::Exactly(3),
        run: Run::Read(hexists),
        on_row: OnRow::Read(row::hash::hexists),
        flags: READ_FAST,
        summary: "Tells whether a hash has a field.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..HASH
    },
    CommandSpec {
        name: "hincrby",
        syntax: "key field increment",
        arity: Arity::Exactly(4),
        run: Run::Write(hincrby),
        on_row: OnRow::Write(row::hash::hincrby),
        flags: GROW,
        summary: "Adds an integer to a field of a hash.",
        row_growth: RowGrowth::By(row::sets::number),
        ..HASH
    },
    CommandSpec {
        name: "hincrbyfloat",
        syntax: "key field increment:double",
        arity: Arity::Exactly(4),
        run: Run::Write(hincrbyfloat),
        on_row: OnRow::Write(row::hash::hincrbyfloat),
        flags: GROW,
        since: "2.6.0",
        summary: "Adds a floating-point number to a field of a hash.",
        row_growth: RowGrowth::By(row::sets::number),
        ..HASH
    },
    CommandSpec {
        name: "hrandfield",
        syntax: "key [count [WITHVALUES]]",
        arity: Arity::AtLeast(2),
        run: Run::Read(hrandfield),
        flags: READ,
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields returned.",
        summary: "Returns fields of a hash at random.",
        tips: &["nondeterministic_output"],
        ..HASH
    },
];

fn hset(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let added = set_pairs(txn, args, "hset")?;
    reply.int(added);
    Ok(())
}

fn hmset(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    set_pairs(txn, args, "hmset")?;
    reply.ok();
    Ok(())
}

/// Sets the pairs from argument 2 on; how many fields are new.
fn set_pairs(txn: &mut Txn<'_>, args: &Args<'_>, name: &str) -> Result<i64, Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(wrong_arity(name));
    }
    let mut hash = txn.hash_or_new(args.at(1))?;
    let mut added = 0;
    for at in (2..args.len()).step_by(2) {
        added += i64::from(hash.insert(args.at(at), args.at(at + 1)));
    }
    Ok(added)
}

fn hsetnx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut hash = txn.hash_or_new(args.at(1))?;
    let absent = !hash.contains(args.at(2));
    if absent {
        hash.insert(args.at(2), args.at(3));
    }
    reply.int_bool(absent);
    Ok(())
}

fn hget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.atom_or_null(view.hash(args.at(1))?.and_then(|hash| hash.get(args.at(2))));
    Ok(())
}

fn hmget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let hash = view.hash(args.at(1))?;
    reply.array(args.len() - 2);
    for field in args.iter_from(2) {
        reply.atom_or_null(hash.and_then(|hash| hash.get(field)));
    }
    Ok(())
}

fn hgetall(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(hash) = view.hash(args.at(1))? else {
        reply.map(0);
        return Ok(());
    };
    reply.map(hash.len());
    for (field, value) in hash.iter() {
        reply.atom(field);
        reply.atom(value);
    }
    Ok(())
}

fn hkeys(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(hash) = view.hash(args.at(1))? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(hash.len());
    hash.iter().for_each(|(field, _)| reply.atom(field));
    Ok(())
}

fn hvals(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(hash) = view.hash(args.at(1))? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(hash.len());
    hash.iter().for_each(|(_, value)| reply.atom(value));
    Ok(())
}

fn hdel(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut removed = 0;
    if let Some(mut hash) = txn.hash_mut(args.at(1))? {
        for field in args.iter_from(2) {
            removed += i64::from(hash.remove(field));
        }
    }
    reply.int(removed);
    Ok(())
}

fn hlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(view.hash(args.at(1))?.map_or(0, |hash| hash.len() as i64));
    Ok(())
}

fn hstrlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let value = view.hash(args.at(1))?.and_then(|hash| hash.get(args.at(2)));
    reply.int(value.map_or(0, |value| value.len() as i64));
    Ok(())
}

fn hexists(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int_bool(
        view.hash(args.at(1))?
            .is_some_and(|hash| hash.contains(args.at(2))),
    );
    Ok(())
}

fn hincrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let by = args.int(3)?;
    let mut hash = txn.hash_or_new(args.at(1))?;
    let current = match hash.get(args.at(2)) {
        None => 0,
        Some(Atom::Int(value)) => value,
        Some(Atom::Bytes(text)) => {
            number::parse_i64(text).ok_or(Refusal::new("ERR hash value is not an integer"))?
        }
    };
    let next = current.checked_add(by).ok_or(Refusal::Overflow)?;
    hash.insert(args.at(2), Atom::Int(next).bytes(&mut IntText::default()));
    reply.int(next);
    Ok(())
}

fn hincrbyfloat(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    match Extended::read(args.at(3)).ok_or(Refusal::NotFloat)? {
        Read::Number(_) => {}
        _ => return Err(Refusal::new("ERR value is NaN or Infinity")),
    }
    let mut hash = txn.hash_or_new(args.at(1))?;
    let text = {
        let mut room = IntText::default();
        let former = match &hash.get(args.at(2)) {
            Some(value) => value.bytes(&mut room),
            None => b"0",
        };
        Extended::read(former).ok_or(Refusal::new("ERR hash value is not a float"))?;
        float_sum(former, args.at(3))?
    };
    hash.insert(args.at(2), text.as_bytes());
    reply.bulk(text.as_bytes());
    Ok(())
}

fn hrandfield(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    if args.len() == 2 {
        let field = view
            .hash(key)?
            .and_then(|hash| hash.random(&mut view.rng()));
        reply.atom_or_null(field.map(|(field, _)| field));
        return Ok(());
    }
    let count = sample::signed_count(args, 2)?;
    let with_values = match args.len() {
        3 => false,
        4 if args.is(3, "WITHVALUES") => true,
        _ => return Err(Refusal::Syntax),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Refusal::new("ERR value is out of range"));
    }
    let Some(hash) = view.hash(key)? else {
        reply.array(0);
        return Ok(());
    };

    let wanted = count.unsigned_abs() as usize;
    let returned = if count < 0 {
        wanted
    } else {
        wanted.min(hash.len())
    };
    let paired = with_values && reply.protocol() == Protocol::Resp3;
    reply.array(if with_values && !paired {
        returned * 2
    } else {
        returned
    });
    let mut write = |(field, value): (Atom<'_>, Atom<'_>)| {
        if paired {
            reply.array(2);
        }
        reply.atom(field);
        if with_values {
            reply.atom(value);
        }
        !reply.has_overflowed()
    };

    let mut rng = view.rng();
    if count < 0 {
        // What is too long already nobody will read.
        (0..wanted).filter_map(|_| hash.random(&mut rng)).all(write);
    } else if wanted >= hash.len() {
        hash.iter().all(write);
    } else {
        sample::distinct(
            wanted,
            hash.len(),
            &mut rng,
            hash.iter(),
            |rng| hash.random(rng),
            |(field, _)| field.to_vec(),
            |pair| {
                write(pair);
            },
        );
    }
    Ok(())
}

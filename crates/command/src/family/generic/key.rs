//! Single keys: exist, type, remove, rename, copy, move.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::parse_db;
use crate::family::row;
use crate::{
    Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, OnRow, OtherDatabase, RowGrowth, Run,
    Traits,
};

const BASE: CommandSpec = CommandSpec {
    group: Group::Generic,
    keys: Keys::from(1),
    arity: Arity::AtLeast(2),
    ..CommandSpec::BASE
};
const TWO_KEYS: Keys = Keys::Range {
    first: 1,
    last: 2,
    step: 1,
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "del",
        syntax: "key...",
        run: Run::Write(del),
        on_row: OnRow::Mixed(Run::Write(row::keys::del)),
        complexity: "O(N) for N keys",
        summary: "Removes keys; returns how many there were.",
        key_uses: KeyUses::All(KeyUse::Removes),
        row_growth: RowGrowth::Never,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        ..BASE
    },
    CommandSpec {
        name: "unlink",
        syntax: "key...",
        run: Run::Write(del),
        on_row: OnRow::Mixed(Run::Write(row::keys::del)),
        flags: Flags::FAST,
        since: "4.0.0",
        complexity: "O(N) for N keys",
        summary: "As DEL; big values are freed in the background by both.",
        key_uses: KeyUses::All(KeyUse::Removes),
        row_growth: RowGrowth::Never,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        ..BASE
    },
    CommandSpec {
        name: "exists",
        syntax: "key...",
        run: Run::Read(exists),
        on_row: OnRow::Mixed(Run::Read(row::keys::exists)),
        flags: Flags::READONLY.union(Flags::FAST),
        complexity: "O(N) for N keys",
        summary: "Counts the keys that exist, one named twice counting twice.",
        key_uses: KeyUses::All(KeyUse::Looks),
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        ..BASE
    },
    CommandSpec {
        name: "touch",
        syntax: "key...",
        run: Run::Read(touch),
        on_row: OnRow::Mixed(Run::Read(row::keys::touch)),
        flags: Flags::READONLY.union(Flags::FAST),
        since: "3.2.1",
        complexity: "O(N) for N keys",
        summary: "Marks keys as used now; returns how many exist.",
        key_uses: KeyUses::All(KeyUse::Looks),
        traits: Traits::ALWAYS_TOUCHES,
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        ..BASE
    },
    CommandSpec {
        name: "type",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Read(type_of),
        on_row: OnRow::Read(row::keys::type_of),
        flags: Flags::READONLY.union(Flags::FAST),
        summary: "Returns the type of the value at a key.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..BASE
    },
    CommandSpec {
        name: "rename",
        syntax: "key newkey",
        arity: Arity::Exactly(3),
        keys: TWO_KEYS,
        run: Run::Write(rename),
        summary: "Gives a key another name, replacing what has that name.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Overwrites),
        traits: Traits::FILLS_KEYS,
        ..BASE
    },
    CommandSpec {
        name: "renamenx",
        syntax: "key newkey",
        arity: Arity::Exactly(3),
        keys: TWO_KEYS,
        run: Run::Write(renamenx),
        flags: Flags::FAST,
        summary: "Gives a key another name if nothing has that name.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Takes, KeyUse::Creates),
        traits: Traits::FILLS_KEYS,
        ..BASE
    },
    CommandSpec {
        name: "copy",
        syntax: "source destination [DB destination-db] [REPLACE]",
        arity: Arity::AtLeast(3),
        keys: TWO_KEYS,
        run: Run::Write(copy),
        flags: Flags::DENYOOM,
        since: "6.2.0",
        complexity: "O(N) for N elements",
        summary: "Copies a value and its deadline to another key.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Reads, KeyUse::Overwrites),
        other_database: OtherDatabase::Option { first: 3, key: 2 },
        ..BASE
    },
    CommandSpec {
        name: "move",
        syntax: "key db",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(move_to_db),
        flags: Flags::FAST,
        summary: "Moves a key to another database.",
        other_database: OtherDatabase::Argument {
            database: 2,
            key: 1,
        },
        ..BASE
    },
];

fn del(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let removed = args.iter_from(1).filter(|key| txn.remove(key)).count();
    reply.int(removed as i64);
    Ok(())
}

fn exists(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let found = args.iter_from(1).filter(|key| view.exists(key)).count();
    reply.int(found as i64);
    Ok(())
}

fn touch(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let touched = args.iter_from(1).filter(|key| view.value(key).is_some());
    reply.int(touched.count() as i64);
    Ok(())
}

fn type_of(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let kind = view.kind(args.at(1));
    view.count_read(args.at(1), kind.is_some());
    reply.simple(kind.map_or("none", |kind| kind.name()));
    Ok(())
}

fn rename(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (from, to) = (args.at(1), args.at(2));
    if txn.kind(from).is_none() {
        return Err(Refusal::NoSuchKey);
    }
    if from != to
        && let Some(value) = txn.take(from)
    {
        txn.put(to, value);
    }
    reply.ok();
    Ok(())
}

fn renamenx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (from, to) = (args.at(1), args.at(2));
    if txn.kind(from).is_none() {
        return Err(Refusal::NoSuchKey);
    }
    let free = txn.kind(to).is_none();
    if free && let Some(value) = txn.take(from) {
        txn.put(to, value);
    }
    reply.int_bool(free);
    Ok(())
}

const SAME_KEY: Refusal = Refusal::new("ERR source and destination objects are the same");

fn copy(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (from, to) = (args.at(1), args.at(2));
    let home = txn.db();
    let (mut target, mut replace) = (home, false);
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "REPLACE") {
            replace = true;
        } else if args.is(at, "DB") && at + 1 < args.len() {
            target = parse_db(args.at(at + 1), None)?;
            at += 1;
        } else {
            return Err(Refusal::Syntax);
        }
        at += 1;
    }
    if from == to && home == target {
        return Err(SAME_KEY);
    }
    // Nothing is copied before it is known to be wanted: a value may be big.
    let exists = txn.exists(from);
    txn.select(target);
    row::refuse_row(txn, to)?;
    let free = replace || txn.kind(to).is_none();
    txn.select(home);
    let copied = match (exists && free).then(|| txn.clone_value(from)).flatten() {
        Some(value) => {
            txn.select(target);
            txn.put(to, value);
            txn.select(home);
            true
        }
        None => false,
    };
    reply.int_bool(copied);
    Ok(())
}

fn move_to_db(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let (home, target) = (txn.db(), parse_db(args.at(2), None)?);
    if home == target {
        return Err(SAME_KEY);
    }
    txn.select(target);
    row::refuse_row(txn, key)?;
    let free = txn.kind(key).is_none();
    txn.select(home);
    let moved = match free.then(|| txn.take(key)).flatten() {
        Some(value) => {
            txn.select(target);
            txn.put(key, value);
            txn.select(home);
            true
        }
        None => false,
    };
    reply.int_bool(moved);
    Ok(())
}

//! All keys of a database: listed, counted, removed, exchanged.

use base::{Refusal, glob};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::parse_db;
use crate::{
    Arity, Categories, CommandSpec, Flags, Group, Keys, Merge, OtherDatabase, Run, Traits,
};

const BASE: CommandSpec = CommandSpec {
    keys: Keys::Everything,
    ..CommandSpec::BASE
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "randomkey",
        arity: Arity::Exactly(1),
        run: Run::Read(randomkey),
        flags: Flags::READONLY,
        group: Group::Generic,
        summary: "Returns a key at random.",
        merge: Merge::OneKey,
        tips: &["request_policy:all_shards", "nondeterministic_output"],
        ..BASE
    },
    CommandSpec {
        name: "keys",
        syntax: "pattern",
        arity: Arity::Exactly(2),
        run: Run::Read(keys),
        flags: Flags::READONLY.union(Flags::DANGEROUS),
        group: Group::Generic,
        complexity: "O(N) for N keys in the database",
        summary: "Returns all keys that match a pattern.",
        merge: Merge::Concatenate,
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        ..BASE
    },
    CommandSpec {
        name: "dbsize",
        arity: Arity::Exactly(1),
        run: Run::Read(dbsize),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::Server,
        summary: "Counts the keys of the database.",
        traits: Traits::COUNTS_DATABASE,
        merge: Merge::Sum,
        categories: Some(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        ..BASE
    },
    CommandSpec {
        name: "flushdb",
        syntax: "[ASYNC|SYNC]",
        arity: Arity::AtLeast(1),
        run: Run::Write(flushdb),
        flags: Flags::DANGEROUS,
        group: Group::Server,
        complexity: "O(1); memory is freed in the background",
        summary: "Removes all keys of the database.",
        categories: Some(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        ..BASE
    },
    CommandSpec {
        name: "flushall",
        syntax: "[ASYNC|SYNC]",
        arity: Arity::AtLeast(1),
        run: Run::Write(flushall),
        flags: Flags::DANGEROUS,
        group: Group::Server,
        complexity: "O(1); memory is freed in the background",
        summary: "Removes all keys of all databases.",
        categories: Some(Categories::KEYSPACE),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        ..BASE
    },
    CommandSpec {
        name: "swapdb",
        syntax: "index1 index2",
        arity: Arity::Exactly(3),
        run: Run::Write(swapdb),
        flags: Flags::FAST.union(Flags::DANGEROUS),
        group: Group::Server,
        since: "4.0.0",
        complexity: "O(N) for N keys watched or waited for",
        summary: "Exchanges two databases.",
        other_database: OtherDatabase::Whole,
        categories: Some(Categories::KEYSPACE),
        ..BASE
    },
];

fn randomkey(view: &View<'_>, _args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.bulk_or_null(view.random_key().as_deref());
    Ok(())
}

fn keys(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let pattern = args.at(1);
    let every = pattern == b"*";
    let mut count = 0;
    let list = reply.array_later();
    view.for_each_key(&mut |key| {
        if every || glob::matches(pattern, key) {
            reply.bulk(key);
            count += 1;
        }
    });
    reply.fill(list, count);
    Ok(())
}

fn dbsize(view: &View<'_>, _args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(view.len() as i64);
    Ok(())
}

/// ASYNC and SYNC are both accepted; the caller never waits for memory to be freed.
fn check_flush_mode(args: &Args<'_>) -> Result<(), Refusal> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "ASYNC") || args.is(1, "SYNC") => Ok(()),
        _ => Err(Refusal::Syntax),
    }
}

fn flushdb(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    check_flush_mode(args)?;
    txn.flush_db();
    reply.ok();
    Ok(())
}

fn flushall(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    check_flush_mode(args)?;
    txn.flush_all();
    reply.ok();
    Ok(())
}

fn swapdb(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let a = parse_db(args.at(1), Some("ERR invalid first DB index"));
    let b = parse_db(args.at(2), Some("ERR invalid second DB index"));
    // Redis reads both numbers before it looks at their range.
    let (a, b) = match (a, b) {
        (Err(a), Err(b)) if a == OUT_OF_RANGE && b != OUT_OF_RANGE => return Err(b),
        (a, b) => (a?, b?),
    };
    if a != b {
        txn.swap_db(a, b);
    }
    reply.ok();
    Ok(())
}

const OUT_OF_RANGE: Refusal = Refusal::new("ERR DB index is out of range");

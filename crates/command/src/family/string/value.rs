//! Whole strings: read, replaced, removed, with or without a deadline.

use base::{Atom, Refusal};
use keyspace::{Expire, Txn, View};
use resp::{Args, Reply};

use super::Moment;
use crate::table::wrong_arity;
use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "get",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Read(get),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::String,
        summary: "Returns the string at a key.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "set",
        syntax: "key value [NX|XX] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]",
        arity: Arity::AtLeast(3),
        keys: Keys::one(1),
        run: Run::Write(set),
        flags: Flags::DENYOOM,
        group: Group::String,
        summary: "Puts a string at a key whatever was there, on conditions and with a deadline if asked.",
        key_uses: KeyUses::ByArguments(use_of_set),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "getset",
        syntax: "key value",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(getset),
        flags: Flags::DENYOOM.union(Flags::FAST),
        group: Group::String,
        summary: "Puts a string at a key and returns the former one.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "getdel",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Write(getdel),
        flags: Flags::FAST,
        group: Group::String,
        since: "6.2.0",
        summary: "Returns the string at a key and removes the key.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "getex",
        syntax: "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
        arity: Arity::AtLeast(2),
        keys: Keys::one(1),
        run: Run::Write(getex),
        flags: Flags::FAST,
        group: Group::String,
        since: "6.2.0",
        summary: "Returns the string at a key and sets or clears its deadline.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "setnx",
        syntax: "key value",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(setnx),
        flags: Flags::DENYOOM.union(Flags::FAST),
        group: Group::String,
        summary: "Puts a string at a key that does not exist.",
        key_uses: KeyUses::All(KeyUse::Creates),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "setex",
        syntax: "key seconds value",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Write(setex),
        flags: Flags::DENYOOM,
        group: Group::String,
        since: "2.0.0",
        summary: "Puts a string at a key for a number of seconds.",
        key_uses: KeyUses::All(KeyUse::Overwrites),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "psetex",
        syntax: "key milliseconds value",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Write(psetex),
        flags: Flags::DENYOOM,
        group: Group::String,
        since: "2.6.0",
        summary: "Puts a string at a key for a number of milliseconds.",
        key_uses: KeyUses::All(KeyUse::Overwrites),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "mget",
        syntax: "key...",
        arity: Arity::AtLeast(2),
        keys: Keys::from(1),
        run: Run::Read(mget),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::String,
        complexity: "O(N) for N keys",
        summary: "Returns the strings at several keys.",
        tips: &["request_policy:multi_shard"],
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "mset",
        syntax: "<key value>...",
        arity: Arity::AtLeast(3),
        keys: PAIRS,
        run: Run::Write(mset),
        flags: Flags::DENYOOM,
        group: Group::String,
        since: "1.0.1",
        complexity: "O(N) for N keys",
        summary: "Puts strings at several keys, all at once.",
        key_uses: KeyUses::All(KeyUse::Overwrites),
        tips: &[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ],
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "msetnx",
        syntax: "<key value>...",
        arity: Arity::AtLeast(3),
        keys: PAIRS,
        run: Run::Write(msetnx),
        flags: Flags::DENYOOM,
        group: Group::String,
        since: "1.0.1",
        complexity: "O(N) for N keys",
        summary: "Puts strings at several keys if none of them exists.",
        key_uses: KeyUses::All(KeyUse::Creates),
        tips: &["request_policy:multi_shard", "response_policy:agg_min"],
        ..CommandSpec::BASE
    },
];

/// Key, value, key, value …
const PAIRS: Keys = Keys::Range {
    first: 1,
    last: -1,
    step: 2,
};

/// SET with GET returns what it replaces.
fn use_of_set(args: &Args<'_>) -> KeyUse {
    match (2..args.len()).any(|at| args.is(at, "GET")) {
        true => KeyUse::ReadsAndUpdates,
        false => KeyUse::Overwrites,
    }
}

fn get(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.atom_or_null(view.string(args.at(1))?);
    Ok(())
}

/// The options of SET and GETEX.
#[derive(Default)]
struct Options<'a> {
    if_absent: bool,
    if_present: bool,
    get: bool,
    keep: bool,
    persist: bool,
    deadline: Option<(Moment, &'a [u8])>,
}

impl<'a> Options<'a> {
    /// Reads the options from argument `first` on. The four time options, KEEPTTL and PERSIST
    /// exclude each other; one time option given twice counts the last time, as in Redis.
    fn parse(args: &Args<'a>, first: usize, is_set: bool) -> Result<Self, Refusal> {
        let mut options = Options::default();
        let mut at = first;
        while at < args.len() {
            if is_set && args.is(at, "NX") && !options.if_present {
                options.if_absent = true;
            } else if is_set && args.is(at, "XX") && !options.if_absent {
                options.if_present = true;
            } else if is_set && args.is(at, "GET") {
                options.get = true;
            } else if is_set && args.is(at, "KEEPTTL") && options.deadline.is_none() {
                options.keep = true;
            } else if !is_set && args.is(at, "PERSIST") && options.deadline.is_none() {
                options.persist = true;
            } else {
                let moment = time_option(args.at(at)).ok_or(Refusal::Syntax)?;
                let other = options.deadline.is_some_and(|(given, _)| given != moment);
                let (false, Some(text)) =
                    (other || options.keep || options.persist, args.get(at + 1))
                else {
                    return Err(Refusal::Syntax);
                };
                options.deadline = Some((moment, text));
                at += 1;
            }
            at += 1;
        }
        Ok(options)
    }
}

fn time_option(word: &[u8]) -> Option<Moment> {
    match word.len() {
        2 if word.eq_ignore_ascii_case(b"EX") => Some(Moment::EX),
        2 if word.eq_ignore_ascii_case(b"PX") => Some(Moment::PX),
        4 if word.eq_ignore_ascii_case(b"EXAT") => Some(Moment::EXAT),
        4 if word.eq_ignore_ascii_case(b"PXAT") => Some(Moment::PXAT),
        _ => None,
    }
}

fn set(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    if args.len() > 3 {
        return set_with_options(txn, args, reply);
    }
    txn.put_string(args.at(1), args.at(2), Expire::Clear);
    reply.ok();
    Ok(())
}

fn set_with_options(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let options = Options::parse(args, 3, true)?;
    let expire = match options.deadline {
        Some((moment, text)) => Expire::At(moment.deadline(text, txn.now_ms(), "set")?),
        None if options.keep => Expire::Keep,
        None => Expire::Clear,
    };
    let key = args.at(1);
    let exists = if options.get {
        let former = txn.string(key)?;
        reply.atom_or_null(former);
        former.is_some()
    } else {
        (options.if_absent || options.if_present) && txn.kind(key).is_some()
    };
    if (options.if_absent && exists) || (options.if_present && !exists) {
        if !options.get {
            reply.null();
        }
        return Ok(());
    }
    txn.put_string(key, args.at(2), expire);
    if !options.get {
        reply.ok();
    }
    Ok(())
}

fn getset(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.atom_or_null(txn.string(args.at(1))?);
    txn.put_string(args.at(1), args.at(2), Expire::Clear);
    Ok(())
}

fn getdel(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let former = txn.string(args.at(1))?;
    reply.atom_or_null(former);
    if former.is_some() {
        txn.remove(args.at(1));
    }
    Ok(())
}

fn getex(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let options = Options::parse(args, 2, false)?;
    let key = args.at(1);
    let Some(value) = txn.string(key)? else {
        reply.null();
        return Ok(());
    };
    let deadline = match options.deadline {
        Some((moment, text)) => Some(moment.deadline(text, txn.now_ms(), "getex")?),
        None => None,
    };
    reply.atom(value);
    if deadline.is_some() {
        txn.set_expire(key, deadline);
    } else if options.persist && txn.expire_at(key).flatten().is_some() {
        txn.set_expire(key, None);
    }
    Ok(())
}

fn setnx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let absent = txn.kind(args.at(1)).is_none();
    if absent {
        txn.put_string(args.at(1), args.at(2), Expire::Clear);
    }
    reply.int_bool(absent);
    Ok(())
}

fn setex(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    set_for(txn, args, reply, Moment::EX, "setex")
}

fn psetex(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    set_for(txn, args, reply, Moment::PX, "psetex")
}

fn set_for(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    moment: Moment,
    command: &str,
) -> Result<(), Refusal> {
    let deadline = moment.deadline(args.at(2), txn.now_ms(), command)?;
    txn.put_string(args.at(1), args.at(3), Expire::At(deadline));
    reply.ok();
    Ok(())
}

/// A key of another type reads as missing.
fn mget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let keys = args.iter_from(1);
    reply.array(keys.len());
    for key in keys {
        let value: Option<Atom<'_>> = view.string(key).unwrap_or(None);
        reply.atom_or_null(value);
    }
    Ok(())
}

fn mset(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    check_pairs(args, "mset")?;
    put_pairs(txn, args);
    reply.ok();
    Ok(())
}

fn msetnx(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    check_pairs(args, "msetnx")?;
    let absent = args
        .iter_from(1)
        .step_by(2)
        .all(|key| txn.kind(key).is_none());
    if absent {
        put_pairs(txn, args);
    }
    reply.int_bool(absent);
    Ok(())
}

fn check_pairs(args: &Args<'_>, command: &str) -> Result<(), Refusal> {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity(command));
    }
    Ok(())
}

fn put_pairs(txn: &mut Txn<'_>, args: &Args<'_>) {
    let mut rest = args.iter_from(1);
    while let (Some(key), Some(value)) = (rest.next(), rest.next()) {
        txn.put_string(key, value, Expire::Clear);
    }
}

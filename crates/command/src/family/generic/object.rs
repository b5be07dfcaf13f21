//! `OBJECT`: how a value is kept. None of it counts as an access.

use base::{Atom, Refusal};
use keyspace::{EvictionPolicy, ValueRef, View};
use resp::{Args, Reply};

use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

const SUB: CommandSpec = CommandSpec {
    arity: Arity::Exactly(3),
    keys: Keys::one(2),
    flags: Flags::READONLY,
    group: Group::Generic,
    since: "2.2.3",
    ..CommandSpec::BASE
};

pub const SPECS: &[CommandSpec] = &[CommandSpec {
    name: "object",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    group: Group::Generic,
    since: "2.2.3",
    complexity: "see the subcommands",
    summary: "Tells how a value is kept.",
    subcommands: &[
        CommandSpec {
            name: "object|encoding",
            syntax: "key",
            run: Run::Read(encoding),
            summary: "Returns the name of the structure that holds the value.",
            key_uses: KeyUses::All(KeyUse::Looks),
            tips: &["nondeterministic_output"],
            ..SUB
        },
        CommandSpec {
            name: "object|freq",
            syntax: "key",
            run: Run::Read(freq),
            since: "4.0.0",
            summary: "Returns the logarithmic access counter (LFU policies).",
            key_uses: KeyUses::All(KeyUse::Looks),
            tips: &["nondeterministic_output"],
            ..SUB
        },
        CommandSpec {
            name: "object|help",
            arity: Arity::Exactly(2),
            keys: Keys::None,
            run: Run::Read(help),
            flags: Flags::LOADING.union(Flags::STALE),
            since: "6.2.0",
            summary: "Lists the subcommands.",
            ..SUB
        },
        CommandSpec {
            name: "object|idletime",
            syntax: "key",
            run: Run::Read(idletime),
            summary: "Returns the seconds since the last access.",
            key_uses: KeyUses::All(KeyUse::Looks),
            tips: &["nondeterministic_output"],
            ..SUB
        },
        CommandSpec {
            name: "object|refcount",
            syntax: "key",
            run: Run::Read(refcount),
            summary: "Returns how many keys share the value.",
            key_uses: KeyUses::All(KeyUse::Looks),
            tips: &["nondeterministic_output"],
            ..SUB
        },
    ],
    ..CommandSpec::BASE
}];

fn encoding(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let encoding = view.encoding(args.at(2));
    view.count_read(args.at(2), encoding.is_some());
    reply.bulk_or_null(encoding.map(str::as_bytes));
    Ok(())
}

/// Values are never shared here. Small integers answer as Redis' shared ones do, because clients
/// and its test suite tell them by that. Redis does not share while its eviction needs each key's own clock.
fn refcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let value = view.peek(args.at(2));
    view.count_read(args.at(2), value.is_some());
    match value {
        None => reply.null(),
        Some(ValueRef::String(Atom::Int(0..=9999))) if view.tuning().shares_integers => {
            reply.int(i32::MAX.into());
        }
        Some(_) => reply.int(1),
    }
    Ok(())
}

fn counts_accesses(view: &View<'_>) -> bool {
    matches!(
        view.tuning().policy,
        EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu
    )
}

fn idletime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let idle_ms = view.idle_ms(args.at(2));
    view.count_read(args.at(2), idle_ms.is_some());
    let Some(idle_ms) = idle_ms else {
        reply.null();
        return Ok(());
    };
    if counts_accesses(view) {
        return Err(Refusal::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    reply.int((idle_ms / 1000) as i64);
    Ok(())
}

fn freq(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let frequency = view.frequency(args.at(2));
    view.count_read(args.at(2), frequency.is_some());
    let Some(frequency) = frequency else {
        reply.null();
        return Ok(());
    };
    if !counts_accesses(view) {
        return Err(Refusal::new(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
             that when switching between policies at runtime LRU and LFU data will take some time \
             to adjust.",
        ));
    }
    reply.int(frequency.into());
    Ok(())
}

fn help(_view: &View<'_>, _args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    const LINES: &[&str] = &[
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    The structure that holds the value.",
        "FREQ <key>",
        "    The logarithmic access counter (LFU policies).",
        "IDLETIME <key>",
        "    Seconds since the last access.",
        "REFCOUNT <key>",
        "    How many keys share the value.",
        "HELP",
        "    This list.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.simple(line));
    Ok(())
}

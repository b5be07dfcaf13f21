//! SCAN and its kin: a walk in steps, each step naming where the next begins.
//!
//! The cursor is made and understood by the structure walked; here only the options are read and
//! elements filtered. An element there during the whole walk is returned at least once.

use base::{Atom, IntText, Refusal, glob, number};
use keyspace::{Kind, View};
use resp::{Args, Reply};

use super::row;
use crate::{Arity, CommandSpec, Flags, Group, Keys, OnRow, Run};

const BASE: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    keys: Keys::one(1),
    flags: Flags::READONLY,
    since: "2.8.0",
    complexity: "O(1) for a step, O(N) for the whole walk",
    ..CommandSpec::BASE
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "scan",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        arity: Arity::AtLeast(2),
        keys: Keys::Cursor,
        run: Run::Read(scan),
        group: Group::Generic,
        summary: "Walks the keys of the database in steps.",
        tips: &["nondeterministic_output", "request_policy:special"],
        ..BASE
    },
    CommandSpec {
        name: "hscan",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        run: Run::Read(hscan),
        on_row: OnRow::Read(row::hash::hscan),
        group: Group::Hash,
        summary: "Walks the fields and values of a hash in steps.",
        tips: &["nondeterministic_output"],
        ..BASE
    },
    CommandSpec {
        name: "sscan",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        run: Run::Read(sscan),
        group: Group::Set,
        summary: "Walks the members of a set in steps.",
        tips: &["nondeterministic_output"],
        ..BASE
    },
    CommandSpec {
        name: "zscan",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        run: Run::Read(zscan),
        group: Group::SortedSet,
        summary: "Walks the members and scores of a sorted set in steps.",
        tips: &["nondeterministic_output"],
        ..BASE
    },
];

pub(super) struct Options<'a> {
    count: usize,
    pub(super) pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    pub(super) fn parse(args: &Args<'a>, first: usize) -> Result<Options<'a>, Refusal> {
        let mut options = Options {
            count: 10,
            pattern: None,
            kind: None,
        };
        let of_keys = first == 2;
        let mut at = first;
        while at < args.len() {
            let value = args.get(at + 1).ok_or(Refusal::Syntax)?;
            if args.is(at, "COUNT") {
                options.count = match args.int(at + 1)? {
                    ..1 => return Err(Refusal::Syntax),
                    count => count as usize,
                };
            } else if args.is(at, "MATCH") {
                options.pattern = (value != b"*").then_some(value);
            } else if of_keys && args.is(at, "TYPE") {
                options.kind = Some(value);
            } else {
                return Err(Refusal::Syntax);
            }
            at += 2;
        }
        Ok(options)
    }

    fn takes(&self, element: Atom<'_>) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, element.bytes(&mut IntText::default())))
    }

    fn takes_kind(&self, kind: Kind) -> bool {
        self.kind
            .is_none_or(|name| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }
}

/// A cursor as C's `strtoul` reads it: a sign is allowed, nothing at all is 0.
pub(super) fn parse_cursor(text: &[u8]) -> Result<u64, Refusal> {
    let (negative, mut digits) = match text {
        [b'-', digits @ ..] if !digits.is_empty() => (true, digits),
        [b'+', digits @ ..] if !digits.is_empty() => (false, digits),
        [] => return Ok(0),
        _ => (false, text),
    };
    // Zeros in front do not count; the last one does.
    while let [b'0', rest @ ..] = digits
        && !rest.is_empty()
    {
        digits = rest;
    }
    let value = number::parse_u64(digits).ok_or(Refusal::new("ERR invalid cursor"))?;
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The reply: the next cursor, then what `step` wrote. `step` returns that cursor and how many
/// elements it wrote.
fn write_step(reply: &mut Reply, step: impl FnOnce(&mut Reply) -> (u64, usize)) {
    // The cursor is known only after the elements that follow it, so they are written first.
    let mut elements = Reply::new(reply.protocol());
    let (cursor, count) = step(&mut elements);
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(count);
    reply.raw(elements.as_bytes());
}

fn scan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cursor = parse_cursor(args.at(1))?;
    let options = Options::parse(args, 2)?;
    write_step(reply, |out| {
        let mut count = 0;
        let next = view.scan(cursor, options.count, &mut |key, kind| {
            if options.takes_kind(kind) && options.takes(Atom::Bytes(key)) {
                out.bulk(key);
                count += 1;
            }
        });
        (next, count)
    });
    Ok(())
}

fn hscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cursor = parse_cursor(args.at(2))?;
    let Some(hash) = view.hash(args.at(1))? else {
        write_step(reply, |_| (0, 0));
        return Ok(());
    };
    let options = Options::parse(args, 3)?;
    write_step(reply, |out| {
        let mut count = 0;
        let next = hash.scan(cursor, options.count, &mut |field, value| {
            if options.takes(field) {
                out.atom(field);
                out.atom(value);
                count += 2;
            }
        });
        (next, count)
    });
    Ok(())
}

fn sscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cursor = parse_cursor(args.at(2))?;
    let Some(set) = view.set(args.at(1))? else {
        write_step(reply, |_| (0, 0));
        return Ok(());
    };
    let options = Options::parse(args, 3)?;
    write_step(reply, |out| {
        let mut count = 0;
        let next = set.scan(cursor, options.count, &mut |member| {
            if options.takes(member) {
                out.atom(member);
                count += 1;
            }
        });
        (next, count)
    });
    Ok(())
}

/// Scores are bulk strings in both protocols.
fn zscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let cursor = parse_cursor(args.at(2))?;
    let Some(zset) = view.zset(args.at(1))? else {
        write_step(reply, |_| (0, 0));
        return Ok(());
    };
    let options = Options::parse(args, 3)?;
    write_step(reply, |out| {
        let mut count = 0;
        let next = zset.scan(cursor, options.count, &mut |member, score| {
            if options.takes(member) {
                out.atom(member);
                out.bulk(number::format_score(score).as_bytes());
                count += 2;
            }
        });
        (next, count)
    });
    Ok(())
}

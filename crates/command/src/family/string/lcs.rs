//! `LCS`: the longest common subsequence of two strings.
//!
//! The textbook table: cell (i, j) is the length for the first i bytes of one string and the
//! first j of the other. Walking it back from the far corner gives the subsequence and the
//! stretches where both strings run along together, last stretch first.

use std::ops::Range;

use base::{IntText, Refusal, limits};
use keyspace::{Kind, View};
use resp::{Args, Reply};

use crate::{Arity, CommandSpec, Flags, Group, Keys, Run};

pub const SPECS: &[CommandSpec] = &[CommandSpec {
    name: "lcs",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]",
    arity: Arity::AtLeast(3),
    keys: Keys::Range {
        first: 1,
        last: 2,
        step: 1,
    },
    run: Run::Read(lcs),
    flags: Flags::READONLY,
    group: Group::String,
    since: "7.0.0",
    complexity: "O(N*M) for strings of N and M bytes",
    summary: "Returns the longest common subsequence of two strings, its length or its places.",
    ..CommandSpec::BASE
}];

#[derive(Default)]
struct Options {
    only_len: bool,
    places: bool,
    with_len: bool,
    min_len: usize,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, Refusal> {
        let mut options = Options::default();
        let mut at = 3;
        while at < args.len() {
            if args.is(at, "IDX") {
                options.places = true;
            } else if args.is(at, "LEN") {
                options.only_len = true;
            } else if args.is(at, "WITHMATCHLEN") {
                options.with_len = true;
            } else if args.is(at, "MINMATCHLEN") && at + 1 < args.len() {
                options.min_len = args.int(at + 1)?.max(0) as usize;
                at += 1;
            } else {
                return Err(Refusal::Syntax);
            }
            at += 1;
        }
        if options.places && options.only_len {
            return Err(Refusal::new(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

fn lcs(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let is_string = |key| view.kind(key).is_none_or(|kind| kind == Kind::String);
    if !is_string(args.at(1)) || !is_string(args.at(2)) {
        return Err(Refusal::new(
            "ERR The specified keys must contain string values",
        ));
    }
    let options = Options::parse(args)?;
    let (mut room_a, mut room_b) = (IntText::default(), IntText::default());
    let (a, b) = (view.string(args.at(1))?, view.string(args.at(2))?);
    let a = a.as_ref().map_or(&b""[..], |a| a.bytes(&mut room_a));
    let b = b.as_ref().map_or(&b""[..], |b| b.bytes(&mut room_b));
    let lengths = Lengths::of(a, b)?;

    if options.only_len {
        reply.int(lengths.total().into());
    } else if options.places {
        reply.map(2);
        reply.bulk(b"matches");
        let matches = reply.array_later();
        let mut count = 0;
        lengths.walk_back(a, b, |in_a, in_b| {
            if in_a.len() >= options.min_len {
                write_match(reply, &in_a, &in_b, options.with_len);
                count += 1;
            }
        });
        reply.fill(matches, count);
        reply.bulk(b"len");
        reply.int(lengths.total().into());
    } else {
        let mut backwards = Vec::with_capacity(lengths.total() as usize);
        lengths.walk_back(a, b, |in_a, _| {
            backwards.extend(a.get(in_a).unwrap_or_default().iter().rev());
        });
        backwards.reverse();
        reply.bulk(&backwards);
    }
    Ok(())
}

fn write_match(reply: &mut Reply, in_a: &Range<usize>, in_b: &Range<usize>, with_len: bool) {
    reply.array(2 + usize::from(with_len));
    for range in [in_a, in_b] {
        reply.array(2);
        reply.int(range.start as i64);
        reply.int(range.end as i64 - 1);
    }
    if with_len {
        reply.int(in_a.len() as i64);
    }
}

/// The table, row by row; row 0 and column 0 are zero.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(a: &[u8], b: &[u8]) -> Result<Lengths, Refusal> {
        let width = b.len() + 1;
        let size = (a.len() + 1)
            .checked_mul(width)
            .filter(|cells| cells.saturating_mul(4) <= limits::MAX_BULK_BYTES)
            .ok_or(Refusal::new(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ))?;
        let mut cells = vec![0u32; size];
        let mut rest = cells.as_mut_slice();
        for &byte_a in a {
            let (above, below) = rest.split_at_mut(width);
            let mut left = 0;
            for ((&byte_b, above), cell) in b.iter().zip(above.windows(2)).zip(&mut below[1..]) {
                left = if byte_a == byte_b {
                    above[0] + 1
                } else {
                    left.max(above[1])
                };
                *cell = left;
            }
            rest = below;
        }
        Ok(Lengths { cells, width })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells.get(i * self.width + j).copied().unwrap_or(0)
    }

    fn total(&self) -> u32 {
        self.cells.last().copied().unwrap_or(0)
    }

    /// Calls `each` with every common stretch, the last one first.
    fn walk_back(&self, a: &[u8], b: &[u8], mut each: impl FnMut(Range<usize>, Range<usize>)) {
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            let (end_a, end_b) = (i, j);
            while i > 0 && j > 0 && a[i - 1] == b[j - 1] {
                i -= 1;
                j -= 1;
            }
            if i < end_a {
                each(i..end_a, j..end_b);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

//! Single bits: set, read, counted, found.

use base::{Atom, IntText, Refusal};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::parse_offset;
use crate::{Arity, CommandSpec, Flags, Group, Keys, Run};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "setbit",
        syntax: "key offset value:integer",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Write(setbit),
        flags: Flags::DENYOOM,
        group: Group::Bitmap,
        since: "2.2.0",
        summary: "Sets or clears a bit; returns what it was.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "getbit",
        syntax: "key offset",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Read(getbit),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::Bitmap,
        since: "2.2.0",
        summary: "Returns a bit.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "bitcount",
        syntax: "key [start end [BYTE|BIT]]",
        arity: Arity::AtLeast(2),
        keys: Keys::one(1),
        run: Run::Read(bitcount),
        flags: Flags::READONLY,
        group: Group::Bitmap,
        since: "2.6.0",
        complexity: "O(N)",
        summary: "Counts the bits set, in the whole string or a range of it.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "bitpos",
        syntax: "key bit [start [end [BYTE|BIT]]]",
        arity: Arity::AtLeast(3),
        keys: Keys::one(1),
        run: Run::Read(bitpos),
        flags: Flags::READONLY,
        group: Group::Bitmap,
        since: "2.8.7",
        complexity: "O(N)",
        summary: "Finds the first bit that is set, or clear.",
        ..CommandSpec::BASE
    },
];

fn setbit(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let offset = parse_offset(args.at(2))?;
    let on = match args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => {
            return Err(Refusal::new("ERR bit is not an integer or out of range"));
        }
    };
    let at = (offset >> 3) as usize;
    let mask = 0x80u8 >> (offset & 7);
    let mut slot = txn.string_or_new(args.at(1))?;
    let mut former = false;
    slot.write_bits(at + 1, |bytes, _| {
        if let Some(byte) = bytes.get_mut(at) {
            former = *byte & mask != 0;
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
        usize::from(former != on)
    });
    reply.int_bool(former);
    Ok(())
}

fn getbit(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let offset = parse_offset(args.at(2))?;
    let value = view.string(args.at(1))?;
    let mut room = IntText::default();
    let byte = value
        .as_ref()
        .and_then(|atom| atom.bytes(&mut room).get((offset >> 3) as usize));
    reply.int_bool(byte.is_some_and(|byte| byte & (0x80 >> (offset & 7)) != 0));
    Ok(())
}

/// BYTE or BIT at argument `at`; BYTE if there is none.
fn counts_bits(args: &Args<'_>, at: usize) -> Result<bool, Refusal> {
    match args.get(at) {
        None => Ok(false),
        Some(unit) if unit.eq_ignore_ascii_case(b"BYTE") => Ok(false),
        Some(unit) if unit.eq_ignore_ascii_case(b"BIT") => Ok(true),
        Some(_) => Err(Refusal::Syntax),
    }
}

/// First and last bit of the range given in bytes or bits, ends included; `None` if it is empty.
fn bit_range(start: i64, end: i64, len: usize, in_bits: bool) -> Option<(usize, usize)> {
    let total = if in_bits { len * 8 } else { len } as i64;
    let from_end = |at: i64| if at < 0 { (total + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(total - 1));
    if start > end {
        return None;
    }
    let (start, end) = (start as usize, end as usize);
    Some(if in_bits {
        (start, end)
    } else {
        (start * 8, end * 8 + 7)
    })
}

fn bitcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let value = view.string(args.at(1))?;
    let Some(value) = &value else {
        reply.int(0); // Redis looks at the range only if there is something to count.
        return Ok(());
    };
    let mut room = IntText::default();
    let bytes = value.bytes(&mut room);
    let range = match args.len() {
        2 => bit_range(0, -1, bytes.len(), false),
        4 | 5 => {
            let (start, end) = (args.int(2)?, args.int(3)?);
            if start < 0 && end < 0 && start > end {
                None
            } else {
                bit_range(start, end, bytes.len(), counts_bits(args, 4)?)
            }
        }
        _ => return Err(Refusal::Syntax),
    };
    reply.int(range.map_or(0, |(first, last)| count_ones(bytes, first, last)) as i64);
    Ok(())
}

/// Bits set from bit `first` to bit `last`, both within `bytes`.
fn count_ones(bytes: &[u8], first: usize, last: usize) -> usize {
    let range = bytes.get(first / 8..=last / 8).unwrap_or_default();
    let (words, rest) = range.as_chunks::<8>();
    let whole: usize = words
        .iter()
        .map(|word| u64::from_le_bytes(*word).count_ones() as usize)
        .sum::<usize>()
        + rest
            .iter()
            .map(|byte| byte.count_ones() as usize)
            .sum::<usize>();
    let before = range
        .first()
        .map_or(0, |byte| byte & !(0xff >> (first % 8)));
    let after = range.last().map_or(0, |byte| byte & (0x7f >> (last % 8)));
    whole - before.count_ones() as usize - after.count_ones() as usize
}

fn bitpos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let bit = match args.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(Refusal::new("ERR The bit argument must be 1 or 0.")),
    };
    let value: Option<Atom<'_>> = view.string(args.at(1))?;
    let Some(value) = &value else {
        reply.int(if bit { -1 } else { 0 });
        return Ok(());
    };
    let mut room = IntText::default();
    let bytes = value.bytes(&mut room);
    if args.len() > 6 {
        return Err(Refusal::Syntax);
    }
    let start = if args.len() > 3 { args.int(3)? } else { 0 };
    let in_bits = counts_bits(args, 5)?;
    let end_given = args.len() > 4;
    let end = if end_given { args.int(4)? } else { -1 };
    let found = match bit_range(start, end, bytes.len(), in_bits) {
        None => None,
        Some((first, last)) => match find_bit(bytes, first, last, bit) {
            // Without an explicit end the string goes on with zeros for ever.
            None if !bit && !end_given => Some(bytes.len() * 8),
            found => found,
        },
    };
    reply.int(found.map_or(-1, |at| at as i64));
    Ok(())
}

/// The first bit equal to `bit` from `first` to `last`, both within `bytes`.
fn find_bit(bytes: &[u8], first: usize, last: usize, bit: bool) -> Option<usize> {
    let flip = if bit { 0 } else { 0xff };
    let range = bytes.get(first / 8..=last / 8)?;
    let mut skipped = 0;
    let head = range.first()? ^ flip;
    let mut found = head & (0xff >> (first % 8));
    if found == 0 {
        // The first byte is done; whole words without the bit are passed quickly.
        let (words, _) = range.get(1..)?.as_chunks::<8>();
        let plain = u64::from_ne_bytes([flip; 8]);
        let passed = words
            .iter()
            .take_while(|word| u64::from_ne_bytes(**word) == plain)
            .count();
        skipped = 1 + passed * 8;
        found = loop {
            let byte = range.get(skipped)? ^ flip;
            if byte != 0 {
                break byte;
            }
            skipped += 1;
        };
    }
    let at = (first / 8 + skipped) * 8 + found.leading_zeros() as usize;
    (at <= last).then_some(at)
}

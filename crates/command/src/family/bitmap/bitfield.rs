//! `BITFIELD`: runs of 1 to 64 bits as integers, read, written and added to.
//!
//! All operations are read first, so a bad one refuses the whole command. If any of them writes,
//! the string is grown to hold the furthest one, even if that write then fails by overflow.

use base::{IntText, Refusal, number};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::{OFFSET_REFUSED, in_reach};
use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "bitfield",
        syntax: "key [GET <encoding offset>|<[OVERFLOW <WRAP|SAT|FAIL>] <SET <encoding offset value:integer>|INCRBY <encoding offset increment>>>]...",
        arity: Arity::AtLeast(2),
        keys: Keys::one(1),
        run: Run::Write(bitfield),
        flags: Flags::DENYOOM,
        group: Group::Bitmap,
        since: "3.2.0",
        complexity: "O(1) for each operation",
        summary: "Reads, sets and adds to integers of any width inside a string.",
        key_uses: KeyUses::ByArguments(use_of_bitfield),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "bitfield_ro",
        syntax: "key [GET <encoding offset>*]",
        arity: Arity::AtLeast(2),
        keys: Keys::one(1),
        run: Run::Read(bitfield_ro),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::Bitmap,
        since: "6.0.0",
        complexity: "O(1) for each operation",
        summary: "Reads integers of any width inside a string.",
        ..CommandSpec::BASE
    },
];

/// An integer type: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy)]
struct Width {
    signed: bool,
    bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Operation {
    action: Action,
    width: Width,
    offset: u64,
    overflow: Overflow,
}

impl Width {
    fn parse(text: &[u8]) -> Result<Width, Refusal> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(WIDTH_REFUSED),
        };
        match number::parse_i64(digits) {
            Some(bits) if (1..=if signed { 64 } else { 63 }).contains(&bits) => Ok(Width {
                signed,
                bits: bits as u32,
            }),
            _ => Err(WIDTH_REFUSED),
        }
    }

    /// The lowest and the highest value.
    fn bounds(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The value of the lowest bits of `value` in this type.
    fn wrap(self, value: i128) -> i128 {
        let unused = 128 - self.bits;
        if self.signed {
            value << unused >> unused
        } else {
            ((value as u128) << unused >> unused) as i128
        }
    }

    /// `value` made to fit; `None` if it does not and must not be made to.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let (low, high) = self.bounds();
        if (low..=high).contains(&value) {
            return Some(value);
        }
        match overflow {
            Overflow::Wrap => Some(self.wrap(value)),
            Overflow::Saturate => Some(value.clamp(low, high)),
            Overflow::Fail => None,
        }
    }

    /// The integer at bit `offset`; what lies beyond the string reads as zeros.
    fn load(self, bytes: &[u8], offset: u64) -> i128 {
        let value = (offset..offset + u64::from(self.bits)).fold(0i128, |value, at| {
            let byte = bytes.get((at >> 3) as usize).copied().unwrap_or(0);
            value << 1 | i128::from(byte >> (7 - (at & 7)) & 1)
        });
        self.wrap(value)
    }

    fn store(self, bytes: &mut [u8], offset: u64, value: i128) {
        for i in 0..self.bits {
            let at = offset + u64::from(i);
            if let Some(byte) = bytes.get_mut((at >> 3) as usize) {
                let mask = 0x80u8 >> (at & 7);
                let on = value >> (self.bits - 1 - i) & 1 == 1;
                *byte = if on { *byte | mask } else { *byte & !mask };
            }
        }
    }
}

const WIDTH_REFUSED: Refusal = Refusal::new(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);

impl Operation {
    fn parse_all(args: &Args<'_>) -> Result<Vec<Operation>, Refusal> {
        let mut operations = Vec::new();
        let mut overflow = Overflow::Wrap;
        let mut at = 2;
        while at < args.len() {
            let behind = args.len() - at - 1;
            if args.is(at, "OVERFLOW") && behind >= 1 {
                overflow = if args.is(at + 1, "WRAP") {
                    Overflow::Wrap
                } else if args.is(at + 1, "SAT") {
                    Overflow::Saturate
                } else if args.is(at + 1, "FAIL") {
                    Overflow::Fail
                } else {
                    return Err(Refusal::new("ERR Invalid OVERFLOW type specified"));
                };
                at += 2;
                continue;
            }
            let is_get = args.is(at, "GET") && behind >= 2;
            let is_set = args.is(at, "SET") && behind >= 3;
            let is_add = args.is(at, "INCRBY") && behind >= 3;
            if !(is_get || is_set || is_add) {
                return Err(Refusal::Syntax);
            }
            let width = Width::parse(args.at(at + 1))?;
            let offset = parse_field_offset(args.at(at + 2), width)?;
            let action = if is_get {
                Action::Get
            } else if is_set {
                Action::Set(args.int(at + 3)?)
            } else {
                Action::Add(args.int(at + 3)?)
            };
            operations.push(Operation {
                action,
                width,
                offset,
                overflow,
            });
            at += if is_get { 3 } else { 4 };
        }
        Ok(operations)
    }

    /// Bytes a string must have for this operation; 0 for one that only reads.
    fn reach(&self) -> usize {
        match self.action {
            Action::Get => 0,
            _ => ((self.offset + u64::from(self.width.bits) - 1) / 8 + 1) as usize,
        }
    }

    /// Writes the result into `reply` and the new value into `bytes`. What was there before a
    /// value was written, and that value.
    fn run(&self, bytes: &mut [u8], reply: &mut Reply) -> Option<(i128, i128)> {
        let former = self.width.load(bytes, self.offset);
        let wanted = match self.action {
            Action::Get => {
                reply.int(former as i64);
                return None;
            }
            // An unsigned field takes a negative number as the 64 bits it is.
            Action::Set(value) if self.width.signed => value.into(),
            Action::Set(value) => i128::from(value as u64),
            Action::Add(amount) => former + i128::from(amount),
        };
        match self.width.fit(wanted, self.overflow) {
            Some(value) => {
                self.width.store(bytes, self.offset, value);
                let is_set = matches!(self.action, Action::Set(_));
                reply.int(if is_set { former } else { value } as i64);
                Some((former, value))
            }
            None => {
                reply.null();
                None
            }
        }
    }
}

/// A bit position, or `#n`: the n-th field of this width.
fn parse_field_offset(text: &[u8], width: Width) -> Result<u64, Refusal> {
    let (unit, digits) = match text {
        [b'#', digits @ ..] => (i64::from(width.bits), digits),
        _ => (1, text),
    };
    number::parse_i64(digits)
        .and_then(|n| n.checked_mul(unit))
        .and_then(in_reach)
        .ok_or(OFFSET_REFUSED)
}

/// BITFIELD with GET alone reads.
fn use_of_bitfield(args: &Args<'_>) -> KeyUse {
    match (2..args.len()).any(|at| args.is(at, "SET") || args.is(at, "INCRBY")) {
        true => KeyUse::ReadsAndUpdates,
        false => KeyUse::Reads,
    }
}

fn bitfield(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let operations = Operation::parse_all(args)?;
    let reach = operations.iter().map(Operation::reach).max().unwrap_or(0);
    if reach == 0 {
        return read(txn, args, &operations, reply);
    }
    let mut slot = txn.string_or_new(args.at(1))?;
    reply.array(operations.len());
    slot.write_bits(reach, |bytes, grown| {
        let written = operations.iter().filter_map(|it| it.run(bytes, reply));
        written.filter(|(old, new)| grown || old != new).count()
    });
    Ok(())
}

fn bitfield_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let operations = Operation::parse_all(args)?;
    if operations.iter().any(|operation| operation.reach() > 0) {
        return Err(Refusal::new(
            "ERR BITFIELD_RO only supports the GET subcommand",
        ));
    }
    read(view, args, &operations, reply)
}

/// Runs operations that are all reads.
fn read(
    view: &View<'_>,
    args: &Args<'_>,
    operations: &[Operation],
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let value = view.string(args.at(1))?;
    let mut room = IntText::default();
    let bytes = value.as_ref().map_or(&b""[..], |v| v.bytes(&mut room));
    reply.array(operations.len());
    for operation in operations {
        reply.int(operation.width.load(bytes, operation.offset) as i64);
    }
    Ok(())
}

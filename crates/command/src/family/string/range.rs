//! Parts of strings: the end, a range, the length.

use base::{IntText, Refusal};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::check_length;
use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "append",
        syntax: "key value",
        arity: Arity::Exactly(3),
        keys: Keys::one(1),
        run: Run::Write(append),
        flags: Flags::DENYOOM.union(Flags::FAST),
        group: Group::String,
        since: "2.0.0",
        complexity: "O(1) amortised for a short addition",
        summary: "Adds bytes to the end of the string at a key; returns its length.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "strlen",
        syntax: "key",
        arity: Arity::Exactly(2),
        keys: Keys::one(1),
        run: Run::Read(strlen),
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::String,
        since: "2.2.0",
        summary: "Returns the length in bytes of the string at a key.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "getrange",
        syntax: "key start end",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Read(getrange),
        flags: Flags::READONLY,
        group: Group::String,
        since: "2.4.0",
        complexity: "O(N) for N bytes returned",
        summary: "Returns the bytes between two positions, both included.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "substr",
        syntax: "key start end",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Read(getrange),
        flags: Flags::READONLY,
        group: Group::String,
        complexity: "O(N) for N bytes returned",
        summary: "The old name of GETRANGE.",
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "setrange",
        syntax: "key offset value",
        arity: Arity::Exactly(4),
        keys: Keys::one(1),
        run: Run::Write(setrange),
        flags: Flags::DENYOOM,
        group: Group::String,
        since: "2.2.0",
        complexity: "O(N) for N bytes written, zeros before them included",
        summary: "Writes bytes over the string at a key from a position on; returns its length.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..CommandSpec::BASE
    },
];

fn append(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let addition = args.at(2);
    let mut slot = txn.string_or_new(args.at(1))?;
    let len = slot.len() + addition.len();
    check_length(len)?;
    slot.append(addition);
    reply.int(len as i64);
    Ok(())
}

fn strlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let len = view.string(args.at(1))?.map_or(0, |value| value.len());
    reply.int(len as i64);
    Ok(())
}

fn getrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let mut room = IntText::default();
    let value = view.string(args.at(1))?;
    let bytes = match &value {
        Some(atom) => atom.bytes(&mut room),
        None => b"",
    };
    let range = byte_range(start, end, bytes.len());
    reply.bulk(bytes.get(range).unwrap_or_default());
    Ok(())
}

/// `start..end` of positions that may count from the end, clamped to `len`.
fn byte_range(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end {
        return 0..0;
    }
    start as usize..end as usize + 1
}

fn setrange(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (key, offset, value) = (args.at(1), args.int(2)?, args.at(3));
    if offset < 0 {
        return Err(Refusal::new("ERR offset is out of range"));
    }
    let len = txn.string(key)?.map_or(0, |value| value.len());
    if value.is_empty() {
        reply.int(len as i64);
        return Ok(());
    }
    let end = (offset as usize).saturating_add(value.len());
    check_length(end)?;
    let mut slot = txn.string_or_new(key)?;
    if let Some(room) = slot.bytes_mut(end).get_mut(offset as usize..end) {
        room.copy_from_slice(value);
    }
    reply.int(len.max(end) as i64);
    Ok(())
}

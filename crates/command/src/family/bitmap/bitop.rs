//! `BITOP`: whole strings combined bit by bit; shorter ones count as padded with zeros.

use base::{Atom, Refusal};
use keyspace::{Expire, Txn};
use resp::{Args, Reply};

use crate::{Arity, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run};

pub const SPECS: &[CommandSpec] = &[CommandSpec {
    name: "bitop",
    syntax: "operation destkey key...",
    arity: Arity::AtLeast(4),
    keys: Keys::from(2),
    run: Run::Write(bitop),
    flags: Flags::DENYOOM,
    group: Group::Bitmap,
    since: "2.6.0",
    complexity: "O(N)",
    summary: "Combines strings by AND, OR, XOR or NOT and puts the result at a key.",
    key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
    ..CommandSpec::BASE
}];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    And,
    Or,
    Xor,
    Not,
}

impl Op {
    fn parse(word: &[u8]) -> Result<Op, Refusal> {
        [
            ("AND", Op::And),
            ("OR", Op::Or),
            ("XOR", Op::Xor),
            ("NOT", Op::Not),
        ]
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, op)| op)
        .ok_or(Refusal::Syntax)
    }

    /// Folds one more source into the result, which is as long as the longest of them.
    fn fold(self, result: &mut [u8], source: &[u8]) {
        let (both, beyond) = result.split_at_mut(source.len().min(result.len()));
        let pairs = both.iter_mut().zip(source);
        match self {
            Op::And => {
                pairs.for_each(|(a, b)| *a &= b);
                beyond.fill(0);
            }
            Op::Or => pairs.for_each(|(a, b)| *a |= b),
            Op::Xor => pairs.for_each(|(a, b)| *a ^= b),
            Op::Not => pairs.for_each(|(a, b)| *a = !b),
        }
    }
}

fn bitop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let op = Op::parse(args.at(1))?;
    if op == Op::Not && args.len() != 4 {
        return Err(Refusal::new(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    let mut result = Vec::new();
    {
        let mut sources: Vec<Option<Atom<'_>>> = Vec::with_capacity(args.len() - 3);
        for key in args.iter_from(3) {
            sources.push(txn.string(key)?);
        }
        let longest = sources.iter().flatten().map(Atom::len).max().unwrap_or(0);
        result.reserve_exact(longest);
        for (i, source) in sources.iter().enumerate() {
            let mut room = base::IntText::default();
            let bytes = source.as_ref().map_or(&b""[..], |s| s.bytes(&mut room));
            if i == 0 {
                result.extend_from_slice(bytes);
                result.resize(longest, 0);
            }
            if i > 0 || op == Op::Not {
                op.fold(&mut result, bytes);
            }
        }
    }
    if result.is_empty() {
        txn.remove(args.at(2));
    } else {
        txn.put_string(args.at(2), &result, Expire::Clear);
    }
    reply.int(result.len() as i64);
    Ok(())
}

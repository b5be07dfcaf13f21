//! Elements anywhere in a list: read by position, found by value, changed, removed.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

use super::{GROW, LIST, READ};
use crate::family::stretch;
use crate::{Arity, CommandSpec, KeyUse, KeyUses, Run};

const LENGTH: &str = "O(N) where N is the length of the list.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "lindex",
        syntax: "key index",
        arity: Arity::Exactly(3),
        run: Run::Read(lindex),
        flags: READ,
        complexity: "O(N) where N is the distance to the nearer end.",
        summary: "Returns the element at a position of a list.",
        ..LIST
    },
    CommandSpec {
        name: "lrange",
        syntax: "key start stop",
        arity: Arity::Exactly(4),
        run: Run::Read(lrange),
        flags: READ,
        complexity: "O(S+N) where S is the distance of the start to the nearer end, N the number of elements returned.",
        summary: "Returns a stretch of a list.",
        ..LIST
    },
    CommandSpec {
        name: "lpos",
        syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        arity: Arity::AtLeast(3),
        run: Run::Read(lpos),
        flags: READ,
        since: "6.0.6",
        complexity: LENGTH,
        summary: "Returns the positions of an element in a list.",
        ..LIST
    },
    CommandSpec {
        name: "lset",
        syntax: "key index element",
        arity: Arity::Exactly(4),
        run: Run::Write(lset),
        flags: GROW,
        complexity: LENGTH,
        summary: "Replaces the element at a position of a list.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..LIST
    },
    CommandSpec {
        name: "linsert",
        syntax: "key <BEFORE|AFTER> pivot element",
        arity: Arity::Exactly(5),
        run: Run::Write(linsert),
        flags: GROW,
        since: "2.2.0",
        complexity: LENGTH,
        summary: "Puts an element before or after another one of a list.",
        key_uses: KeyUses::All(KeyUse::Inserts),
        ..LIST
    },
    CommandSpec {
        name: "lrem",
        syntax: "key count element",
        arity: Arity::Exactly(4),
        run: Run::Write(lrem),
        complexity: LENGTH,
        summary: "Removes elements equal to a value from a list.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..LIST
    },
    CommandSpec {
        name: "ltrim",
        syntax: "key start stop",
        arity: Arity::Exactly(4),
        run: Run::Write(ltrim),
        complexity: "O(N) where N is the number of elements removed.",
        summary: "Keeps a stretch of a list and removes the rest.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..LIST
    },
];

/// Position `index` (negative: from the back) in a list of `len` elements, if it is inside.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 {
        index.checked_add(len as i64)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|&index| index < len)
}

fn lindex(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(list) = view.list(args.at(1))? else {
        reply.null(); // whatever the index is
        return Ok(());
    };
    let at = position(args.int(2)?, list.len());
    reply.atom_or_null(at.and_then(|at| list.get(at)));
    Ok(())
}

fn lrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (first, last) = (args.int(2)?, args.int(3)?);
    let Some(list) = view.list(args.at(1))? else {
        reply.array(0);
        return Ok(());
    };
    let stretch = stretch::positions(first, last, list.len());
    reply.array(stretch.len());
    list.iter_from(stretch.start)
        .take(stretch.len())
        .for_each(|element| reply.atom(element));
    Ok(())
}

/// What LPOS is to find.
struct Search {
    /// Matches to skip before the first one told.
    skip: u64,
    from_tail: bool,
    /// How many to tell, as an array; `None`: one, not in an array; 0: all.
    count: Option<u64>,
    /// How many elements to look at; 0: all.
    max_len: u64,
}

impl Search {
    fn parse(args: &Args<'_>) -> Result<Search, Refusal> {
        let mut search = Search {
            skip: 0,
            from_tail: false,
            count: None,
            max_len: 0,
        };
        let not_negative = |at: usize, text: &'static str| match args.int(at) {
            Ok(n) if n >= 0 => Ok(n as u64),
            _ => Err(Refusal::new(text)),
        };
        let mut at = 3;
        while at < args.len() {
            if at + 1 == args.len() {
                return Err(Refusal::Syntax);
            }
            if args.is(at, "RANK") {
                let rank = args.int(at + 1)?;
                if rank == 0 {
                    return Err(Refusal::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                    ));
                }
                search.from_tail = rank < 0;
                // The lowest integer has no opposite; Redis takes it for −1.
                search.skip = rank.checked_abs().map_or(0, |rank| rank as u64 - 1);
            } else if args.is(at, "COUNT") {
                search.count = Some(not_negative(at + 1, "ERR COUNT can't be negative")?);
            } else if args.is(at, "MAXLEN") {
                search.max_len = not_negative(at + 1, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(Refusal::Syntax);
            }
            at += 2;
        }
        Ok(search)
    }
}

fn lpos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let search = Search::parse(args)?;
    let element = args.at(2);
    let list = view.list(args.at(1))?;
    let len = list.map_or(0, |list| list.len());
    let elements = list.map(|list| match search.from_tail {
        true => list.iter_rev_from(len.saturating_sub(1)),
        false => list.iter_from(0),
    });
    let look_at = match search.max_len {
        0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let mut found = elements
        .into_iter()
        .flatten()
        .take(look_at)
        .enumerate()
        .filter(|(_, candidate)| candidate.eq_bytes(element))
        .skip(usize::try_from(search.skip).unwrap_or(usize::MAX))
        .map(|(at, _)| if search.from_tail { len - 1 - at } else { at });
    let Some(count) = search.count else {
        match found.next() {
            Some(at) => reply.int(at as i64),
            None => reply.null(),
        }
        return Ok(());
    };
    let wanted = match count {
        0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let later = reply.array_later();
    let mut n = 0;
    for at in found.take(wanted) {
        reply.int(at as i64);
        n += 1;
    }
    reply.fill(later, n);
    Ok(())
}

fn lset(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut list = txn.list_mut(args.at(1))?.ok_or(Refusal::NoSuchKey)?;
    let at = position(args.int(2)?, list.len()).ok_or(Refusal::IndexOutOfRange)?;
    list.set(at, args.at(3));
    reply.ok();
    Ok(())
}

fn linsert(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let after = match (args.is(2, "BEFORE"), args.is(2, "AFTER")) {
        (true, _) => 0,
        (_, true) => 1,
        _ => return Err(Refusal::Syntax),
    };
    let Some(mut list) = txn.list_mut(args.at(1))? else {
        reply.int(0);
        return Ok(());
    };
    let pivot = list.iter_from(0).position(|e| e.eq_bytes(args.at(3)));
    match pivot {
        Some(at) => {
            list.insert(at + after, args.at(4));
            reply.int(list.len() as i64);
        }
        None => reply.int(-1),
    }
    Ok(())
}

fn lrem(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let count = args.int(2)?;
    let limit = match count.unsigned_abs() {
        0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let removed = match txn.list_mut(args.at(1))? {
        Some(mut list) => list.remove_equal(args.at(3), limit, count < 0),
        None => 0,
    };
    reply.int(removed as i64);
    Ok(())
}

fn ltrim(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (first, last) = (args.int(2)?, args.int(3)?);
    if let Some(mut list) = txn.list_mut(args.at(1))? {
        let len = list.len();
        let keep = stretch::positions(first, last, len);
        list.remove_range(keep.end, len - keep.end);
        list.remove_range(0, keep.start);
        // Redis tells those who watch even when nothing was cut off.
        list.tell();
    }
    reply.ok();
    Ok(())
}

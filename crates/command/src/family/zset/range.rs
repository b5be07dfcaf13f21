//! Stretches of a sorted set, by rank, by score or by member.
//!
//! Every form comes down to ranks: a [`Selection`] is read from the arguments, and names a range of
//! ranks in a given sorted set, to be walked up or down. What is done with it is one line each.

use std::ops::Range;

use base::{Atom, IntText, Refusal};
use keyspace::{LexBound, ScoreBound, Txn, Value, View, Zset};
use resp::{Args, Reply};

use super::{GROW, READ, READ_FAST, Show, ZSET, bound};
use crate::family::stretch;
use crate::{Arity, CommandSpec, KeyUse, KeyUses, Keys, Run};

const RETURNED: &str =
    "O(log(N)+M) where N is the size of the sorted set and M the number of members returned.";
const REMOVED: &str =
    "O(log(N)+M) where N is the size of the sorted set and M the number of members removed.";
const COUNTED: &str = "O(log(N)) where N is the size of the sorted set.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "zrange",
        syntax: "key start:string stop:string [BYSCORE|BYLEX] [REV] [LIMIT <offset count>] [WITHSCORES]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::ANY)),
        flags: READ,
        complexity: RETURNED,
        summary: "Returns members by rank, score or member.",
        ..ZSET
    },
    CommandSpec {
        name: "zrevrange",
        syntax: "key start stop [WITHSCORES]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::fixed(By::Rank, true))),
        flags: READ,
        complexity: RETURNED,
        summary: "Returns members by rank, highest score first.",
        ..ZSET
    },
    CommandSpec {
        name: "zrangebyscore",
        syntax: "key min:double max:double [WITHSCORES] [LIMIT <offset count>]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::fixed(By::Score, false))),
        flags: READ,
        since: "1.0.5",
        complexity: RETURNED,
        summary: "Returns the members with scores in a range.",
        ..ZSET
    },
    CommandSpec {
        name: "zrevrangebyscore",
        syntax: "key max:double min:double [WITHSCORES] [LIMIT <offset count>]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::fixed(By::Score, true))),
        flags: READ,
        since: "2.2.0",
        complexity: RETURNED,
        summary: "Returns the members with scores in a range, highest score first.",
        ..ZSET
    },
    CommandSpec {
        name: "zrangebylex",
        syntax: "key min max [LIMIT <offset count>]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::fixed(By::Lex, false))),
        flags: READ,
        since: "2.8.9",
        complexity: RETURNED,
        summary: "Returns members in a range of bytes, all scores being equal.",
        ..ZSET
    },
    CommandSpec {
        name: "zrevrangebylex",
        syntax: "key max min [LIMIT <offset count>]",
        arity: Arity::AtLeast(4),
        run: Run::Read(|view, args, reply| show(view, args, reply, Form::fixed(By::Lex, true))),
        flags: READ,
        since: "2.8.9",
        complexity: RETURNED,
        summary: "Returns members in a range of bytes, highest first, all scores being equal.",
        ..ZSET
    },
    CommandSpec {
        name: "zrangestore",
        syntax: "dst src min max [BYSCORE|BYLEX] [REV] [LIMIT <offset count>]",
        arity: Arity::AtLeast(5),
        keys: Keys::Range {
            first: 1,
            last: 2,
            step: 1,
        },
        run: Run::Write(zrangestore),
        flags: GROW,
        since: "6.2.0",
        complexity: RETURNED,
        summary: "Stores members picked by rank, score or member as a sorted set.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..ZSET
    },
    CommandSpec {
        name: "zcount",
        syntax: "key min:double max:double",
        arity: Arity::Exactly(4),
        run: Run::Read(|view, args, reply| count(view, args, reply, By::Score)),
        flags: READ_FAST,
        since: "2.0.0",
        complexity: COUNTED,
        summary: "Counts the members with scores in a range.",
        ..ZSET
    },
    CommandSpec {
        name: "zlexcount",
        syntax: "key min max",
        arity: Arity::Exactly(4),
        run: Run::Read(|view, args, reply| count(view, args, reply, By::Lex)),
        flags: READ_FAST,
        since: "2.8.9",
        complexity: COUNTED,
        summary: "Counts members in a range of bytes, all scores being equal.",
        ..ZSET
    },
    CommandSpec {
        name: "zremrangebyrank",
        syntax: "key start stop",
        arity: Arity::Exactly(4),
        run: Run::Write(|txn, args, reply| remove(txn, args, reply, By::Rank)),
        since: "2.0.0",
        complexity: REMOVED,
        summary: "Removes the members with ranks in a range.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..ZSET
    },
    CommandSpec {
        name: "zremrangebyscore",
        syntax: "key min:double max:double",
        arity: Arity::Exactly(4),
        run: Run::Write(|txn, args, reply| remove(txn, args, reply, By::Score)),
        complexity: REMOVED,
        summary: "Removes the members with scores in a range.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..ZSET
    },
    CommandSpec {
        name: "zremrangebylex",
        syntax: "key min max",
        arity: Arity::Exactly(4),
        run: Run::Write(|txn, args, reply| remove(txn, args, reply, By::Lex)),
        since: "2.8.9",
        complexity: REMOVED,
        summary: "Removes members in a range of bytes, all scores being equal.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..ZSET
    },
];

/// What the two ends of a range are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// What a command's name already says; `None` is left to options.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
}

impl Form {
    const ANY: Form = Form {
        by: None,
        reverse: None,
    };

    const fn fixed(by: By, reverse: bool) -> Form {
        Form {
            by: Some(by),
            reverse: Some(reverse),
        }
    }
}

enum Ends<'a> {
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

impl<'a> Ends<'a> {
    fn parse(args: &Args<'a>, by: By, first: usize, last: usize) -> Result<Ends<'a>, Refusal> {
        let (a, b) = (args.at(first), args.at(last));
        Ok(match by {
            By::Rank => Ends::Rank(args.int(first)?, args.int(last)?),
            By::Score => Ends::Score(bound::score(a)?, bound::score(b)?),
            By::Lex => Ends::Lex(bound::member(a)?, bound::member(b)?),
        })
    }

    fn ranks(&self, zset: &Zset, reverse: bool) -> Range<usize> {
        match *self {
            Ends::Rank(first, last) => {
                let len = zset.len();
                let ranks = stretch::positions(first, last, len);
                match reverse {
                    true => len - ranks.end..len - ranks.start,
                    false => ranks,
                }
            }
            Ends::Score(min, max) => zset.score_range(min, max),
            Ends::Lex(min, max) => zset.lex_range(min, max),
        }
    }
}

/// Which entries of a sorted set, in which order.
struct Selection<'a> {
    ends: Ends<'a>,
    reverse: bool,
    /// LIMIT's two numbers: a negative offset selects nothing, a negative count everything.
    offset: i64,
    limit: i64,
    show: Show,
}

impl<'a> Selection<'a> {
    /// Reads the ends at argument `at`, and the options behind them.
    fn parse(
        args: &Args<'a>,
        at: usize,
        form: Form,
        to_store: bool,
    ) -> Result<Selection<'a>, Refusal> {
        let Form {
            mut by,
            mut reverse,
        } = form;
        let (mut offset, mut limit) = (0, -1);
        let mut show = Show::Members;
        let mut option = at + 2;
        while option < args.len() {
            if !to_store && args.is(option, "WITHSCORES") {
                show = Show::Scores;
            } else if args.is(option, "LIMIT") && option + 2 < args.len() {
                (offset, limit) = (args.int(option + 1)?, args.int(option + 2)?);
                option += 2;
            } else if reverse.is_none() && args.is(option, "REV") {
                reverse = Some(true);
            } else if by.is_none() && args.is(option, "BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && args.is(option, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Refusal::Syntax);
            }
            option += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(Refusal::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if show == Show::Scores && by == By::Lex {
            return Err(Refusal::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // Reversed, the greater bound comes first; ranks are counted from the top instead.
        let ends = match reverse && by != By::Rank {
            true => Ends::parse(args, by, at + 1, at)?,
            false => Ends::parse(args, by, at, at + 1)?,
        };
        Ok(Selection {
            ends,
            reverse,
            offset,
            limit,
            show,
        })
    }

    /// The entries, and how many they are (the iterator may go on behind them).
    fn of<'z>(&self, zset: &'z Zset) -> (usize, impl Iterator<Item = (Atom<'z>, f64)> + use<'z>) {
        let ranks = self.ends.ranks(zset, self.reverse);
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let left = ranks.len().saturating_sub(offset);
        let n = left.min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let entries = match (n, self.reverse) {
            (0, _) => zset.iter_from(zset.len()),
            (_, true) => zset.iter_rev_from(ranks.end - 1 - offset),
            (_, false) => zset.iter_from(ranks.start + offset),
        };
        (n, entries)
    }
}

fn show(view: &View<'_>, args: &Args<'_>, reply: &mut Reply, form: Form) -> Result<(), Refusal> {
    let selection = Selection::parse(args, 2, form, false)?;
    match view.zset(args.at(1))? {
        Some(zset) => {
            let (n, entries) = selection.of(zset);
            selection.show.entries(n, entries, reply);
        }
        None => reply.array(0),
    }
    Ok(())
}

fn zrangestore(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let selection = Selection::parse(args, 3, Form::ANY, true)?;
    let mut result = Zset::new();
    if let Some(zset) = txn.zset(args.at(2))? {
        let (n, entries) = selection.of(zset);
        let mut text = IntText::default();
        for (member, score) in entries.take(n) {
            result.insert(member.bytes(&mut text), score, txn.tuning());
        }
    }
    store(txn, args.at(1), result, reply);
    Ok(())
}

/// Puts a result at its destination; an empty one only removes what was there.
pub(super) fn store(txn: &mut Txn<'_>, destination: &[u8], result: Zset, reply: &mut Reply) {
    reply.int(result.len() as i64);
    if result.is_empty() {
        txn.remove(destination);
    } else {
        txn.put_value(destination, Value::Zset(Box::new(result)));
    }
}

fn count(view: &View<'_>, args: &Args<'_>, reply: &mut Reply, by: By) -> Result<(), Refusal> {
    let ends = Ends::parse(args, by, 2, 3)?;
    let zset = view.zset(args.at(1))?;
    reply.int(zset.map_or(0, |zset| ends.ranks(zset, false).len()) as i64);
    Ok(())
}

fn remove(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply, by: By) -> Result<(), Refusal> {
    let ends = Ends::parse(args, by, 2, 3)?;
    let mut removed = 0;
    if let Some(mut zset) = txn.zset_mut(args.at(1))? {
        let ranks = ends.ranks(&zset, false);
        removed = ranks.len();
        if removed > 0 {
            zset.remove_range(ranks);
        }
    }
    reply.int(removed as i64);
    Ok(())
}

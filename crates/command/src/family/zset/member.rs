//! Named members: their scores and ranks, added, changed and removed.

use base::Refusal;
use keyspace::{Txn, View, Zset};
use resp::{Args, Reply};

use super::{GROW, READ_FAST, ZSET};
use crate::{Arity, CommandSpec, Flags, KeyUse, KeyUses, Run};

const LOG: &str = "O(log(N)) where N is the size of the sorted set.";

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "zadd",
        syntax: "key [NX|XX] [GT|LT] [CH] [INCR] <score member>...",
        arity: Arity::AtLeast(4),
        run: Run::Write(zadd),
        flags: GROW.union(Flags::FAST),
        complexity: "O(log(N)) for each member named, where N is the size of the sorted set.",
        summary: "Adds members to a sorted set, or changes their scores.",
        key_uses: KeyUses::All(KeyUse::Updates),
        ..ZSET
    },
    CommandSpec {
        name: "zincrby",
        syntax: "key increment member",
        arity: Arity::Exactly(4),
        run: Run::Write(zincrby),
        flags: GROW.union(Flags::FAST),
        complexity: LOG,
        summary: "Adds to the score of a member.",
        ..ZSET
    },
    CommandSpec {
        name: "zrem",
        syntax: "key member...",
        arity: Arity::AtLeast(3),
        run: Run::Write(zrem),
        flags: Flags::FAST,
        complexity: "O(M*log(N)) where N is the size of the sorted set and M the number of members named.",
        summary: "Removes members of a sorted set; the last one takes the key with it.",
        key_uses: KeyUses::All(KeyUse::Deletes),
        ..ZSET
    },
    CommandSpec {
        name: "zcard",
        syntax: "key",
        arity: Arity::Exactly(2),
        run: Run::Read(zcard),
        flags: READ_FAST,
        summary: "Returns the number of members of a sorted set.",
        key_uses: KeyUses::All(KeyUse::Looks),
        ..ZSET
    },
    CommandSpec {
        name: "zscore",
        syntax: "key member",
        arity: Arity::Exactly(3),
        run: Run::Read(zscore),
        flags: READ_FAST,
        summary: "Returns the score of a member.",
        ..ZSET
    },
    CommandSpec {
        name: "zmscore",
        syntax: "key member...",
        arity: Arity::AtLeast(3),
        run: Run::Read(zmscore),
        flags: READ_FAST,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members named.",
        summary: "Returns the scores of several members.",
        ..ZSET
    },
    CommandSpec {
        name: "zrank",
        syntax: "key member",
        arity: Arity::Exactly(3),
        run: Run::Read(|view, args, reply| rank(view, args, reply, |rank, _| rank)),
        flags: READ_FAST,
        since: "2.0.0",
        complexity: LOG,
        summary: "Returns the rank of a member, counted from the lowest score.",
        ..ZSET
    },
    CommandSpec {
        name: "zrevrank",
        syntax: "key member",
        arity: Arity::Exactly(3),
        run: Run::Read(|view, args, reply| rank(view, args, reply, |rank, len| len - 1 - rank)),
        flags: READ_FAST,
        since: "2.0.0",
        complexity: LOG,
        summary: "Returns the rank of a member, counted from the highest score.",
        ..ZSET
    },
];

/// The options of ZADD.
#[derive(Clone, Copy, Default)]
struct Rules {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    /// Count changed members too.
    count_changed: bool,
    /// The score is added to the present one.
    increment: bool,
}

impl Rules {
    /// The options, and where the scores and members begin.
    fn parse(args: &Args<'_>) -> Result<(Rules, usize), Refusal> {
        let mut rules = Rules::default();
        let mut at = 2;
        loop {
            let option = if args.is(at, "NX") {
                &mut rules.only_new
            } else if args.is(at, "XX") {
                &mut rules.only_existing
            } else if args.is(at, "GT") {
                &mut rules.only_greater
            } else if args.is(at, "LT") {
                &mut rules.only_less
            } else if args.is(at, "CH") {
                &mut rules.count_changed
            } else if args.is(at, "INCR") {
                &mut rules.increment
            } else {
                break;
            };
            *option = true;
            at += 1;
        }
        let rest = args.len() - at;
        if rest == 0 || !rest.is_multiple_of(2) {
            return Err(Refusal::Syntax);
        }
        rules.check(rest / 2)?;
        Ok((rules, at))
    }

    fn check(&self, pairs: usize) -> Result<(), Refusal> {
        if self.only_new && self.only_existing {
            return Err(Refusal::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        let exclusive = [self.only_greater, self.only_less, self.only_new];
        if exclusive.into_iter().filter(|&set| set).count() > 1 {
            return Err(Refusal::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increment && pairs > 1 {
            return Err(Refusal::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// The score a member gets that now has `present`; `None` leaves it as it is.
    fn score(&self, present: Option<f64>, given: f64) -> Result<Option<f64>, Refusal> {
        let Some(present) = present else {
            return Ok((!self.only_existing).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increment {
            present + given
        } else {
            given
        };
        if score.is_nan() {
            return Err(Refusal::new("ERR resulting score is not a number (NaN)"));
        }
        let refused = self.only_less && score >= present || self.only_greater && score <= present;
        Ok((!refused).then_some(score))
    }
}

/// Redis keeps the scores of small sorted sets as integers where it can, and so forgets the sign
/// of a zero.
pub(super) fn plain_zero(score: f64) -> f64 {
    score + 0.0
}

fn zadd(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (rules, first) = Rules::parse(args)?;
    let key = args.at(1);
    if rules.increment {
        return increment(
            txn,
            key,
            rules,
            args.float(first)?,
            args.at(first + 1),
            reply,
        );
    }
    // All scores are read before the first member is added: one bad score adds nothing.
    for at in (first..args.len()).step_by(2) {
        args.float(at)?;
    }
    if rules.only_existing && txn.zset(key)?.is_none() {
        reply.int(0);
        return Ok(());
    }
    let mut zset = txn.zset_or_new(key)?;
    let (mut added, mut changed) = (0, 0);
    for at in (first..args.len()).step_by(2) {
        let (given, member) = (args.float(at)?, args.at(at + 1));
        let decide = |present| {
            // A score that is given, and not added to another, is never refused.
            let score = rules.score(present, given).unwrap_or_default();
            score.map(plain_zero)
        };
        match zset.update(member, decide) {
            (None, Some(_)) => added += 1,
            (Some(present), Some(score)) if present != score => changed += 1,
            _ => {}
        }
    }
    reply.int(if rules.count_changed {
        added + changed
    } else {
        added
    });
    Ok(())
}

fn zincrby(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let rules = Rules {
        increment: true,
        ..Rules::default()
    };
    increment(txn, args.at(1), rules, args.float(2)?, args.at(3), reply)
}

fn increment(
    txn: &mut Txn<'_>,
    key: &[u8],
    rules: Rules,
    by: f64,
    member: &[u8],
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let present = txn.zset(key)?.and_then(|zset| zset.score(member));
    let Some(score) = rules.score(present, by)? else {
        reply.null();
        return Ok(());
    };
    if present != Some(score) {
        txn.zset_or_new(key)?.insert(member, plain_zero(score));
    }
    reply.double(score);
    Ok(())
}

fn zrem(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let removed = match txn.zset_mut(args.at(1))? {
        Some(mut zset) => args
            .iter_from(2)
            .filter(|member| zset.remove(member).is_some())
            .count(),
        None => 0,
    };
    reply.int(removed as i64);
    Ok(())
}

fn zcard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(view.zset(args.at(1))?.map_or(0, Zset::len) as i64);
    Ok(())
}

fn score_or_null(zset: Option<&Zset>, member: &[u8], reply: &mut Reply) {
    match zset.and_then(|zset| zset.score(member)) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    score_or_null(view.zset(args.at(1))?, args.at(2), reply);
    Ok(())
}

fn zmscore(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let zset = view.zset(args.at(1))?;
    let members = args.iter_from(2);
    reply.array(members.len());
    members.for_each(|member| score_or_null(zset, member, reply));
    Ok(())
}

fn rank(
    view: &View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    counted: fn(usize, usize) -> usize,
) -> Result<(), Refusal> {
    let zset = view.zset(args.at(1))?;
    match zset.and_then(|zset| Some(counted(zset.rank(args.at(2))?, zset.len()))) {
        Some(rank) => reply.int(rank as i64),
        None => reply.null(),
    }
    Ok(())
}

//! Members taken from the lowest or the highest score, and members at random.
//!
//! The waiting forms are single attempts, as in the list family: a key out of reach looks missing.

use base::Refusal;
use keyspace::{Edit, Txn, View, Zset};
use resp::{Args, Reply};

use super::{READ, Show, ZSET};
use crate::family::many_pop::ManyPop;
use crate::family::sample;
use crate::{
    Arity, Attempt, Block, CommandSpec, Flags, KeyUse, KeyUses, Keys, Nil, Run, TimeoutAt, WaitOn,
};

const POPPED: &str =
    "O(log(N)*M) where N is the size of the sorted set and M the number of members returned.";
const MANY: &str = "O(K)+O(M*log(N)) where K is the number of keys, N the size of the sorted set and M the number of members returned.";
const LOG: &str = "O(log(N)) where N is the size of the sorted set.";
const KEYS_THEN_TIMEOUT: Keys = Keys::Range {
    first: 1,
    last: -2,
    step: 1,
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "zpopmin",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Write(|txn, args, reply| pop(txn, args, reply, End::Min)),
        flags: Flags::FAST,
        since: "5.0.0",
        complexity: POPPED,
        summary: "Takes the members with the lowest scores.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "zpopmax",
        syntax: "key [count]",
        arity: Arity::AtLeast(2),
        run: Run::Write(|txn, args, reply| pop(txn, args, reply, End::Max)),
        flags: Flags::FAST,
        since: "5.0.0",
        complexity: POPPED,
        summary: "Takes the members with the highest scores.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "zmpop",
        syntax: "numkeys key... <MIN|MAX> [COUNT count]",
        arity: Arity::AtLeast(4),
        keys: Keys::Counted { count_at: 1 },
        run: Run::Write(zmpop),
        flags: Flags::MOVABLEKEYS,
        since: "7.0.0",
        complexity: MANY,
        summary: "Takes the lowest or highest members of the first sorted set that has some.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "bzpopmin",
        syntax: "key... timeout",
        arity: Arity::AtLeast(3),
        keys: KEYS_THEN_TIMEOUT,
        run: Run::Block(Block {
            run: |txn, args, reply| wait_pop(txn, args, reply, End::Min),
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: Flags::FAST.union(Flags::NOSCRIPT).union(Flags::BLOCKING),
        since: "5.0.0",
        complexity: LOG,
        summary: "Takes the lowest member of the first sorted set that has one, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "bzpopmax",
        syntax: "key... timeout",
        arity: Arity::AtLeast(3),
        keys: KEYS_THEN_TIMEOUT,
        run: Run::Block(Block {
            run: |txn, args, reply| wait_pop(txn, args, reply, End::Max),
            timeout: TimeoutAt::Last,
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: Flags::FAST.union(Flags::NOSCRIPT).union(Flags::BLOCKING),
        since: "5.0.0",
        complexity: LOG,
        summary: "Takes the highest member of the first sorted set that has one, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "bzmpop",
        syntax: "timeout numkeys key... <MIN|MAX> [COUNT count]",
        arity: Arity::AtLeast(5),
        keys: Keys::Counted { count_at: 2 },
        run: Run::Block(Block {
            run: bzmpop,
            timeout: TimeoutAt::Arg(1),
            wait_on: WaitOn::AllKeys,
            nil: Nil::Array,
        }),
        flags: Flags::BLOCKING.union(Flags::MOVABLEKEYS),
        since: "7.0.0",
        complexity: MANY,
        summary: "Takes the lowest or highest members of the first sorted set that has some, waiting if none has.",
        key_uses: KeyUses::All(KeyUse::Takes),
        ..ZSET
    },
    CommandSpec {
        name: "zrandmember",
        syntax: "key [count [WITHSCORES]]",
        arity: Arity::AtLeast(2),
        run: Run::Read(zrandmember),
        flags: READ,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members returned.",
        summary: "Returns members at random.",
        tips: &["nondeterministic_output"],
        ..ZSET
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    const WORDS: [&'static str; 2] = ["MIN", "MAX"];

    /// Takes up to `count` entries from this end, each given to `each` before it goes.
    fn pop(
        self,
        zset: &mut Edit<'_, Zset>,
        count: usize,
        mut each: impl FnMut(base::Atom<'_>, f64),
    ) {
        let len = zset.len();
        let n = count.min(len);
        match self {
            End::Min => {
                zset.iter_from(0).take(n).for_each(|(m, s)| each(m, s));
                zset.remove_range(0..n);
            }
            End::Max => {
                let highest = zset.iter_rev_from(len.saturating_sub(1));
                highest.take(n).for_each(|(m, s)| each(m, s));
                zset.remove_range(len - n..len);
            }
        }
    }
}

fn pop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply, end: End) -> Result<(), Refusal> {
    let count = match args.len() {
        2 => None,
        3 => match args.int(2) {
            Ok(count) if count >= 0 => Some(count as usize),
            _ => return Err(Refusal::new("ERR value is out of range, must be positive")),
        },
        _ => return Err(Refusal::Syntax),
    };
    let zset = txn.zset_mut(args.at(1))?;
    match (zset, count) {
        (None, _) | (_, Some(0)) => reply.array(0),
        (Some(mut zset), None) => {
            // Without a count the one pair is flat in both protocols.
            reply.array(2);
            end.pop(&mut zset, 1, |member, score| {
                reply.atom(member);
                reply.double(score);
            });
        }
        (Some(mut zset), Some(count)) => {
            Show::Scores.head(count.min(zset.len()), reply);
            end.pop(&mut zset, count, |member, score| {
                Show::Scores.entry(member, score, reply);
            });
        }
    }
    Ok(())
}

fn zmpop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let pop = ManyPop::parse(args, 1, End::WORDS)?;
    if pop_first(txn, args, &pop, reply)? == Attempt::Empty {
        reply.null_array();
    }
    Ok(())
}

fn bzmpop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<Attempt, Refusal> {
    let pop = ManyPop::parse(args, 2, End::WORDS)?;
    TimeoutAt::Arg(1).millis(args)?;
    pop_first(txn, args, &pop, reply)
}

/// Takes from the first of the keys that has a sorted set. Entries are pairs in both protocols.
fn pop_first(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    pop: &ManyPop,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    let end = if pop.from_front { End::Min } else { End::Max };
    for key in pop.keys(args) {
        if let Some(mut zset) = txn.zset_mut(key)? {
            reply.array(2);
            reply.bulk(key);
            reply.array(pop.count.min(zset.len()));
            end.pop(&mut zset, pop.count, |member, score| {
                reply.array(2);
                reply.atom(member);
                reply.double(score);
            });
            return Ok(Attempt::Served);
        }
    }
    Ok(Attempt::Empty)
}

fn wait_pop(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    end: End,
) -> Result<Attempt, Refusal> {
    TimeoutAt::Last.millis(args)?;
    for key in args.iter_from(1).take(args.len().saturating_sub(2)) {
        if let Some(mut zset) = txn.zset_mut(key)? {
            reply.array(3);
            reply.bulk(key);
            end.pop(&mut zset, 1, |member, score| {
                reply.atom(member);
                reply.double(score);
            });
            return Ok(Attempt::Served);
        }
    }
    Ok(Attempt::Empty)
}

fn zrandmember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    if args.len() == 2 {
        let zset = view.zset(key)?;
        let member = zset.and_then(|zset| zset.random(&mut view.rng()));
        reply.atom_or_null(member.map(|(member, _)| member));
        return Ok(());
    }
    let count = sample::signed_count(args, 2)?;
    let show = match args.len() {
        3 => Show::Members,
        4 if args.is(3, "WITHSCORES") => Show::Scores,
        _ => return Err(Refusal::Syntax),
    };
    if show == Show::Scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Refusal::new("ERR value is out of range"));
    }
    let Some(zset) = view.zset(key)? else {
        reply.array(0);
        return Ok(());
    };
    let wanted = count.unsigned_abs() as usize;
    let mut rng = view.rng();
    if count < 0 {
        let drawn = std::iter::repeat_with(|| zset.random(&mut rng)).map_while(|entry| entry);
        show.head(wanted, reply);
        for (member, score) in drawn.take(wanted) {
            if reply.has_overflowed() {
                break; // nobody will read it
            }
            show.entry(member, score, reply);
        }
    } else if wanted >= zset.len() {
        show.entries(zset.len(), zset.iter_from(0), reply);
    } else {
        show.head(wanted, reply);
        sample::distinct(
            wanted,
            zset.len(),
            &mut rng,
            zset.iter_from(0),
            |rng| zset.random(rng),
            |(member, _)| member.to_vec(),
            |(member, score)| show.entry(member, score, reply),
        );
    }
    Ok(())
}

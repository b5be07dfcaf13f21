//! Union, intersection and difference of sorted sets; plain sets may be among the inputs, each
//! member with score 1.
//!
//! Scores are combined as Redis does it, in the order of the inputs' sizes: floating-point sums
//! depend on it. What is no number becomes 0.

use base::{IntText, Refusal};
use keyspace::{Set, Txn, ValueRef, View, Zset};
use resp::{Args, Reply};

use super::member::plain_zero;
use super::range::store;
use super::{GROW, READ, Show, ZSET};
use crate::{Arity, CommandSpec, Flags, KeyUse, KeyUses, Keys, Run};

const UNION: &str =
    "O(N)+O(M*log(M)) where N is the sum of the sizes of the inputs and M the size of the result.";
const INTERSECTION: &str = "O(N*K)+O(M*log(M)) where N is the size of the smallest input, K the number of inputs and M the size of the result.";
const DIFFERENCE: &str = "O(N*K)+O(M*log(M)) where N is the size of the first input, K the number of inputs and M the size of the result.";
const RETURNED: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    keys: Keys::Counted { count_at: 1 },
    flags: READ.union(Flags::MOVABLEKEYS),
    since: "6.2.0",
    ..ZSET
};
const STORED: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    keys: Keys::DestinationAndCounted { count_at: 2 },
    flags: GROW.union(Flags::MOVABLEKEYS),
    since: "2.0.0",
    ..ZSET
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "zunion",
        syntax: "numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>] [WITHSCORES]",
        run: Run::Read(|view, args, reply| show(view, args, reply, Operation::Union)),
        complexity: UNION,
        summary: "Returns the union of sorted sets.",
        ..RETURNED
    },
    CommandSpec {
        name: "zinter",
        syntax: "numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>] [WITHSCORES]",
        run: Run::Read(|view, args, reply| show(view, args, reply, Operation::Intersection)),
        complexity: INTERSECTION,
        summary: "Returns the intersection of sorted sets.",
        ..RETURNED
    },
    CommandSpec {
        name: "zdiff",
        syntax: "numkeys key... [WITHSCORES]",
        run: Run::Read(|view, args, reply| show(view, args, reply, Operation::Difference)),
        complexity: DIFFERENCE,
        summary: "Returns the first sorted set without the members of the others.",
        ..RETURNED
    },
    CommandSpec {
        name: "zintercard",
        syntax: "numkeys key... [LIMIT limit]",
        run: Run::Read(zintercard),
        since: "7.0.0",
        complexity: INTERSECTION,
        summary: "Returns the size of the intersection of sorted sets.",
        ..RETURNED
    },
    CommandSpec {
        name: "zunionstore",
        syntax: "destination numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>]",
        run: Run::Write(|txn, args, reply| keep(txn, args, reply, Operation::Union)),
        complexity: UNION,
        summary: "Stores the union of sorted sets.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..STORED
    },
    CommandSpec {
        name: "zinterstore",
        syntax: "destination numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN|MAX>]",
        run: Run::Write(|txn, args, reply| keep(txn, args, reply, Operation::Intersection)),
        complexity: INTERSECTION,
        summary: "Stores the intersection of sorted sets.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..STORED
    },
    CommandSpec {
        name: "zdiffstore",
        syntax: "destination numkeys key...",
        run: Run::Write(|txn, args, reply| keep(txn, args, reply, Operation::Difference)),
        since: "6.2.0",
        complexity: DIFFERENCE,
        summary: "Stores the first sorted set without the members of the others.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Overwrites, KeyUse::Reads),
        ..STORED
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// What a command does with its result; it decides the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Return,
    Store,
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn combine(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(a + b),
            Aggregate::Min if b < a => b,
            Aggregate::Max if b > a => b,
            _ => a,
        }
    }
}

/// An infinite score times weight 0, or infinities of both signs added, make no number.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

#[derive(Clone, Copy)]
enum Members<'v> {
    None,
    Set(&'v Set),
    Zset(&'v Zset),
}

/// One input and the factor of its scores.
#[derive(Clone, Copy)]
struct Input<'v> {
    members: Members<'v>,
    weight: f64,
}

impl Input<'_> {
    fn len(&self) -> usize {
        match self.members {
            Members::None => 0,
            Members::Set(set) => set.len(),
            Members::Zset(zset) => zset.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        let score = match self.members {
            Members::None => None,
            Members::Set(set) => set.contains(member).then_some(1.0),
            Members::Zset(zset) => zset.score(member),
        };
        score.map(|score| score * self.weight)
    }

    /// Calls `each` with every member and its weighted score, until it answers false.
    fn walk(&self, mut each: impl FnMut(&[u8], f64) -> bool) {
        let mut text = IntText::default();
        match self.members {
            Members::None => {}
            Members::Set(set) => {
                let _ = set
                    .iter()
                    .all(|member| each(member.bytes(&mut text), number_or_zero(self.weight)));
            }
            Members::Zset(zset) => {
                let _ = zset.iter_from(0).all(|(member, score)| {
                    each(member.bytes(&mut text), number_or_zero(score * self.weight))
                });
            }
        }
    }
}

/// A whole command, read from its arguments, its inputs found.
struct Query<'v> {
    inputs: Vec<Input<'v>>,
    aggregate: Aggregate,
    show: Show,
    /// ZINTERCARD's LIMIT; 0: none.
    limit: usize,
}

impl<'v> Query<'v> {
    /// Reads from argument `numkeys_at` on. A wrong type is told before a wrong option, as Redis
    /// does.
    fn parse(
        view: &'v View<'_>,
        args: &Args<'_>,
        numkeys_at: usize,
        operation: Operation,
        purpose: Purpose,
    ) -> Result<Query<'v>, Refusal> {
        let keys = args.int(numkeys_at)?;
        if keys < 1 {
            return Err(Refusal::text_of(format!(
                "ERR at least 1 input key is needed for '{}' command",
                String::from_utf8_lossy(args.at(0)).to_ascii_lowercase()
            )));
        }
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let first = numkeys_at + 1;
        if keys > args.len() - first {
            return Err(Refusal::Syntax);
        }
        let inputs = args.iter_from(first).take(keys).map(|key| {
            let members = match view.value(key) {
                None => Members::None,
                Some(ValueRef::Set(set)) => Members::Set(set),
                Some(ValueRef::Zset(zset)) => Members::Zset(zset),
                Some(_) => return Err(Refusal::WrongType),
            };
            Ok(Input {
                members,
                weight: 1.0,
            })
        });
        let mut query = Query {
            inputs: inputs.collect::<Result<_, _>>()?,
            aggregate: Aggregate::Sum,
            show: Show::Members,
            limit: 0,
        };
        query.options(args, first + keys, operation, purpose)?;
        Ok(query)
    }

    fn options(
        &mut self,
        args: &Args<'_>,
        mut at: usize,
        operation: Operation,
        purpose: Purpose,
    ) -> Result<(), Refusal> {
        let scored = operation != Operation::Difference && purpose != Purpose::Count;
        while at < args.len() {
            let behind = args.len() - at - 1;
            if scored && behind >= self.inputs.len() && args.is(at, "WEIGHTS") {
                for input in &mut self.inputs {
                    at += 1;
                    input.weight = args
                        .float(at)
                        .map_err(|_| Refusal::new("ERR weight value is not a float"))?;
                }
            } else if scored && behind >= 1 && args.is(at, "AGGREGATE") {
                at += 1;
                self.aggregate = if args.is(at, "SUM") {
                    Aggregate::Sum
                } else if args.is(at, "MIN") {
                    Aggregate::Min
                } else if args.is(at, "MAX") {
                    Aggregate::Max
                } else {
                    return Err(Refusal::Syntax);
                };
            } else if purpose == Purpose::Return && args.is(at, "WITHSCORES") {
                self.show = Show::Scores;
            } else if purpose == Purpose::Count && behind >= 1 && args.is(at, "LIMIT") {
                at += 1;
                self.limit = match args.int(at) {
                    Ok(limit) if limit >= 0 => limit as usize,
                    _ => return Err(Refusal::new("ERR LIMIT can't be negative")),
                };
            } else {
                return Err(Refusal::Syntax);
            }
            at += 1;
        }
        Ok(())
    }

    /// The result; its scores are kept as `kept` makes them.
    fn result(mut self, view: &View<'_>, operation: Operation, kept: fn(f64) -> f64) -> Zset {
        let mut result = Zset::new();
        let tuning = view.tuning();
        match operation {
            Operation::Union => {
                self.inputs.sort_by_key(Input::len);
                for input in &self.inputs {
                    input.walk(|member, score| {
                        let score = match result.score(member) {
                            Some(present) => self.aggregate.combine(present, score),
                            None => score,
                        };
                        result.insert(member, kept(score), tuning);
                        true
                    });
                }
            }
            Operation::Intersection => self.intersect(|member, score| {
                result.insert(member, kept(score), tuning);
                true
            }),
            Operation::Difference => {
                if let Some((first, others)) = self.inputs.split_first() {
                    first.walk(|member, score| {
                        if others.iter().all(|other| other.score(member).is_none()) {
                            result.insert(member, kept(score), tuning);
                        }
                        true
                    });
                }
            }
        }
        result
    }

    /// Calls `each` with the members all inputs have, until it answers false.
    fn intersect(&mut self, mut each: impl FnMut(&[u8], f64) -> bool) {
        self.inputs.sort_by_key(Input::len);
        let Some((smallest, others)) = self.inputs.split_first() else {
            return;
        };
        smallest.walk(|member, score| {
            let score = others.iter().try_fold(score, |score, other| {
                Some(self.aggregate.combine(score, other.score(member)?))
            });
            match score {
                Some(score) => each(member, score),
                None => true,
            }
        });
    }
}

fn show(
    view: &View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    operation: Operation,
) -> Result<(), Refusal> {
    let query = Query::parse(view, args, 1, operation, Purpose::Return)?;
    let show = query.show;
    let result = query.result(view, operation, |score| score);
    show.entries(result.len(), result.iter_from(0), reply);
    Ok(())
}

fn keep(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
    operation: Operation,
) -> Result<(), Refusal> {
    let query = Query::parse(txn, args, 2, operation, Purpose::Store)?;
    let result = query.result(txn, operation, plain_zero);
    store(txn, args.at(1), result, reply);
    Ok(())
}

fn zintercard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut query = Query::parse(view, args, 1, Operation::Intersection, Purpose::Count)?;
    let (mut n, limit) = (0, query.limit);
    query.intersect(|_, _| {
        n += 1;
        limit == 0 || n < limit
    });
    reply.int(n as i64);
    Ok(())
}

//! `SORT` and `SORT_RO`: the elements of a list, set or sorted set in order of their own value or
//! of values found by pattern, shown as they are or as values found by pattern.
//!
//! A pattern is a key with one `*` for the element, and may name a hash field (`user_*->name`).
//! A BY pattern without `*` means "do not sort".

use std::cmp::Ordering;

use base::{Atom, Refusal, number};
use keyspace::{List, Txn, Value, ValueRef, View};
use resp::{Args, Reply};

use crate::{Arity, Categories, CommandSpec, Flags, Group, KeyUse, KeyUses, Keys, Run, Traits};

const BASE: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    keys: Keys::Sort { stores: true },
    group: Group::Generic,
    complexity: "O(N+M*log(M)) for N elements, M of them returned",
    ..CommandSpec::BASE
};

pub const SPECS: &[CommandSpec] = &[
    CommandSpec {
        name: "sort",
        syntax: "key [BY pattern] [LIMIT <offset count>] [GET pattern*] [ASC|DESC] [ALPHA] [STORE destination]",
        run: Run::Write(sort),
        traits: Traits::BY_EFFECT,
        flags: Flags::DENYOOM
            .union(Flags::MOVABLEKEYS)
            .union(Flags::DANGEROUS),
        summary: "Sorts the elements of a list, set or sorted set; returns or stores them.",
        key_uses: KeyUses::FirstAndRest(KeyUse::Reads, KeyUse::Overwrites),
        categories: Some(
            Categories::SET
                .union(Categories::SORTED_SET)
                .union(Categories::LIST),
        ),
        ..BASE
    },
    CommandSpec {
        name: "sort_ro",
        syntax: "key [BY pattern] [LIMIT <offset count>] [GET pattern*] [ASC|DESC] [ALPHA]",
        keys: Keys::Sort { stores: false },
        run: Run::Read(sort_ro),
        flags: Flags::READONLY
            .union(Flags::MOVABLEKEYS)
            .union(Flags::DANGEROUS),
        since: "7.0.0",
        summary: "Sorts the elements of a list, set or sorted set and returns them.",
        categories: Some(
            Categories::SET
                .union(Categories::SORTED_SET)
                .union(Categories::LIST),
        ),
        ..BASE
    },
];

struct Options<'a> {
    descending: bool,
    alpha: bool,
    start: i64,
    count: i64,
    by: Option<&'a [u8]>,
    /// A BY without `*` was given; a later BY does not take it back, as in Redis.
    unsorted: bool,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &Args<'a>, may_store: bool) -> Result<Options<'a>, Refusal> {
        let mut options = Options {
            descending: false,
            alpha: false,
            start: 0,
            count: -1,
            by: None,
            unsorted: false,
            get: Vec::new(),
            store: None,
        };
        let mut at = 2;
        while at < args.len() {
            let behind = args.len() - at - 1;
            if args.is(at, "ASC") {
                options.descending = false;
            } else if args.is(at, "DESC") {
                options.descending = true;
            } else if args.is(at, "ALPHA") {
                options.alpha = true;
            } else if args.is(at, "LIMIT") && behind >= 2 {
                options.start = args.int(at + 1)?;
                options.count = args.int(at + 2)?;
                at += 2;
            } else if may_store && args.is(at, "STORE") && behind >= 1 {
                options.store = args.get(at + 1);
                at += 1;
            } else if args.is(at, "BY") && behind >= 1 {
                options.by = args.get(at + 1);
                options.unsorted |= !args.at(at + 1).contains(&b'*');
                at += 1;
            } else if args.is(at, "GET") && behind >= 1 {
                options.get.push(args.at(at + 1));
                at += 1;
            } else {
                return Err(Refusal::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// The part of `len` elements that LIMIT asks for.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let start = self.start.clamp(0, len as i64) as usize;
        match self.count {
            ..0 => start..len,
            count => start..start.saturating_add(count as usize).min(len),
        }
    }
}

fn sort_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let options = Options::parse(args, false)?;
    write(view, &sorted(view, args.at(1), &options)?, &options, reply);
    Ok(())
}

fn sort(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let options = Options::parse(args, true)?;
    let elements = sorted(txn, args.at(1), &options)?;
    let Some(store) = options.store else {
        write(txn, &elements, &options, reply);
        return Ok(());
    };
    let mut list = List::new();
    for element in &elements {
        if options.get.is_empty() {
            list.push_back(element, txn.tuning());
        }
        for pattern in &options.get {
            let found = look_up(txn, pattern, element).unwrap_or_default();
            list.push_back(&found, txn.tuning());
        }
    }
    let len = list.len();
    if len == 0 {
        txn.remove(store);
    } else {
        txn.put_value(store, Value::List(Box::new(list)));
    }
    reply.int(len as i64);
    Ok(())
}

fn write(view: &View<'_>, elements: &[Vec<u8>], options: &Options<'_>, reply: &mut Reply) {
    reply.array(elements.len() * options.get.len().max(1));
    for element in elements {
        if options.get.is_empty() {
            reply.bulk(element);
        }
        for pattern in &options.get {
            reply.bulk_or_null(look_up(view, pattern, element).as_deref());
        }
    }
}

/// The elements in the order asked for, cut to LIMIT.
fn sorted(view: &View<'_>, key: &[u8], options: &Options<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let value = view.value(key);
    let mut by = options.by;
    let mut alpha = options.alpha;
    let mut unsorted = options.unsorted;
    if unsorted && options.store.is_some() && matches!(value, Some(ValueRef::Set(_))) {
        // A set has no order of its own: what is stored must not depend on how it is kept.
        (unsorted, alpha, by) = (false, true, None);
    }
    let bytes = |element: Atom<'_>| element.to_vec();
    if unsorted {
        return Ok(in_own_order(value, options)?.collect());
    }
    let mut elements: Vec<Vec<u8>> = match value {
        None => Vec::new(),
        Some(ValueRef::List(list)) => list.iter_from(0).map(bytes).collect(),
        Some(ValueRef::Set(set)) => set.iter().map(bytes).collect(),
        Some(ValueRef::Zset(zset)) => zset.iter_from(0).map(|(m, _)| bytes(m)).collect(),
        Some(_) => return Err(Refusal::WrongType),
    };
    let range = options.range(elements.len());
    if alpha {
        by_text(view, &mut elements, by, options.descending);
    } else {
        by_number(view, &mut elements, by, options.descending)?;
    }
    elements.truncate(range.end);
    elements.drain(..range.start);
    Ok(elements)
}

/// Elements as the structure has them; DESC turns lists and sorted sets round.
fn in_own_order<'a>(
    value: Option<ValueRef<'a>>,
    options: &Options<'_>,
) -> Result<Box<dyn Iterator<Item = Vec<u8>> + 'a>, Refusal> {
    let descending = options.descending;
    // Positions are counted in the direction of the walk.
    let window = |len: usize| {
        let range = options.range(len);
        let first = if descending {
            (len - range.start).saturating_sub(1)
        } else {
            range.start
        };
        (first, range.len())
    };
    Ok(match value {
        None => Box::new(std::iter::empty()),
        Some(ValueRef::List(list)) => {
            let (first, count) = window(list.len());
            let walk = if descending {
                list.iter_rev_from(first)
            } else {
                list.iter_from(first)
            };
            Box::new(walk.take(count).map(|element| element.to_vec()))
        }
        Some(ValueRef::Zset(zset)) => {
            let (first, count) = window(zset.len());
            let walk = if descending {
                zset.iter_rev_from(first)
            } else {
                zset.iter_from(first)
            };
            Box::new(walk.take(count).map(|(member, _)| member.to_vec()))
        }
        Some(ValueRef::Set(set)) => {
            let range = options.range(set.len());
            let walk = set.iter().skip(range.start).take(range.len());
            Box::new(walk.map(|member| member.to_vec()))
        }
        Some(_) => return Err(Refusal::WrongType),
    })
}

fn turned(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

/// By bytes: of the elements, or of what BY finds for them; what it does not find comes first.
fn by_text(view: &View<'_>, elements: &mut Vec<Vec<u8>>, by: Option<&[u8]>, descending: bool) {
    let Some(pattern) = by else {
        elements.sort_by(|a, b| turned(a.cmp(b), descending));
        return;
    };
    let mut weighed: Vec<(Option<Vec<u8>>, Vec<u8>)> = elements
        .drain(..)
        .map(|element| (look_up(view, pattern, &element), element))
        .collect();
    weighed.sort_by(|(a, _), (b, _)| turned(a.cmp(b), descending));
    elements.extend(weighed.into_iter().map(|(_, element)| element));
}

/// By number, equal ones by bytes; what BY does not find weighs 0.
fn by_number(
    view: &View<'_>,
    elements: &mut Vec<Vec<u8>>,
    by: Option<&[u8]>,
    descending: bool,
) -> Result<(), Refusal> {
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements.drain(..) {
        let weight = match by {
            None => parse_weight(&element),
            Some(pattern) => {
                look_up(view, pattern, &element).map_or(Some(0.0), |found| parse_weight(&found))
            }
        };
        let weight = weight.ok_or(Refusal::new(
            "ERR One or more scores can't be converted into double",
        ))?;
        weighed.push((weight, element));
    }
    weighed.sort_by(|(a, x): &(f64, Vec<u8>), (b, y)| {
        // Adding 0 makes the two zeros one; there is no NaN here.
        let order = (a + 0.0).total_cmp(&(b + 0.0)).then_with(|| x.cmp(y));
        turned(order, descending)
    });
    elements.extend(weighed.into_iter().map(|(_, element)| element));
    Ok(())
}

/// As C's `strtod`: blanks before the number are passed over, a zero byte ends it, no text at all is 0.
fn parse_weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
    if text.is_empty() {
        return Some(0.0);
    }
    number::parse_f64(text.trim_ascii_start())
}

/// The value `pattern` names for `element`: `#` is the element itself, `*` stands for it.
fn look_up(view: &View<'_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = pattern.iter().position(|&byte| byte == b'*')?;
    let (before, after) = (pattern.get(..star)?, pattern.get(star + 1..)?);
    let arrow = after.windows(2).position(|pair| pair == b"->");
    let (after, field) = match arrow {
        Some(at) if at + 2 < after.len() => (after.get(..at)?, after.get(at + 2..)),
        _ => (after, None),
    };
    let key = [before, element, after].concat();
    match field {
        Some(field) => view
            .hash(&key)
            .ok()??
            .get(field)
            .map(|value| value.to_vec()),
        None => view.string(&key).ok()?.map(|value| value.to_vec()),
    }
}

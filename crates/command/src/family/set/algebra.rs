//! Union, intersection and difference of sets, returned or stored.
//!
//! All types are checked before anything else happens. Intersections walk the smallest set and ask
//! the others; a result that is only returned goes straight into the reply.

use base::{Atom, IntText, Refusal};
use keyspace::{Set, Txn, Value, View};
use resp::{Args, Reply};

/// The sets at the given keys; `None` where there is no key.
fn sets<'v>(
    view: &'v View<'_>,
    keys: impl Iterator<Item = &'v [u8]>,
) -> Result<Vec<Option<&'v Set>>, Refusal> {
    keys.map(|key| view.set(key)).collect()
}

/// Calls `each` with every member that all sets have, until it answers false.
fn intersect(sets: &[Option<&Set>], mut each: impl FnMut(Atom<'_>) -> bool) {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<&Set>>>() else {
        return; // a missing key is an empty set
    };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else {
        return;
    };
    let mut text = IntText::default();
    for member in smallest.iter() {
        let bytes = member.bytes(&mut text);
        if others.iter().all(|set| set.contains(bytes)) && !each(member) {
            return;
        }
    }
}

/// Calls `each` with every member of the first set that no other has.
fn subtract(sets: &[Option<&Set>], mut each: impl FnMut(Atom<'_>)) {
    let Some((Some(first), others)) = sets.split_first() else {
        return;
    };
    let mut text = IntText::default();
    for member in first.iter() {
        let bytes = member.bytes(&mut text);
        if !others.iter().flatten().any(|set| set.contains(bytes)) {
            each(member);
        }
    }
}

/// All members of all sets, as a set of its own: duplicates have to be found somehow.
fn unite(view: &View<'_>, sets: &[Option<&Set>]) -> Set {
    let mut union = Set::new();
    let mut text = IntText::default();
    for member in sets.iter().flatten().flat_map(|set| set.iter()) {
        union.insert(member.bytes(&mut text), view.tuning());
    }
    union
}

pub fn sinter(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let sets = sets(view, args.iter_from(1))?;
    let later = reply.set_later();
    let mut n = 0;
    intersect(&sets, |member| {
        reply.atom(member);
        n += 1;
        true
    });
    reply.fill(later, n);
    Ok(())
}

pub fn sdiff(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let sets = sets(view, args.iter_from(1))?;
    let later = reply.set_later();
    let mut n = 0;
    subtract(&sets, |member| {
        reply.atom(member);
        n += 1;
    });
    reply.fill(later, n);
    Ok(())
}

pub fn sunion(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let union = unite(view, &sets(view, args.iter_from(1))?);
    reply.set(union.len());
    union.iter().for_each(|member| reply.atom(member));
    Ok(())
}

pub fn sinterstore(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut result = Set::new();
    let mut text = IntText::default();
    intersect(&sets(txn, args.iter_from(2))?, |member| {
        result.insert(member.bytes(&mut text), txn.tuning());
        true
    });
    store(txn, args.at(1), result, reply);
    Ok(())
}

pub fn sdiffstore(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut result = Set::new();
    let mut text = IntText::default();
    subtract(&sets(txn, args.iter_from(2))?, |member| {
        result.insert(member.bytes(&mut text), txn.tuning());
    });
    store(txn, args.at(1), result, reply);
    Ok(())
}

pub fn sunionstore(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let union = unite(txn, &sets(txn, args.iter_from(2))?);
    store(txn, args.at(1), union, reply);
    Ok(())
}

/// Puts a result at its destination; an empty one only removes what was there.
fn store(txn: &mut Txn<'_>, destination: &[u8], result: Set, reply: &mut Reply) {
    reply.int(result.len() as i64);
    if result.is_empty() {
        txn.remove(destination);
    } else {
        txn.put_value(destination, Value::Set(Box::new(result)));
    }
}

pub fn sintercard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let keys = match args.int(1) {
        Ok(keys) if keys > 0 => keys as usize,
        _ => return Err(Refusal::new("ERR numkeys should be greater than 0")),
    };
    if keys > args.len() - 2 {
        return Err(Refusal::new(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    let mut limit = 0;
    let mut at = 2 + keys;
    while at < args.len() {
        if !args.is(at, "LIMIT") || at + 1 == args.len() {
            return Err(Refusal::Syntax);
        }
        limit = match args.int(at + 1) {
            Ok(limit) if limit >= 0 => limit as usize,
            _ => return Err(Refusal::new("ERR LIMIT can't be negative")),
        };
        at += 2;
    }
    let mut n = 0;
    intersect(&sets(view, args.iter_from(2).take(keys))?, |_| {
        n += 1;
        limit == 0 || n < limit
    });
    reply.int(n as i64);
    Ok(())
}

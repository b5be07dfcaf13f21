//! One set and its members.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

pub fn sadd(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut set = txn.set_or_new(args.at(1))?;
    let added = args
        .iter_from(2)
        .filter(|member| set.insert(member))
        .count();
    reply.int(added as i64);
    Ok(())
}

pub fn srem(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let mut removed = 0;
    if let Some(mut set) = txn.set_mut(args.at(1))? {
        removed = args
            .iter_from(2)
            .filter(|member| set.remove(member))
            .count();
    }
    reply.int(removed as i64);
    Ok(())
}

pub fn sismember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int_bool(
        view.set(args.at(1))?
            .is_some_and(|set| set.contains(args.at(2))),
    );
    Ok(())
}

pub fn smismember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let set = view.set(args.at(1))?;
    reply.array(args.len() - 2);
    for member in args.iter_from(2) {
        reply.int_bool(set.is_some_and(|set| set.contains(member)));
    }
    Ok(())
}

pub fn smembers(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(set) = view.set(args.at(1))? else {
        reply.set(0);
        return Ok(());
    };
    reply.set(set.len());
    set.iter().for_each(|member| reply.atom(member));
    Ok(())
}

pub fn scard(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(view.set(args.at(1))?.map_or(0, |set| set.len() as i64));
    Ok(())
}

pub fn smove(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let (source, destination, member) = (args.at(1), args.at(2), args.at(3));
    let Some(set) = txn.set(source)? else {
        reply.int_bool(false);
        return Ok(());
    };
    let present = set.contains(member);
    txn.set(destination)?;
    if present && source != destination {
        if let Some(mut set) = txn.set_mut(source)? {
            set.remove(member);
        }
        txn.set_or_new(destination)?.insert(member);
    }
    reply.int_bool(present);
    Ok(())
}

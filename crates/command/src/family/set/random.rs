//! Members at random, taken out or only looked at.

use base::Refusal;
use keyspace::{Txn, View};
use resp::{Args, Reply};

use crate::family::sample;

pub fn spop(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let mut rng = txn.rng();
    match args.len() {
        2 => {
            let member = match txn.set_mut(key)? {
                Some(mut set) => set.pop_random(&mut rng),
                None => None,
            };
            reply.bulk_or_null(member.as_deref());
            Ok(())
        }
        3 => spop_count(txn, args, reply),
        _ => Err(Refusal::Syntax),
    }
}

fn spop_count(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    let count = match args.int(2) {
        Ok(count) if count >= 0 => count as usize,
        _ => return Err(Refusal::new("ERR value is out of range, must be positive")),
    };
    let mut rng = txn.rng();
    let Some(set) = txn.set(key)? else {
        reply.set(0);
        return Ok(());
    };
    if count >= set.len() {
        reply.set(set.len());
        set.iter().for_each(|member| reply.atom(member));
        txn.remove(key);
        return Ok(());
    }
    // One member at a time would walk a sparse table again and again; draw first, then remove.
    let mut taken: Vec<Vec<u8>> = Vec::with_capacity(count);
    sample::distinct(
        count,
        set.len(),
        &mut rng,
        set.iter(),
        |rng| set.random(rng),
        |member| member.to_vec(),
        |member| taken.push(member.to_vec()),
    );
    reply.set(taken.len());
    if let Some(mut set) = txn.set_mut(key)? {
        for member in &taken {
            set.remove(member);
            reply.bulk(member);
        }
    }
    Ok(())
}

pub fn srandmember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    let key = args.at(1);
    match args.len() {
        2 => {
            reply.atom_or_null(view.set(key)?.and_then(|set| set.random(&mut view.rng())));
            return Ok(());
        }
        3 => {}
        _ => return Err(Refusal::Syntax),
    }
    let count = sample::signed_count(args, 2)?;
    let Some(set) = view.set(key)? else {
        reply.array(0);
        return Ok(());
    };
    let wanted = count.unsigned_abs() as usize;
    let mut rng = view.rng();
    if count < 0 {
        reply.array(wanted);
        for member in (0..wanted).filter_map(|_| set.random(&mut rng)) {
            if reply.has_overflowed() {
                break; // nobody will read it
            }
            reply.atom(member);
        }
    } else if wanted >= set.len() {
        reply.array(set.len());
        set.iter().for_each(|member| reply.atom(member));
    } else {
        reply.array(wanted);
        sample::distinct(
            wanted,
            set.len(),
            &mut rng,
            set.iter(),
            |rng| set.random(rng),
            |member| member.to_vec(),
            |member| reply.atom(member),
        );
    }
    Ok(())
}

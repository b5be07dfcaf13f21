//! Whether what an entry needs is in memory: keys, and the rows of big collections.
//!
//! A change cannot be taken back, so an entry runs only when what it reads is in memory. Which rows of
//! a big collection a command will read is found out by running it on a view that changes nothing
//! ([`View::dry_run`]), until it meets no cold row, or a few times.

use base::DbIndex;
use command::CommandSpec;
use keyspace::rows::ColdRows;
use keyspace::{Keyspace, Tuning, View};
use resp::{Args, Protocol, Reply};

use crate::audience::read_seed;
use crate::parsed::{Parsed, ParsedEntry};
use crate::{PlacedKey, Proposal, Specs, seed_of};

/// Keys of an entry that are not in memory, and those of reads that run with it.
pub(crate) fn cold_keys(
    space: &Keyspace,
    specs: &Specs,
    payload: &[u8],
    entry: &ParsedEntry,
    proposal: Option<&Proposal>,
) -> Vec<PlacedKey> {
    let mut cold = Vec::new();
    if space.is_complete() {
        return cold;
    }
    let mut look = |db: DbIndex, key: &[u8]| {
        if space.needs_load(db, key) {
            cold.push((db, key.into()));
        }
    };
    match &entry.body {
        Parsed::Empty | Parsed::Rows(_) | Parsed::Digest(_) => {}
        Parsed::Expire(keys) => keys.iter().for_each(|(db, key, _)| look(*db, key)),
        Parsed::Commands(commands) => {
            commands.each(specs, payload, |spec, db, args| {
                spec.each_key(db, &args, &mut look);
            });
        }
    }
    each_read(specs, proposal, |_, _, spec, db, args| {
        spec.each_key(db, args, &mut look);
    });
    cold
}

/// Rows of big collections that an entry needs and that are not in memory, as far as that can be told
/// now.
pub(crate) fn cold_rows(
    space: &mut Keyspace,
    specs: &Specs,
    tuning: &Tuning,
    payload: &[u8],
    entry: &ParsedEntry,
    proposal: Option<&Proposal>,
) -> Vec<ColdRows> {
    if space.has_whole() {
        space.take_wholes();
    }
    let Parsed::Commands(commands) = &entry.body else {
        return Vec::new();
    };
    if !space.may_be_on_rows() {
        return Vec::new();
    }
    space.read_cached(true);
    let mut nth = 0;
    commands.each(specs, payload, |spec, db, args| {
        let seed = seed_of(entry.seed, nth);
        nth += 1;
        if is_on_rows(space, spec, db, &args) {
            let view = View::one(space, db, entry.stamp_ms, seed, tuning);
            dry_run(spec, view, &args);
        }
    });
    each_read(specs, proposal, |batch, at, spec, db, args| {
        if is_on_rows(space, spec, db, args) {
            let seed = read_seed(entry.seed, batch, at);
            let view = View::one(space, db, entry.stamp_ms, seed, tuning);
            dry_run(spec, view, args);
        }
    });
    space.read_cached(false);
    // Keys it looked for besides those it names are not its business.
    space.take_missing();
    space.take_cold()
}

/// Calls `each` with every read among a proposal's commands: batch, place in it, command.
pub(crate) fn each_read(
    specs: &Specs,
    proposal: Option<&Proposal>,
    mut each: impl FnMut(usize, usize, &CommandSpec, DbIndex, &Args<'_>),
) {
    let batches = proposal.into_iter().flat_map(|it| it.batches.iter());
    for (nth, batch) in batches.enumerate() {
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let spec = specs.spec(stat as usize);
            if !spec.is_write() && !batch.is_refused(at) {
                each(nth, at, spec, db, &batch.commands.args(at));
            }
        }
    }
}

/// Whether a command names a big collection.
fn is_on_rows(space: &mut Keyspace, spec: &CommandSpec, db: DbIndex, args: &Args<'_>) -> bool {
    let mut found = false;
    spec.each_key(db, args, &mut |db, key| {
        found = found || space.is_on_rows(db, key);
    });
    found
}

/// Runs a command on a view that changes nothing: the keyspace notes what it looks for in vain.
pub fn dry_run(spec: &CommandSpec, view: View<'_>, args: &Args<'_>) {
    let mut reply = Reply::new(Protocol::Resp2);
    // If it panics it will do so again, where somebody is told.
    let _ = base::contained(|| command::call(spec, view.dry_run(), args, &mut reply));
}

//! The one function that executes an entry of the log: a leader, a follower, a node that starts again
//! and the simulator all call it with the bytes of the entry.

use base::{DbIndex, milestone};
use keyspace::rows::{self, Changes, RowError, RowSource, Tier};
use keyspace::{Keyspace, Tuning, View};

use crate::audience::{Audience, Nobody};
use crate::parsed::{Parsed, ParsedCommands, ParsedEntry, parse};
use crate::{Specs, ready, unreadable};

/// A key and its database.
pub type PlacedKey = (DbIndex, Box<[u8]>);

/// Keys asked for at once before their commands run: enough to hide the wait for memory, few enough to
/// be in the cache still when used.
const PREFETCHED: usize = 16;

/// How often the rows that an entry of a starting node needs are looked for before it runs.
const DRY_RUNS: u8 = 8;

/// What an entry brought.
pub enum Executed {
    /// Its commands have run; their rows are the keyspace's to give.
    Commands { stamp_ms: u64 },
    /// Rows to be written; then memory follows ([`Keyspace::apply_rows`]).
    Rows { changes: Changes, stamp_ms: u64 },
    /// A question; nothing changed.
    Digest { id: u64, stamp_ms: u64 },
}

/// Randomness of the nth command of an entry, the same wherever it is executed.
pub fn seed_of(entry_seed: u64, nth: usize) -> u64 {
    let mut x = entry_seed ^ (nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// Executes an entry behind those whose rows were not taken yet. For an entry of rows there must be
/// none such. Everything it needs is in memory ([`ready`]).
pub(crate) fn execute<A: Audience>(
    space: &mut Keyspace,
    specs: &Specs,
    tuning: &Tuning,
    index: u64,
    payload: &[u8],
    entry: ParsedEntry,
    audience: &mut A,
) -> (Executed, ParsedCommands) {
    let stamp_ms = entry.stamp_ms;
    let commands = match entry.body {
        Parsed::Rows(changes) => {
            let executed = Executed::Rows { changes, stamp_ms };
            return (executed, ParsedCommands::default());
        }
        Parsed::Digest(id) => {
            space.continue_entry(index);
            return (Executed::Digest { id, stamp_ms }, ParsedCommands::default());
        }
        Parsed::Empty => {
            // A leader began its term.
            space.continue_entry(index);
            let stamp_ms = space.last_stamp_ms();
            return (Executed::Commands { stamp_ms }, ParsedCommands::default());
        }
        Parsed::Expire(keys) => {
            space.continue_entry(index);
            for (db, key, deadline_ms) in keys {
                // A deadline that has not come: the leader evicts the key.
                let is_due = deadline_ms <= stamp_ms;
                let removed = match is_due {
                    true => space.expire_key(db, &key, deadline_ms),
                    false => space.evict_key(db, &key, Some(deadline_ms), stamp_ms),
                };
                audience.removed(removed && is_due, removed && !is_due);
            }
            audience.finish(space);
            return (Executed::Commands { stamp_ms }, ParsedCommands::default());
        }
        Parsed::Commands(commands) => commands,
    };
    space.continue_entry(index);
    let has_unreadable = space.has_unreadable();
    let mut prefetched = 0;
    for nth in 0..commands.len() {
        let Some(command) = commands.get(nth) else {
            break;
        };
        if nth >= prefetched {
            prefetched = prefetch(space, payload, &commands, nth);
        }
        let spec = specs.spec(command.stat as usize);
        let args = commands.args(payload, command);
        milestone("the region executed the command");
        audience.before(space, nth);
        if has_unreadable && let Some(refusal) = unreadable::refusal(space, spec, command.db, &args)
        {
            audience.after(space, spec, &args, Err(refusal));
            continue;
        }
        let seed = seed_of(entry.seed, nth);
        let view = View::one(space, command.db, stamp_ms, seed, tuning);
        let view = audience.prepare(view, spec, &args);
        // If it panics the process ends (decision 42): an entry is executed as a whole or not at all.
        let ran = command::call(spec, view, &args, audience.reply());
        audience.after(space, spec, &args, ran);
    }
    audience.finish(space);
    if has_unreadable {
        space.forget_unreadable();
    }
    (Executed::Commands { stamp_ms }, commands)
}

/// Asks for the memory of the commands from here on; where it has not looked any more.
#[inline]
fn prefetch(space: &Keyspace, payload: &[u8], commands: &ParsedCommands, from: usize) -> usize {
    let mut keys: [&[u8]; PREFETCHED] = [&[]; PREFETCHED];
    let mut arguments: [[&[u8]; 2]; PREFETCHED] = [[&[]; 2]; PREFETCHED];
    let Some(first) = commands.get(from) else {
        return from + 1;
    };
    let mut count = 0;
    while let (Some(command), true) = (commands.get(from + count), count < PREFETCHED) {
        if command.db != first.db {
            break;
        }
        let args = commands.args(payload, command);
        let at = |nth| args.get(nth).unwrap_or_default();
        // Nearly always the first argument is the key; if not, nothing is lost.
        (keys[count], arguments[count]) = (at(1), [at(2), at(3)]);
        count += 1;
    }
    if count < 2 || !space.is_worth_prefetching(first.db) {
        return from + count.max(1);
    }
    space.prefetch_keys(first.db, keys.iter().take(count).copied());
    let mut at = 0;
    while at < count {
        let same = keys[at..count].iter().take_while(|key| **key == keys[at]);
        let run = same.count().max(1);
        if run > 1 {
            let hash = space.prefetch_place(first.db, keys[at]);
            let members = arguments[at..at + run].iter().copied();
            space.prefetch_members(first.db, keys[at], hash, members);
        }
        at += run;
    }
    from + count
}

/// Executes an entry from its bytes alone, as a node that starts again does; what it needs is loaded
/// first, waiting for the disk. `tell` is given the reply of each command.
pub fn run_payload(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    index: u64,
    payload: &[u8],
    specs: &Specs,
    tuning: &Tuning,
    tell: &mut dyn FnMut(&[u8]),
) -> Result<Executed, String> {
    let entry = parse(specs, index, payload, &mut ParsedCommands::default())?;
    for (db, key) in ready::cold_keys(space, specs, payload, &entry, None) {
        let request = space.load_request(db, &key);
        match rows::load(rows, &request, Tier::All) {
            Ok(loaded) => space.insert_loaded(request, loaded),
            Err(error) => return Err(format!("rows cannot be read: {error:?}")),
        }
    }
    // As when it ran first: a command on a big collection whose rows cannot be read is refused, not half done.
    for tries in 0..DRY_RUNS {
        let cold = ready::cold_rows(space, specs, tuning, payload, &entry, None);
        if cold.is_empty() {
            break;
        }
        for cold in cold {
            if let Err(RowError::Failed(why)) = rows::warm(rows, &cold, tries)
                && let Some((request, loaded)) = cold.unreadable(why)
            {
                space.insert_loaded(request, loaded);
            }
        }
    }
    if let Some(failure) = space.take_failure() {
        return Err(failure);
    }
    let mut audience = Nobody::telling(tell);
    let (executed, _) = execute(space, specs, tuning, index, payload, entry, &mut audience);
    Ok(executed)
}

/// As [`run_payload`], and takes the rows of the entry. True if it brought them itself, so that memory
/// has to follow once they are written.
pub fn execute_payload(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    index: u64,
    payload: &[u8],
    specs: &Specs,
    tuning: &Tuning,
    changes: &mut Changes,
) -> Result<bool, String> {
    changes.clear();
    match run_payload(space, rows, index, payload, specs, tuning, &mut |_| {})? {
        Executed::Commands { stamp_ms } | Executed::Digest { stamp_ms, .. } => {
            space.end_entry(stamp_ms, changes);
            Ok(false)
        }
        Executed::Rows {
            changes: entry_rows,
            ..
        } => {
            *changes = entry_rows;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keyspace::rows::{MapStore, RowStore};
    use replica::entry::{EntryWriter, ExpireWriter};

    use super::*;

    fn specs() -> Specs {
        Specs::new(command::family::ALL.iter().copied().flatten().copied())
    }

    #[test]
    fn an_entry_that_names_no_database_is_an_error() {
        let (specs, tuning) = (specs(), Tuning::default());
        for (db, is_there) in [(0, true), (15, true), (16, false), (255, false)] {
            let mut set = EntryWriter::new();
            set.push(db, [&b"SET"[..], b"k", b"v"].into_iter());
            let mut expire = ExpireWriter::new();
            expire.push(db, 1, b"k");
            for payload in [set.finish(1, 1), expire.finish(1, 1)] {
                let store: Arc<dyn RowStore> = Arc::new(MapStore::new());
                let mut space = Keyspace::durable(1, 1, None, store.clone()).unwrap();
                let tell = &mut |_: &[u8]| {};
                let ran = run_payload(&mut space, &*store, 1, &payload, &specs, &tuning, tell);
                assert_eq!(ran.is_ok(), is_there, "{db}");
            }
        }
    }
}

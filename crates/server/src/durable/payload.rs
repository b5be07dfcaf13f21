//! An entry's payload from its bytes alone: what it brings, which keys it needs, running it. What a
//! follower, a restarted node and the simulator apply.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::limits::DATABASES;
use base::{DbIndex, Refusal};
use command::Attempt;
use keyspace::rows::{self, Changes, RowSource, Tier};
use keyspace::{Keyspace, Tuning, View};
use replica::entry::{self, Body, EntryError};
use resp::{Args, Protocol, Reply, Span};

use super::member::seed_of;
use crate::commands::Commands;
use crate::cores::call_function;

/// A key and its database.
pub type PlacedKey = (DbIndex, Box<[u8]>);

/// What an entry brought.
pub enum Brought {
    /// They have run; their rows are the keyspace's to give.
    Commands { stamp_ms: u64 },
    /// To be written; then memory follows (`Keyspace::apply_rows`).
    Rows { changes: Changes, stamp_ms: u64 },
    /// A question; nothing changed.
    Digest { id: u64, stamp_ms: u64 },
}

/// Runs an entry from its bytes alone, as a replica or a restarted node does, behind those whose rows
/// were not taken yet. For an entry of rows there must be none such. `tell` hears the reply of each
/// command.
pub fn run_payload(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    index: u64,
    payload: &[u8],
    commands: &Commands,
    tuning: &Tuning,
    tell: &mut dyn FnMut(&[u8]),
) -> Result<Brought, String> {
    if payload.is_empty() {
        // A leader began its term.
        space.continue_entry(index);
        let stamp_ms = space.last_stamp_ms();
        return Ok(Brought::Commands { stamp_ms });
    }
    let entry = entry::decode(payload)
        .map_err(|error| format!("entry {index} of the log cannot be read: {error}"))?;
    let stamp_ms = entry.stamp_ms;
    let is_there = |db: DbIndex| match db < DATABASES {
        true => Ok(()),
        false => Err(format!("entry {index} of the log names a database {db}")),
    };
    match entry.body {
        Body::Rows(bytes) => {
            let changes = Changes::decode(bytes)
                .ok_or_else(|| format!("entry {index} of the log has rows that cannot be read"))?;
            return Ok(Brought::Rows { changes, stamp_ms });
        }
        Body::Digest(id) => {
            space.continue_entry(index);
            return Ok(Brought::Digest { id, stamp_ms });
        }
        Body::Expire(keys) => {
            space.continue_entry(index);
            for expired in keys {
                is_there(expired.db)?;
                fetch(space, rows, expired.db, expired.key)?;
                let (db, key, at_ms) = (expired.db, expired.key, expired.deadline_ms);
                // If its time has not come, its leader has given it up.
                space.evict_key(db, key, Some(at_ms), stamp_ms);
            }
        }
        Body::Commands(given) => {
            space.continue_entry(index);
            let mut spans: Vec<Span> = Vec::new();
            let mut reply = Reply::new(Protocol::Resp2);
            for (nth, command) in given.enumerate() {
                is_there(command.db)?;
                spans.clear();
                spans.extend(command.spans().map(|(start, len)| Span { start, len }));
                let args = Args::new(payload, &spans);
                let Ok((_, row)) = commands.table.resolve_logged(&args) else {
                    return Err(format!(
                        "entry {index} of the log has a command this version does not know"
                    ));
                };
                let mut cold = Ok(());
                row.each_key(command.db, &args, &mut |db, key| {
                    if cold.is_ok() {
                        cold = fetch(space, rows, db, key);
                    }
                });
                cold?;
                reply.truncate(0);
                let seed = seed_of(entry.seed, nth);
                let view = View::one(space, command.db, stamp_ms, seed, tuning);
                // Mostly nobody listens: what it answered was told when it first ran.
                let ran = catch_unwind(AssertUnwindSafe(|| -> Result<Attempt, Refusal> {
                    call_function(row, view, &args, &mut reply)
                }));
                if let Ok(Err(refusal)) = &ran {
                    reply.truncate(0);
                    reply.refusal(refusal);
                }
                tell(reply.as_bytes());
                space.make_rows();
            }
        }
    }
    Ok(Brought::Commands { stamp_ms })
}

/// Runs one entry and takes its rows. True if it brought them itself, so that memory has to follow
/// once they are written.
pub fn apply_payload(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    index: u64,
    payload: &[u8],
    commands: &Commands,
    tuning: &Tuning,
    changes: &mut Changes,
) -> Result<bool, String> {
    changes.clear();
    match run_payload(space, rows, index, payload, commands, tuning, &mut |_| {})? {
        Brought::Commands { stamp_ms } | Brought::Digest { stamp_ms, .. } => {
            space.end_entry(stamp_ms, changes);
            Ok(false)
        }
        Brought::Rows {
            changes: brought, ..
        } => {
            *changes = brought;
            Ok(true)
        }
    }
}

/// Keys of an entry that are not in memory.
pub fn cold_keys_of(
    space: &Keyspace,
    payload: &[u8],
    commands: &Commands,
) -> Result<Vec<PlacedKey>, EntryError> {
    let mut cold = Vec::new();
    if payload.is_empty() || space.is_complete() {
        return Ok(cold);
    }
    let mut look = |db: DbIndex, key: &[u8]| {
        if !space.is_resident(db, key) {
            cold.push((db, key.into()));
        }
    };
    match entry::decode(payload)?.body {
        Body::Rows(_) | Body::Digest(_) => {}
        Body::Expire(keys) => keys.for_each(|expired| look(expired.db, expired.key)),
        Body::Commands(given) => {
            let mut spans: Vec<Span> = Vec::new();
            for command in given {
                spans.clear();
                spans.extend(command.spans().map(|(start, len)| Span { start, len }));
                let args = Args::new(payload, &spans);
                // One that is not known is told of when it is to run.
                if let Ok((_, row)) = commands.table.resolve_logged(&args) {
                    row.each_key(command.db, &args, &mut look);
                }
            }
        }
    }
    Ok(cold)
}

/// Makes a key resident, waiting for the disk.
fn fetch(
    space: &mut Keyspace,
    rows: &dyn RowSource,
    db: DbIndex,
    key: &[u8],
) -> Result<(), String> {
    if space.is_resident(db, key) {
        return Ok(());
    }
    let request = space.load_request(db, key);
    match rows::load(rows, &request, Tier::All) {
        Ok(loaded) => space.insert_loaded(request, loaded),
        Err(error) => return Err(format!("rows cannot be read: {error:?}")),
    }
    space.take_failure().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use keyspace::rows::MapStore;
    use replica::entry::EntryWriter;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_entry_for_a_database_there_is_not_is_refused() {
        let store = Arc::new(MapStore::default());
        let commands = Commands::new();
        for (db, is_there) in [(15, true), (16, false), (255, false)] {
            let mut space = Keyspace::durable(1, 1, None, store.clone()).unwrap();
            let mut writer = EntryWriter::new();
            writer.push(db, [&b"SET"[..], b"k", b"v"].into_iter());
            let payload = writer.finish(1, 1);
            let tuning = Tuning::default();
            let tell = &mut |_: &[u8]| {};
            let ran = run_payload(&mut space, &*store, 1, &payload, &commands, &tuning, tell);
            assert_eq!(ran.is_ok(), is_there, "{db}");
        }
    }
}

//! Which keys a command needs in memory before it runs.

use base::DbIndex;
use command::Command;
use resp::Args;

/// Calls `each` with every key the arguments name, in the database where the command looks.
pub fn each_key(row: &Command, db: DbIndex, args: &Args<'_>, each: &mut dyn FnMut(DbIndex, &[u8])) {
    let _ = row.keys.positions(args, |at| each(db, args.at(at)));
    let other = match row.name {
        "move" => args.int(2).ok().map(|other| (other, 1)),
        "copy" => (3..args.len().saturating_sub(1))
            .filter(|&at| args.is(at, "DB"))
            .find_map(|at| args.int(at + 1).ok())
            .map(|other| (other, 2)),
        _ => None,
    };
    if let Some((other, at)) = other
        && let Ok(other) = DbIndex::try_from(other)
    {
        each(other, args.at(at));
    }
}

//! Where the keys of a command are. They decide which regions it runs on.

use base::DbIndex;
use resp::Args;

/// Positions of keys among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The command touches no key.
    None,
    /// Every `step`-th argument from `first` to `last`; a negative `last` counts from the end
    /// (−1 is the last argument).
    Range {
        first: usize,
        last: isize,
        step: usize,
    },
    /// The number of keys is argument `count_at`, the keys follow it.
    Counted { count_at: usize },
    /// A destination key at 1, then the number of keys at `count_at`, the keys behind it
    /// (ZUNIONSTORE).
    DestinationAndCounted { count_at: usize },
    /// `SORT`: argument 1, and the argument after `STORE` if it stores at all (`SORT_RO` does not).
    /// With BY or GET patterns it may read any key.
    Sort { stores: bool },
    /// Any key of the database, or all: it runs on every region (KEYS, FLUSHALL, RANDOMKEY).
    Everything,
    /// Argument 1 is a SCAN cursor; it names the region to go on with.
    Cursor,
}

/// The argument that says how many keys follow is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysError;

impl Keys {
    pub const fn one(at: usize) -> Keys {
        Keys::Range {
            first: at,
            last: at as isize,
            step: 1,
        }
    }

    /// All arguments from `first` on.
    pub const fn from(first: usize) -> Keys {
        Keys::Range {
            first,
            last: -1,
            step: 1,
        }
    }

    /// Whether the command may touch keys that its arguments do not name.
    pub fn touches_everything(self, args: &Args<'_>) -> bool {
        match self {
            Keys::Everything => true,
            // A pattern without `*` (BY nosort, GET #) names no key.
            Keys::Sort { .. } => (2..args.len().saturating_sub(1))
                .any(|i| (args.is(i, "BY") || args.is(i, "GET")) && args[i + 1].contains(&b'*')),
            _ => false,
        }
    }

    /// Calls `each` with the position of every key argument. A count that is not a number, or
    /// greater than the arguments, is an error; the command itself then says which.
    pub fn positions(self, args: &Args<'_>, mut each: impl FnMut(usize)) -> Result<(), KeysError> {
        let len = args.len();
        match self {
            Keys::None | Keys::Everything | Keys::Cursor => {}
            Keys::Range { first, last, step } => {
                let last = if last < 0 { len as isize + last } else { last };
                let mut at = first;
                while at as isize <= last && at < len {
                    each(at);
                    at += step;
                }
            }
            Keys::Counted { count_at } => counted(args, count_at, each)?,
            Keys::DestinationAndCounted { count_at } => {
                if len > 1 {
                    each(1);
                }
                counted(args, count_at, each)?;
            }
            Keys::Sort { stores } => {
                if len > 1 {
                    each(1);
                }
                if !stores {
                    return Ok(());
                }
                // The last STORE wins, as in Redis.
                let mut store = None;
                let mut at = 2;
                while at < len {
                    if args.is(at, "STORE") && at + 1 < len {
                        store = Some(at + 1);
                        at += 2;
                    } else if args.is(at, "LIMIT") {
                        at += 3;
                    } else if args.is(at, "BY") || args.is(at, "GET") {
                        at += 2;
                    } else {
                        at += 1;
                    }
                }
                if let Some(at) = store {
                    each(at);
                }
            }
        }
        Ok(())
    }
}

/// How a command reaches another database than that of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherDatabase {
    /// It does not.
    None,
    /// The key at `key` goes to the database that argument `database` names (MOVE).
    Argument { database: usize, key: usize },
    /// The key at `key` goes to the database behind the word `DB`, if that word is among the
    /// arguments from `first` on (COPY).
    Option { first: usize, key: usize },
    /// It is about databases as a whole (SWAPDB).
    Whole,
}

impl OtherDatabase {
    /// The other database and the position of the key there, if the arguments name one.
    #[inline]
    pub fn named(self, args: &Args<'_>) -> Option<(DbIndex, usize)> {
        let (database, key) = match self {
            OtherDatabase::None | OtherDatabase::Whole => return None,
            OtherDatabase::Argument { database, key } => (args.int(database).ok()?, key),
            OtherDatabase::Option { first, key } => {
                let database = (first..args.len().saturating_sub(1))
                    .filter(|&at| args.is(at, "DB"))
                    .find_map(|at| args.int(at + 1).ok())?;
                (database, key)
            }
        };
        Some((DbIndex::try_from(database).ok()?, key))
    }

    /// Whether the arguments name a database, one that there may not be, other than `own`.
    #[inline]
    pub fn is_named(self, args: &Args<'_>, own: i64) -> bool {
        match self {
            OtherDatabase::None => false,
            OtherDatabase::Argument { .. } | OtherDatabase::Whole => true,
            OtherDatabase::Option { first, .. } => (first..args.len())
                .any(|at| args.is(at, "DB") && args.int(at + 1).is_ok_and(|db| db != own)),
        }
    }
}

fn counted(args: &Args<'_>, count_at: usize, mut each: impl FnMut(usize)) -> Result<(), KeysError> {
    let count = args.int(count_at).map_err(|_| KeysError)?;
    let room = args.len().saturating_sub(count_at + 1);
    if count < 0 || count as usize > room {
        return Err(KeysError);
    }
    (count_at + 1..=count_at + count as usize).for_each(&mut each);
    Ok(())
}

//! One row of the command table.

use base::{Refusal, number};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use crate::{Flags, Group, Keys, OnRow};

/// A command, or a subcommand of one (`name` then is `"object|encoding"`).
#[derive(Clone, Copy)]
pub struct Command {
    /// Lower case, as `COMMAND` lists it.
    pub name: &'static str,
    /// The arguments behind the name, in the notation of [`crate::syntax`].
    pub syntax: &'static str,
    /// Counts the name; for a subcommand, both words.
    pub arity: Arity,
    /// Where the keys are: they decide the regions the command is given.
    pub keys: Keys,
    pub run: Run,
    /// What becomes of it when a key names a row of a table.
    pub on_row: OnRow,
    pub flags: Flags,
    pub group: Group,
    /// The Redis version that brought it.
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    pub subcommands: &'static [Command],
}

impl Command {
    /// For `..Command::BASE` in rows: everything that is usually absent.
    pub const BASE: Command = Command {
        name: "",
        syntax: "",
        arity: Arity::AtLeast(1),
        keys: Keys::None,
        run: Run::Container,
        on_row: OnRow::Refused,
        flags: Flags::empty(),
        group: Group::Generic,
        since: "1.0.0",
        complexity: "O(1)",
        summary: "",
        subcommands: &[],
    };

    pub fn is_write(&self) -> bool {
        self.flags.contains(Flags::WRITE)
    }

    pub fn is_internal(&self) -> bool {
        self.flags.contains(Flags::INTERNAL)
    }
}

/// How many arguments, the name included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

impl Arity {
    #[inline]
    pub fn allows(self, len: usize) -> bool {
        match self {
            Arity::Exactly(n) => len == n,
            Arity::AtLeast(n) => len >= n,
        }
    }

    /// As `COMMAND` gives it: negative for "at least".
    pub fn as_redis(self) -> i64 {
        match self {
            Arity::Exactly(n) => n as i64,
            Arity::AtLeast(n) => -(n as i64),
        }
    }
}

/// A read: it cannot change anything, the type says so.
pub type ReadFn = fn(&View<'_>, &Args<'_>, &mut Reply) -> Result<(), Refusal>;
/// A write. If it returns a refusal it must have changed nothing.
pub type WriteFn = fn(&mut Txn<'_>, &Args<'_>, &mut Reply) -> Result<(), Refusal>;
/// One attempt of a command that may wait.
pub type BlockFn = fn(&mut Txn<'_>, &Args<'_>, &mut Reply) -> Result<Attempt, Refusal>;

/// What runs, and on which path.
#[derive(Clone, Copy)]
pub enum Run {
    Read(ReadFn),
    Write(WriteFn),
    Block(Block),
    /// Its function is in the `server` crate: it is about the session or the server.
    Session,
    /// Only its subcommands run.
    Container,
}

/// A blocking command: `run` is tried at once, and again whenever a key it waits on changes.
#[derive(Clone, Copy)]
pub struct Block {
    pub run: BlockFn,
    pub timeout: TimeoutAt,
    pub wait_on: WaitOn,
    /// What the client reads inside MULTI when there is nothing. When the time is up it is the null
    /// array, whatever the command.
    pub nil: Nil,
}

/// Outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The reply is written.
    Served,
    /// Nothing there yet; nothing written, nothing changed.
    Empty,
}

/// Which argument is the timeout, in seconds with decimals; 0 waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutAt {
    Last,
    Arg(usize),
}

impl TimeoutAt {
    /// The timeout in milliseconds, rounded up; `None` waits for ever. Attempts call it to refuse a
    /// wrong one in its place among the other checks, the server to know how long to wait.
    pub fn millis(self, args: &Args<'_>) -> Result<Option<u64>, Refusal> {
        let at = match self {
            TimeoutAt::Last => args.len().saturating_sub(1),
            TimeoutAt::Arg(at) => at,
        };
        let seconds = number::parse_f64(args.at(at))
            .ok_or(Refusal::new("ERR timeout is not a float or out of range"))?;
        let millis = (seconds * 1000.0).ceil();
        // Beyond the range of an i64, Redis' conversion comes out negative.
        if millis < 0.0 || millis >= i64::MAX as f64 {
            return Err(Refusal::new("ERR timeout is negative"));
        }
        Ok((millis > 0.0).then_some(millis as u64))
    }
}

/// Which of the command's keys it waits on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOn {
    AllKeys,
    /// Only the first (BLMOVE waits on its source).
    FirstKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nil {
    Bulk,
    Array,
}

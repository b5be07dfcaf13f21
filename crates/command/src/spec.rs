//! The specification of a command.

use base::{DbIndex, Refusal, number};
use keyspace::{Txn, View};
use resp::{Args, Reply};

use crate::{Categories, Flags, Group, KeyUses, Keys, OnRow, OtherDatabase, RowGrowth, Traits};

/// A command, or a subcommand of one (`name` then is `"object|encoding"`).
#[derive(Clone, Copy)]
pub struct CommandSpec {
    /// Lower case, as `COMMAND` lists it.
    pub name: &'static str,
    /// The arguments behind the name, in the notation of [`crate::syntax`].
    pub syntax: &'static str,
    /// Counts the name; for a subcommand, both words.
    pub arity: Arity,
    /// Where the keys are: they decide the regions the command is given.
    pub keys: Keys,
    pub other_database: OtherDatabase,
    pub run: Run,
    /// What becomes of it when a key names a row of a table.
    pub on_row: OnRow,
    pub row_growth: RowGrowth,
    pub flags: Flags,
    pub traits: Traits,
    pub merge: Merge,
    pub secrets: Secrets,
    pub key_uses: KeyUses,
    pub group: Group,
    /// The ACL categories that say what it is about, if they are not those of its group.
    pub categories: Option<Categories>,
    /// What a client that routes commands itself should know, in Redis' words:
    /// `nondeterministic_output` and `nondeterministic_output_order`: the same data gives other
    /// replies, or other orders. `request_policy` and `response_policy`: which nodes of a cluster to
    /// ask, and how to make one reply of theirs.
    pub tips: &'static [&'static str],
    /// The Redis version that brought it.
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    pub subcommands: &'static [CommandSpec],
}

impl CommandSpec {
    /// For `..CommandSpec::BASE` in specifications: everything that is usually absent.
    pub const BASE: CommandSpec = CommandSpec {
        name: "",
        syntax: "",
        arity: Arity::AtLeast(1),
        keys: Keys::None,
        other_database: OtherDatabase::None,
        run: Run::Container,
        on_row: OnRow::Refused,
        row_growth: RowGrowth::Unknown,
        flags: Flags::empty(),
        traits: Traits::empty(),
        merge: Merge::First,
        secrets: Secrets::None,
        key_uses: KeyUses::ByRun,
        group: Group::Generic,
        categories: None,
        tips: &[],
        since: "1.0.0",
        complexity: "O(1)",
        summary: "",
        subcommands: &[],
    };

    /// Whether it changes keys. Its `run` alone says so; there is no flag that could say otherwise.
    #[inline]
    pub fn is_write(&self) -> bool {
        matches!(self.run, Run::Write(_) | Run::Block(_))
    }

    #[inline]
    pub fn is(&self, traits: Traits) -> bool {
        self.traits.contains(traits)
    }

    pub fn is_internal(&self) -> bool {
        self.is(Traits::INTERNAL)
    }

    /// Whether it may put something at a key that was empty.
    pub fn may_fill_keys(&self) -> bool {
        self.flags.contains(Flags::DENYOOM) || self.is(Traits::FILLS_KEYS)
    }

    /// Calls `each` with every key the arguments name, in the database where the command looks.
    pub fn each_key(&self, db: DbIndex, args: &Args<'_>, each: &mut dyn FnMut(DbIndex, &[u8])) {
        let _ = self.keys.positions(args, |at| each(db, args.at(at)));
        if let Some((other, at)) = self.other_database.named(args) {
            each(other, args.at(at));
        }
    }

    /// The specification with these tips.
    pub const fn with_tips(self, tips: &'static [&'static str]) -> CommandSpec {
        CommandSpec { tips, ..self }
    }
}

/// How one reply is made of those of all nodes, if a session wants a command on all keys of a
/// cluster. If a node refuses, its refusal is the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// They say the same: the first.
    First,
    /// They are numbers: their sum.
    Sum,
    /// They are lists: one list of all.
    Concatenate,
    /// They are each a key or null: one of the keys at random.
    OneKey,
}

/// Which arguments must not be shown to others (MONITOR, SLOWLOG).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    None,
    /// All but the name.
    All,
    /// All behind the name and the subcommand.
    BehindSubcommand,
    /// The user and the password behind the word `AUTH`.
    BehindAuth,
    /// Settings and their values alternate from argument 2 on; some values are secret.
    Settings,
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

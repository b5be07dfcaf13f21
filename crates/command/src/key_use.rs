//! What a command does to its keys, as `COMMAND` tells clients.

use resp::Args;

use crate::CommandSpec;

/// What a command does to one key and to the data there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// It looks at the key, not at its data.
    Looks,
    /// It returns data.
    Reads,
    /// It returns data and changes it.
    ReadsAndUpdates,
    /// It changes data without returning it.
    Updates,
    /// It adds data.
    Inserts,
    /// It replaces whatever is there.
    Overwrites,
    /// It sets what was not there.
    Creates,
    /// It removes data without returning it.
    Deletes,
    /// It returns data and removes it.
    Takes,
    /// It removes the key.
    Removes,
    /// Its arguments decide.
    Varies,
}

impl KeyUse {
    /// Redis' words for it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            KeyUse::Looks => &["RO"],
            KeyUse::Reads => &["RO", "access"],
            KeyUse::ReadsAndUpdates => &["RW", "access", "update"],
            KeyUse::Updates => &["RW", "update"],
            KeyUse::Inserts => &["RW", "insert"],
            KeyUse::Overwrites => &["OW", "update"],
            KeyUse::Creates => &["OW", "insert"],
            KeyUse::Deletes => &["RW", "delete"],
            KeyUse::Takes => &["RW", "access", "delete"],
            KeyUse::Removes => &["RM", "delete"],
            KeyUse::Varies => &["RW", "access", "update", "variable_flags"],
        }
    }
}

/// What a command does to all its keys.
#[derive(Clone, Copy)]
pub enum KeyUses {
    /// A read reads all, a write reads and updates all.
    ByRun,
    All(KeyUse),
    /// The first key, and those behind it.
    FirstAndRest(KeyUse, KeyUse),
    /// This tells it by the arguments.
    ByArguments(fn(&Args<'_>) -> KeyUse),
}

impl CommandSpec {
    /// What it does to its `number`-th key, whatever its arguments are.
    pub fn key_use(&self, number: usize) -> KeyUse {
        match self.key_uses {
            KeyUses::ByRun if self.is_write() => KeyUse::ReadsAndUpdates,
            KeyUses::ByRun => KeyUse::Reads,
            KeyUses::All(all) => all,
            KeyUses::FirstAndRest(first, _) if number == 0 => first,
            KeyUses::FirstAndRest(_, rest) => rest,
            KeyUses::ByArguments(_) => KeyUse::Varies,
        }
    }

    /// What it does to its `number`-th key with these arguments.
    pub fn key_use_with(&self, args: &Args<'_>, number: usize) -> KeyUse {
        match self.key_uses {
            KeyUses::ByArguments(tell) => tell(args),
            _ => self.key_use(number),
        }
    }
}

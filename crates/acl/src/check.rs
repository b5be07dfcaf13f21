//! Whether a user may run a command.

use base::Refusal;
use command::{CommandSpec, Flags, KeyUse, Keys, Traits};
use resp::Args;

use crate::{Selector, User};

/// Which right is missing. Later ones count more: of several selectors, the one that came furthest is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    Command,
    /// The position of the argument.
    Key(usize),
}

impl Denied {
    /// What the client is told.
    pub fn refusal(self, spec: &CommandSpec) -> Refusal {
        match self {
            Denied::Command => Refusal::text_of(format!(
                "NOPERM this user has no permissions to run the '{}' command",
                spec.name
            )),
            Denied::Key(_) => Refusal::new(
                "NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
        }
    }

    /// What the client is told whose right went between MULTI and EXEC.
    pub fn refusal_in_exec(self) -> Refusal {
        Refusal::new(match self {
            Denied::Command => {
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
                 is no longer allowed for the following reason: no permission to execute the command or subcommand"
            }
            Denied::Key(_) => {
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
                 is no longer allowed for the following reason: no permission to touch the specified keys"
            }
        })
    }

    /// What `ACL DRYRUN` says.
    pub fn in_words(self, spec: &CommandSpec, args: &Args<'_>) -> Vec<u8> {
        let mut words = b"This user has no permissions to ".to_vec();
        match self {
            Denied::Command => {
                words.extend_from_slice(format!("run the '{}' command", spec.name).as_bytes());
            }
            Denied::Key(at) => {
                words.extend_from_slice(b"access the '");
                words.extend_from_slice(args.at(at));
                words.extend_from_slice(b"' key");
            }
        }
        words
    }
}

impl User {
    /// Whether nothing needs to be checked.
    pub fn may_do_everything(&self) -> bool {
        let mut all = std::iter::once(&self.root).chain(&self.selectors);
        all.any(Selector::allows_everything)
    }

    /// Whether a command may run; `stat` is its number in [`command::Specs`].
    #[inline]
    pub fn check(&self, stat: usize, spec: &CommandSpec, args: &Args<'_>) -> Result<(), Denied> {
        match self.root.check(stat, spec, args) {
            Ok(()) => Ok(()),
            Err(denied) => self.check_others(denied, stat, spec, args),
        }
    }

    #[cold]
    fn check_others(
        &self,
        denied: Denied,
        stat: usize,
        spec: &CommandSpec,
        args: &Args<'_>,
    ) -> Result<(), Denied> {
        let mut worst = denied;
        for selector in &self.selectors {
            match selector.check(stat, spec, args) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// SORT reads keys that its arguments name by patterns only: a user who may not read all of them may not use BY and GET.
    pub fn check_sort(
        &self,
        stat: usize,
        spec: &CommandSpec,
        args: &Args<'_>,
    ) -> Result<(), Refusal> {
        let Keys::Sort { .. } = spec.keys else {
            return Ok(());
        };
        let may = |selector: &Selector| {
            selector.may_read_all() && selector.check(stat, spec, args).is_ok()
        };
        let mut all = std::iter::once(&self.root).chain(&self.selectors);
        if all.any(may) {
            return Ok(());
        }
        let mut at = 2;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if args.is(at, "LIMIT") && more >= 2 {
                at += 2;
            } else if args.is(at, "STORE") && more >= 1 {
                at += 1;
            } else if args.is(at, "BY") && more >= 1 {
                at += 1;
                if args.at(at).contains(&b'*') {
                    return Err(Refusal::new(
                        "ERR BY option of SORT denied due to insufficient ACL permissions.",
                    ));
                }
            } else if args.is(at, "GET") && more >= 1 {
                return Err(Refusal::new(
                    "ERR GET option of SORT denied due to insufficient ACL permissions.",
                ));
            }
            at += 1;
        }
        Ok(())
    }
}

impl Selector {
    #[inline]
    fn check(&self, stat: usize, spec: &CommandSpec, args: &Args<'_>) -> Result<(), Denied> {
        if !self.commands.has(stat)
            && !spec.flags.contains(Flags::NO_AUTH)
            && !self.has_first_arg(stat, spec, args)
        {
            return Err(Denied::Command);
        }
        match self.has_all_keys {
            true => Ok(()),
            false => self.check_keys(spec, args),
        }
    }

    fn has_first_arg(&self, stat: usize, spec: &CommandSpec, args: &Args<'_>) -> bool {
        let at = if spec.name.contains('|') { 2 } else { 1 };
        let (Some(words), Some(given)) = (self.first_args.get(&stat), args.get(at)) else {
            return false;
        };
        words.iter().any(|word| word.eq_ignore_ascii_case(given))
    }

    fn check_keys(&self, spec: &CommandSpec, args: &Args<'_>) -> Result<(), Denied> {
        if spec.is(Traits::READS_TABLE) {
            let mut prefix = args.at(1).to_vec();
            prefix.push(b':');
            return match self.may_read_prefix(&prefix) {
                true => Ok(()),
                false => Err(Denied::Key(1)),
            };
        }
        let (mut number, mut denied) = (0, None);
        // Arguments that do not tell where the keys are: the command itself says what is wrong with them.
        let _ = spec.keys.positions(args, |at| {
            let (reads, writes) = rights_for(spec.key_use_with(args, number));
            if denied.is_none() && !self.may_use_key(args.at(at), reads, writes) {
                denied = Some(Denied::Key(at));
            }
            number += 1;
        });
        match denied {
            Some(denied) => Err(denied),
            None => Ok(()),
        }
    }
}

/// Whether it takes the right to read the key, and that to write it.
fn rights_for(key_use: KeyUse) -> (bool, bool) {
    match key_use {
        KeyUse::Looks => (false, false),
        KeyUse::Reads => (true, false),
        KeyUse::ReadsAndUpdates | KeyUse::Takes | KeyUse::Varies => (true, true),
        KeyUse::Updates
        | KeyUse::Inserts
        | KeyUse::Overwrites
        | KeyUse::Creates
        | KeyUse::Deletes
        | KeyUse::Removes => (false, true),
    }
}

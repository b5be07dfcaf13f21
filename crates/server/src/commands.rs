//! All commands of the server: the rows of the `command` crate and the session commands of
//! [`crate::family`], in one table.
//!
//! A session command is a row like any other (`run: Run::Session`) plus a function over its
//! session. Those that must wait (hold regions, sleep, write a file) return a future. A row of a
//! server family may also carry `Run::Read` or `Run::Write` and is then run as any data command,
//! on the regions its `keys` name (`Keys::Everything`: all, held together): prefer that where the
//! function needs only a `View`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use base::Refusal;
use command::Command;
use node::Specs;
use resp::{Args, Reply};

use crate::Session;
use crate::family;

/// What a session command that waits returns.
pub type Later<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + 'a>>;

pub type NowFn = fn(&mut Session, &Args<'_>, &mut Reply) -> Result<(), Refusal>;
pub type LaterFn = for<'a> fn(&'a mut Session, &'a Args<'a>, &'a mut Reply) -> Later<'a>;

#[derive(Clone, Copy)]
pub enum SessionRun {
    Now(NowFn),
    Later(LaterFn),
    /// A container: the runs of its subcommands by the row's name (`"client|list"`). Subcommands
    /// whose row is `Run::Read` or `Run::Write` are left out.
    Subcommands(&'static [(&'static str, SessionRun)]),
    /// The row itself says how (`Run::Read`, `Run::Write`).
    Row,
}

/// A row and what runs it.
#[derive(Clone, Copy)]
pub struct SessionCommand {
    pub row: Command,
    pub run: SessionRun,
}

/// All specifications, and what runs session commands.
pub struct Commands {
    specs: Specs,
    /// By row number; only session commands have one.
    runs: Vec<Option<SessionRun>>,
}

impl std::ops::Deref for Commands {
    type Target = Specs;

    fn deref(&self) -> &Specs {
        &self.specs
    }
}

impl Commands {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let session: Vec<&SessionCommand> = family::ALL.iter().copied().flatten().collect();
        let pure = command::family::ALL.iter().copied().flatten().copied();
        let specs = Specs::new(pure.chain(session.iter().map(|command| command.row)));
        let by_name: HashMap<&str, SessionRun> = session
            .iter()
            .map(|command| (command.row.name, command.run))
            .collect();
        let rows = specs.table.rows().iter();
        let runs = rows.map(|row| by_name.get(row.name).copied()).collect();
        Commands { specs, runs }
    }

    /// What runs a session command; `number` and `row` as [`command::Table::resolve`] gave them.
    pub fn session_run(&self, number: usize, row: &Command) -> Option<SessionRun> {
        match self.runs.get(number).copied().flatten()? {
            SessionRun::Subcommands(runs) => runs
                .iter()
                .find(|(name, _)| *name == row.name)
                .map(|(_, run)| *run),
            run => Some(run),
        }
    }
}

/// The refusal for a container without a subcommand.
pub fn wrong_arity(row: &Command) -> Refusal {
    Refusal::text_of(format!(
        "ERR wrong number of arguments for '{}' command",
        row.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::{Flags, OnRow, Run};

    /// What `run` says and what is said beside it.
    #[test]
    fn reads_and_writes_are_told_apart_in_one_way() {
        for (_, row) in Commands::new().each_row() {
            let name = row.name;
            let has = |flag| row.flags.contains(flag);
            let is_session = matches!(row.run, Run::Session);
            assert!(!row.is_write() || !has(Flags::READONLY), "{name}");
            assert!(is_session || !has(Flags::LISTED_AS_WRITE), "{name}");
            let is_block = matches!(row.run, Run::Block(_));
            assert!(!is_block || has(Flags::BLOCKING), "{name}");
            match row.on_row {
                OnRow::Refused | OnRow::Knows => {}
                OnRow::Mixed(run) => {
                    let instead = command::Command { run, ..*row };
                    assert_eq!(instead.is_write(), row.is_write(), "{name}");
                }
                OnRow::Read(_) => assert!(!row.is_write(), "{name}"),
                OnRow::Write(_) => assert!(row.is_write(), "{name}"),
            }
        }
    }

    #[test]
    fn the_syntax_of_every_row_is_in_the_notation() {
        for (_, row) in Commands::new().each_row() {
            let parsed = command::syntax::parse(row.syntax);
            assert!(parsed.is_some(), "{}: {}", row.name, row.syntax);
        }
    }

    #[test]
    fn every_session_row_has_a_run() {
        let commands = Commands::new();
        for (number, row) in commands.table.rows().iter().enumerate() {
            let rows = std::iter::once(row).chain(row.subcommands);
            for row in rows.filter(|row| matches!(row.run, Run::Session)) {
                assert!(commands.session_run(number, row).is_some(), "{}", row.name);
            }
        }
    }
}

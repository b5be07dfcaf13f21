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
use command::{Command, Table};
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

pub struct Commands {
    pub table: Table,
    /// By row number; only session commands have one.
    runs: Vec<Option<SessionRun>>,
    /// By row number: the statistics number of the row; its subcommands follow.
    stat_base: Vec<u16>,
    /// By statistics number.
    rows: Vec<Command>,
}

impl Commands {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let session: Vec<&SessionCommand> = family::ALL.iter().copied().flatten().collect();
        let pure = command::family::ALL.iter().copied().flatten().copied();
        let table = Table::new(pure.chain(session.iter().map(|command| command.row)));
        let by_name: HashMap<&str, SessionRun> = session
            .iter()
            .map(|command| (command.row.name, command.run))
            .collect();
        let runs = table
            .rows()
            .iter()
            .map(|row| by_name.get(row.name).copied())
            .collect();
        let mut rows = Vec::new();
        let mut stat_base = Vec::new();
        for row in table.rows() {
            stat_base.push(rows.len() as u16);
            rows.push(*row);
            rows.extend_from_slice(row.subcommands);
        }
        Commands {
            table,
            runs,
            stat_base,
            rows,
        }
    }

    /// What runs a session command; `number` and `row` as [`Table::resolve`] gave them.
    pub fn session_run(&self, number: usize, row: &Command) -> Option<SessionRun> {
        match self.runs.get(number).copied().flatten()? {
            SessionRun::Subcommands(runs) => runs
                .iter()
                .find(|(name, _)| *name == row.name)
                .map(|(_, run)| *run),
            run => Some(run),
        }
    }

    /// The place of a row, or of a subcommand's row, in the statistics.
    #[inline]
    pub fn stat_number(&self, number: usize, row: &Command) -> usize {
        let base = self.stat_base.get(number).copied().unwrap_or(0) as usize;
        let Some(top) = self.table.rows().get(number) else {
            return base;
        };
        if top.subcommands.is_empty() {
            return base;
        }
        let sub = top.subcommands.iter().position(|sub| sub.name == row.name);
        base + sub.map_or(0, |at| 1 + at)
    }

    pub fn stat_count(&self) -> usize {
        self.rows.len()
    }

    /// The row with a statistics number. A number that is none gives the first row.
    #[inline]
    pub fn row(&self, stat: usize) -> &Command {
        self.rows.get(stat).unwrap_or(&self.rows[0])
    }

    /// Every row with its statistics number, subcommands behind their container.
    pub fn each_row(&self) -> impl Iterator<Item = (usize, &Command)> {
        self.table
            .rows()
            .iter()
            .flat_map(|row| std::iter::once(row).chain(row.subcommands))
            .enumerate()
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

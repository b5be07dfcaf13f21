//! All commands of the server: the specifications of the `command` crate and session commands, in one table. Crates above this one
//! have the session commands and hand in their specifications.
//!
//! A session command is a specification like any other (`run: Run::Session`) plus a function over its
//! session. Those that must wait (hold regions, sleep, write a file) return a future. A specification of a
//! server family may also carry `Run::Read` or `Run::Write` and is then run as any data command,
//! on the regions its `keys` name (`Keys::Everything`: all, held together): prefer that where the
//! function needs only a `View`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use base::Refusal;
use command::CommandSpec;
use node::Specs;
use resp::{Args, Reply};

use crate::Session;

/// What a session command that waits returns.
pub type Later<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + 'a>>;

pub type NowFn = fn(&mut Session, &Args<'_>, &mut Reply) -> Result<(), Refusal>;
pub type LaterFn = for<'a> fn(&'a mut Session, &'a Args<'a>, &'a mut Reply) -> Later<'a>;

#[derive(Clone, Copy)]
pub enum SessionRun {
    Now(NowFn),
    Later(LaterFn),
    /// A container: the runs of its subcommands by the specification's name (`"client|list"`). Subcommands
    /// whose specification is `Run::Read` or `Run::Write` are left out.
    Subcommands(&'static [(&'static str, SessionRun)]),
    /// The specification itself says how (`Run::Read`, `Run::Write`).
    Spec,
}

/// A specification and what runs it.
#[derive(Clone, Copy)]
pub struct SessionCommand {
    pub spec: CommandSpec,
    pub run: SessionRun,
}

/// All specifications, and what runs session commands.
pub struct Commands {
    pub specs: Specs,
    pub runs: Arc<SessionRuns>,
}

/// What runs session commands, by specification number; only session commands have one.
pub struct SessionRuns(Vec<Option<SessionRun>>);

impl Commands {
    /// Those of the `command` crate and these.
    pub fn new(families: &[&'static [SessionCommand]]) -> Self {
        let session: Vec<&SessionCommand> = families.iter().copied().flatten().collect();
        let pure = command::family::ALL.iter().copied().flatten().copied();
        let specs = Specs::new(pure.chain(session.iter().map(|command| command.spec)));
        let by_name: HashMap<&str, SessionRun> = session
            .iter()
            .map(|command| (command.spec.name, command.run))
            .collect();
        let rows = specs.table.specs().iter();
        let runs = rows.map(|spec| by_name.get(spec.name).copied()).collect();
        let runs = Arc::new(SessionRuns(runs));
        Commands { specs, runs }
    }
}

impl SessionRuns {
    /// What runs a session command; `number` and `spec` as [`command::Table::resolve`] gave them.
    pub fn find(&self, number: usize, spec: &CommandSpec) -> Option<SessionRun> {
        match self.0.get(number).copied().flatten()? {
            SessionRun::Subcommands(runs) => runs
                .iter()
                .find(|(name, _)| *name == spec.name)
                .map(|(_, run)| *run),
            run => Some(run),
        }
    }
}

/// The refusal for a container without a subcommand.
pub fn wrong_arity(spec: &CommandSpec) -> Refusal {
    Refusal::text_of(format!(
        "ERR wrong number of arguments for '{}' command",
        spec.name
    ))
}

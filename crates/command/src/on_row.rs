//! Commands among tables: what becomes of one whose key names a row.
//!
//! ```text
//!   no table in the region ──► the command's own function
//!   ROW.GET, ROW.SET …     ──► its own function: it is about rows
//!   DEL, EXISTS …          ──► one that tells rows from other keys, key by key
//!   HGET, HSET, TYPE …     ──► one for the row, if its key names one
//!   all others             ──► refused, if any of their keys names a row; nothing was done
//! ```
//!
//! Whoever runs a command runs it by [`call`]: leaders, followers and replays judge by the schema of the region, as the
//! log has it, so they judge alike. Where there are no tables it costs one branch.

use base::Refusal;
use keyspace::{RowRef, Txn, View};
use resp::{Args, Reply};
use table::Table;
use table::entry::Fields;

use crate::family::row;
use crate::table::wrong_arity;
use crate::{Attempt, CommandSpec, Run};

/// What a command does when there are tables.
#[derive(Clone, Copy)]
pub enum OnRow {
    /// It does not know rows: refused if a key names one.
    Refused,
    /// Its own function knows them.
    Knows,
    /// This runs instead, whatever its keys name.
    Mixed(Run),
    /// This runs instead if argument 1 names a row.
    Read(RowReadFn),
    Write(RowWriteFn),
}

pub type RowReadFn = fn(&View<'_>, &RowRef, &Args<'_>, &mut Reply) -> Result<(), Refusal>;
/// As every write: if it returns a refusal it must have changed nothing.
pub type RowWriteFn = fn(&mut Txn<'_>, &RowRef, &Args<'_>, &mut Reply) -> Result<(), Refusal>;

/// Whether a command may make the row that its argument 1 names larger.
#[derive(Clone, Copy)]
pub enum RowGrowth {
    Never,
    /// As far as these values are larger than those that they replace.
    By(RowValuesFn),
    Unknown,
}

/// The fields that a command on one row sets, with values at least as large as those it will set.
/// What cannot be parsed sets nothing.
pub type RowValuesFn = fn(&Table, &Args<'_>) -> Result<Fields, Refusal>;

/// Runs a command on a view.
#[inline]
pub fn call(
    command: &CommandSpec,
    view: View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    if view.has_tables() {
        return call_among_tables(command, view, args, reply);
    }
    call_run(command, &command.run, view, args, reply)
}

fn call_among_tables(
    command: &CommandSpec,
    view: View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    match &command.on_row {
        OnRow::Knows => {}
        OnRow::Mixed(run) => return call_run(command, run, view, args, reply),
        OnRow::Read(run) => {
            if let Some(row) = view.row_of(args.at(1)) {
                return run(&view, &row?, args, reply).map(|()| Attempt::Served);
            }
        }
        OnRow::Write(run) => {
            if let Some(row) = view.row_of(args.at(1)) {
                return run(&mut Txn::new(view), &row?, args, reply).map(|()| Attempt::Served);
            }
        }
        OnRow::Refused => refuse_rows(command, &view, args)?,
    }
    call_run(command, &command.run, view, args, reply)
}

#[inline]
fn call_run(
    command: &CommandSpec,
    run: &Run,
    view: View<'_>,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<Attempt, Refusal> {
    match run {
        Run::Read(run) => run(&view, args, reply).map(|()| Attempt::Served),
        Run::Write(run) => run(&mut Txn::new(view), args, reply).map(|()| Attempt::Served),
        Run::Block(block) => (block.run)(&mut Txn::new(view), args, reply),
        Run::Session | Run::Container => Err(wrong_arity(command.name)),
    }
}

/// Refuses a command if any of its keys names a row.
fn refuse_rows(command: &CommandSpec, view: &View<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut found = Ok(());
    // Keys that cannot be counted are refused by the command itself.
    let _ = command.keys.positions(args, |at| {
        if found.is_ok() {
            found = row::refuse_row(view, args.at(at));
        }
    });
    found
}

//! `DEL`, `EXISTS`, `TOUCH` and `TYPE` where there are tables: some keys name rows, some do not.

use base::Refusal;
use keyspace::{RowRef, Txn, View};
use resp::{Args, Reply};
use table::Cause;
use table::entry::{Ask, Op};

use super::single::is_present;
use super::{change, unanswered};

/// Looks at all rows before the first key goes: a row that cannot be deleted now keeps all of them.
pub fn del(txn: &mut Txn<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    count(txn, args, |_, _| false)?;
    let is_closed = |key| matches!(txn.row_of(key), Some(Ok(row)) if row.table.closed);
    if args.iter_from(1).any(is_closed) {
        return Err(unanswered(Cause::Closed));
    }
    let mut removed = 0;
    for key in args.iter_from(1) {
        if !is_row(txn, key) {
            removed += i64::from(txn.remove(key));
        }
    }
    for key in args.iter_from(1) {
        if let Some(Ok(row)) = txn.row_of(key)
            && !txn.is_void()
        {
            removed += i64::from(txn.write_row(key, change(&row, Op::Del)).is_ok());
        }
    }
    reply.int(removed);
    Ok(())
}

pub fn exists(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(count(view, args, |view, key| view.exists(key))?);
    Ok(())
}

pub fn touch(view: &View<'_>, args: &Args<'_>, reply: &mut Reply) -> Result<(), Refusal> {
    reply.int(count(view, args, |view, key| view.value(key).is_some())?);
    Ok(())
}

/// How many of the keys there are. All are looked at, so that rows that are not loaded yet are loaded together.
fn count(
    view: &View<'_>,
    args: &Args<'_>,
    is_there: fn(&View<'_>, &[u8]) -> bool,
) -> Result<i64, Refusal> {
    let mut found = Ok(0);
    for key in args.iter_from(1) {
        let there = match view.row_of(key) {
            None => Ok(is_there(view, key)),
            Some(Ok(row)) => is_present(view.read_row(key, &row, &Ask::Nothing, None)),
            Some(Err(refusal)) => Err(refusal),
        };
        found = found.and_then(|found| Ok(found + i64::from(there?)));
    }
    found
}

fn is_row(view: &View<'_>, key: &[u8]) -> bool {
    view.row_of(key).is_some()
}

pub fn type_of(
    view: &View<'_>,
    row: &RowRef,
    args: &Args<'_>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let there = is_present(view.read_row(args.at(1), row, &Ask::Nothing, None))?;
    reply.simple(if there { "hash" } else { "none" });
    Ok(())
}

//! Blocked sessions are served inside the entry: behind a command that may put something at a
//! key somebody waits for, the waiter's own command follows as an attempt; behind one that moves an
//! element on, attempts for those who wait for it there. So they are in the log, run on every
//! replica alike, and come before any other command, as in Redis.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use base::DbIndex;
use command::{Command, Run, WaitOn};
use replica::entry::EntryWriter;
use resp::Args;

use super::member::Serve;
use crate::cluster::Serving;
use crate::cores::{Core, Region, Waiter, only_key};

impl Core {
    /// Adds attempts, `behind` so many commands, for those who wait for a key that this one may have
    /// filled: as many as it has arguments; if it brought more, [`super::apply`] sees to the rest. An
    /// attempt that moves an element may fill another key, for which the next in line there follows.
    pub(super) fn serve_behind(
        &self,
        region: &mut Region,
        behind: usize,
        row: &Command,
        db: DbIndex,
        args: &Args<'_>,
        (entry, count, serves): &mut (&mut EntryWriter, &mut usize, &mut VecDeque<Serve>),
    ) {
        if !row.may_fill_keys() {
            return; // one that only takes has nothing for anybody
        }
        // Keys that may be filled, each with how many elements at most, in the order they are.
        let mut filled: VecDeque<(Cow<'_, [u8]>, usize)> = VecDeque::new();
        let _ = row.keys.positions(args, |at| {
            filled.push_back((args.at(at).into(), args.len()));
        });
        while let Some((key, most)) = filled.pop_front() {
            let key = &*key;
            let mut line = claim_line(region, db, key, most).into_iter();
            while let Some(waiter) = line.next() {
                let row = self.shared.commands.row(waiter.stat);
                let command = only_key(row, &waiter.command.args(0), key);
                if self.regions_of(row, &command.args(0)) != [region.id] {
                    // A move to another region: `apply` sees to it when this is applied, and to
                    // those behind it. The last goes back first, so the order stays.
                    for waiter in std::iter::once(waiter).chain(line).rev() {
                        self.put_back(region, waiter, db, key);
                    }
                    break;
                }
                entry.push(db, command.args(0).iter_from(0));
                **count += 1;
                if let Some(to) = destination(row, &command.args(0)) {
                    filled.push_back((to.to_vec().into(), 1));
                }
                serves.push_back(Serve {
                    behind,
                    waiter,
                    db,
                    key: key.into(),
                });
            }
        }
    }

    /// A claimed waiter for whom there was nothing, back to its place in line. If another node leads by now, those in line were
    /// told then, but not who was claimed.
    pub(crate) fn put_back(
        &self,
        region: &mut Region,
        waiter: Arc<Waiter>,
        db: DbIndex,
        key: &[u8],
    ) {
        if region.serving() == Serving::No {
            return self.unblock_claimed(&waiter);
        }
        region.put_waiter_first(db, key, waiter.clone());
        if waiter.claim.unserve() {
            self.answer_waiter(&waiter, None);
        }
    }
}

/// Takes so many waiters at most out of a key's line, claimed.
fn claim_line(region: &mut Region, db: DbIndex, key: &[u8], most: usize) -> Vec<Arc<Waiter>> {
    let mut line = Vec::new();
    let Some(interest) = region.interest_mut(db, key) else {
        return line;
    };
    while line.len() < most {
        let Some(waiter) = interest.waiters.pop_front() else {
            break;
        };
        if waiter.claim.serve() {
            line.push(waiter);
        } else if !waiter.claim.is_over() {
            // Somebody else tries to serve it: it keeps its place.
            interest.waiters.push_front(waiter);
            break;
        }
    }
    line
}

/// Where a command that waits for its first key puts what it took: its last key.
fn destination<'a>(row: &Command, args: &Args<'a>) -> Option<&'a [u8]> {
    if !matches!(row.run, Run::Block(block) if block.wait_on == WaitOn::FirstKey) {
        return None;
    }
    let mut last = None;
    row.keys.positions(args, |at| last = Some(at)).ok()?;
    last.map(|at| args.at(at))
}

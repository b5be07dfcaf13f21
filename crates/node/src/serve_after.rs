//! Blocked sessions are served inside the entry: behind a command that may put something at a key
//! somebody waits for, the waiter's own command follows as an attempt; behind one that moves an element
//! on, attempts for those who wait for it there. So they are in the log, run on every replica alike, and
//! come before any other command, as in Redis.

use std::borrow::Cow;
use std::collections::VecDeque;

use base::DbIndex;
use command::{CommandSpec, Run, WaitOn};
use replica::entry::EntryWriter;
use resp::Args;

use crate::effects::Effects;
use crate::route::regions_of;
use crate::{Context, Region, Serve, only_key};

/// An entry that is being made.
#[derive(Default)]
pub(crate) struct Draft {
    pub entry: EntryWriter,
    /// Commands in it.
    pub count: usize,
    pub serves: VecDeque<Serve>,
}

impl Region {
    /// Adds attempts, `behind` so many commands, for those who wait for a key that this one may have
    /// filled: as many as it has arguments; if it brought more, they are served when the entry is
    /// applied. An attempt that moves an element may fill another key, for which the next in line there
    /// follows.
    pub(crate) fn serve_after(
        &mut self,
        after: usize,
        (spec, db, args): (&CommandSpec, DbIndex, &Args<'_>),
        draft: &mut Draft,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if !spec.may_fill_keys() {
            return; // one that only takes has nothing for anybody
        }
        // Keys that may be filled, each with how many elements at most, in the order they are.
        let mut filled: VecDeque<(Cow<'_, [u8]>, usize)> = VecDeque::new();
        let _ = spec.keys.positions(args, |at| {
            filled.push_back((args.at(at).into(), args.len()));
        });
        while let Some((key, most)) = filled.pop_front() {
            let key = &*key;
            let mut line = self.interests.claim(db, key, most).into_iter();
            while let Some(waiter) = line.next() {
                let spec = cx.specs.spec(waiter.stat);
                let command = only_key(spec, &waiter.command.args(0), key);
                if regions_of(cx.map, spec, &command.args(0)) != [self.id] {
                    // A move to another region: served when this entry is applied, and so are those
                    // behind it. The last goes back first, so the order stays.
                    for waiter in std::iter::once(waiter).chain(line).rev() {
                        self.put_back(waiter, db, key, cx, out);
                    }
                    break;
                }
                draft.entry.push(db, command.args(0).iter_from(0));
                draft.count += 1;
                if let Some(to) = destination(spec, &command.args(0)) {
                    filled.push_back((to.to_vec().into(), 1));
                }
                draft.serves.push_back(Serve {
                    after,
                    waiter,
                    db,
                    key: key.into(),
                });
            }
        }
    }
}

/// Where a command that waits for its first key puts what it took: its last key.
fn destination<'a>(spec: &CommandSpec, args: &Args<'a>) -> Option<&'a [u8]> {
    if !matches!(spec.run, Run::Block(block) if block.wait_on == WaitOn::FirstKey) {
        return None;
    }
    let mut last = None;
    spec.keys.positions(args, |at| last = Some(at)).ok()?;
    last.map(|at| args.at(at))
}

/// The keys a command waits on, each once.
pub fn awaited_keys<'a>(spec: &CommandSpec, args: &Args<'a>) -> Vec<&'a [u8]> {
    let mut keys: Vec<&[u8]> = Vec::new();
    let _ = spec.keys.positions(args, |at| keys.push(args.at(at)));
    if matches!(spec.run, Run::Block(block) if block.wait_on == WaitOn::FirstKey) {
        keys.truncate(1);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

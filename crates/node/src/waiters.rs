//! Who is interested in a key: sessions that watch it, and blocked sessions that wait for it.
//!
//! Interest is added while a region is at hand and ends by itself: a watch is a weak pointer, a
//! waiter knows when it is over, and [`Interests::sweep`] drops what is dead. So the end of a session
//! needs no message to any core.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use base::{DbIndex, Refusal};
use command::{Attempt, Block, CommandSpec, Keys, Nil, Run, WaitOn};
use keyspace::{Keyspace, Kind, View};
use resp::{Args, Protocol, Reply};

use crate::{CommandList, CoreId, Specs};

/// Who wants to know about one key.
#[derive(Default)]
pub struct Interest {
    pub watchers: Vec<Weak<WatchFlag>>,
    /// In the order they came.
    pub waiters: VecDeque<Arc<Waiter>>,
}

impl Interest {
    /// The key has changed.
    pub fn flag_watchers(&mut self) {
        for flag in self.watchers.drain(..) {
            if let Some(flag) = flag.upgrade() {
                flag.set();
            }
        }
    }

    fn is_dead(&self) -> bool {
        self.watchers.is_empty() && self.waiters.is_empty()
    }

    fn drop_dead(&mut self) {
        self.watchers.retain(|flag| flag.strong_count() > 0);
        self.waiters.retain(|waiter| !waiter.claim.is_over());
    }
}

/// Interest in the keys of a region. The keyspace reports changes of these keys only.
#[derive(Default)]
pub struct Interests {
    by_key: BTreeMap<Box<[u8]>, Interest>,
    /// Added since the last sweep.
    added: usize,
}

impl Interests {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn get_mut(&mut self, db: DbIndex, key: &[u8]) -> Option<&mut Interest> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get_mut(&*place(db, key))
    }

    /// The keys somebody watches or waits for.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.by_key.keys().filter_map(|place| place.get(1..))
    }

    /// Interest in a key, made if there is none; `space` reports changes of it from now on.
    pub fn entry(&mut self, space: &mut Keyspace, db: DbIndex, key: &[u8]) -> &mut Interest {
        self.added += 1;
        let place = place(db, key);
        if !self.by_key.contains_key(&place) {
            space.watch(db, key);
        }
        let interest = self.by_key.entry(place).or_default();
        interest.drop_dead();
        interest
    }

    /// The keyspace was replaced: those who watch do not know what became of their keys, those who
    /// wait go on waiting.
    pub fn follow(&mut self, space: &mut Keyspace) {
        for (place, interest) in &mut self.by_key {
            interest.flag_watchers();
            if let Some((&db, key)) = place.split_first() {
                space.watch(db, key);
            }
        }
    }

    /// Forgets all interest: watches are broken, waiters are the caller's to tell.
    pub fn take(&mut self, space: &mut Keyspace) -> Vec<Arc<Waiter>> {
        let mut waiters = Vec::new();
        for (place, mut interest) in std::mem::take(&mut self.by_key) {
            interest.flag_watchers();
            waiters.extend(interest.waiters);
            if let Some((&db, key)) = place.split_first() {
                space.unwatch(db, key);
            }
        }
        waiters
    }

    /// Takes so many waiters at most out of a key's line, claimed.
    pub fn claim(&mut self, db: DbIndex, key: &[u8], most: usize) -> Vec<Arc<Waiter>> {
        let mut line = Vec::new();
        let Some(interest) = self.get_mut(db, key) else {
            return line;
        };
        while line.len() < most {
            let Some(waiter) = interest.waiters.pop_front() else {
                break;
            };
            if waiter.claim.serve() {
                line.push(waiter);
            } else if !waiter.claim.is_over() {
                // Another core tries to serve it: it keeps its place.
                interest.waiters.push_front(waiter);
                break;
            }
        }
        line
    }

    /// Forgets interest that is over. `all` sweeps in any case, else only when much was added.
    pub fn sweep(&mut self, space: &mut Keyspace, all: bool) {
        if self.by_key.is_empty() || (!all && self.added < 1024) {
            return;
        }
        self.added = 0;
        self.by_key.retain(|place, interest| {
            interest.drop_dead();
            if interest.is_dead() {
                if let Some((&db, key)) = place.split_first() {
                    space.unwatch(db, key);
                }
                return false;
            }
            true
        });
    }
}

fn place(db: DbIndex, key: &[u8]) -> Box<[u8]> {
    let mut place = Vec::with_capacity(1 + key.len());
    place.push(db);
    place.extend_from_slice(key);
    place.into_boxed_slice()
}

/// Set when a watched key changes; EXEC looks at it while it holds the regions.
#[derive(Default)]
pub struct WatchFlag(AtomicBool);

impl WatchFlag {
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A watched key.
#[derive(Clone)]
pub struct Watch {
    pub db: DbIndex,
    pub key: Box<[u8]>,
    /// Whether it was there: a key that only expired since has changed, too.
    pub existed: bool,
    pub flag: Arc<WatchFlag>,
}

/// What a blocking command answers inside MULTI when there is nothing.
pub fn nil(block: &Block, out: &mut Reply) {
    match block.nil {
        Nil::Bulk => out.null(),
        Nil::Array => out.null_array(),
    }
}

/// A blocked session, as it stands in the line of every key it waits on.
pub struct Waiter {
    pub claim: Claim,
    /// Core of the session and its ticket there.
    pub core: CoreId,
    pub ticket: usize,
    /// The command: its statistics number and arguments.
    pub stat: usize,
    pub command: CommandList,
    pub db: DbIndex,
    pub protocol: Protocol,
}

/// Who decides how a waiter ends: a core that serves it, or its session (time is up, client gone).
///
/// ```text
///   WAITING ──serve──► SERVING ──served──► DONE
///      ▲                  │ nothing there
///      └──────────────────┘
///   any ──cancel──► + CANCELLED   (if SERVING: the core tells the session what became of it)
/// ```
#[derive(Default)]
pub struct Claim(AtomicU8);

const SERVING: u8 = 1;
const DONE: u8 = 2;
const CANCELLED: u8 = 4;

impl Claim {
    /// Takes the right to serve; false if another core has it or it is over.
    pub fn serve(&self) -> bool {
        self.0
            .compare_exchange(0, SERVING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub fn served(&self) {
        self.0.fetch_or(DONE, Ordering::AcqRel);
    }

    /// Gives the right back, nothing having happened. True if the session has cancelled meanwhile
    /// and must be told.
    #[must_use]
    pub fn unserve(&self) -> bool {
        self.0.fetch_and(!SERVING, Ordering::AcqRel) & CANCELLED != 0
    }

    /// The session gives up. False if a core is serving or has served: its answer will come.
    #[must_use]
    pub fn cancel(&self) -> bool {
        self.0.fetch_or(CANCELLED, Ordering::AcqRel) & (SERVING | DONE) == 0
    }

    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) & (DONE | CANCELLED) != 0
    }
}

/// One attempt for a claimed waiter: its reply, if there is something for it.
pub fn attempt_for(
    specs: &Specs,
    waiter: &Waiter,
    args: &Args<'_>,
    view: View<'_>,
) -> Option<Vec<u8>> {
    let spec = specs.spec(waiter.stat);
    let mut reply = Reply::new(waiter.protocol);
    let source = view.kind(first_key(spec, args));
    let result = command::call(spec, view, args, &mut reply);
    answer_of(spec, source, result, &mut reply).then(|| reply.into_bytes())
}

/// Whether an attempt for a waiter ends its wait; its reply is in `reply` then. `source`: what was at
/// the key it waits on before.
pub(crate) fn answer_of(
    spec: &CommandSpec,
    source: Option<Kind>,
    result: Result<Attempt, Refusal>,
    reply: &mut Reply,
) -> bool {
    match result {
        Ok(Attempt::Served) => true,
        Ok(Attempt::Empty) => false,
        // The key changed to another type: it keeps waiting. Only when the destination has the
        // wrong type is the client told.
        Err(refusal) => {
            let waits_on_source =
                matches!(spec.run, Run::Block(block) if block.wait_on == WaitOn::FirstKey);
            if !waits_on_source || refusal != Refusal::WrongType || source != Some(Kind::List) {
                return false;
            }
            reply.truncate(0);
            reply.refusal(&refusal);
            true
        }
    }
}

/// The key a command waits on, when it waits on one.
pub(crate) fn first_key<'a>(spec: &CommandSpec, args: &Args<'a>) -> &'a [u8] {
    let mut first = None;
    let _ = spec.keys.positions(args, |at| {
        first.get_or_insert(at);
    });
    args.at(first.unwrap_or(1))
}

/// The command with `key` as the only one it waits on: other keys may be in other regions.
pub fn only_key(spec: &CommandSpec, args: &Args<'_>, key: &[u8]) -> CommandList {
    let mut kept = CommandList::default();
    let waits_on_all = matches!(spec.run, Run::Block(block) if block.wait_on == WaitOn::AllKeys);
    match spec.keys {
        Keys::Range { first, last, .. } if waits_on_all => {
            let len = args.len() as isize;
            let behind = if last < 0 { len + last + 1 } else { last + 1 };
            kept.push_all(
                args.iter_from(0)
                    .take(first)
                    .chain([key])
                    .chain(args.iter_from(behind.max(0) as usize)),
            );
        }
        Keys::Counted { count_at } if waits_on_all => {
            let count = args.int(count_at).unwrap_or(0).max(0) as usize;
            kept.push_all(
                args.iter_from(0)
                    .take(count_at)
                    .chain([&b"1"[..], key])
                    .chain(args.iter_from(count_at + 1 + count)),
            );
        }
        _ => kept.push(args),
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_one_winner() {
        let claim = Claim::default();
        assert!(claim.serve());
        assert!(!claim.serve());
        assert!(!claim.unserve());
        assert!(claim.serve());
        assert!(!claim.cancel(), "being served");
        assert!(claim.unserve(), "the session must be told");
        assert!(!claim.serve(), "cancelled");
        assert!(claim.is_over());
    }
}

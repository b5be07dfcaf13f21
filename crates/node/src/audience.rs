//! Who waits for the replies of an entry: nobody, or the clients whose commands the leader proposed.
//!
//! A proposal's batches may have reads between their writes. Reads are in no entry: they run on the
//! leader when the commands around them do. Attempts for blocked sessions are in the entry, behind the
//! command that may serve them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Refusal;
use command::{Attempt, CommandSpec, Traits};
use keyspace::{Keyspace, Kind, View};
use resp::{Args, Protocol, Reply};

use crate::effects::Served;
use crate::outcome::try_again;
use crate::serve_after::awaited_keys;
use crate::waiters::{Interests, answer_of, first_key};
use crate::{BatchBox, Context, Proposal, Serve, Waiter, seed_of, unreadable};

/// Hears how an entry is executed.
pub trait Audience {
    /// The nth command is about to run.
    fn before(&mut self, space: &mut Keyspace, nth: usize);

    /// Changes how the command sees the keyspace (not what it does to it).
    fn prepare<'a>(&mut self, view: View<'a>, spec: &CommandSpec, args: &Args<'_>) -> View<'a>;

    /// Where the reply goes.
    fn reply(&mut self) -> &mut Reply;

    fn after(
        &mut self,
        space: &mut Keyspace,
        spec: &CommandSpec,
        args: &Args<'_>,
        ran: Result<Attempt, Refusal>,
    );

    /// A key was, or was not, removed because its time had come, or to make room.
    fn removed(&mut self, expired: bool, evicted: bool);

    /// All commands of the entry have run.
    fn finish(&mut self, space: &mut Keyspace);
}

/// Is given the reply of each command.
type Tell<'a> = &'a mut dyn FnMut(&[u8]);

/// Of an entry that another node proposed, or that runs again.
pub struct Nobody<'a> {
    reply: Reply,
    tell: Option<Tell<'a>>,
}

impl Default for Nobody<'_> {
    fn default() -> Self {
        Nobody {
            reply: Reply::new(Protocol::Resp2),
            tell: None,
        }
    }
}

impl<'a> Nobody<'a> {
    pub fn telling(tell: Tell<'a>) -> Self {
        Nobody {
            tell: Some(tell),
            ..Nobody::default()
        }
    }
}

impl Audience for Nobody<'_> {
    fn before(&mut self, _space: &mut Keyspace, _nth: usize) {
        self.reply.truncate(0);
    }

    fn prepare<'a>(&mut self, view: View<'a>, _row: &CommandSpec, _args: &Args<'_>) -> View<'a> {
        view
    }

    fn reply(&mut self) -> &mut Reply {
        &mut self.reply
    }

    fn after(
        &mut self,
        _space: &mut Keyspace,
        _row: &CommandSpec,
        _args: &Args<'_>,
        ran: Result<Attempt, Refusal>,
    ) {
        if let Some(tell) = &mut self.tell {
            if let Err(refusal) = &ran {
                self.reply.truncate(0);
                self.reply.refusal(refusal);
            }
            tell(self.reply.as_bytes());
        }
    }

    fn removed(&mut self, _expired: bool, _evicted: bool) {}

    fn finish(&mut self, _space: &mut Keyspace) {}
}

/// Who the command that runs now belongs to.
enum Current {
    Nobody,
    /// The batch at the cursor; where in its replies the command's begins.
    Batch(usize),
    Serve(Serve, Option<Kind>),
}

/// The clients of a proposal.
pub(crate) struct Clients<'a> {
    cx: &'a Context<'a>,
    proposal: &'a mut Proposal,
    interests: &'a mut Interests,
    served: &'a mut Vec<(Arc<Waiter>, Served)>,
    stamp_ms: u64,
    entry_seed: u64,
    /// This replica leads: whoever finds nothing may wait here.
    may_wait: bool,
    /// The next command of the batches.
    batch: usize,
    at: usize,
    current: Current,
    /// For commands of nobody, and for attempts.
    spare: Reply,
    /// Attempts behind the last command that found nothing.
    in_vain: Vec<Serve>,
    /// Removed keys.
    expired: u64,
    evicted: u64,
    /// Of an entry that evicts by DEL: how many keys there were before the command.
    keys: usize,
}

impl<'a> Clients<'a> {
    pub fn new(
        cx: &'a Context<'a>,
        proposal: &'a mut Proposal,
        interests: &'a mut Interests,
        served: &'a mut Vec<(Arc<Waiter>, Served)>,
        (stamp_ms, entry_seed): (u64, u64),
        may_wait: bool,
    ) -> Self {
        Clients {
            cx,
            proposal,
            interests,
            served,
            stamp_ms,
            entry_seed,
            may_wait,
            batch: 0,
            at: 0,
            current: Current::Nobody,
            spare: Reply::new(Protocol::Resp2),
            in_vain: Vec::new(),
            expired: 0,
            evicted: 0,
            keys: 0,
        }
    }

    /// Runs reads, and answers what is not to be run, up to the next write of the batches; up to the
    /// end of this batch at most if `within` it. Whether there is a write.
    #[inline]
    fn go_to_write(&mut self, space: &mut Keyspace, within: bool) -> bool {
        while let Some(batch) = self.proposal.batches.get_mut(self.batch) {
            let Some(&(stat, _)) = batch.heads.get(self.at) else {
                if within {
                    return false;
                }
                (self.batch, self.at) = (self.batch + 1, 0);
                continue;
            };
            if let Some(refusal) = batch.refusal(self.at) {
                let refusal = refusal.clone();
                self.cx.host.on_refusal(&refusal);
                batch.replies.refusal(&refusal);
                batch.ends.push(batch.replies.len());
            } else if self.cx.specs.spec(stat as usize).is_write() {
                return true;
            } else if batch.has_enough() && !has_write(self.cx, batch, self.at) {
                // Its session sends what it has, and asks for these reads again.
                if within {
                    return false;
                }
                (self.batch, self.at) = (self.batch + 1, 0);
                continue;
            } else {
                self.read(space);
            }
            self.at += 1;
        }
        false
    }

    /// Runs the read at the cursor.
    fn read(&mut self, space: &mut Keyspace) {
        let cx = self.cx;
        let seed = read_seed(self.entry_seed, self.batch, self.at);
        let Some(batch) = self.proposal.batches.get_mut(self.batch) else {
            return;
        };
        let Some(&(stat, db)) = batch.heads.get(self.at) else {
            return;
        };
        let spec = cx.specs.spec(stat as usize);
        let args = batch.commands.args(self.at);
        let before = batch.replies.len();
        if let Some(refusal) = unreadable::refusal(space, spec, db, &args) {
            return answer(cx, batch, self.at, before, Some(Err(refusal)));
        }
        let view = View::one(space, db, self.stamp_ms, seed, cx.tuning);
        let view = untouching(batch, spec, view);
        let replies = &mut batch.replies;
        let ran = base::contained(|| command::call(spec, view, &args, replies));
        answer(cx, batch, self.at, before, ran.ok());
    }

    /// Attempts that found nothing go back to the heads of their lines; the last first, so the order
    /// stays.
    fn put_back(&mut self, space: &mut Keyspace) {
        for serve in self.in_vain.drain(..).rev() {
            let Serve {
                waiter, db, key, ..
            } = serve;
            if !self.may_wait {
                self.served.push((waiter, Served::LeaderChanged));
                continue;
            }
            let interest = self.interests.entry(space, db, &key);
            interest.waiters.push_front(waiter.clone());
            if waiter.claim.unserve() {
                self.served.push((waiter, Served::Nothing));
            }
        }
    }
}

impl Audience for Clients<'_> {
    #[inline]
    fn before(&mut self, space: &mut Keyspace, nth: usize) {
        if self.proposal.evicts {
            self.keys = count_keys(space);
        }
        if nth < self.proposal.tables.len() {
            self.spare.truncate(0);
            self.current = Current::Nobody;
            return;
        }
        let serves = &mut self.proposal.serves;
        if serves.front().is_some_and(|serve| serve.after <= nth) {
            let current = self.proposal.batches.get(self.batch);
            if current.is_some_and(|batch| batch.is_transaction) {
                // Those who wait come when the whole transaction is done.
                self.go_to_write(space, true);
            }
            if let Some(serve) = self.proposal.serves.pop_front() {
                self.spare.truncate(0);
                self.spare.set_protocol(serve.waiter.protocol);
                self.current = Current::Serve(serve, None);
            }
            return;
        }
        if !self.in_vain.is_empty() {
            self.put_back(space);
        }
        let found = self.go_to_write(space, false);
        let batch = self.proposal.batches.get(self.batch);
        self.current = match batch {
            Some(batch) if found => Current::Batch(batch.replies.len()),
            _ => {
                self.spare.truncate(0);
                Current::Nobody
            }
        };
    }

    #[inline]
    fn prepare<'v>(&mut self, view: View<'v>, spec: &CommandSpec, args: &Args<'_>) -> View<'v> {
        match &mut self.current {
            Current::Nobody => view,
            Current::Batch(_) => match self.proposal.batches.get(self.batch) {
                Some(batch) => untouching(batch, spec, view),
                None => view,
            },
            Current::Serve(_, source) => {
                *source = view.kind(first_key(spec, args));
                view
            }
        }
    }

    #[inline]
    fn reply(&mut self) -> &mut Reply {
        match (&self.current, self.proposal.batches.get_mut(self.batch)) {
            (Current::Batch(_), Some(batch)) => &mut batch.replies,
            _ => &mut self.spare,
        }
    }

    #[inline]
    fn after(
        &mut self,
        space: &mut Keyspace,
        spec: &CommandSpec,
        _args: &Args<'_>,
        ran: Result<Attempt, Refusal>,
    ) {
        match std::mem::replace(&mut self.current, Current::Nobody) {
            Current::Nobody if self.proposal.evicts => {
                self.evicted += self.keys.saturating_sub(count_keys(space)) as u64;
            }
            Current::Nobody => {}
            Current::Batch(before) => {
                let at = self.at;
                self.at += 1;
                let Some(batch) = self.proposal.batches.get_mut(self.batch) else {
                    return;
                };
                if let Ok(Attempt::Empty) = ran {
                    // A blocking command whose key existed when it was proposed has found nothing.
                    match self.may_wait {
                        true => wait(self.cx, space, self.interests, batch),
                        // Those who wait were told already; this one goes to whoever leads now.
                        false => {
                            self.cx.host.on_refusal(&try_again());
                            batch.replies.refusal(&try_again());
                        }
                    }
                    count(self.cx, batch, at, !self.may_wait);
                    batch.ends.push(batch.replies.len());
                } else {
                    answer(self.cx, batch, at, before, Some(ran));
                }
            }
            Current::Serve(serve, source) => {
                let ended = answer_of(spec, source, ran, &mut self.spare);
                match ended {
                    true => {
                        serve.waiter.claim.served();
                        let bytes = self.spare.as_bytes().to_vec();
                        let reply = Reply::over(bytes, self.spare.protocol());
                        let reply = Served::Reply(reply);
                        self.served.push((serve.waiter, reply));
                    }
                    false => self.in_vain.push(serve),
                }
            }
        }
    }

    fn removed(&mut self, expired: bool, evicted: bool) {
        self.expired += u64::from(expired);
        self.evicted += u64::from(evicted);
    }

    fn finish(&mut self, space: &mut Keyspace) {
        self.put_back(space);
        self.go_to_write(space, false);
        if self.expired + self.evicted > 0 {
            (0..self.evicted).for_each(|_| space.count_evicted());
            self.cx.host.on_removed(self.expired, self.evicted);
        }
        // What missed an SQL row was answered so; there was none when it was proposed.
        if space.has_missing_rows() {
            space.take_missing_rows();
        }
    }
}

/// Whether a write is among the commands of a batch from here on.
#[cold]
fn has_write(cx: &Context<'_>, batch: &BatchBox, from: usize) -> bool {
    let rest = batch.heads.iter().skip(from);
    rest.into_iter()
        .any(|&(stat, _)| cx.specs.spec(stat as usize).is_write())
}

fn count_keys(space: &Keyspace) -> usize {
    let dbs = 0..base::limits::DATABASES;
    dbs.map(|db| space.db_stats(db).0).sum()
}

/// Ends the reply of a batch's command.
#[inline]
fn answer(
    cx: &Context<'_>,
    batch: &mut BatchBox,
    at: usize,
    before: usize,
    ran: Option<Result<Attempt, Refusal>>,
) {
    match ran {
        Some(Ok(_)) => count(cx, batch, at, false),
        Some(Err(refusal)) => {
            batch.replies.truncate(before);
            cx.host.on_refusal(&refusal);
            batch.replies.refusal(&refusal);
            count(cx, batch, at, true);
        }
        None => {
            batch.replies.truncate(before);
            cx.host.on_panic();
            batch.replies.refusal(&Refusal::new("ERR internal error"));
        }
    }
    batch.ends.push(batch.replies.len());
}

/// Counts a command that ran.
#[inline]
fn count(cx: &Context<'_>, batch: &BatchBox, at: usize, refused: bool) {
    if let Some(&(stat, _)) = batch.heads.get(at) {
        let args = batch.commands.args(at);
        cx.host.on_command(batch, stat as usize, &args, refused);
    }
}

/// A blocking command found nothing: its waiter is put in line at every key it waits on.
pub(crate) fn wait(
    cx: &Context<'_>,
    space: &mut Keyspace,
    interests: &mut Interests,
    batch: &BatchBox,
) {
    let (Some(waiter), Some(&(stat, db))) = (&batch.waiter, batch.heads.first()) else {
        return;
    };
    let spec = cx.specs.spec(stat as usize);
    for key in awaited_keys(spec, &batch.commands.args(0)) {
        let interest = interests.entry(space, db, key);
        interest.waiters.push_back(waiter.clone());
    }
}

/// CLIENT NO-TOUCH: the command does not count as use of its keys.
#[inline]
fn untouching<'a>(batch: &BatchBox, spec: &CommandSpec, view: View<'a>) -> View<'a> {
    match batch.client.no_touch.load(Ordering::Relaxed) && !spec.is(Traits::ALWAYS_TOUCHES) {
        true => view.without_touching(),
        false => view,
    }
}

/// Randomness of a read among the commands of an entry.
pub(crate) fn read_seed(entry_seed: u64, batch: usize, at: usize) -> u64 {
    seed_of(!entry_seed, batch << 20 | at)
}

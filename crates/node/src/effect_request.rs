//! One request that runs on held regions and is logged by its effect: commands of a client, or an attempt to
//! serve a blocked client.

use std::sync::Arc;

use base::{DbIndex, Refusal};
use command::{CommandSpec, Keys, Run};
use keyspace::rows::ColdRows;
use resp::{Args, Protocol, Reply};

use crate::effects::{Effects, Served};
use crate::held::{Attempted, HeldRegions, Moment, stopped};
use crate::reads::invoke;
use crate::route::regions_of;
use crate::run::Again;
use crate::waiters::{Watch, attempt_for, nil};
use crate::{
    BatchBox, CommandList, Context, Outcome, Place, PlacedKey, Ran, Waiter, awaited_keys, seed_of,
};

/// A command that still lacks something after so many attempts never will have all it needs.
const MOST_ATTEMPTS: u32 = 10_000;

/// What runs on held regions, and how far it has come.
pub struct EffectRequest {
    /// The regions it needs, ascending.
    pub regions: Vec<Place>,
    task: Task,
    /// Its next command.
    next: usize,
    /// It has begun: its watched keys had not changed.
    has_begun: bool,
    /// It runs no further: it is answered, or waits in line.
    is_over: bool,
    /// The keys that its next command names were loaded.
    is_loaded: bool,
    /// The next command was attempted before.
    again: Option<Again>,
    attempts: u32,
    /// Why it did not run.
    refusal: Option<Refusal>,
    /// A blocking command found nothing, and its waiter stands in line.
    is_in_line: bool,
    /// It could have been part of an entry of its region.
    pub(crate) could_be_entry: bool,
}

enum Task {
    Commands {
        batch: BatchBox,
        /// EXEC: the keys that must not have changed.
        watched: Option<Vec<Watch>>,
    },
    Serve(ServeTask),
}

/// An attempt to serve a blocked client, who is claimed.
struct ServeTask {
    waiter: Arc<Waiter>,
    /// Its command with only the key that changed.
    command: CommandList,
    place: Place,
    key: PlacedKey,
    reply: Option<Vec<u8>>,
}

/// What a request needs in memory before it goes on.
pub(crate) struct Needs {
    pub keys: Vec<PlacedKey>,
    pub rows: Vec<ColdRows>,
    pub tries: u8,
}

impl EffectRequest {
    /// Commands of a batch, over these regions. `watched`: it is a transaction.
    pub fn new(regions: Vec<Place>, batch: BatchBox, watched: Option<Vec<Watch>>) -> Self {
        EffectRequest::of(regions, Task::Commands { batch, watched })
    }

    /// A transaction that could have been part of an entry, and joins because others hold its region.
    pub fn joining(self) -> Self {
        EffectRequest {
            could_be_entry: true,
            ..self
        }
    }

    /// The commands, unless it is an attempt for a blocked client.
    pub fn batch_mut(&mut self) -> Option<&mut BatchBox> {
        match &mut self.task {
            Task::Commands { batch, .. } => Some(batch),
            Task::Serve(_) => None,
        }
    }

    /// An attempt for a blocked client who was claimed, because this key has changed.
    pub(crate) fn serve(
        regions: Vec<Place>,
        waiter: Arc<Waiter>,
        command: CommandList,
        place: Place,
        key: PlacedKey,
    ) -> Self {
        let task = ServeTask {
            waiter,
            command,
            place,
            key,
            reply: None,
        };
        EffectRequest::of(regions, Task::Serve(task))
    }

    fn of(regions: Vec<Place>, task: Task) -> Self {
        EffectRequest {
            regions,
            task,
            next: 0,
            has_begun: false,
            is_over: false,
            is_loaded: false,
            again: None,
            attempts: 0,
            refusal: None,
            is_in_line: false,
            could_be_entry: false,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        match &self.task {
            Task::Commands { batch, .. } => batch.commands.size_bytes(),
            Task::Serve(serve) => serve.command.size_bytes(),
        }
    }

    /// Calls `each` with every command.
    fn each_command(
        &self,
        cx: &Context<'_>,
        mut each: impl FnMut(&CommandSpec, DbIndex, &Args<'_>),
    ) {
        match &self.task {
            Task::Commands { batch, .. } => {
                for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                    each(cx.specs.spec(stat as usize), db, &batch.commands.args(at));
                }
            }
            Task::Serve(serve) => {
                let spec = cx.specs.spec(serve.waiter.stat);
                each(spec, serve.waiter.db, &serve.command.args(0));
            }
        }
    }

    /// The regions without which it cannot run.
    pub(crate) fn needed(&self, cx: &Context<'_>) -> Vec<Place> {
        let mut needed = Vec::new();
        self.each_command(cx, |spec, _, args| {
            if spec.keys != Keys::Everything {
                needed.extend(regions_of(cx.map, spec, args));
            }
        });
        if let Task::Commands { watched, .. } = &self.task {
            let watched = watched.iter().flatten();
            needed.extend(watched.map(|watch| cx.map.region_of(&watch.key)));
        }
        needed
    }

    /// Keys that it names and that are not in memory.
    pub(crate) fn cold_keys(&self, held: &mut HeldRegions, cx: &Context<'_>) -> Vec<PlacedKey> {
        let mut keys = Vec::new();
        self.each_command(cx, |spec, db, args| {
            keys.append(&mut held.cold_keys(cx.map, spec, db, args));
        });
        keys
    }

    /// Rows of big collections that its writes need and that are not in memory, as far as that can be told
    /// now.
    pub(crate) fn cold_rows(
        &self,
        held: &mut HeldRegions,
        seed: u64,
        cx: &Context<'_>,
    ) -> Vec<ColdRows> {
        let (mut rows, mut nth) = (Vec::new(), 0);
        self.each_command(cx, |spec, db, args| {
            let moment = Moment::new(cx, seed_of(seed, nth));
            nth += 1;
            if spec.is_write() {
                rows.append(&mut held.cold_rows(&moment, spec, db, args));
            }
        });
        rows
    }

    /// Runs it, or what is left of it; what it needs first, if something is not in memory.
    pub(crate) fn run(
        &mut self,
        held: &mut HeldRegions,
        seed: u64,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<Needs> {
        if self.is_over {
            return None;
        }
        match self.task {
            Task::Commands { .. } => {
                if !self.has_begun
                    && let Some(needs) = self.begin(held, seed, cx)
                {
                    return Some(needs);
                }
                while !self.is_over {
                    if let Some(needs) = self.run_next(held, seed, cx, out) {
                        return Some(needs);
                    }
                }
                None
            }
            Task::Serve(_) => self.run_serve(held, seed, cx, out),
        }
    }

    /// Looks whether it may run at all.
    fn begin(&mut self, held: &mut HeldRegions, seed: u64, cx: &Context<'_>) -> Option<Needs> {
        let mut writes = false;
        self.each_command(cx, |spec, _, _| writes |= spec.is_write());
        let Task::Commands { batch, watched } = &mut self.task else {
            return None;
        };
        if let (true, Some(refusal)) = (writes, stopped(cx)) {
            (self.refusal, self.is_over) = (Some(refusal), true);
            return None;
        }
        if let Some(watched) = watched {
            let keys = watched.iter().map(|it| (it.db, it.key.clone()));
            let keys = held.not_resident(cx.map, keys.collect());
            if !keys.is_empty() && !std::mem::replace(&mut self.is_loaded, true) {
                return Some(Needs::of_keys(keys));
            }
            if held.has_changed(&Moment::new(cx, seed), watched) {
                batch.replies.null_array();
                self.is_over = true;
                return None;
            }
            batch.replies.array(batch.heads.len());
        }
        (self.has_begun, self.is_loaded) = (true, false);
        None
    }

    /// Runs the next command.
    fn run_next(
        &mut self,
        held: &mut HeldRegions,
        seed: u64,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<Needs> {
        let Task::Commands { batch, .. } = &mut self.task else {
            return None;
        };
        let at = self.next;
        let Some(&(stat, db)) = batch.heads.get(at) else {
            self.is_over = true;
            return None;
        };
        let spec = cx.specs.spec(stat as usize);
        let mut replies = std::mem::replace(&mut batch.replies, Reply::new(Protocol::Resp2));
        let args = batch.commands.args(at);
        if !std::mem::replace(&mut self.is_loaded, true) {
            let keys = held.cold_keys(cx.map, spec, db, &args);
            if !keys.is_empty() {
                batch.replies = replies;
                return Some(Needs::of_keys(keys));
            }
        }
        let again = self.again.take();
        let again = again.unwrap_or_else(|| Again::chosen(seed_of(seed, at)));
        let attempted = held.attempt((spec, db, &args), again, &mut replies, cx, |view, reply| {
            invoke(batch, spec, view, &args, reply, cx)
        });
        let refused = match attempted {
            Attempted::Ran(ran) => {
                cx.host
                    .on_command(batch, stat as usize, &args, ran == Ran::Refused);
                if let (Ran::Empty, Run::Block(block)) = (ran, &spec.run) {
                    match &batch.waiter {
                        // It stands there since its first run, which was undone; it was claimed since.
                        Some(waiter) if self.is_in_line => {
                            if waiter.claim.unserve() {
                                out.served.push((waiter.clone(), Served::Nothing));
                            }
                        }
                        Some(waiter) => {
                            put_in_line(held, waiter, spec, db, &args, cx);
                            self.is_in_line = true;
                        }
                        None => nil(block, &mut replies),
                    }
                } else if let (true, Some(waiter)) = (self.is_in_line, &batch.waiter) {
                    waiter.claim.served();
                }
                None
            }
            Attempted::Lacks { keys, rows } if self.attempts < MOST_ATTEMPTS => {
                self.attempts += 1;
                let tries = again.tries();
                self.again = Some(match rows.is_empty() {
                    true => again,
                    false => again.next(),
                });
                batch.replies = replies;
                return Some(Needs { keys, rows, tries });
            }
            Attempted::Lacks { .. } => Some(Refusal::new("ERR the rows of a key cannot be read")),
            Attempted::Refused(refusal) => Some(refusal),
        };
        if let Some(refusal) = refused {
            cx.host.on_rejected(stat as usize);
            cx.host.on_refusal(&refusal);
            replies.refusal(&refusal);
        }
        batch.ends.push(replies.len());
        batch.replies = replies;
        self.next += 1;
        (self.is_loaded, self.attempts) = (false, 0);
        None
    }

    /// One attempt for a blocked client. If there is nothing for it, it is back in its place in line.
    fn run_serve(
        &mut self,
        held: &mut HeldRegions,
        seed: u64,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<Needs> {
        let Task::Serve(serve) = &mut self.task else {
            return None;
        };
        let ServeTask {
            waiter, command, ..
        } = &*serve;
        let args = command.args(0);
        if !std::mem::replace(&mut self.is_loaded, true) {
            let spec = cx.specs.spec(waiter.stat);
            let keys = held.cold_keys(cx.map, spec, waiter.db, &args);
            if !keys.is_empty() {
                return Some(Needs::of_keys(keys));
            }
        }
        // What cannot be kept is not taken for anybody: they go on waiting.
        if !cx.host.has_failed() {
            let moment = Moment::new(cx, seed);
            serve.reply = held.view(&moment, waiter.db, |view| {
                attempt_for(cx.specs, waiter, &args, view)
            });
            held.expire_met(cx.host.is_expiry_paused());
        }
        self.is_over = true;
        if serve.reply.is_none() {
            let (db, key) = &serve.key;
            match held.region_of(cx.map, key) {
                Some(region) => region.put_back(serve.waiter.clone(), *db, key, cx, out),
                None => out
                    .served
                    .push((serve.waiter.clone(), Served::LeaderChanged)),
            }
        }
        None
    }

    /// What it did is undone: it runs once more, alone; whether there is something left to run.
    pub(crate) fn begin_again(&mut self) -> bool {
        match &mut self.task {
            Task::Commands { batch, .. } => {
                batch.replies.truncate(0);
                batch.ends.clear();
                // Nobody else may serve it while it runs again.
                if let (true, Some(waiter)) = (self.is_in_line, &batch.waiter)
                    && !waiter.claim.serve()
                {
                    return false;
                }
            }
            // It is back in its place in line if there was nothing for it.
            Task::Serve(serve) => {
                if serve.reply.take().is_none() {
                    return false;
                }
            }
        }
        (self.next, self.has_begun, self.is_over) = (0, false, false);
        (self.is_loaded, self.again, self.attempts) = (false, None, 0);
        self.refusal = None;
        true
    }

    /// It is over. If it was an attempt for a blocked client: the key whose line goes on, and whether the
    /// client was served.
    pub(crate) fn finish(
        self,
        outcome: Outcome,
        out: &mut Effects,
    ) -> Option<((Place, PlacedKey), bool)> {
        let serve = match self.task {
            Task::Commands { batch, .. } => {
                let outcome = self.refusal.map_or(outcome, Outcome::Refused);
                out.finished.push((batch, outcome));
                return None;
            }
            Task::Serve(serve) => serve,
        };
        let line = (serve.place, serve.key);
        let Some(bytes) = serve.reply else {
            if let Outcome::Unserved(_) = outcome {
                // Those in line were told when the leader changed, but not who was claimed.
                out.served.push((serve.waiter, Served::LeaderChanged));
            }
            return Some((line, false));
        };
        serve.waiter.claim.served();
        let mut reply = Reply::over(bytes, serve.waiter.protocol);
        if outcome != Outcome::Done {
            reply.truncate(0);
            reply.refusal(&outcome.refusal());
        }
        out.served.push((serve.waiter, Served::Reply(reply)));
        Some((line, true))
    }
}

impl Needs {
    pub fn of_keys(keys: Vec<PlacedKey>) -> Needs {
        Needs {
            keys,
            rows: Vec::new(),
            tries: 0,
        }
    }
}

/// A blocking command found nothing: its waiter stands in line at every key it waits on.
fn put_in_line(
    held: &mut HeldRegions,
    waiter: &Arc<Waiter>,
    spec: &CommandSpec,
    db: DbIndex,
    args: &Args<'_>,
    cx: &Context<'_>,
) {
    for key in awaited_keys(spec, args) {
        if let Some(region) = held.region_of(cx.map, key) {
            region.add_waiter(db, key, waiter.clone());
        }
    }
}

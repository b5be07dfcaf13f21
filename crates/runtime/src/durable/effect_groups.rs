//! Commands on held regions, of many clients, kept by one sync.
//!
//! What needs several regions at once, or is logged by its effect, holds its regions until that is on
//! disk: alone, each would cost a sync and make all others wait for it. So they gather: while one
//! group of them is on its way to the disk the next ones line up, then one task of the core holds
//! all their regions, runs them one after the other and commits once.
//!
//! Nobody sees the regions between them, so each is atomic and isolated as if it were alone, and a
//! reply leaves when the whole group is kept. If it cannot be kept, all of the group is refused. On a cluster
//! node each region has a majority of its own: those whose regions are kept are done, whatever became of others.
//!
//! **Too much for the log** ([`super::large`]) is one of them, mostly, and the others are not to suffer for it. All
//! of the group is undone, and each runs once more, a group of its own. That is rare enough not to find out first
//! whose rows are how many; and after one that makes many rows the group ends, so few are in it that ran before.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use base::{DbIndex, Refusal};
use command::{Command, Keys, Run};
use keyspace::rows::ColdRows;
use node::{Requester, in_doubt, too_large};
use resp::Args;

use super::large::Unkept;
use crate::cores::{Again, Answer, BatchBox, Call, Core, Held, Place, Ran, Ticket, Watch, nil};

/// Bounds of a group: the rest is the next one.
const MOST: usize = 256;
const MOST_BYTES: usize = 1024 * 1024;
/// Behind a command with which its rows are this many, the rest is the next one, too: one that makes many need not be followed
/// by another before they are on disk.
const MOST_ROWS_BYTES: usize = 16 * 1024 * 1024;

/// Commands that run together over regions that are held.
pub struct EffectRequest {
    pub regions: Vec<Place>,
    /// EXEC: the keys that must not have changed.
    pub watched: Option<Vec<Watch>>,
    pub batch: BatchBox,
}

/// Those that wait on a core.
#[derive(Default)]
pub struct EffectQueue {
    waiting: RefCell<VecDeque<EffectRequest>>,
    /// Those who were too much together; before the others, each a group.
    alone: RefCell<VecDeque<EffectRequest>>,
    /// A task is at it.
    running: Cell<bool>,
}

impl EffectQueue {
    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty() && self.alone.borrow().is_empty()
    }
}

/// Those being run. Dropped, they are answered, come what may.
struct Group<'a> {
    core: &'a Rc<Core>,
    members: Vec<EffectRequest>,
    /// Nobody else joins it.
    is_alone: bool,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.refuse(&Refusal::new("ERR internal error"));
        }
        for request in self.members.drain(..) {
            self.core.finish_batch(request.batch);
        }
    }
}

impl Group<'_> {
    fn regions(&self) -> Vec<Place> {
        let all = self.members.iter().flat_map(|request| &request.regions);
        all.copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Takes those in line, as many as fit; once `regions` are held only those that need no others.
    fn fill(&mut self, regions: Option<&[Place]>) {
        if regions.is_none() {
            let next = self.core.effect_queue.alone.borrow_mut().pop_front();
            self.is_alone = next.is_some();
            self.members.extend(next);
        }
        if self.is_alone {
            return;
        }
        let mut line = self.core.effect_queue.waiting.borrow_mut();
        let mut bytes: usize = self.members.iter().map(size_of_batch).sum();
        while let Some(next) = line.front() {
            let fits = regions.is_none_or(|held| next.regions.iter().all(|id| held.contains(id)));
            if !fits || self.members.len() >= MOST || bytes >= MOST_BYTES {
                return;
            }
            bytes += size_of_batch(next);
            self.members.extend(line.pop_front());
        }
    }

    /// Those whose region is led elsewhere (cluster) are told so; FLUSHALL is for what is led here.
    fn redirect(&mut self, held: &Held) {
        let core = self.core;
        let is_held = |request: &mut EffectRequest| {
            let mut needed: Vec<Place> = Vec::new();
            for (at, &(stat, _)) in request.batch.heads.iter().enumerate() {
                let row = core.shared.commands.row(stat as usize);
                if row.keys != Keys::Everything {
                    needed.extend(core.regions_of(row, &request.batch.commands.args(at)));
                }
            }
            let watched = request.watched.iter().flatten();
            needed.extend(watched.map(|watch| core.shared.map.region_of(&watch.key)));
            held.has_places(needed.into_iter())
        };
        let gone: Vec<EffectRequest> = self
            .members
            .extract_if(.., |request| !is_held(request))
            .collect();
        for request in gone {
            self.core
                .redirect_batch(request.batch, node::Unserved::Elsewhere);
        }
    }

    /// These regions have not kept what was done to them: those of the group that needed one of them are told.
    fn refuse_in(&mut self, lost: &[(Place, Refusal)]) {
        for request in &mut self.members {
            if let Some(refusal) = fate(&request.regions, lost) {
                request.batch.replies.truncate(0);
                self.core.refuse(&refusal, &mut request.batch.replies);
            }
        }
    }

    /// Those behind the first so many have not run: they are the next in line.
    fn put_back_from(&mut self, ran: usize) {
        let mut line = self.core.effect_queue.waiting.borrow_mut();
        for request in self.members.drain(ran..).rev() {
            line.push_front(request);
        }
    }

    /// Together they were too much for the log, and nothing has happened: who was alone is refused, of several each
    /// is tried alone.
    fn part(&mut self) {
        if self.members.len() < 2 {
            return self.refuse(&too_large());
        }
        for request in &mut self.members {
            request.batch.replies.truncate(0);
        }
        let mut alone = self.core.effect_queue.alone.borrow_mut();
        alone.extend(self.members.drain(..));
    }

    /// All of it comes to this.
    fn refuse(&mut self, refusal: &Refusal) {
        for request in &mut self.members {
            request.batch.replies.truncate(0);
            self.core.refuse(refusal, &mut request.batch.replies);
        }
    }
}

/// What to say of a command on these regions, some of which did not keep it. A word that nothing has happened is for
/// all of them or for none: clients try again by themselves.
fn fate(regions: &[Place], lost: &[(Place, Refusal)]) -> Option<Refusal> {
    let mut of_these = lost.iter().filter(|(id, _)| regions.contains(id));
    let (_, refusal) = of_these.next()?;
    match regions.len() {
        1 => Some(refusal.clone()),
        _ => Some(in_doubt()),
    }
}

fn size_of_batch(request: &EffectRequest) -> usize {
    request.batch.commands.size_bytes()
}

impl Core {
    /// Runs a batch over all its regions at once, with those of others; its reply is in the batch
    /// that comes back. `None` if the node ends before.
    pub async fn run_effects(self: &Rc<Self>, mut request: EffectRequest) -> Option<BatchBox> {
        self.bring_named(self.commands_of(&request.batch)).await;
        let ticket = Ticket::new(self);
        request.batch.ticket = ticket.number();
        self.effect_queue.waiting.borrow_mut().push_back(request);
        self.serve_effects();
        match ticket.await {
            Answer::Batch(batch) => Some(batch),
            _ => None,
        }
    }

    /// Starts the task, unless it runs.
    fn serve_effects(self: &Rc<Self>) {
        if self.effect_queue.running.replace(true) {
            return;
        }
        let core = self.clone();
        let task = tokio::task::spawn_local(async move {
            while !core.effect_queue.is_empty() {
                core.run_group().await;
            }
        });
        let core = self.clone();
        tokio::task::spawn_local(async move {
            // However it ended: a command that broke must not stop those behind it.
            let _ = task.await;
            core.effect_queue.running.set(false);
            if !core.effect_queue.is_empty() {
                core.serve_effects();
            }
        });
    }

    fn commands_of<'a>(
        &'a self,
        batch: &'a BatchBox,
    ) -> impl Iterator<Item = (&'a Command, DbIndex, Args<'a>)> {
        let heads = batch.heads.iter().enumerate();
        heads.map(|(at, &(stat, db))| {
            let row = self.shared.commands.row(stat as usize);
            (row, db, batch.commands.args(at))
        })
    }

    async fn run_group(self: &Rc<Self>) {
        let mut group = Group {
            core: self,
            members: Vec::new(),
            is_alone: false,
        };
        group.fill(None);
        let regions = group.regions();
        let mut again = Again::chosen(self.next_seed());
        let mut held = loop {
            let mut held = self.hold(&regions).await;
            self.begin_batch();
            if !held.has(&regions) {
                group.redirect(&held);
            }
            let cold = held.prepare(&group.members, again).await;
            if cold.is_empty() {
                break held;
            }
            // Nobody waits for these regions while the disk is read.
            drop(held);
            self.warm(cold, again.tries()).await;
            again = again.next();
        };
        group.fill(Some(&regions));
        let mut ran = 0;
        for request in &mut group.members {
            held.run_effects(request).await;
            ran += 1;
            if held.unsettled_bytes() > MOST_ROWS_BYTES {
                break;
            }
        }
        group.put_back_from(ran);
        if self.shared.cluster.is_some() {
            let lost = held.keep_each().await;
            group.refuse_in(&lost);
            return;
        }
        match held.try_commit().await {
            Ok(()) => {}
            Err(Unkept::TooLarge) => group.part(),
            Err(Unkept::Failed(refusal)) => group.refuse(&refusal),
        }
    }
}

fn call<'a>(core: &'a Core, client: &'a Arc<Requester>, (stat, db): (u16, DbIndex)) -> Call<'a> {
    Call {
        row: core.shared.commands.row(stat as usize),
        stat: stat as usize,
        db,
        client,
        is_held: true,
    }
}

impl Held {
    /// Fetches the keys the group names; the rows of big collections that are cold, unless they were
    /// fetched often enough.
    async fn prepare(&mut self, group: &[EffectRequest], again: Again) -> Vec<ColdRows> {
        let core = self.core().clone();
        let mut cold = Vec::new();
        for request in group {
            for (at, &head) in request.batch.heads.iter().enumerate() {
                let args = request.batch.commands.args(at);
                let call = call(&core, &request.batch.client, head);
                self.load_named(&call, &args).await;
                if again.stops() && call.row.is_write() {
                    core.again.set(again);
                    cold.append(&mut self.cold_rows(&call, &args));
                }
            }
        }
        cold
    }

    async fn run_effects(&mut self, request: &mut EffectRequest) {
        let core = self.core().clone();
        let writes = core
            .commands_of(&request.batch)
            .any(|(row, ..)| row.is_write());
        let batch = &mut *request.batch;
        if writes && let Some(refusal) = core.stopped() {
            return core.refuse(&refusal, &mut batch.replies);
        }
        if let Some(watched) = &request.watched {
            let keys = watched.iter().map(|watch| (watch.db, watch.key.clone()));
            self.load_missing_of(keys.collect()).await;
            if self.has_changed(watched) || self.has_touched(watched) {
                return batch.replies.null_array();
            }
            batch.replies.array(batch.heads.len());
        }
        for (at, &head) in batch.heads.iter().enumerate() {
            let args = batch.commands.args(at);
            let call = call(&core, &batch.client, head);
            let ran = self.run_loaded(&call, &args, &mut batch.replies).await;
            if ran == Ran::Empty
                && let Run::Block(block) = &call.row.run
            {
                nil(block, &mut batch.replies);
            }
        }
    }

    /// Whether one of the group before has changed one of these keys. No flag says so yet: it may be undone.
    fn has_touched(&mut self, watched: &[Watch]) -> bool {
        watched.iter().any(|watch| {
            let region = self.region_of(&watch.key);
            region.is_some_and(|region| region.has_touched(watch.db, &watch.key))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::try_again;

    #[test]
    fn what_one_region_lost_is_no_word_about_another() {
        let lost = [(2, try_again())];
        assert_eq!(
            fate(&[1], &lost),
            None,
            "it is kept, and must not be tried again"
        );
        assert_eq!(fate(&[2], &lost), Some(try_again()));
        assert_eq!(fate(&[1, 2], &lost), Some(in_doubt()), "half of it is kept");
        assert_eq!(fate(&[1, 2], &[]), None);
    }
}

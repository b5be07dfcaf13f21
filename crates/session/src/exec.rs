//! MULTI … EXEC: commands are kept, then run together over all regions they need.
//!
//! EXEC holds the regions of every key of every queued command and of every watched key (all
//! regions, if a queued command may touch any key or waits for all of them). Nothing else runs on
//! them until it is done: atomic and isolated over any number of cores. Watches are looked at
//! once the regions are held.
//!
//! On a durable node a transaction of one region that watches nothing needs no holding: it is a
//! batch in an entry of the region's log, which is atomic and isolated too, and shares its sync
//! with all others.

use std::time::Instant;

use base::{NotRun, Refusal, Slot};
use command::{Flags, Run};
use resp::{Args, Reply};

use super::Session;
use super::dispatch::{Slow, Step, Work, feed_monitors};
use super::forward::{Looked, PAUSE};
use crate::commands::{Later, SessionRun, wrong_arity};
use node::{EffectRequest, Specs, Watch, is_logged_as_given, nil};
use runtime::cluster::{Cluster, Unserved, no_leader};
use runtime::cores::{
    Answer, Batch, BatchBox, Call, CommandList, CoreId, Place, Ran, Route, route,
};

/// Commands queued since MULTI.
#[derive(Default)]
pub struct Multi {
    /// A command was refused while queueing: EXEC will be too.
    pub aborted: bool,
    /// One of them writes.
    pub writes: bool,
    /// One of them may need memory.
    needs_memory: bool,
    /// The slot of their keys, and whether there are keys of others (cluster).
    pub slot: Option<Slot>,
    crosses: bool,
    commands: CommandList,
    /// Row number and statistics number of each.
    heads: Vec<(usize, usize)>,
}

impl Multi {
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Bytes of the queued commands.
    pub fn size_bytes(&self) -> usize {
        self.commands.size_bytes()
    }

    /// The same without some of its commands.
    fn without(&self, left_out: &[(usize, Refusal)], specs: &Specs) -> Multi {
        let mut rest = Multi {
            aborted: self.aborted,
            slot: self.slot,
            crosses: self.crosses,
            ..Multi::default()
        };
        for (at, &(number, stat)) in self.heads.iter().enumerate() {
            if left_out.iter().any(|(place, _)| *place == at) {
                continue;
            }
            let spec = specs.spec(stat);
            rest.writes |= spec.is_write();
            rest.needs_memory |= spec.flags.contains(Flags::DENYOOM);
            rest.commands.push(&self.commands.args(at));
            rest.heads.push((number, stat));
        }
        rest
    }

    /// Calls `run` with every command.
    pub(super) fn each(&self, mut run: impl FnMut(&Args<'_>)) {
        (0..self.len()).for_each(|at| run(&self.commands.args(at)));
    }
}

impl Work {
    /// Keeps a command for EXEC.
    pub(super) fn queue(&mut self, number: usize, stat: usize, args: &Args<'_>) -> Step {
        let core = self.session.core.clone();
        let spec = core.shared.commands.spec(stat);
        if spec.flags.contains(Flags::NO_MULTI) {
            let refusal = Refusal::new("ERR Command not allowed inside a transaction");
            return self.reject(Some(stat), &refusal);
        }
        if let Err(refusal) = core.admit_queued(spec.is_write()) {
            return self.reject(Some(stat), &refusal);
        }
        if !self.pending.is_empty() {
            return Step::Slow(Slow::Again);
        }
        if let Some(multi) = &mut self.session.multi {
            let size: usize = args.iter_from(0).map(<[u8]>::len).sum();
            if !multi.commands.has_room(size) {
                let refusal = Refusal::new("ERR transaction too big");
                return self.reject(Some(stat), &refusal);
            }
            if core.shared.cluster.is_some()
                && let Ok(Some(slot)) = Cluster::slot_of(spec, args)
            {
                multi.crosses |= *multi.slot.get_or_insert(slot) != slot;
            }
            multi.writes |= spec.is_write();
            multi.needs_memory |= spec.flags.contains(Flags::DENYOOM);
            multi.commands.push(args);
            multi.heads.push((number, stat));
        }
        self.out.simple("QUEUED");
        if self.session.reply_mode != super::ReplyMode::On {
            let start = self.out.len() - b"+QUEUED\r\n".len();
            self.suppressed = Some((self.session.reply_mode, start));
            self.suppress_reply();
        }
        Step::Done
    }
}

/// EXEC.
pub fn exec<'a>(session: &'a mut Session, args: &'a Args<'a>, reply: &'a mut Reply) -> Later<'a> {
    Box::pin(async move {
        let result = run_exec(session, reply).await;
        let shared = session.shared();
        if shared.clients.has_monitors()
            && let Some(spec) = shared.commands.table.named(args)
        {
            feed_monitors(session, spec, args);
        }
        result
    })
}

async fn run_exec(session: &mut Session, reply: &mut Reply) -> Result<(), Refusal> {
    let denied = session.denied_commands();
    if denied.is_empty() {
        return run_allowed(session, reply).await;
    }
    // The others run; what may not is answered in its place.
    let Some(multi) = session.multi.take() else {
        return Ok(());
    };
    let specs = &session.core.shared.commands;
    session.multi = Some(Box::new(multi.without(&denied, specs)));
    let mut replies = Reply::new(session.protocol);
    run_allowed(session, &mut replies).await?;
    match with_denied(replies.as_bytes(), &denied, multi.len(), session) {
        Some(whole) => reply.raw(&whole),
        None => reply.append(&replies),
    }
    Ok(())
}

/// The replies of a transaction together with the refusals of those commands that did not run; none if it was not run at all.
fn with_denied(
    replies: &[u8],
    denied: &[(usize, Refusal)],
    count: usize,
    session: &Session,
) -> Option<Vec<u8>> {
    let mut rest = replies.strip_prefix(format!("*{}\r\n", count - denied.len()).as_bytes())?;
    let mut whole = Reply::new(session.protocol);
    whole.array(count);
    let mut denied = denied.iter().peekable();
    for at in 0..count {
        if let Some((_, refusal)) = denied.next_if(|(place, _)| *place == at) {
            session.core.refuse(refusal, &mut whole);
            continue;
        }
        let end = Looked::default().reply_end(rest).ok().flatten()?;
        let (reply, behind) = rest.split_at_checked(end)?;
        whole.raw(reply);
        rest = behind;
    }
    Some(whole.into_bytes())
}

async fn run_allowed(session: &mut Session, reply: &mut Reply) -> Result<(), Refusal> {
    let Some(multi) = session.multi.take() else {
        return Err(Refusal::new("ERR EXEC without MULTI"));
    };
    let watched = std::mem::take(&mut session.watched);
    session.publish();
    if multi.aborted {
        session.unwatch();
        return Err(Refusal::new(
            "EXECABORT Transaction discarded because of previous errors.",
        ));
    }
    if let Err(refusal) = session.core.admit_exec(multi.writes, multi.needs_memory) {
        return Err(Refusal::text_of(format!(
            "EXECABORT Transaction discarded because of: {}",
            refusal.text()
        )));
    }
    if multi.crosses {
        session.unwatch();
        return Err(Refusal::new(
            "CROSSSLOT Keys in request don't hash to the same slot",
        ));
    }
    if session.shared().cluster.is_none() {
        return run_here(session, &multi, &watched, reply).await;
    }
    let until = session.deadline();
    let mut hint = None;
    loop {
        let has_watched = !watched.is_empty();
        if session.forwards()
            && let Some(()) = session
                .exec_elsewhere(&multi, has_watched, hint.take(), reply)
                .await?
        {
            return Ok(());
        }
        let before = reply.len();
        if let Err(refusal) = run_here(session, &multi, &watched, reply).await {
            reply.truncate(before);
            reply.refusal(&refusal);
        }
        match reply.not_run_at(before) {
            Some(NotRun::Moved(moved)) if session.forwards() => hint = Some(moved.address.clone()),
            Some(NotRun::LeaderChanging(_) | NotRun::Unready(_)) if Instant::now() < until => {}
            Some(NotRun::LeaderChanging(_)) => {
                reply.truncate(before);
                return Err(no_leader());
            }
            _ => return Ok(()),
        }
        reply.truncate(before);
        if has_watched && session.forwards() {
            // Who led when they were watched does no more: nobody knows what became of the keys.
            reply.null_array();
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs a transaction on this node.
async fn run_here(
    session: &mut Session,
    multi: &Multi,
    watched: &[Watch],
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let region = match watched.is_empty() {
        true => session.region_of_entry(multi),
        false => None,
    };
    if let (Some(region), false) = (region, session.core.has_effect_groups()) {
        session.send_transaction(region, multi, reply).await;
        return Ok(());
    }
    let regions = session.regions_of_transaction(multi, watched);
    if session.may_gather(multi) {
        let batch = session.batch_of(multi, session.core.id);
        let mut request = EffectRequest::new(regions, batch, Some(watched.to_vec()));
        if region.is_some() {
            request = request.joining();
        }
        match session.core.run_effects(request).await {
            Some(batch) => reply.append(&batch.replies),
            None => return Err(Refusal::new("ERR internal error")),
        }
        return Ok(());
    }
    let heads = multi.heads.iter().enumerate();
    let named = heads.map(|(at, &(_, stat))| {
        let spec = session.core.shared.commands.spec(stat);
        (spec, session.db, multi.commands.args(at))
    });
    session.core.load_named_rows(named).await;
    if !regions.is_empty() {
        let held = session.core.hold(&regions).await;
        if let Some(slot) = multi.slot {
            // Commands about all keys are about those that are led here; the others need theirs.
            let map = &session.core.shared.map;
            let watched = watched.iter().map(|watch| map.region_of(&watch.key));
            let places = std::iter::once(map.region_of_slot(slot)).chain(watched);
            if !held.has_places(places) {
                return Err(session.core.unserved(slot, Unserved::Elsewhere));
            }
        }
        session.held = Some(held);
        session.core.begin_batch();
    }
    session.in_exec = true;
    if let Some(held) = &mut session.held {
        let keys = watched.iter().map(|watch| (watch.db, watch.key.clone()));
        held.load_missing_of(keys.collect()).await;
    }
    let has_changed = match &mut session.held {
        Some(held) => held.has_changed(watched),
        None => false,
    };
    let result = if has_changed {
        reply.null_array();
        Ok(())
    } else {
        session.run_transaction(multi, reply).await
    };
    session.in_exec = false;
    let mut held = session.held.take();
    if let Some(held) = &mut held {
        held.commit().await?;
    }
    result
}

impl Session {
    /// Queued commands that the user may not run any more, and what is said instead.
    fn denied_commands(&self) -> Vec<(usize, Refusal)> {
        let Some(multi) = self.multi.as_ref().filter(|multi| !multi.aborted) else {
            return Vec::new();
        };
        let commands = multi.heads.iter().enumerate();
        let denied = commands.filter_map(|(at, &(_, stat))| {
            let spec = self.core.shared.commands.spec(stat);
            let refusal = self.refuses_queued(stat, spec, &multi.commands.args(at));
            Some((at, refusal?))
        });
        denied.collect()
    }

    fn regions_of_transaction(&self, multi: &Multi, watched: &[Watch]) -> Vec<Place> {
        let map = &self.core.shared.map;
        let all = || (0..map.regions()).collect();
        let mut regions: Vec<Place> = watched
            .iter()
            .map(|watch| map.region_of(&watch.key))
            .collect();
        let mut found = Vec::new();
        for (at, &(number, stat)) in multi.heads.iter().enumerate() {
            let commands = &self.core.shared.commands;
            let spec = commands.spec(stat);
            if matches!(spec.run, Run::Session | Run::Container) {
                match self.runs.find(number, spec) {
                    Some(SessionRun::Later(_)) => return all(),
                    _ => continue,
                }
            }
            match route(map, spec, &multi.commands.args(at), &mut found) {
                Route::One(one) => regions.push(one),
                Route::Several => regions.extend_from_slice(&found),
                Route::All | Route::Cursor => return all(),
                Route::Anywhere => regions.push(map.any_of(self.core.id)),
            }
        }
        regions.sort_unstable();
        regions.dedup();
        regions
    }

    /// On a durable node: the one region of a transaction that can be part of an entry of its log,
    /// like any batch of commands: many share a sync then.
    fn region_of_entry(&self, multi: &Multi) -> Option<Place> {
        let shared = &self.core.shared;
        if shared.durable.is_none() || !multi.writes {
            return None;
        }
        let mut region = None;
        let mut found = Vec::new();
        for (at, &(_, stat)) in multi.heads.iter().enumerate() {
            let spec = shared.commands.spec(stat);
            if !matches!(spec.run, Run::Read(_) | Run::Write(_)) || !is_logged_as_given(spec) {
                return None;
            }
            let Route::One(one) = route(&shared.map, spec, &multi.commands.args(at), &mut found)
            else {
                return None;
            };
            if *region.get_or_insert(one) != one {
                return None;
            }
        }
        region
    }

    /// The transaction as a batch: nothing in it is about the session.
    fn batch_of(&self, multi: &Multi, target: CoreId) -> BatchBox {
        let shared = &self.core.shared;
        let mut batch = Batch::new(self.core.id, target, self.client.requester.clone());
        (batch.writes, batch.is_transaction) = (multi.writes, true);
        batch.replies.set_protocol(self.protocol);
        batch.replies.set_limit(self.reply_limit());
        for (at, &(_, stat)) in multi.heads.iter().enumerate() {
            let args = multi.commands.args(at);
            if shared.clients.has_monitors() {
                feed_monitors(self, shared.commands.spec(stat), &args);
            }
            batch.commands.push(&args);
            batch.heads.push((stat as u16, self.db));
        }
        batch
    }

    /// Runs a transaction as one batch of the log of its region.
    async fn send_transaction(&mut self, region: Place, multi: &Multi, reply: &mut Reply) {
        let core = self.core.clone();
        let mut batch = self.batch_of(multi, core.shared.map.core_of(region));
        batch.region = region;
        let Answer::Batch(batch) = core.send_batch(batch).await.await else {
            core.refuse(&Refusal::new("ERR internal error"), reply);
            return;
        };
        // Refused, it has one reply in all.
        if batch.ends.len() == multi.len() {
            reply.array(multi.len());
        }
        reply.append(&batch.replies);
    }

    /// Whether a transaction can be kept together with those of others: it writes, on a durable node,
    /// and nothing in it is about the session.
    fn may_gather(&self, multi: &Multi) -> bool {
        let shared = &self.core.shared;
        let is_data = |&(_, stat): &(usize, usize)| {
            !matches!(
                shared.commands.spec(stat).run,
                Run::Session | Run::Container
            )
        };
        shared.durable.is_some() && multi.writes && multi.heads.iter().all(is_data)
    }

    async fn run_transaction(&mut self, multi: &Multi, reply: &mut Reply) -> Result<(), Refusal> {
        let core = self.core.clone();
        let commands = &core.shared.commands;
        reply.array(multi.len());
        for (at, &(number, stat)) in multi.heads.iter().enumerate() {
            let spec = commands.spec(stat);
            let args = multi.commands.args(at);
            if core.shared.clients.has_monitors() {
                feed_monitors(self, spec, &args);
            }
            match spec.run {
                Run::Session | Run::Container => match self.runs.find(number, spec) {
                    Some(SessionRun::Now(run)) => self.run_now(stat, run, &args, reply),
                    Some(SessionRun::Later(run)) => {
                        Box::pin(self.run_later(stat, run, &args, reply)).await;
                    }
                    _ => core.refuse(&wrong_arity(spec), reply),
                },
                _ => self.run_queued(stat, &args, reply).await,
            }
        }
        Ok(())
    }

    async fn run_queued(&mut self, stat: usize, args: &Args<'_>, reply: &mut Reply) {
        let core = self.core.clone();
        let spec = core.shared.commands.spec(stat);
        let call = Call {
            spec,
            stat,
            db: self.db,
            client: &self.client.requester,
            is_held: true,
        };
        let Some(held) = &mut self.held else {
            core.refuse(&Refusal::new("ERR internal error"), reply);
            return;
        };
        if held.run_loaded(&call, args, reply).await == Ran::Empty
            && let Run::Block(block) = &spec.run
        {
            nil(block, reply);
        }
    }
}

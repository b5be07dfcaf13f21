//! Where the regions of a core meet threads, files and sockets: what they ask for is carried out here,
//! and they are told what they need to know.
//!
//! *Invariant*: nobody borrows the regions while effects are carried out, and what changed is told to
//! those who watch or wait before any reply leaves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Refusal;
use base::cluster::NodeId;
use keyspace::{DueKey, Garbage};
use node::outgoing::size_bytes;
use node::{
    Batch, Borrow, Context, DataSet, DigestRequest, Effects, GROUPS, Grant, Host, Load, LogJob,
    Outcome, OwnedRegions, Peers, READS, ReplicaRecord, Served, refusal_of,
};
use replica::{Ready, Replica, SnapshotHead, Unfit};
use resp::Args;
use table::leader::End;

use super::{Answer, Call, Core, Message, Place, Ticket};
use crate::cluster::leadership;
use crate::durable::Job;

/// The longest wait for a change of a region before it is looked at again.
const CHANGES: Duration = Duration::from_millis(50);
/// How soon a store that was busy is tried again.
const BUSY: Duration = Duration::from_millis(1);

impl Core {
    /// Lets the regions of this core handle something, and carries out what they ask for.
    pub(crate) fn on_regions<T>(
        self: &Rc<Self>,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Effects) -> T,
    ) -> T {
        let result = self.with_regions(handle);
        self.carry_out();
        result
    }

    /// As [`Core::on_regions`]; what they ask for is carried out later.
    pub(crate) fn with_regions<T>(
        &self,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Effects) -> T,
    ) -> T {
        self.with_context(|cx| {
            let mut regions = self.regions.borrow_mut();
            handle(&mut regions, cx, &mut self.effects.borrow_mut())
        })
    }

    /// What regions need to know of the world around them, now.
    #[inline]
    pub(crate) fn with_context<T>(&self, handle: impl FnOnce(&Context<'_>) -> T) -> T {
        let settings = self.settings().clone();
        let catalogue = self.shared.catalogue.load();
        let durable = self.shared.durable.as_ref();
        let is_cluster = self.shared.cluster.is_some();
        let context = Context {
            specs: &self.shared.commands,
            map: &self.shared.map,
            tuning: &settings.tuning,
            now_ms: self.now_ms(),
            clock_ms: self.lease_ms(),
            seeds: &self.seeds,
            rows: durable.map(|durable| &durable.stores.rows),
            is_cluster,
            most_change_bytes: durable.map_or(usize::MAX, |it| it.most_change_bytes),
            catalogue: &catalogue,
            host: self,
        };
        handle(&context)
    }

    fn carry_out(self: &Rc<Self>) {
        let mut out = std::mem::take(&mut *self.effects.borrow_mut());
        if std::mem::take(&mut out.has_changes) {
            self.serve_key_changes();
        }
        for job in out.jobs.drain(..) {
            self.append(job);
        }
        if !out.messages.is_empty() {
            self.gather_messages(&mut out.messages);
        }
        for (place, fetch) in out.fetches.drain(..) {
            self.fetch_entries(place, fetch);
        }
        for (waiter, served) in out.served.drain(..) {
            match served {
                Served::Reply(reply) => self.answer_waiter(&waiter, Some(reply)),
                Served::Nothing => self.answer_waiter(&waiter, None),
                Served::LeaderChanged => self.unblock_claimed(&waiter),
            }
        }
        for (batch, outcome) in out.finished.drain(..) {
            match outcome {
                Outcome::Done => self.finish_batch(batch),
                Outcome::Unserved(why) => self.redirect_batch(batch, why),
                outcome => self.refuse_batch(batch, &outcome.refusal()),
            }
        }
        for (core, ticket, fate) in out.batch_outcomes.drain(..) {
            match core == self.id {
                true => {
                    self.on_regions(|owned, cx, out| owned.on_batch_outcome(ticket, fate, cx, out))
                }
                false => self.send(core, Message::Settled { ticket, fate }),
            }
        }
        for (owner, batch) in out.effect_batches.drain(..) {
            self.send(owner, Message::Keep(Box::new(batch)));
        }
        for (owner, regions) in out.returns.drain(..) {
            self.send(owner, Message::Return { regions });
        }
        for borrow in out.borrows.drain(..) {
            self.borrow(borrow);
        }
        for load in out.held_loads.drain(..) {
            self.load_held(load);
        }
        for (ticket, result, regions) in out.committed.drain(..) {
            let answer = Answer::Committed(Box::new((result, regions)));
            if let Some(answer) = self.tickets().deliver(ticket, answer) {
                self.on_unwanted(answer);
            }
        }
        for ticket in out.busy_commits.drain(..) {
            self.soon(move |core| {
                core.on_regions(|owned, cx, out| owned.retry_commit(ticket, cx, out));
            });
        }
        if std::mem::take(&mut out.serves_soon) {
            self.soon(|core| core.on_regions(|owned, cx, out| owned.serve_lines(cx, out)));
        }
        for (ticket, may_read) in out.reads.drain(..) {
            match ticket > READS {
                true => self.on_regions(|regions, cx, out| {
                    regions.resume_read(ticket, may_read, cx, out);
                }),
                false => drop(self.tickets().deliver(ticket, Answer::MayRead(may_read))),
            }
        }
        for place in out.looks_again.drain(..) {
            self.on_regions(|regions, cx, out| regions.look_again(place, cx, out));
            self.tell_watching(place);
        }
        for load in out.loads.drain(..) {
            self.load(load);
        }
        for place in out.busy.drain(..) {
            self.soon(move |core| core.resume(place));
        }
        for (place, replica) in out.snapshots_wanted.drain(..) {
            self.on_snapshot_wanted(place, replica);
        }
        for (place, head) in out.installs.drain(..) {
            self.begin_install(place, head);
        }
        for request in out.digests.drain(..) {
            self.take_digest(request);
        }
        for request in out.rows.drain(..) {
            self.ask_sql(request);
        }
        for (ticket, end) in out.row_answers.drain(..) {
            let ticket = ticket as usize;
            if ticket <= READS {
                let _ = self.tickets().deliver(ticket, Answer::Table(end));
                continue;
            }
            let failure = match end {
                Some(End::Failed(failure)) => Some(refusal_of(failure)),
                _ => None,
            };
            self.on_regions(|regions, cx, out| {
                regions.resume_read_of_rows(ticket, failure, cx, out);
            });
        }
        for grant in out.grants.drain(..) {
            self.grant(grant);
        }
        if !out.returned.is_empty() {
            for place in out.returned.drain(..) {
                self.tell_watching(place);
            }
            self.hear_sql();
            self.evict_returned();
        }
        let requeued = std::mem::take(&mut out.requeued);
        let wakes = std::mem::take(&mut out.wakes);
        let applied = std::mem::take(&mut out.applied);
        {
            // The room is used again, unless something was asked for meanwhile.
            let mut next = self.effects.borrow_mut();
            match next.is_empty() {
                true => *next = out,
                false => drop(out),
            }
        }
        if wakes {
            self.wake_to_propose();
        } else if self.regions.borrow().outgoing.is_flush_asked {
            self.wake_to_flush();
        }
        for place in applied {
            self.keep_in_bounds();
            self.evict_after(place);
        }
        for batch in requeued {
            self.enqueue(batch);
        }
    }

    /// Waits until a region comes back or learns which tables there are; a little at most, because it may
    /// also leave this node.
    pub(crate) async fn region_changes(self: &Rc<Self>, place: Place) {
        let mut ticket = Ticket::new(self);
        let watching = (place, ticket.number());
        self.watching_regions.borrow_mut().push(watching);
        if tokio::time::timeout(CHANGES, &mut ticket).await.is_err() {
            let mut all = self.watching_regions.borrow_mut();
            all.retain(|it| *it != watching);
            drop(all);
            ticket.close();
        }
        self.begin_batch();
    }

    /// Something has changed about a region.
    pub(crate) fn tell_watching(&self, place: Place) {
        if self.watching_regions.borrow().is_empty() {
            return;
        }
        let mut all = self.watching_regions.borrow_mut();
        let told: Vec<_> = all.extract_if(.., |(of, _)| *of == place).collect();
        drop(all);
        for (_, ticket) in told {
            let _ = self.tickets().deliver(ticket, Answer::Changed);
        }
    }

    /// Applying may go on.
    pub(crate) fn resume(self: &Rc<Self>, place: Place) {
        self.begin_batch();
        self.on_regions(|regions, cx, out| regions.resume(place, cx, out));
    }

    /// Loads what an entry or a read needs; then it goes on.
    fn load(self: &Rc<Self>, load: Load) {
        let core = self.clone();
        tokio::task::spawn_local(async move {
            core.load_keys_here(load.place, &load.keys).await;
            core.warm_here(load.place, load.rows, load.tries).await;
            match load.read {
                None => core.resume(load.place),
                Some(ticket) => {
                    core.begin_batch();
                    core.on_regions(|regions, cx, out| {
                        regions.resume_read(ticket, false, cx, out);
                    });
                }
            }
        });
    }

    /// Does something a moment later.
    fn soon(self: &Rc<Self>, act: impl FnOnce(&Rc<Core>) + 'static) {
        let core = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(BUSY).await;
            core.begin_batch();
            act(&core);
        });
    }

    /// Asks another core for regions that a group of effect requests needs.
    fn borrow(self: &Rc<Self>, borrow: Borrow) {
        let Borrow {
            owner,
            ticket,
            regions,
        } = borrow;
        self.stats().holds.add(1);
        let message = Message::Lend {
            from: self.id,
            ticket,
            regions,
        };
        if self.try_credit(owner) {
            return self.send(owner, message);
        }
        let core = self.clone();
        tokio::task::spawn_local(async move {
            core.credit(owner).await;
            core.send(owner, message);
        });
    }

    fn grant(self: &Rc<Self>, grant: Grant) {
        let Grant {
            core,
            ticket,
            regions,
        } = grant;
        if core == self.id && ticket > GROUPS {
            self.on_regions(|owned, cx, out| owned.on_lent(ticket, regions, cx, out));
        } else if core == self.id {
            if let Some(answer) = self.tickets().deliver(ticket, Answer::Regions(regions)) {
                self.on_unwanted(answer);
            }
        } else {
            let owner = self.id;
            self.send(
                core,
                Message::Lent {
                    owner,
                    ticket,
                    regions,
                },
            );
        }
    }

    /// Passes on what a region's replica has to say, and applies what is committed.
    pub(crate) fn drive(self: &Rc<Self>, place: Place) {
        self.on_regions(|regions, cx, out| regions.drive(place, cx, out));
    }

    /// Grants what can be granted to those who wait to borrow regions.
    pub(crate) fn grant_next(self: &Rc<Self>) {
        self.on_regions(|regions, cx, out| regions.grant_next(cx, out));
    }

    /// The log failed: nothing of a region that is on its way will be acknowledged.
    pub(crate) fn fail_region(self: &Rc<Self>, place: Place) {
        self.on_regions(|regions, cx, out| regions.fail_region(place, cx, out));
    }

    /// Proposes the removal of keys whose time has come.
    pub(crate) fn propose_due(self: &Rc<Self>, place: Place, due: &[DueKey]) {
        if !due.is_empty() {
            self.on_regions(|regions, cx, out| regions.propose_due(place, due, cx, out));
        }
    }

    /// Looks after the SQL rows of a region.
    pub(crate) fn advance(self: &Rc<Self>, place: Place) {
        if self.shared.catalogue_version() == 0 && self.shared.cluster.is_none() {
            return;
        }
        self.on_regions(|regions, cx, out| regions.advance(place, cx, out));
    }

    /// Answers every command of a batch with a refusal, a transaction with one.
    pub(crate) fn refuse_batch(self: &Rc<Self>, mut batch: node::BatchBox, refusal: &Refusal) {
        batch.replies.truncate(0);
        batch.ends.clear();
        if batch.is_transaction {
            self.refuse(refusal, &mut batch.replies);
            return self.finish_batch(batch);
        }
        for _ in 0..batch.heads.len() {
            self.refuse(refusal, &mut batch.replies);
            batch.ends.push(batch.replies.len());
        }
        self.finish_batch(batch);
    }

    /// Sends log writes of regions to the log writer; the core is told when they are on disk.
    fn append(&self, job: LogJob) {
        let LogJob {
            places,
            writes,
            is_ours,
            clients,
            commit,
        } = job;
        let (shared, core) = (self.shared.clone(), self.id);
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let bytes: usize = writes.iter().map(size_bytes).sum();
        durable
            .logged_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(mailbox) = shared.mailboxes.get(core) {
            mailbox.await_log();
        }
        durable.writer.send(Job {
            writes,
            done: Box::new(move |writes, result| {
                if let (Err(error), Some(durable)) = (&result, &shared.durable) {
                    durable.fail(error);
                }
                let written = LogJob::logged(&places, &writes);
                let mailbox = shared.mailboxes.get(core)?;
                mailbox.push(Message::Logged {
                    written,
                    commit,
                    is_ours,
                    ok: result.is_ok(),
                });
                Some(mailbox.clone())
            }),
            clients,
        });
    }

    /// Makes a digest of a region's rows on a thread of its own.
    fn take_digest(&self, request: DigestRequest) {
        crate::cluster::take_digest(self, request);
    }
}

impl Host for Core {
    fn on_command(&self, batch: &Batch, stat: usize, args: &Args<'_>, refused: bool) {
        let call = Call {
            spec: self.shared.commands.spec(stat),
            stat,
            db: 0,
            client: &batch.client,
            is_held: true,
        };
        self.account(stat, refused, args, &call);
    }

    fn on_rejected(&self, stat: usize) {
        self.stats().on_rejected(Some(stat));
    }

    fn discard(&self, garbage: Garbage) {
        stats::reaper::send(vec![garbage]);
    }

    fn data_set(&self) -> Option<&Arc<DataSet>> {
        Some(&self.shared.data_set)
    }

    fn on_refusal(&self, refusal: &Refusal) {
        self.stats().on_error(refusal);
    }

    fn log_stalled_ms(&self) -> Option<u64> {
        let durable = self.shared.durable.as_ref()?;
        durable.writer.disk().stalled_ms()
    }

    fn on_panic(&self) {
        self.stats().unexpected_errors.add(1);
    }

    fn on_removed(&self, expired: u64, evicted: u64) {
        self.stats().expired_keys.add(expired);
        self.stats().evicted_keys.add(evicted);
    }

    fn on_proposed(&self, commands: usize) {
        if let Some(durable) = &self.shared.durable {
            durable.entries.fetch_add(1, Ordering::Relaxed);
            durable
                .commands_logged
                .fetch_add(commands as u64, Ordering::Relaxed);
        }
    }

    fn on_unfit_message(&self, from: NodeId, region: u64, why: &Unfit) {
        self.stats().unfit_messages.add(1);
        if let Some(cluster) = &self.shared.cluster {
            cluster.tell_of_unfit(from, region, why);
        }
    }

    fn on_ready(&self, place: Place, replica: &Replica, peers: &Peers, ready: &Ready) {
        let Some(cluster) = &self.shared.cluster else {
            return;
        };
        let region = peers.record.region();
        let node_of = |id| peers.node_of(id);
        leadership::log_change(cluster.node, region, replica, ready, node_of);
        let is_leaderless = replica.leader().is_none();
        if ready.leader_changed && !is_leaderless {
            cluster.set_lost(place, false);
        }
        if ready.became_leader.is_some() {
            // Everybody should hear of it soon.
            cluster.trigger_heartbeat();
        }
        if ready.lost_leadership && is_leaderless {
            cluster.set_lost(place, true);
        }
    }

    fn on_members(&self, place: Place, _index: u64, record: &ReplicaRecord) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.lead_slots(record, place);
            cluster.trigger_heartbeat();
        }
    }

    fn is_expiry_paused(&self) -> bool {
        self.shared.is_expiry_paused(self.now_ms())
    }

    fn claim_snapshot(&self, peers: &mut Peers, head: &SnapshotHead) -> bool {
        self.claim_files(peers, head)
    }

    fn table_limits(&self) -> table::leader::Limits {
        crate::tables::limits(&self.shared, &self.settings())
    }

    fn fail(&self, reason: &str) {
        if let Some(durable) = &self.shared.durable {
            durable.fail(reason);
        }
    }

    fn failure(&self) -> Option<Refusal> {
        self.shared.durable.as_ref()?.failure()
    }

    fn awaits_room(&self) -> bool {
        let durable = self.shared.durable.as_ref();
        durable.is_some_and(|durable| durable.is_full() || durable.stores.rows.lacks_room())
    }

    fn has_failed(&self) -> bool {
        let durable = self.shared.durable.as_ref();
        durable.is_some_and(|durable| durable.is_failed())
    }
}

//! The regions of a simulated node: `node::OwnedRegions`, the very code a server's core calls, with what
//! it asks for carried out on a simulated disk and network.
//!
//! Nothing here decides anything about a region. A core of the server does the same with threads and
//! sockets (`runtime::cores::effects`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use keyspace::Tuning;
use keyspace::rows::{self, RowStore, Tier};
use node::{
    Claim, Context, Effects as Asked, HeldLoad, Load, LogJob, Logged, Map, Outcome, OwnedRegions,
    Places, Progress, READS, Region, ReplicaRecord, Requester, Said, Seeds, Served, Specs, Waiter,
    refusal_of,
};
use replica::{Fetch, LogError, Replica, SnapshotHead};
use table::RowId;
use table::leader::End;

use crate::bugs::Bug;
use crate::check::written::Cached;
use crate::client::{MOST_REGIONS, Request, tag};
use crate::disk::{Written, written};
use crate::effects::{Effects, Fact};
use crate::machine::Node;
use crate::mail::Mail;
use crate::process::Process;
use crate::requests::Waiting;

pub static SPECS: LazyLock<Specs> =
    LazyLock::new(|| Specs::new(command::family::ALL.iter().copied().flatten().copied()));
pub static TUNING: LazyLock<Tuning> = LazyLock::new(Tuning::default);

/// Places of a node; a region's place is its id.
const PLACES: usize = 64;
/// Cores of a node: they lend each other their regions.
pub const CORES: usize = 2;

/// What a node has of its regions in memory.
pub struct Regions {
    /// By core.
    pub owned: Vec<OwnedRegions>,
    map: Map,
    /// Messages for each core.
    pub(crate) mail: Vec<VecDeque<Mail>>,
    seeds: Seeds,
    pub progress: Arc<Progress>,
    pub(crate) client: Arc<Requester>,
    /// Under way, by their tickets.
    pub(crate) requests: BTreeMap<usize, Request>,
    pub(crate) waiting: BTreeMap<usize, Waiting>,
    pub(crate) last_ticket: usize,
    /// Of each region, at most one.
    fetches: BTreeMap<u64, Fetch>,
    /// What takes a while, by number.
    works: BTreeMap<u64, Work>,
    last_work: u64,
    /// Writes of the log by which a job of a core ends.
    jobs: BTreeMap<Written, Job>,
    /// What databases said about regions that are lent.
    pub(crate) unheard: Vec<((u64, u64, u64), Said)>,
    /// Members to which a snapshot is on its way.
    pub sending: BTreeSet<u64>,
    /// By region: the index whose digest was told.
    digested: BTreeMap<u64, u64>,
    /// By region: the SQL rows that were last seen.
    pub(crate) cached: BTreeMap<u64, BTreeMap<RowId, Cached>>,
}

/// A job for the log.
enum Job {
    /// Entries that this core proposed.
    Ours(usize),
    /// A commit of this core, with this ticket.
    Commit(usize, usize),
    /// A part of such a commit, which ends with another write.
    PartOfCommit,
}

/// Something that takes a while.
pub(crate) enum Work {
    Load(Load),
    /// A group of effect requests of this core needs rows.
    LoadHeld(usize, HeldLoad),
    /// The store was busy.
    Retry(u64),
    RetryCommit(usize, usize),
    /// Lines of blocked clients of this core are to be served.
    ServeLines(usize),
    Install(u64, SnapshotHead),
    /// A client that watches a key sends EXEC.
    Exec(usize),
    /// A blocked client has waited long enough.
    TimeOut(usize),
}

impl Regions {
    pub fn new(seed: u64) -> Regions {
        let places = Places::default();
        for region in 1..MOST_REGIONS {
            let slot = base::slot::slot_of(tag(region).as_bytes());
            places.set(slot, slot, region as usize);
        }
        let map = Map::of_cluster(CORES, Arc::new(places));
        Regions {
            owned: (0..CORES)
                .map(|core| OwnedRegions::of(&map, core, Vec::new()))
                .collect(),
            map,
            mail: (0..CORES).map(|_| VecDeque::new()).collect(),
            waiting: BTreeMap::new(),
            unheard: Vec::new(),
            seeds: Seeds::new(seed),
            progress: Arc::new(Progress::new(PLACES)),
            client: Arc::new(Requester::new(1)),
            requests: BTreeMap::new(),
            last_ticket: 0,
            fetches: BTreeMap::new(),
            works: BTreeMap::new(),
            last_work: 0,
            jobs: BTreeMap::new(),
            sending: BTreeSet::new(),
            digested: BTreeMap::new(),
            cached: BTreeMap::new(),
        }
    }

    /// The core that owns a region.
    pub fn core_of(&self, region: u64) -> usize {
        self.map.core_of(region as usize)
    }

    /// A region, if it is not lent.
    pub fn region(&self, region: u64) -> Option<&Region> {
        self.owned
            .get(self.core_of(region))?
            .region(region as usize)
    }

    pub fn region_mut(&mut self, region: u64) -> Option<&mut Region> {
        let core = self.core_of(region);
        self.owned.get_mut(core)?.region_mut(region as usize)
    }

    /// All regions that are not lent.
    pub fn present(&mut self) -> impl Iterator<Item = &mut Region> {
        self.owned.iter_mut().flat_map(|owned| owned.present())
    }

    pub(crate) fn work(&mut self, work: Work, out: &mut Effects) {
        self.last_work += 1;
        self.works.insert(self.last_work, work);
        out.works.push(self.last_work);
    }
}

impl Node {
    /// As [`Node::on_regions`], of the core that owns a region.
    pub fn on_region<T>(
        &mut self,
        region: u64,
        true_us: u64,
        out: &mut Effects,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Asked) -> T,
    ) -> T {
        self.on_regions(self.regions.core_of(region), true_us, out, handle)
    }

    /// Lets the regions of a core handle something, and carries out what they ask for.
    pub fn on_regions<T>(
        &mut self,
        core: usize,
        true_us: u64,
        out: &mut Effects,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Asked) -> T,
    ) -> T {
        // Now and then the store takes nothing for a moment.
        let is_busy = self.rng.u32(..100) == 0;
        self.disk.rows.is_busy.store(is_busy, Ordering::Relaxed);
        let mut asked = Asked::default();
        let result = self.handle(core, true_us, out, &mut asked, handle);
        for _ in 0..1000 {
            self.handle(core, true_us, out, &mut asked, |owned, cx, asked| {
                if std::mem::take(&mut asked.has_changes) {
                    owned.on_changes(cx, asked);
                }
                owned.run_groups(cx, asked);
                owned.propose_queued(cx, asked);
                owned.drive_logged(cx, asked);
                owned.outgoing.flush(asked);
            });
            asked.wakes = false;
            asked.applied.clear();
            if asked.is_empty() || out.failure.is_some() {
                break;
            }
            let now = std::mem::take(&mut asked);
            self.carry_out(core, now, &mut asked, true_us, out);
        }
        if !asked.is_empty() && out.failure.is_none() {
            out.failure = Some("one event led to another without an end".into());
        }
        self.disk.rows.is_busy.store(false, Ordering::Relaxed);
        if self.rng.u32(..4) > 0 {
            self.handle(core, true_us, out, &mut asked, |owned, cx, _| {
                owned.settle_all(cx)
            });
            self.tell_digests(out);
        }
        if self.catalogue.is_used {
            self.tell_rows(out);
        }
        result
    }

    fn handle<T>(
        &mut self,
        core: usize,
        true_us: u64,
        out: &mut Effects,
        asked: &mut Asked,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Asked) -> T,
    ) -> T {
        let rows: Arc<dyn RowStore> = self.disk.rows.clone();
        let process = Process {
            facts: RefCell::default(),
            is_news: RefCell::new(false),
            failure: RefCell::new(out.failure.take().or(self.failed.clone())),
            stalled_ms: self.stalled_ms(true_us),
            files: &self.disk.files,
            limits: &self.catalogue.limits,
        };
        let cx = Context {
            specs: &SPECS,
            map: &self.regions.map,
            tuning: &TUNING,
            now_ms: self.clock.time_ms(true_us),
            clock_ms: self.now_ms(true_us),
            seeds: &self.regions.seeds,
            rows: Some(&rows),
            is_cluster: !self.limits.is_alone,
            most_change_bytes: self.limits.most_change_bytes,
            catalogue: &self.catalogue.catalogue,
            host: &process,
        };
        let empty = OwnedRegions::of(&self.regions.map, core, Vec::new());
        let mut owned = std::mem::replace(&mut self.regions.owned[core], empty);
        let result = handle(&mut owned, &cx, asked);
        out.facts.append(&mut process.facts.borrow_mut());
        out.is_news |= *process.is_news.borrow();
        let failure = process.failure.borrow_mut().take();
        out.failure = failure.or(out.failure.take());
        if self.failed.is_some() {
            out.failure = None; // it is known
        }
        self.regions.owned[core] = owned;
        result
    }

    fn carry_out(
        &mut self,
        core: usize,
        mut now: Asked,
        asked: &mut Asked,
        true_us: u64,
        out: &mut Effects,
    ) {
        asked.has_changes |= now.has_changes;
        if self.bug == Bug::SwapReplies
            && let [(one, Outcome::Done), (two, Outcome::Done), ..] = &mut now.finished[..]
        {
            std::mem::swap(&mut one.ticket, &mut two.ticket);
        }
        let mut early = Vec::new();
        for job in now.jobs {
            if self.bug == Bug::ReplyEarly {
                early.extend(LogJob::logged(&job.places, &job.writes));
            }
            if let Err(error) = self.append(core, job) {
                out.failure = Some(error.to_string());
            }
        }
        let messages = now.messages.into_iter();
        out.messages
            .extend(messages.map(|(_, region, message)| (region, message)));
        for (place, fetch) in now.fetches {
            self.regions.fetches.insert(place as u64, fetch);
            out.fetches.push(place as u64);
        }
        for (waiter, served) in now.served {
            if self.bug == Bug::ServeTwice && matches!(served, Served::Reply(_)) {
                self.put_in_line_again(&waiter);
            }
            self.on_served(&waiter, served, out);
        }
        for (batch, outcome) in now.finished {
            self.on_settled(&batch, &outcome, out);
        }
        for load in now.loads {
            self.regions.work(Work::Load(load), out);
        }
        for load in now.held_loads {
            self.regions.work(Work::LoadHeld(core, load), out);
        }
        for ticket in now.busy_commits {
            self.regions.work(Work::RetryCommit(core, ticket), out);
        }
        if now.serves_soon {
            self.regions.work(Work::ServeLines(core), out);
        }
        for borrow in now.borrows {
            self.send_borrow(core, borrow, out);
        }
        for (owner, regions) in now.returns {
            self.send(owner, Mail::Return(regions), out);
        }
        for (owner, batch) in now.effect_batches {
            self.send(owner, Mail::Keep(Box::new(batch)), out);
        }
        let mut outcomes = Vec::new();
        for (to, ticket, outcome) in now.batch_outcomes {
            match to == core {
                true => outcomes.push((ticket, outcome)),
                false => self.send(to, Mail::BatchOutcome { ticket, outcome }, out),
            }
        }
        let mut granted = Vec::new();
        for grant in now.grants {
            match grant.core == core {
                true => granted.push(grant),
                false => self.send_grant(grant, out),
            }
        }
        let unheard = match now.returned.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut self.regions.unheard),
        };
        let mut still_unheard = Vec::new();
        for place in now.busy {
            self.regions.work(Work::Retry(place as u64), out);
        }
        for (place, head) in now.installs {
            self.regions.work(Work::Install(place as u64, head), out);
        }
        for (place, to) in now.snapshots_wanted {
            self.export(place as u64, to, out);
        }
        for request in now.rows {
            self.ask_sql(request, out);
        }
        let again = |owned: &mut OwnedRegions, cx: &Context<'_>, asked: &mut Asked| {
            owned.on_logged(&early, true, cx, asked);
            for (ticket, outcome) in outcomes {
                owned.on_batch_outcome(ticket, outcome, cx, asked);
            }
            for grant in granted {
                owned.on_lent(grant.ticket, grant.regions, cx, asked);
            }
            for ((region, write_back, number), said) in unheard {
                let whose = (region as usize, write_back, number);
                let said = match cx.map.core_of(region as usize) == core {
                    true => owned.on_sql(whose, said, cx, asked),
                    false => Some(said),
                };
                still_unheard.extend(said.map(|said| ((region, write_back, number), said)));
            }
            for (ticket, may_read) in now.reads {
                debug_assert!(ticket > READS, "nobody else waits");
                owned.resume_read(ticket, may_read, cx, asked);
            }
            for (ticket, end) in now.row_answers {
                let failure = match end {
                    Some(End::Failed(failure)) => Some(refusal_of(failure)),
                    _ => None,
                };
                owned.resume_read_of_rows(ticket as usize, failure, cx, asked);
            }
            for place in now.looks_again {
                owned.look_again(place, cx, asked);
            }
            let mut refused = Vec::new();
            for batch in now.requeued {
                refused.extend(owned.enqueue(batch));
            }
            refused
        };
        let refused = self.handle(core, true_us, out, asked, again);
        self.regions.unheard.extend(still_unheard);
        for batch in refused {
            self.on_settled(&batch, &Outcome::TryAgain, out);
        }
    }

    /// Writes of the log are on disk.
    pub fn on_written(&mut self, done: Vec<Written>, true_us: u64, out: &mut Effects) {
        let mut numbers = vec![Vec::new(); CORES];
        let mut commits = Vec::new();
        for (region, replica, number) in done {
            match self.regions.jobs.remove(&(region, replica, number)) {
                Some(Job::Commit(core, ticket)) => {
                    commits.push((core, ticket));
                    continue;
                }
                Some(Job::PartOfCommit) => continue,
                Some(Job::Ours(core)) => self.regions.owned[core].outgoing.note_written(),
                None => {}
            }
            numbers[self.regions.core_of(region)].push(Logged {
                place: region as usize,
                replica,
                number,
            });
        }
        for (core, numbers) in numbers.into_iter().enumerate() {
            if !numbers.is_empty() {
                self.on_regions(core, true_us, out, |owned, cx, asked| {
                    owned.on_logged(&numbers, true, cx, asked);
                });
            }
        }
        for (core, ticket) in commits {
            self.on_regions(core, true_us, out, |owned, cx, asked| {
                owned.on_commit_logged(ticket, true, cx, asked);
            });
        }
    }

    /// Appends to the log. The entries of a commit are one record.
    fn append(&mut self, core: usize, job: LogJob) -> Result<(), LogError> {
        let jobs = &mut self.regions.jobs;
        let Some(last) = job.writes.last().map(written) else {
            return Ok(());
        };
        let Some(ticket) = job.commit else {
            if job.is_ours {
                jobs.insert(last, Job::Ours(core));
            }
            let mut writes = job.writes.into_iter();
            return writes.try_for_each(|write| self.disk.write_log(vec![write]));
        };
        for write in &job.writes {
            jobs.insert(written(write), Job::PartOfCommit);
        }
        jobs.insert(last, Job::Commit(core, ticket));
        match self.bug {
            Bug::TornCommit => {
                let mut writes = job.writes.into_iter();
                writes.try_for_each(|write| self.disk.write_log(vec![write]))
            }
            _ => self.disk.write_log(job.writes),
        }
    }

    /// [`Bug::ServeTwice`]: who was served stands in line once more.
    fn put_in_line_again(&mut self, waiter: &Waiter) {
        let mut command = node::CommandList::default();
        command.push(&waiter.command.args(0));
        let waiter = Arc::new(Waiter {
            claim: Claim::default(),
            core: waiter.core,
            ticket: waiter.ticket,
            stat: waiter.stat,
            command,
            db: waiter.db,
            protocol: waiter.protocol,
        });
        let args = waiter.command.args(0);
        for key in node::awaited_keys(SPECS.spec(waiter.stat), &args) {
            let region = self.regions.map.region_of(key) as u64;
            if let Some(region) = self.regions.region_mut(region) {
                region.add_waiter(waiter.db, key, waiter.clone());
            }
        }
    }

    /// Entries of a region's log have been read.
    pub fn on_fetched(&mut self, region: u64, true_us: u64, out: &mut Effects) {
        let Some(fetch) = self.regions.fetches.remove(&region) else {
            return;
        };
        let log = self.disk.log.clone();
        let entries =
            replica::LogStore::entries(&*log, fetch.region, fetch.low, fetch.high, fetch.max_bytes);
        let entries = entries.map_err(|error| error.to_string());
        self.on_region(region, true_us, out, |owned, cx, asked| {
            owned.on_entries(region as usize, entries, cx, asked);
        });
    }

    /// Something that took a while is done.
    pub fn on_work(&mut self, number: u64, true_us: u64, out: &mut Effects) {
        match self.regions.works.remove(&number) {
            None => {}
            Some(Work::Retry(region)) => {
                self.on_region(region, true_us, out, |owned, cx, asked| {
                    owned.resume(region as usize, cx, asked);
                })
            }
            Some(Work::RetryCommit(core, ticket)) => {
                self.on_regions(core, true_us, out, |owned, cx, asked| {
                    owned.retry_commit(ticket, cx, asked);
                });
            }
            Some(Work::ServeLines(core)) => {
                self.on_regions(core, true_us, out, |owned, cx, asked| {
                    owned.serve_lines(cx, asked);
                });
            }
            Some(Work::Exec(ticket)) => self.exec(ticket, true_us, out),
            Some(Work::TimeOut(ticket)) => self.time_out(ticket, out),
            Some(Work::LoadHeld(core, load)) => {
                let rows = self.disk.rows.clone();
                let requests = load.requests.into_iter();
                let loaded = requests.map(|request| {
                    let loaded = rows::load(&*rows, &request, Tier::All);
                    (request, loaded)
                });
                let loaded = loaded.collect();
                self.on_regions(core, true_us, out, |owned, cx, asked| {
                    owned.on_held_loaded(load.ticket, loaded, cx, asked);
                });
            }
            Some(Work::Load(load)) => self.on_loaded(load, true_us, out),
            Some(Work::Install(region, head)) => {
                if let Err(error) = self.install(region, &head, true_us, out) {
                    out.failure = Some(error);
                }
            }
        }
    }

    fn on_loaded(&mut self, load: Load, true_us: u64, out: &mut Effects) {
        let rows = self.disk.rows.clone();
        self.on_region(load.place as u64, true_us, out, |owned, cx, asked| {
            if let Some(region) = owned.region_mut(load.place) {
                for (db, key) in &load.keys {
                    if region.space.is_resident(*db, key) {
                        continue;
                    }
                    let request = region.space.load_request(*db, key);
                    match rows::load(&*rows, &request, Tier::All) {
                        Ok(loaded) => region.space.insert_loaded(request, loaded),
                        Err(error) => cx.host.fail(&format!("{error:?}")),
                    }
                }
            }
            match load.read {
                Some(ticket) => owned.resume_read(ticket, false, cx, asked),
                None => owned.resume(load.place, cx, asked),
            }
        });
    }

    /// The checkers compare replicas where two have the rows of the same index.
    fn tell_digests(&mut self, out: &mut Effects) {
        let regions = &mut self.regions;
        let all = regions.owned.iter_mut().flat_map(|owned| owned.present());
        for region in all {
            let Some(member) = region.member.as_deref() else {
                continue;
            };
            let is_settled = member.open.is_none()
                && member.unwritten.is_none()
                && member.uncommitted.is_none()
                && member.peers.as_ref().is_some_and(|it| !it.is_installing);
            let (id, index) = (region.id as u64, region.space.applied_index());
            if is_settled && regions.digested.insert(id, index) != Some(index) {
                out.facts.push(Fact::Digest {
                    region: id,
                    replica: member.replica.id(),
                    index,
                    digest: self.disk.rows.digest(id),
                });
            }
            region.space.take_garbage();
        }
    }

    /// The replica of a region, if it is here.
    pub fn replica(&self, region: u64) -> Option<&Replica> {
        let region = self.regions.region(region)?;
        region.member.as_deref().map(|member| &member.replica)
    }

    /// What the replica of a region knows of itself.
    pub fn record(&self, region: u64) -> Option<&ReplicaRecord> {
        let region = self.regions.region(region)?;
        Some(&region.member.as_deref()?.peers.as_deref()?.record)
    }
}

//! The regions of a simulated node: `node::OwnedRegions`, the very code a server's core calls, with what
//! it asks for carried out on a simulated disk and network.
//!
//! Nothing here decides anything about a region. A core of the server does the same with threads and
//! sockets (`runtime::cores::effects`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use base::Refusal;
use keyspace::Tuning;
use keyspace::rows::{self, RowStore, Tier};
use node::{
    Access, Again, Batch, BatchBox, Context, Effects as Asked, Executing, Host, Load, Map, Outcome,
    OwnedRegions, Peers, Places, Progress, READS, Ran, ReplicaRecord, Requester, Seeds, Served,
    Specs, refusal_of,
};
use replica::{Fetch, Ready, Replica, SnapshotHead};
use table::RowId;
use table::leader::End;

use crate::bugs::Bug;
use crate::check::agree::Applied;
use crate::check::written::Cached;
use crate::client::{Answer, Request};
use crate::effects::{Effects, Fact};
use crate::machine::Node;
use crate::state::{self, Files};
use crate::trace::hash_of;

static SPECS: LazyLock<Specs> =
    LazyLock::new(|| Specs::new(command::family::ALL.iter().copied().flatten().copied()));
static TUNING: LazyLock<Tuning> = LazyLock::new(Tuning::default);

/// Places of a node; a region's place is its id.
const PLACES: usize = 64;

/// What a node has of its regions in memory.
pub struct Regions {
    pub owned: OwnedRegions,
    map: Map,
    seeds: Seeds,
    pub progress: Arc<Progress>,
    client: Arc<Requester>,
    /// Under way, by their tickets.
    requests: BTreeMap<usize, Request>,
    last_ticket: usize,
    /// Of each region, at most one.
    fetches: BTreeMap<u64, Fetch>,
    /// What takes a while, by number.
    works: BTreeMap<u64, Work>,
    last_work: u64,
    /// Writes of the log by which a job of this node ends: region and number.
    jobs: BTreeSet<(u64, u64)>,
    /// Members to which a snapshot is on its way.
    pub sending: BTreeSet<u64>,
    /// By region: the index whose digest was told.
    digested: BTreeMap<u64, u64>,
    /// By region: the SQL rows that were last seen.
    pub(crate) cached: BTreeMap<u64, BTreeMap<RowId, Cached>>,
}

/// Something that takes a while.
enum Work {
    Load(Load),
    /// The store was busy.
    Retry(u64),
    Install(u64, SnapshotHead),
}

impl Regions {
    pub fn new(seed: u64) -> Regions {
        let map = Map::of_cluster(1, Arc::new(Places::default()));
        Regions {
            owned: OwnedRegions::of(&map, 0, Vec::new()),
            map,
            seeds: Seeds::new(seed),
            progress: Arc::new(Progress::new(PLACES)),
            client: Arc::new(Requester::new(1)),
            requests: BTreeMap::new(),
            last_ticket: 0,
            fetches: BTreeMap::new(),
            works: BTreeMap::new(),
            last_work: 0,
            jobs: BTreeSet::new(),
            sending: BTreeSet::new(),
            digested: BTreeMap::new(),
            cached: BTreeMap::new(),
        }
    }

    fn work(&mut self, work: Work, out: &mut Effects) {
        self.last_work += 1;
        self.works.insert(self.last_work, work);
        out.works.push(self.last_work);
    }
}

/// The process of a node, for the time of one event.
struct Process<'a> {
    facts: RefCell<Vec<Fact>>,
    is_news: RefCell<bool>,
    failure: RefCell<Option<String>>,
    files: &'a BTreeMap<u64, Rc<Files>>,
    limits: &'a table::leader::Limits,
}

impl Host for Process<'_> {
    fn on_executed(&self, place: usize, replica: &Replica, entry: &Executing<'_>) {
        self.facts.borrow_mut().push(Fact::Applied(Applied {
            region: place as u64,
            replica: replica.id(),
            index: entry.index,
            term: entry.term,
            entry: hash_of(&[entry.payload]),
            digest: None,
        }));
    }

    fn on_ready(&self, place: usize, replica: &Replica, _peers: &Peers, ready: &Ready) {
        if let Some(term) = ready.became_leader {
            self.facts.borrow_mut().push(Fact::Leads {
                region: place as u64,
                replica: replica.id(),
                term,
            });
            *self.is_news.borrow_mut() = true;
        }
    }

    fn on_members(&self, _place: usize, index: u64, record: &ReplicaRecord) {
        self.facts.borrow_mut().push(Fact::Members {
            replica: record.replica,
            index,
            descriptor: record.descriptor.clone(),
        });
        *self.is_news.borrow_mut() = true;
    }

    fn claim_snapshot(&self, peers: &mut Peers, head: &SnapshotHead) -> bool {
        !peers.is_installing && state::files_of(head, self.files).is_some()
    }

    fn table_limits(&self) -> table::leader::Limits {
        self.limits.clone()
    }

    fn fail(&self, reason: &str) {
        self.failure
            .borrow_mut()
            .get_or_insert_with(|| reason.into());
    }

    fn failure(&self) -> Option<Refusal> {
        let failure = self.failure.borrow();
        failure.as_ref().map(|why| Refusal::text_of(why.clone()))
    }
}

impl Node {
    /// Lets the regions handle something, and carries out what they ask for.
    pub fn on_regions<T>(
        &mut self,
        true_us: u64,
        out: &mut Effects,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Asked) -> T,
    ) -> T {
        // Now and then the store takes nothing for a moment.
        let is_busy = self.rng.u32(..100) == 0;
        self.disk.rows.is_busy.store(is_busy, Ordering::Relaxed);
        let mut asked = Asked::default();
        let result = self.handle(true_us, out, &mut asked, handle);
        for _ in 0..1000 {
            self.handle(true_us, out, &mut asked, |owned, cx, asked| {
                owned.propose_queued(cx, asked);
                owned.drive_logged(cx, asked);
                owned.outgoing.flush(asked);
            });
            (asked.wakes, asked.has_changes) = (false, false);
            asked.applied.clear();
            if asked.is_empty() || out.failure.is_some() {
                break;
            }
            let now = std::mem::take(&mut asked);
            self.carry_out(now, &mut asked, true_us, out);
        }
        if !asked.is_empty() && out.failure.is_none() {
            out.failure = Some("one event led to another without an end".into());
        }
        self.disk.rows.is_busy.store(false, Ordering::Relaxed);
        if self.rng.u32(..4) > 0 {
            self.handle(true_us, out, &mut asked, |owned, cx, _| {
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
        true_us: u64,
        out: &mut Effects,
        asked: &mut Asked,
        handle: impl FnOnce(&mut OwnedRegions, &Context<'_>, &mut Asked) -> T,
    ) -> T {
        let rows: Arc<dyn RowStore> = self.disk.rows.clone();
        let process = Process {
            facts: RefCell::default(),
            is_news: RefCell::new(false),
            failure: RefCell::new(out.failure.take()),
            files: &self.disk.files,
            limits: &self.catalogue.limits,
        };
        let cx = Context {
            specs: &SPECS,
            map: &self.regions.map,
            tuning: &TUNING,
            now_ms: self.clock.wall_ms(true_us),
            clock_ms: self.now_ms(true_us),
            seeds: &self.regions.seeds,
            rows: Some(&rows),
            is_cluster: true,
            most_change_bytes: usize::MAX,
            catalogue: &self.catalogue.catalogue,
            host: &process,
        };
        let mut owned = std::mem::replace(
            &mut self.regions.owned,
            OwnedRegions::of(&self.regions.map, 0, Vec::new()),
        );
        let result = handle(&mut owned, &cx, asked);
        out.facts.append(&mut process.facts.borrow_mut());
        out.is_news |= *process.is_news.borrow();
        let failure = process.failure.borrow_mut().take();
        out.failure = failure.or(out.failure.take());
        self.regions.owned = owned;
        result
    }

    fn carry_out(&mut self, mut now: Asked, asked: &mut Asked, true_us: u64, out: &mut Effects) {
        if self.bug == Bug::SwapReplies
            && let [(one, Outcome::Done), (two, Outcome::Done), ..] = &mut now.settled[..]
        {
            std::mem::swap(&mut one.ticket, &mut two.ticket);
        }
        let mut early = Vec::new();
        for job in now.jobs {
            if self.bug == Bug::ReplyEarly {
                let writes = job.writes.iter();
                early.extend(writes.map(|write| (write.region as usize, write.number)));
            }
            if let (true, Some(last)) = (job.is_ours, job.writes.last()) {
                self.regions.jobs.insert((last.region, last.number));
            }
            for write in job.writes {
                if let Err(error) = self.disk.write_log(write) {
                    out.failure = Some(error.to_string());
                }
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
            if let Served::Reply(_) | Served::LeaderChanged = served {
                waiter.claim.served();
            }
        }
        for (batch, outcome) in now.settled {
            self.on_settled(&batch, &outcome, out);
        }
        for load in now.loads {
            self.regions.work(Work::Load(load), out);
        }
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
        let refused = self.handle(true_us, out, asked, again);
        for batch in refused {
            self.on_settled(&batch, &Outcome::TryAgain, out);
        }
    }

    /// A batch is over: its client is told, unless nobody knows what became of it.
    fn on_settled(&mut self, batch: &Batch, outcome: &Outcome, out: &mut Effects) {
        let Some(request) = self.regions.requests.remove(&batch.ticket) else {
            return;
        };
        let answer = match outcome {
            Outcome::Done => {
                let bytes = batch.replies.as_bytes();
                let starts = std::iter::once(0).chain(batch.ends.iter().copied());
                let replies = starts.zip(&batch.ends);
                let replies: Vec<Vec<u8>> = replies
                    .map(|(start, &end)| bytes.get(start..end).unwrap_or_default().to_vec())
                    .collect();
                let is_refused = |reply: &Vec<u8>| {
                    reply.starts_with(b"-TRYAGAIN") || reply.starts_with(b"-SQLDOWN")
                };
                match replies.iter().all(is_refused) && !replies.is_empty() {
                    true => Answer::Refused,
                    false => Answer::Done(replies),
                }
            }
            Outcome::InDoubt if self.bug != Bug::DoubtIsNo => return,
            Outcome::TooLarge | Outcome::Refused(_) => Answer::Refused,
            Outcome::Unserved(_) | Outcome::TryAgain | Outcome::InDoubt => {
                let region = self.regions.owned.region(batch.region);
                let member = region.and_then(|region| region.member.as_deref());
                Answer::Moved(member.and_then(|member| member.replica.leader()))
            }
        };
        out.answers.push((request, answer));
    }

    /// A client asks for something.
    pub fn on_request(&mut self, request: Request, true_us: u64, out: &mut Effects) {
        let bug = self.bug;
        let regions = &mut self.regions;
        regions.last_ticket += 1;
        let mut batch = Batch::new(0, 0, regions.client.clone());
        batch.ticket = regions.last_ticket;
        batch.region = request.region as usize;
        batch.writes = !request.is_read;
        batch.together = batch.writes;
        batch.readonly = request.anywhere;
        for words in request.commands.iter() {
            let words = match bug {
                Bug::ForgetRequests => &without_request(words),
                _ => words,
            };
            batch.commands.push_all(words.iter().map(|word| &**word));
            let args = batch.commands.args(batch.commands.len() - 1);
            let Ok((number, row)) = SPECS.table.resolve(&args) else {
                out.answers.push((request, Answer::Refused));
                return;
            };
            batch.heads.push((SPECS.stat_number(number, row) as u16, 0));
        }
        if bug == Bug::ServeWithoutLease && request.is_read && self.leads(request.region).is_some()
        {
            let ticket = batch.ticket;
            self.regions.requests.insert(ticket, request);
            let batch = self.on_regions(true_us, out, |owned, cx, _| {
                read_without_barrier(owned, batch, cx)
            });
            return self.on_settled(&batch, &Outcome::Done, out);
        }
        let ticket = batch.ticket;
        let is_read = request.is_read;
        self.regions.requests.insert(ticket, request);
        let refused = self.on_regions(true_us, out, |owned, cx, asked| match is_read {
            true => {
                owned.read(batch, cx, asked);
                None
            }
            false => owned.enqueue(batch),
        });
        if let Some(batch) = refused {
            self.on_settled(&batch, &Outcome::TryAgain, out);
        }
    }

    /// Writes of the log are on disk.
    pub fn on_written(&mut self, done: Vec<(u64, u64)>, true_us: u64, out: &mut Effects) {
        let mut numbers = Vec::new();
        for (region, number) in done {
            if self.regions.jobs.remove(&(region, number)) {
                self.regions.owned.outgoing.note_written();
            }
            numbers.push((region as usize, number));
        }
        self.on_regions(true_us, out, |owned, cx, asked| {
            owned.on_logged(&numbers, true, cx, asked);
        });
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
        self.on_regions(true_us, out, |owned, cx, asked| {
            owned.on_entries(region as usize, entries, cx, asked);
        });
    }

    /// Something that took a while is done.
    pub fn on_work(&mut self, number: u64, true_us: u64, out: &mut Effects) {
        match self.regions.works.remove(&number) {
            None => {}
            Some(Work::Retry(region)) => self.on_regions(true_us, out, |owned, cx, asked| {
                owned.resume(region as usize, cx, asked);
            }),
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
        self.on_regions(true_us, out, |owned, cx, asked| {
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
        for region in regions.owned.present() {
            let Some(member) = region.member.as_deref() else {
                continue;
            };
            let is_settled = member.open.is_none()
                && member.unwritten.is_none()
                && member.ahead.is_none()
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
            region.space.take_effects();
            region.space.take_garbage();
        }
    }

    /// The replica of a region, if it is here.
    pub fn replica(&self, region: u64) -> Option<&Replica> {
        let region = self.regions.owned.region(region as usize)?;
        region.member.as_deref().map(|member| &member.replica)
    }

    /// What the replica of a region knows of itself.
    pub fn record(&self, region: u64) -> Option<&ReplicaRecord> {
        let region = self.regions.owned.region(region as usize)?;
        Some(&region.member.as_deref()?.peers.as_deref()?.record)
    }
}

/// [`Bug::ServeWithoutLease`].
fn read_without_barrier(
    owned: &mut OwnedRegions,
    mut batch: BatchBox,
    cx: &Context<'_>,
) -> BatchBox {
    for (at, &(stat, db)) in batch.heads.iter().enumerate() {
        let row = cx.specs.row(stat as usize);
        let args = batch.commands.args(at);
        let access = Access {
            row,
            db,
            args: &args,
            now_ms: cx.now_ms,
            tuning: cx.tuning,
            again: Again::default(),
            clock_ms: None,
            is_confirmed: true,
            catalogue_version: cx.catalogue.version,
        };
        let replies = &mut batch.replies;
        if let Some(region) = owned.region_mut(batch.region) {
            let _ = region.run(
                &access,
                cx.seeds,
                replies,
                |view, reply| match command::call(row, view, &args, reply) {
                    Ok(_) => Ran::Done,
                    Err(_) => Ran::Refused,
                },
            );
        }
        batch.ends.push(batch.replies.len());
    }
    batch
}

/// The command without the number by which a retry is known.
fn without_request(words: &crate::client::Words) -> crate::client::Words {
    let at = words.iter().position(|word| word == b"REQUEST");
    let at = at.unwrap_or(words.len());
    let rest = words.iter().skip(at + 3);
    words[..at].iter().chain(rest).cloned().collect()
}

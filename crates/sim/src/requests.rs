//! Requests of clients at a simulated node: what a session of the server would do about them.

use std::sync::Arc;

use keyspace::rows::{self, Tier};
use node::{
    Access, Again, Batch, BatchBox, Claim, CommandList, Context, EffectRequest, HeldRegions,
    Moment, Outcome, OwnedRegions, Place, Ran, Served, Waiter, Watch, WatchFlag,
};
use resp::Protocol;

use crate::bugs::Bug;
use crate::client::{Answer, How, Request, Words};
use crate::effects::Effects;
use crate::machine::Node;
use crate::regions::{CORES, SPECS, Work};

/// Clients that wait for more than an answer.
pub enum Waiting {
    /// For an element.
    Blocked(Request, Arc<Waiter>),
    /// A key is watched; what it held.
    Watching(Request, Watch, Vec<u8>),
    /// EXEC is under way; what the watched key held.
    Executing(Request, Vec<u8>),
}

const NIL: &[u8] = b"*-1\r\n";

impl Node {
    /// A client asks for something.
    pub fn on_request(&mut self, request: Request, true_us: u64, out: &mut Effects) {
        let Some(mut batch) = self.batch_of(&request) else {
            out.answers.push((request, Answer::Refused));
            return;
        };
        let ticket = batch.ticket;
        let (region, is_read, how) = (request.region, request.is_read, request.how);
        let owner = self.regions.core_of(region);
        match how {
            How::Log if self.bug == Bug::ServeWithoutLease && self.leads(region).is_some() => {
                self.regions.requests.insert(ticket, request);
                if is_read {
                    let batch = self.on_regions(owner, true_us, out, |owned, cx, _| {
                        read_without_barrier(owned, batch, cx)
                    });
                    if !batch.replies.as_bytes().is_empty() {
                        return self.on_settled(&batch, &Outcome::Done, out);
                    }
                    // What is not in memory cannot be read at once.
                    return self.on_regions(owner, true_us, out, |owned, cx, asked| {
                        let mut batch = batch;
                        batch.ends.clear();
                        owned.read(batch, cx, asked);
                    });
                }
                self.enqueue(owner, batch, true_us, out);
            }
            How::Log => {
                self.regions.requests.insert(ticket, request);
                match is_read {
                    true => self.on_regions(owner, true_us, out, |owned, cx, asked| {
                        owned.read(batch, cx, asked);
                    }),
                    false => self.enqueue(owner, batch, true_us, out),
                }
            }
            How::Effect => {
                let watched = (batch.heads.len() > 1).then(Vec::new);
                self.regions.requests.insert(ticket, request);
                self.submit(batch, watched, true_us, out);
            }
            How::Watch => self.watch(request, ticket, true_us, out),
            How::Block => {
                let waiter = Arc::new(Waiter {
                    claim: Claim::default(),
                    core: owner,
                    ticket,
                    stat: batch.heads.first().map_or(0, |(stat, _)| *stat as usize),
                    command: command_of(&request),
                    db: 0,
                    protocol: Protocol::Resp2,
                });
                batch.waiter = Some(waiter.clone());
                let waiting = Waiting::Blocked(request, waiter);
                self.regions.waiting.insert(ticket, waiting);
                self.on_regions(owner, true_us, out, |owned, cx, asked| {
                    owned.read(batch, cx, asked);
                });
            }
        }
    }

    fn batch_of(&mut self, request: &Request) -> Option<BatchBox> {
        let regions = &mut self.regions;
        regions.last_ticket += 1;
        let mut batch = Batch::new(0, 0, regions.client.clone());
        batch.ticket = regions.last_ticket;
        batch.region = request.region as usize;
        batch.writes = !request.is_read;
        batch.is_transaction = batch.writes;
        batch.readonly = request.anywhere;
        for words in request.commands.iter() {
            let words = match self.bug {
                Bug::ForgetRequests => &without_request(words),
                _ => words,
            };
            batch.commands.push_all(words.iter().map(|word| &**word));
            let args = batch.commands.args(batch.commands.len() - 1);
            let (number, spec) = SPECS.table.resolve(&args).ok()?;
            batch
                .heads
                .push((SPECS.stat_number(number, spec) as u16, 0));
        }
        Some(batch)
    }

    fn enqueue(&mut self, owner: usize, batch: BatchBox, true_us: u64, out: &mut Effects) {
        let refused = self.on_regions(owner, true_us, out, |owned, _, _| owned.enqueue(batch));
        if let Some(batch) = refused {
            self.on_settled(&batch, &Outcome::TryAgain, out);
        }
    }

    /// Commands that are logged by their effect, on any core.
    fn submit(
        &mut self,
        batch: BatchBox,
        watched: Option<Vec<Watch>>,
        true_us: u64,
        out: &mut Effects,
    ) {
        let core = self.rng.usize(..CORES);
        self.on_regions(core, true_us, out, |owned, cx, _| {
            let mut regions: Vec<Place> = Vec::new();
            for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                let spec = cx.specs.spec(stat as usize);
                spec.each_key(db, &batch.commands.args(at), &mut |_, key| {
                    regions.push(cx.map.region_of(key));
                });
            }
            regions.sort_unstable();
            regions.dedup();
            owned.submit(EffectRequest::new(regions, batch, watched));
        });
    }

    /// WATCH and GET of the first key; EXEC follows some time later.
    fn watch(&mut self, request: Request, ticket: usize, true_us: u64, out: &mut Effects) {
        let owner = self.regions.core_of(request.region);
        let place = request.region as usize;
        let key = request.commands.first().and_then(|words| words.get(1));
        let key: Box<[u8]> = key.cloned().unwrap_or_default().into();
        let store = self.disk.rows.clone();
        let watched = self.on_regions(owner, true_us, out, |owned, cx, asked| {
            let regions = owned.borrow_for_a_moment(&[place], cx.clock_ms)?;
            if regions.is_empty() {
                return None; // another node leads
            }
            let mut held = HeldRegions::new(regions);
            let missing = held.not_resident(cx.map, vec![(0, key.clone())]);
            for request in held.load_cached(cx.map, &*store, &missing) {
                match rows::load(&*store, &request, Tier::All) {
                    Ok(loaded) => held.insert_loaded(cx.map, request, loaded),
                    Err(error) => cx.host.fail(&format!("{error:?}")),
                }
            }
            let flag = Arc::new(WatchFlag::default());
            let moment = Moment::new(cx, cx.seed());
            let text = held.view(&moment, 0, |view| {
                let text = view.string(&key).ok().flatten();
                text.map(|text| text.to_vec())
            });
            let watched = held.region_of(cx.map, &key).map(|region| {
                region.add_watcher(0, &key, &flag);
                let existed = text.is_some();
                let (db, key) = (0, key.clone());
                let watch = Watch {
                    db,
                    key,
                    existed,
                    flag,
                };
                (watch, text)
            });
            owned.give_back(held.into_regions(), cx, asked);
            watched
        });
        let Some((watch, text)) = watched else {
            let leader = self.leader_of(request.region);
            out.answers.push((request, Answer::Moved(leader)));
            return;
        };
        let seen = match text {
            Some(text) => [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat(),
            None => b"$-1\r\n".to_vec(),
        };
        let waiting = Waiting::Watching(request, watch, seen);
        self.regions.waiting.insert(ticket, waiting);
        self.regions.work(Work::Exec(ticket), out);
    }

    /// EXEC, some time after WATCH.
    pub(crate) fn exec(&mut self, ticket: usize, true_us: u64, out: &mut Effects) {
        let waiting = self.regions.waiting.remove(&ticket);
        let Some(Waiting::Watching(request, watch, seen)) = waiting else {
            return;
        };
        let Some(mut batch) = self.batch_of(&request) else {
            return;
        };
        batch.ticket = ticket;
        let executing = Waiting::Executing(request, seen);
        self.regions.waiting.insert(ticket, executing);
        self.submit(batch, Some(vec![watch]), true_us, out);
    }

    /// A blocked client waits no longer.
    pub(crate) fn time_out(&mut self, ticket: usize, out: &mut Effects) {
        let waiting = self.regions.waiting.get(&ticket);
        let Some(Waiting::Blocked(_, waiter)) = waiting else {
            return;
        };
        // If somebody is just serving it, that decides.
        if waiter.claim.cancel() {
            self.answer_blocked(ticket, Answer::Done(vec![NIL.to_vec()]), out);
        }
    }

    fn answer_blocked(&mut self, ticket: usize, answer: Answer, out: &mut Effects) {
        if let Some(Waiting::Blocked(request, _)) = self.regions.waiting.remove(&ticket) {
            out.answers.push((request, answer));
        }
    }

    /// A blocked client was served, or another node leads.
    pub(crate) fn on_served(&mut self, waiter: &Arc<Waiter>, served: Served, out: &mut Effects) {
        let answer = match served {
            Served::Reply(reply) => {
                waiter.claim.served();
                let bytes = reply.into_bytes();
                match bytes.first() {
                    Some(b'-') => Answer::Refused,
                    _ => Answer::Done(vec![bytes]),
                }
            }
            Served::Nothing => Answer::Done(vec![NIL.to_vec()]),
            Served::LeaderChanged => {
                waiter.claim.served();
                Answer::Moved(None)
            }
        };
        self.answer_blocked(waiter.ticket, answer, out);
    }

    /// A batch is over: its client is told, unless nobody knows what became of it.
    pub(crate) fn on_settled(&mut self, batch: &Batch, outcome: &Outcome, out: &mut Effects) {
        let ticket = batch.ticket;
        let waits = batch.replies.as_bytes().is_empty() && *outcome == Outcome::Done;
        if waits && batch.waiter.is_some() {
            return self.regions.work(Work::TimeOut(ticket), out);
        }
        let (request, seen) = match self.regions.waiting.remove(&ticket) {
            Some(Waiting::Blocked(request, _)) => (Some(request), None),
            Some(Waiting::Executing(request, seen)) => (Some(request), Some(seen)),
            other => {
                let other = other.map(|it| self.regions.waiting.insert(ticket, it));
                debug_assert!(other.is_none(), "it has not begun yet");
                (self.regions.requests.remove(&ticket), None)
            }
        };
        let Some(request) = request else {
            return;
        };
        let answer = match outcome {
            Outcome::Done if batch.replies.as_bytes() == NIL && seen.is_some() => Answer::Aborted,
            Outcome::Done => match seen {
                Some(seen) => Answer::Done(vec![seen]),
                None => answer_of(batch),
            },
            Outcome::InDoubt if self.bug != Bug::DoubtIsNo => return,
            Outcome::TooLarge | Outcome::Refused(_) => Answer::Refused,
            Outcome::Unserved(_) | Outcome::TryAgain | Outcome::InDoubt => {
                Answer::Moved(self.leader_of(request.region))
            }
        };
        out.answers.push((request, answer));
    }

    /// The replica that leads a region, as far as this node knows.
    fn leader_of(&self, region: u64) -> Option<u64> {
        if self.failed.is_some() {
            return None; // its replicas hear nothing any more
        }
        self.replica(region)?.leader()
    }
}

/// The replies of a batch.
fn answer_of(batch: &Batch) -> Answer {
    let bytes = batch.replies.as_bytes();
    // A transaction that ran by its effect is an array.
    let is_array = batch.heads.len() > 1 && bytes.first() == Some(&b'*');
    let head = match is_array && bytes.starts_with(format!("*{}\r\n", batch.heads.len()).as_bytes())
    {
        true => bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0) + 1,
        false => 0,
    };
    let starts = std::iter::once(head).chain(batch.ends.iter().copied());
    let replies = starts.zip(&batch.ends);
    let replies: Vec<Vec<u8>> = replies
        .map(|(start, &end)| bytes.get(start..end).unwrap_or_default().to_vec())
        .collect();
    let is_refused =
        |reply: &Vec<u8>| reply.starts_with(b"-TRYAGAIN") || reply.starts_with(b"-SQLDOWN");
    match replies.iter().all(is_refused) && !replies.is_empty() {
        true => Answer::Refused,
        false => Answer::Done(replies),
    }
}

fn command_of(request: &Request) -> CommandList {
    let mut command = CommandList::default();
    if let Some(words) = request.commands.first() {
        command.push_all(words.iter().map(|word| &**word));
    }
    command
}

/// [`Bug::ServeWithoutLease`].
fn read_without_barrier(
    owned: &mut OwnedRegions,
    mut batch: BatchBox,
    cx: &Context<'_>,
) -> BatchBox {
    for (at, &(stat, db)) in batch.heads.iter().enumerate() {
        let spec = cx.specs.spec(stat as usize);
        let args = batch.commands.args(at);
        let access = Access {
            spec,
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
                |view, reply| match command::call(spec, view, &args, reply) {
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
fn without_request(words: &Words) -> Words {
    let at = words.iter().position(|word| word == b"REQUEST");
    let at = at.unwrap_or(words.len());
    let rest = words.iter().skip(at + 3);
    words[..at].iter().chain(rest).cloned().collect()
}

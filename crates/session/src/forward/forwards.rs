//! Commands whose slot is led elsewhere, or by nobody just now (cluster).
//!
//! Redirecting, a session waits a short while for a leader before it says anything. Forwarding
//! (`redis-cluster-enabled no`), it asks the leader itself. Both begin in the same way: a command
//! was not run, and it is known that nothing of it has happened.
//!
//! ```text
//!   batches come back ─► replies that say MOVED, TRYAGAIN ─┐
//!   dispatch knows that another node leads ────────────────┴─► forwards, in request order
//!        ─► by slot: a region here │ another node │ nobody yet: once more, until one has answered
//! ```
//!
//! *Invariant*: commands of one slot run in the order they were sent: forwards run when everything of
//! the session on this node's cores is done, and behind a forward its slot's commands are forwards, too.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::{DbIndex, NotRun, Refusal, Slot};
use bytes::Bytes;
use resp::{Args, Reply};

use super::remote_reply::not_run;
use super::upstream::{Introduction, encode_args};
use crate::Session;
use node::in_doubt;
use runtime::cluster::{Cluster, Leads, TIMEOUT_MS, no_leader};
use runtime::cores::{Answer, Batch, CommandList, Core, NOWHERE, Place};

/// Between two looks for a leader.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// A client that is not redirected has nobody else to ask: it waits longer.
const FORWARD_TIMEOUT_MS: u64 = 10_000;
/// A node that does not answer is given up after this time if another leads meanwhile …
const DEPOSED: Duration = Duration::from_millis(1_000);
/// … and after this in any case.
const SILENT: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Forwards {
    commands: CommandList,
    heads: Vec<Forward>,
}

struct Forward {
    stat: u16,
    db: DbIndex,
    slot: Slot,
    /// Its place among the requests.
    order: usize,
    /// Who leads, as the last one asked said.
    hint: Option<String>,
    reply: Option<Bytes>,
    /// What it is told if it is not answered in time.
    unready: Option<Bytes>,
}

/// Where forwards go next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Place(Place),
    Node(String),
}

impl Forwards {
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub fn clear(&mut self) {
        self.commands.clear();
        self.heads.clear();
    }

    pub fn has_slot(&self, slot: Slot) -> bool {
        self.heads.iter().any(|forward| forward.slot == slot)
    }

    /// Adds a command; its number.
    pub fn push(&mut self, stat: usize, db: DbIndex, slot: Slot, args: &Args<'_>) -> usize {
        self.commands.push(args);
        self.heads.push(Forward {
            stat: stat as u16,
            db,
            slot,
            order: 0,
            hint: None,
            reply: None,
            unready: None,
        });
        self.heads.len() - 1
    }

    pub fn set_order(&mut self, number: usize, order: usize) {
        if let Some(forward) = self.heads.get_mut(number) {
            forward.order = order;
        }
    }

    /// The one asked said who leads.
    pub fn set_hint(&mut self, number: usize, hint: Option<String>) {
        if let Some(forward) = self.heads.get_mut(number) {
            forward.hint = hint;
        }
    }

    pub fn reply(&self, number: usize) -> &[u8] {
        let reply = self.heads.get(number).and_then(|it| it.reply.as_ref());
        reply.map_or(&[], |reply| &reply[..])
    }

    /// Runs all of them, wherever that is.
    pub async fn finish(&mut self, session: &mut Session) {
        let Some(cluster) = session.shared().cluster.clone() else {
            return;
        };
        let core = session.core.clone();
        let until = session.deadline();
        let mut waiting: Vec<usize> = (0..self.heads.len()).collect();
        waiting.retain(|&it| self.heads.get(it).is_some_and(|it| it.reply.is_none()));
        waiting.sort_by_key(|&number| self.heads.get(number).map(|it| it.order));
        loop {
            let mut asked = Vec::new();
            let mut here = Vec::new();
            for (target, numbers) in self.group(&cluster, session, &core, &waiting) {
                match target {
                    Target::Place(place) => here.push((place, numbers)),
                    Target::Node(address) => {
                        let asking = self.ask(&cluster, session, address, &numbers).await;
                        asked.extend(asking.map(|asking| (asking, numbers)));
                    }
                }
            }
            for (place, numbers) in here {
                self.run_here(session, place, &numbers).await;
            }
            for (asking, numbers) in asked {
                let Ok((address, upstream, replies)) = asking.await else {
                    continue;
                };
                if let Some(upstream) = upstream {
                    session.upstreams().give(&address, upstream);
                }
                self.on_replies(&core, session, &numbers, replies);
            }
            waiting.retain(|&it| self.heads.get(it).is_some_and(|it| it.reply.is_none()));
            if waiting.is_empty() {
                break;
            }
            if Instant::now() > until {
                for &number in &waiting {
                    self.give_up(&core, session, number);
                }
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        core.begin_batch();
    }

    /// Shares out those that wait; some have their answer then.
    fn group(
        &mut self,
        cluster: &Cluster,
        session: &Session,
        core: &Rc<Core>,
        waiting: &[usize],
    ) -> Vec<(Target, Vec<usize>)> {
        let mut groups: Vec<(Target, Vec<usize>)> = Vec::new();
        let mut known: BTreeMap<Slot, Leads> = BTreeMap::new();
        for &number in waiting {
            let Some(forward) = self.heads.get_mut(number) else {
                continue;
            };
            let slot = forward.slot;
            let hint = forward.hint.take().filter(|_| session.forwards());
            let leads = known.entry(slot).or_insert_with(|| match hint {
                Some(address) if !cluster.is_me(&address) => Leads::There(address),
                _ => cluster.leads(slot),
            });
            let place = cluster.places.of_slot(slot);
            let target = match leads {
                Leads::There(address) if session.forwards() => Target::Node(address.clone()),
                Leads::There(_) | Leads::Unassigned => {
                    let refusal = cluster.moved(slot);
                    self.refuse(core, session, number, &refusal);
                    continue;
                }
                Leads::Here | Leads::Nobody if place != NOWHERE => Target::Place(place),
                Leads::Here | Leads::Nobody => continue,
            };
            match groups.iter_mut().find(|(known, _)| *known == target) {
                Some((_, numbers)) => numbers.push(number),
                None => groups.push((target, vec![number])),
            }
        }
        groups
    }

    /// Tries a region of this node.
    async fn run_here(&mut self, session: &Session, place: Place, numbers: &[usize]) {
        let core = &session.core;
        let target = core.shared.map.core_of(place);
        let mut batch = Batch::new(core.id, target, session.client.requester.clone());
        batch.region = place;
        batch.readonly = session.readonly;
        batch.replies.set_protocol(session.protocol);
        for &number in numbers {
            if let Some(forward) = self.heads.get(number) {
                let spec = core.shared.commands.spec(forward.stat as usize);
                batch.writes |= spec.is_write();
                batch.commands.push(&self.commands.args(number));
                batch.heads.push((forward.stat, forward.db));
            }
        }
        let Answer::Batch(batch) = core.send_batch(batch).await.await else {
            return;
        };
        let mut start = 0;
        for (&number, &end) in numbers.iter().zip(&batch.ends) {
            let reply = batch.replies.as_bytes().get(start..end).unwrap_or_default();
            let why = batch.replies.not_run_at(start).cloned();
            self.on_reply(session, number, Bytes::copy_from_slice(reply), why);
            start = end;
        }
    }

    /// Begins to ask another node; `None` if it cannot be reached.
    async fn ask(
        &mut self,
        cluster: &std::sync::Arc<Cluster>,
        session: &mut Session,
        address: String,
        numbers: &[usize],
    ) -> Option<Asking> {
        let introduction = session.introduction();
        let mut upstream = session
            .upstreams()
            .take(&address, &introduction)
            .await
            .ok()?;
        let mut request = Vec::new();
        for &number in numbers {
            encode_args(&self.commands.args(number), &mut request);
        }
        let slot = numbers
            .first()
            .and_then(|&it| self.heads.get(it))
            .map(|it| it.slot)?;
        let (cluster, count) = (cluster.clone(), numbers.len());
        Some(tokio::task::spawn_local(async move {
            let mut replies = Vec::with_capacity(count);
            let gave_up = |silent| is_over(&cluster, slot, &address, silent);
            let asked = upstream.exchange(&request, count, &mut replies, gave_up);
            let is_well = asked.await.is_ok();
            (address, is_well.then_some(upstream), replies)
        }))
    }

    fn on_replies(
        &mut self,
        core: &Rc<Core>,
        session: &Session,
        numbers: &[usize],
        replies: Vec<Bytes>,
    ) {
        let lost = numbers.get(replies.len()..).unwrap_or_default();
        for (&number, reply) in numbers.iter().zip(replies) {
            let why = not_run(&reply);
            self.on_reply(session, number, reply, why);
        }
        // The connection ended: a write may have happened. A read is asked again, unless such a
        // write stood behind it: it would see too much.
        let is_write =
            |forward: &Forward| core.shared.commands.spec(forward.stat as usize).is_write();
        let doubtful = |slot: Slot, from: usize| {
            lost.get(from..)
                .unwrap_or_default()
                .iter()
                .filter_map(|&it| self.heads.get(it))
                .any(|forward| forward.slot == slot && is_write(forward))
        };
        let unsure: Vec<usize> = (0..)
            .zip(lost)
            .filter(|&(at, &number)| {
                let slot = self.heads.get(number).map(|it| it.slot);
                slot.is_some_and(|slot| doubtful(slot, at))
            })
            .map(|(_, &number)| number)
            .collect();
        for number in unsure {
            self.refuse(core, session, number, &in_doubt());
        }
    }

    /// `why`: the command has not run where it was sent.
    fn on_reply(&mut self, session: &Session, number: usize, reply: Bytes, why: Option<NotRun>) {
        let Some(forward) = self.heads.get_mut(number) else {
            return;
        };
        match why {
            Some(NotRun::LeaderChanging(_)) => forward.unready = None,
            Some(NotRun::Unready(_)) => forward.unready = Some(reply),
            Some(NotRun::Moved(moved)) if session.forwards() => {
                forward.hint = Some(moved.address);
            }
            _ => forward.reply = Some(reply),
        }
    }

    /// It has waited long enough.
    fn give_up(&mut self, core: &Rc<Core>, session: &Session, number: usize) {
        let forward = self.heads.get_mut(number);
        match forward.map(|forward| (forward.unready.take(), forward)) {
            Some((Some(reply), forward)) => forward.reply = Some(reply),
            _ => self.refuse(core, session, number, &no_leader()),
        }
    }

    fn refuse(&mut self, core: &Rc<Core>, session: &Session, number: usize, refusal: &Refusal) {
        if let Some(forward) = self.heads.get_mut(number) {
            let mut reply = Reply::new(session.protocol);
            core.refuse(refusal, &mut reply);
            forward.reply = Some(reply.into_bytes().into());
        }
    }
}

/// Whether a node that has been silent for a while is to be given up.
pub(crate) fn is_over(cluster: &Cluster, slot: Slot, address: &str, silent: Duration) -> bool {
    let is_deposed = || match cluster.leads(slot) {
        Leads::There(leader) => leader != address,
        Leads::Here => true,
        Leads::Nobody | Leads::Unassigned => false,
    };
    silent > SILENT || silent > DEPOSED && is_deposed()
}

type Asking = tokio::task::JoinHandle<(String, Option<super::upstream::Upstream>, Vec<Bytes>)>;

impl Session {
    /// Whether this session's commands are taken to the node that leads, instead of being redirected.
    #[inline]
    pub fn forwards(&self) -> bool {
        !self.redirects
    }

    /// Until when a leader is looked for.
    pub(crate) fn deadline(&self) -> Instant {
        let ms = match self.forwards() {
            true => FORWARD_TIMEOUT_MS,
            false => TIMEOUT_MS,
        };
        Instant::now() + Duration::from_millis(ms)
    }

    pub fn introduction(&self) -> Introduction {
        Introduction {
            password: self.core.settings().requirepass.clone(),
            token: self.core.shared.users.load().token().to_vec(),
            protocol: self.protocol,
            no_touch: self.client.requester.no_touch.load(Ordering::Relaxed),
            shared: self.core.shared.clone(),
        }
    }
}

//! Commands of this session that are on other cores, and putting their replies in request order.
//!
//! ```text
//!   request   SET a   GET b   PING   GET c         a, c: core 1     b: here
//!   order     [core 1][here … … ][core 1]
//!   replies   core 1: a, c       here: b, PING     →  a b PING c
//! ```
//!
//! While nothing is pending, replies are written straight to the output and this costs nothing.

use base::{NotRun, Slot, milestone};
use command::{CommandSpec, Run, Traits};
use resp::{Args, Reply};
use runtime::cluster::Cluster;
use runtime::cores::{Answer, Batch, Core, CoreId, Place, Ticket};

use super::Session;
use super::forward::{Forwards, remote_reply};

/// Commands, and bytes of them, after which a session waits for its replies before it reads on.
const MAX_COMMANDS: usize = 1024;
const MAX_BYTES: usize = 256 * 1024;

/// Where the next replies are.
enum Source {
    /// In the output, up to this byte.
    Here(usize),
    /// The next reply of this lane.
    Lane(usize),
    /// The reply of this forward.
    Forward(usize),
    /// As `Forward`, instead of the next reply of this lane.
    Instead(usize, usize),
}

/// Where a command goes: a core, and which batch for it. A durable node has one per region, else
/// there is one per core.
#[derive(Clone, Copy)]
pub struct Lane {
    pub target: CoreId,
    pub at: usize,
}

#[derive(Default)]
pub struct Pending {
    /// By lane; empty until the first command for one.
    batches: Vec<Option<Box<Batch>>>,
    order: Vec<Source>,
    /// By lane: replies that were looked at already; room used again.
    taken: Vec<usize>,
    /// Bytes of the output that `order` knows of.
    known: usize,
    commands: usize,
    bytes: usize,
    /// A row of a table is to leave the cache.
    kicks: bool,
    /// Commands that are not for this node (cluster).
    forwards: Forwards,
}

impl Pending {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.commands >= MAX_COMMANDS || self.bytes >= MAX_BYTES
    }

    /// Whether this command has to wait until what is pending is done: behind ROW.KICK the row may have to be brought again, which
    /// nothing in the same entry of the log could wait for.
    #[inline]
    pub fn comes_first(&self, spec: &CommandSpec) -> bool {
        self.kicks && !is_kick(spec)
    }

    /// Whether a write for this region waits.
    pub fn has_writes(&self, region: Place) -> bool {
        let batch = self.batches.get(region).and_then(Option::as_ref);
        batch.is_some_and(|batch| batch.writes)
    }

    /// Whether a command for this slot has to be run elsewhere first (cluster).
    #[inline]
    pub fn has_forward(&self, slot: Slot) -> bool {
        !self.forwards.is_empty() && self.forwards.has_slot(slot)
    }

    /// Adds a command for another core, or for the log.
    pub fn push(
        &mut self,
        session: &Session,
        lane: Lane,
        spec: &CommandSpec,
        stat: usize,
        args: &Args<'_>,
        out: &Reply,
    ) {
        let core = &session.core;
        if self.batches.is_empty() || self.batches.len() <= lane.at {
            let map = &core.shared.map;
            let lanes = match core.shared.durable {
                Some(_) => map.regions(),
                None => map.cores(),
            };
            self.batches.resize_with(lanes, || None);
        }
        let Some(slot) = self.batches.get_mut(lane.at) else {
            return;
        };
        let client = &session.client.requester;
        let batch = slot.get_or_insert_with(|| Batch::new(core.id, lane.target, client.clone()));
        if core.shared.durable.is_some() {
            batch.region = lane.at;
            batch.writes |= spec.is_write();
            batch.readonly = session.readonly;
        }
        self.kicks |= is_kick(spec);
        let before = batch.commands.size_bytes();
        batch.commands.push(args);
        batch.heads.push((stat as u16, session.db));
        self.bytes += batch.commands.size_bytes() - before;
        milestone("the session added the command to a batch");
        self.note(Source::Lane(lane.at), out);
    }

    /// Adds a command that is not for this node.
    pub fn push_forward(
        &mut self,
        session: &Session,
        slot: Slot,
        stat: usize,
        args: &Args<'_>,
        out: &Reply,
    ) {
        self.kicks |= is_kick(session.core.shared.commands.spec(stat));
        let number = self.forwards.push(stat, session.db, slot, args);
        self.bytes += args.iter_from(0).map(<[u8]>::len).sum::<usize>();
        self.note(Source::Forward(number), out);
    }

    /// One more command, behind what is in the output; where its reply will be.
    fn note(&mut self, source: Source, out: &Reply) {
        self.commands += 1;
        if out.len() > self.known {
            self.known = out.len();
            self.order.push(Source::Here(self.known));
        }
        self.order.push(source);
    }

    /// Sends all batches, one message per core, waits for their replies and puts them into `out`
    /// in the order of the requests.
    pub async fn finish(&mut self, session: &mut Session, out: &mut Reply) {
        let core = session.core.clone();
        let mut tickets: Vec<(usize, Ticket)> = Vec::new();
        for lane in 0..self.batches.len() {
            let Some(mut batch) = take_filled(&mut self.batches[lane]) else {
                continue;
            };
            batch.replies.set_protocol(session.protocol);
            tickets.push((lane, core.send_batch(batch).await));
        }
        for (lane, ticket) in tickets {
            if let Answer::Batch(batch) = ticket.await {
                self.batches[lane] = Some(batch);
            }
        }
        if core.shared.cluster.is_some() {
            self.find_forwards(session);
            if !self.forwards.is_empty() {
                self.forwards.finish(session).await;
            }
        }
        self.stitch(&core, out);
        core.begin_batch();
    }

    /// Commands that came back without having run: nobody leads, or somebody else does.
    fn find_forwards(&mut self, session: &Session) {
        self.taken.clear();
        self.taken.resize(self.batches.len(), 0);
        for place in 0..self.order.len() {
            match self.order[place] {
                Source::Lane(lane) => {
                    let at = self.taken[lane];
                    self.taken[lane] += 1;
                    if let Some(number) = self.forward_of(session, lane, at) {
                        self.forwards.set_order(number, place);
                        // Its reply in the batch is passed over by `stitch`.
                        self.order[place] = Source::Instead(lane, number);
                    }
                }
                Source::Forward(number) => self.forwards.set_order(number, place),
                Source::Here(_) | Source::Instead(..) => {}
            }
        }
    }

    /// Puts a lane's command among the forwards if it has not run; its number there.
    fn forward_of(&mut self, session: &Session, lane: usize, at: usize) -> Option<usize> {
        let batch = self.batches.get(lane)?.as_ref()?;
        let hint = match batch.replies.not_run_at(start_of(batch, at)?) {
            Some(NotRun::LeaderChanging(_) | NotRun::Unready(_)) => None,
            Some(NotRun::Moved(moved)) if session.forwards() => Some(moved.address.clone()),
            _ => return None,
        };
        let &(stat, db) = batch.heads.get(at)?;
        let spec = session.core.shared.commands.spec(stat as usize);
        let args = batch.commands.args(at);
        if matches!(spec.run, Run::Block(_)) {
            return None; // it may wait for long: its session sees to it
        }
        let slot = Cluster::slot_of(spec, &args).ok()??;
        let number = self.forwards.push(stat as usize, db, slot, &args);
        self.forwards.set_hint(number, hint);
        Some(number)
    }

    fn stitch(&mut self, core: &Core, out: &mut Reply) {
        let taken = &mut self.taken;
        taken.clear();
        taken.resize(self.batches.len(), 0);
        let mut whole = core.take_buffer();
        let mut not_run: Vec<(usize, NotRun)> = Vec::new();
        let mut here = 0;
        for source in self.order.drain(..) {
            match source {
                Source::Here(end) => {
                    let moved =
                        |(at, why): &(usize, NotRun)| (whole.len() + at - here, why.clone());
                    not_run.extend(out.not_run_in(here..end).map(moved));
                    whole.extend_from_slice(&out.as_bytes()[here..end]);
                    here = end;
                }
                Source::Lane(lane) => {
                    let Some(Some(batch)) = self.batches.get(lane) else {
                        continue;
                    };
                    let start = start_of(batch, taken[lane]);
                    if let Some(why) = start.and_then(|at| batch.replies.not_run_at(at)) {
                        not_run.push((whole.len(), why.clone()));
                    }
                    whole.extend_from_slice(reply_of(batch, taken[lane]));
                    taken[lane] += 1;
                }
                Source::Forward(number) | Source::Instead(_, number) => {
                    if let Source::Instead(lane, _) = source {
                        taken[lane] += 1;
                    }
                    let reply = self.forwards.reply(number);
                    let why = remote_reply::not_run(reply);
                    let moved = why.filter(|why| matches!(why, NotRun::Moved(_)));
                    not_run.extend(moved.map(|why| (whole.len(), why)));
                    whole.extend_from_slice(reply);
                }
            }
        }
        let moved = |(at, why): &(usize, NotRun)| (whole.len() + at - here, why.clone());
        not_run.extend(out.not_run_in(here..out.len()).map(moved));
        whole.extend_from_slice(&out.as_bytes()[here..]);
        out.replace(&mut whole, not_run);
        core.give_buffer(whole);
        self.forwards.clear();
        self.known = 0;
        self.commands = 0;
        self.bytes = 0;
        self.kicks = false;
        for slot in &mut self.batches {
            match slot {
                Some(batch) if batch.replies.as_bytes().len() > MAX_BYTES => *slot = None,
                Some(batch) => batch.clear(),
                None => {}
            }
        }
    }
}

#[inline]
fn is_kick(spec: &CommandSpec) -> bool {
    spec.is(Traits::RELEASES_ROW)
}

/// Where the reply of the nth command of a batch begins, if it has one.
fn start_of(batch: &Batch, nth: usize) -> Option<usize> {
    batch.ends.get(nth)?;
    match nth {
        0 => Some(0),
        _ => batch.ends.get(nth - 1).copied(),
    }
}

/// The reply of the nth command of a batch.
fn reply_of(batch: &Batch, nth: usize) -> &[u8] {
    let start = start_of(batch, nth).unwrap_or_default();
    let end = batch.ends.get(nth).copied().unwrap_or_default();
    batch.replies.as_bytes().get(start..end).unwrap_or_default()
}

fn take_filled(slot: &mut Option<Box<Batch>>) -> Option<Box<Batch>> {
    if slot.as_ref().is_some_and(|batch| !batch.heads.is_empty()) {
        slot.take()
    } else {
        None
    }
}

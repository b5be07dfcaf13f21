//! Commands of this session that are on other cores, and putting their replies in request order.
//!
//! ```text
//!   request   SET a   GET b   PING   GET c         a, c: core 1     b: here
//!   order     [core 1][here … … ][core 1]
//!   replies   core 1: a, c       here: b, PING     →  a b PING c
//! ```
//!
//! While nothing is pending, replies are written straight to the output and this costs nothing.
//!
//! *Long replies*: a batch comes back when it has [`REPLY_BYTES`], with commands left. Then the replies up to the first that is
//! missing are written to the client; what is left of that one lane runs, and so on. So a client has at most this much, and one
//! reply more, per lane, whatever it asks for. Two kinds of batches come back whole: with reads before a write of the log, which are
//! kept few, and where commands for other nodes follow, which run when all lanes are done.

use base::{NotRun, Refusal, Slot, milestone};
use command::{CommandSpec, Run, Traits};
use node::REPLY_BYTES;
use resp::{Args, Reply};
use runtime::cluster::Cluster;
use runtime::cores::{Answer, Batch, Core, CoreId, Place, Ticket};

use super::Session;
use super::forward::{Forwards, remote_reply};

/// Commands, and bytes of them, after which a session waits for its replies before it reads on.
const MAX_COMMANDS: usize = 1024;
const MAX_BYTES: usize = 256 * 1024;
/// A reply of so many bytes is worth not being copied.
const LONG_BYTES: usize = 64 * 1024;
/// A write of a durable node does not wait behind more reads than this, in a batch with and without other writes: the replies of
/// all of them are made before it.
const READS_AMONG_WRITES: usize = 128;
const READS_BEFORE_WRITES: usize = 16;
/// Nor behind any read, so many batches after a long reply.
const CAREFUL_BATCHES: usize = 64;

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
    /// By lane: replies that were put into the output.
    taken: Vec<usize>,
    /// As `taken`, by `find_forwards`; room used again.
    seen: Vec<usize>,
    /// Some replies are in the output, others have yet to be made.
    is_begun: bool,
    /// A reply was long not many batches ago.
    careful: usize,
    /// What was in the output when it began, and how much of it was put back.
    here: Reply,
    here_taken: usize,
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

    /// Whether a write for this region has to wait until what is pending is done, on a durable node: reads before it in one batch
    /// are all answered before the batch comes back, so there must not be many, nor long ones.
    #[inline]
    pub fn is_behind_reads(&self, region: Place) -> bool {
        let Some(Some(batch)) = self.batches.get(region) else {
            return false;
        };
        let most = match (self.careful, batch.writes) {
            (0, true) => READS_AMONG_WRITES,
            (0, false) => READS_BEFORE_WRITES,
            _ => 0,
        };
        batch.reads > most
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
            batch.reads += usize::from(!spec.is_write());
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

    /// Sends all batches, one message per core, waits for their replies and puts them into `out` in the order of the requests. If they
    /// are long, some stay pending: it is to be called again when `out` was written.
    pub async fn finish(&mut self, session: &mut Session, out: &mut Reply) {
        let core = session.core.clone();
        let mut tickets: Vec<(usize, Ticket)> = Vec::new();
        let is_first = !self.is_begun;
        if is_first {
            self.is_begun = true;
            self.here = out.take();
            self.taken.clear();
            self.taken.resize(self.batches.len(), 0);
            let enough_bytes = match self.forwards.is_empty() {
                true => REPLY_BYTES,
                false => usize::MAX,
            };
            for lane in 0..self.batches.len() {
                let Some(mut batch) = take_filled(&mut self.batches[lane]) else {
                    continue;
                };
                batch.replies.set_protocol(session.protocol);
                batch.replies.set_limit(session.reply_limit());
                batch.enough_bytes = enough_bytes;
                tickets.push((lane, core.send_batch(batch).await));
            }
        } else if let Some((lane, mut batch)) = self.take_missing() {
            let specs = &core.shared.commands;
            let mut rest = batch.heads.iter().skip(batch.ends.len());
            let is_write = |&(stat, _): &(u16, _)| specs.spec(stat as usize).is_write();
            batch.writes = core.shared.durable.is_some() && rest.any(is_write);
            batch.begin_rest();
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
        let is_moving = self.stitch(&core, out);
        if !is_first && !is_moving && !self.is_empty() {
            self.give_up_missing();
            self.stitch(&core, out);
        }
        core.begin_batch();
    }

    /// The batch that has to go on for the next reply.
    fn take_missing(&mut self) -> Option<(usize, Box<Batch>)> {
        let &Source::Lane(lane) = self.order.first()? else {
            return None;
        };
        let batch = self.batches.get_mut(lane)?.take()?;
        Some((lane, batch))
    }

    /// A batch came back twice with nothing more run: there is a mistake somewhere, and its client must not wait for ever.
    #[cold]
    fn give_up_missing(&mut self) {
        if let Some(&Source::Lane(lane)) = self.order.first()
            && let Some(Some(batch)) = self.batches.get_mut(lane)
        {
            while batch.ends.len() < batch.heads.len() {
                batch.replies.refusal(&Refusal::new("ERR internal error"));
                batch.ends.push(batch.replies.len());
            }
        }
    }

    /// Bytes of replies that are here and have yet to be put into the output.
    pub fn waiting_bytes(&self) -> usize {
        let batches = self.batches.iter().flatten();
        let bytes: usize = batches.map(|batch| batch.replies.len()).sum();
        bytes + self.here.len() - self.here_taken
    }

    /// Commands that came back without having run: nobody leads, or somebody else does.
    fn find_forwards(&mut self, session: &Session) {
        self.seen.clone_from(&self.taken);
        for place in 0..self.order.len() {
            match self.order[place] {
                Source::Lane(lane) => {
                    let at = self.seen[lane];
                    self.seen[lane] += 1;
                    if let Some(number) = self.forward_of(session, lane, at) {
                        self.forwards.set_order(number, place);
                        // Its reply in the batch is passed over by `stitch`.
                        self.order[place] = Source::Instead(lane, number);
                    }
                }
                Source::Forward(number) => self.forwards.set_order(number, place),
                Source::Instead(lane, number) => {
                    self.seen[lane] += 1;
                    self.forwards.set_order(number, place);
                }
                Source::Here(_) => {}
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

    /// Puts the replies that are there into the output, up to the first that is missing. Whether there were any.
    fn stitch(&mut self, core: &Core, out: &mut Reply) -> bool {
        if out.bytes_mut().capacity() == 0 {
            *out.bytes_mut() = core.take_buffer();
        }
        let mut done = 0;
        for source in &self.order {
            match *source {
                Source::Here(end) => {
                    put_here(&self.here, self.here_taken..end, out);
                    self.here_taken = end;
                }
                Source::Lane(lane) => {
                    if let Some(Some(batch)) = self.batches.get_mut(lane) {
                        let nth = self.taken[lane];
                        if batch.ends.len() <= nth && nth < batch.heads.len() {
                            break;
                        }
                        let start = start_of(batch, nth);
                        if let Some(why) = start.and_then(|at| batch.replies.not_run_at(at)) {
                            out.note_not_run(out.len(), why.clone());
                        }
                        out.note_overflow(&batch.replies);
                        let len = reply_of(batch, nth).len();
                        if len >= LONG_BYTES {
                            self.careful = CAREFUL_BATCHES;
                        }
                        let is_all = len == batch.replies.len();
                        if is_all && out.is_empty() && len >= LONG_BYTES {
                            // The last of the batch: nothing of a long reply is copied.
                            std::mem::swap(out.bytes_mut(), batch.replies.buffer_mut());
                        } else {
                            out.put(reply_of(batch, nth));
                        }
                        self.taken[lane] = nth + 1;
                    }
                }
                Source::Forward(number) | Source::Instead(_, number) => {
                    if let Source::Instead(lane, _) = *source {
                        self.taken[lane] += 1;
                    }
                    let reply = self.forwards.reply(number);
                    let why = remote_reply::not_run(reply);
                    if let Some(why @ NotRun::Moved(_)) = why {
                        out.note_not_run(out.len(), why);
                    }
                    out.put(reply);
                }
            }
            done += 1;
        }
        self.order.drain(..done);
        if !self.order.is_empty() {
            return done > 0;
        }
        put_here(&self.here, self.here_taken..self.here.len(), out);
        core.give_buffer(std::mem::take(self.here.buffer_mut()));
        self.is_begun = false;
        self.careful = self.careful.saturating_sub(1);
        self.here_taken = 0;
        self.forwards.clear();
        self.known = 0;
        self.commands = 0;
        self.bytes = 0;
        self.kicks = false;
        for slot in &mut self.batches {
            match slot {
                Some(batch) if batch.replies.len() > MAX_BYTES => *slot = None,
                Some(batch) => batch.clear(),
                None => {}
            }
        }
        true
    }
}

#[inline]
fn is_kick(spec: &CommandSpec) -> bool {
    spec.is(Traits::RELEASES_ROW)
}

/// Puts a part of what was answered here into the output, with what says that a command has not run.
fn put_here(here: &Reply, part: std::ops::Range<usize>, out: &mut Reply) {
    let to = out.len();
    for (at, why) in here.not_run_in(part.clone()) {
        out.note_not_run(to + at - part.start, why.clone());
    }
    out.put(here.as_bytes().get(part).unwrap_or_default());
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

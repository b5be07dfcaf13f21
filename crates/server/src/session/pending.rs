//! Commands of this session that are on other cores, and putting their replies in request order.
//!
//! ```text
//!   request   SET a   GET b   PING   GET c         a, c: core 1     b: here
//!   order     [core 1][here … … ][core 1]
//!   replies   core 1: a, c       here: b, PING     →  a b PING c
//! ```
//!
//! While nothing is pending, replies are written straight to the output and this costs nothing.

use std::rc::Rc;
use std::sync::Arc;

use base::DbIndex;
use command::Command;
use resp::{Args, Protocol, Reply};

use crate::clients::Client;
use crate::cores::{Answer, Batch, Core, CoreId, RegionId, Ticket};

/// Commands, and bytes of them, after which a session waits for its replies before it reads on.
const MAX_COMMANDS: usize = 1024;
const MAX_BYTES: usize = 256 * 1024;

/// Where the next replies are.
enum Source {
    /// In the output, up to this byte.
    Here(usize),
    /// The next reply of this lane.
    Lane(usize),
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
    /// Bytes of the output that `order` knows of.
    known: usize,
    commands: usize,
    bytes: usize,
}

impl Pending {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.commands >= MAX_COMMANDS || self.bytes >= MAX_BYTES
    }

    /// Whether a write for this region waits.
    pub fn has_writes(&self, region: RegionId) -> bool {
        let batch = self.batches.get(region).and_then(Option::as_ref);
        batch.is_some_and(|batch| batch.writes)
    }

    /// Adds a command for another core, or for the log.
    #[allow(clippy::too_many_arguments)]
    pub fn push(
        &mut self,
        core: &Core,
        client: &Arc<Client>,
        lane: Lane,
        row: &Command,
        stat: usize,
        db: DbIndex,
        args: &Args<'_>,
        out: &Reply,
    ) {
        if self.batches.is_empty() {
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
        let batch = slot.get_or_insert_with(|| Batch::new(core.id, lane.target, client.clone()));
        if core.shared.durable.is_some() {
            batch.region = lane.at;
            batch.writes |= row.is_write();
        }
        let before = batch.commands.size_bytes();
        batch.commands.push(args);
        batch.heads.push((stat as u16, db));
        self.bytes += batch.commands.size_bytes() - before;
        self.commands += 1;
        if out.len() > self.known {
            self.known = out.len();
            self.order.push(Source::Here(self.known));
        }
        self.order.push(Source::Lane(lane.at));
    }

    /// Sends all batches, one message per core, waits for their replies and puts them into `out`
    /// in the order of the requests.
    pub async fn settle(&mut self, core: &Rc<Core>, protocol: Protocol, out: &mut Reply) {
        let mut tickets: Vec<(usize, Ticket)> = Vec::new();
        for lane in 0..self.batches.len() {
            let Some(mut batch) = take_filled(&mut self.batches[lane]) else {
                continue;
            };
            batch.replies.set_protocol(protocol);
            tickets.push((lane, core.send_batch(batch).await));
        }
        for (lane, ticket) in tickets {
            if let Answer::Batch(batch) = ticket.await {
                self.batches[lane] = Some(batch);
            }
        }
        self.stitch(core, out);
        core.begin_batch();
    }

    fn stitch(&mut self, core: &Core, out: &mut Reply) {
        let mut taken = vec![0usize; self.batches.len()];
        let mut whole = core.take_buffer();
        let mut here = 0;
        for source in self.order.drain(..) {
            match source {
                Source::Here(end) => {
                    whole.extend_from_slice(&out.as_bytes()[here..end]);
                    here = end;
                }
                Source::Lane(lane) => {
                    let Some(Some(batch)) = self.batches.get(lane) else {
                        continue;
                    };
                    let nth = taken[lane];
                    taken[lane] += 1;
                    let start = match nth {
                        0 => 0,
                        _ => batch.ends.get(nth - 1).copied().unwrap_or(0),
                    };
                    let end = batch.ends.get(nth).copied().unwrap_or(start);
                    whole.extend_from_slice(&batch.replies.as_bytes()[start..end]);
                }
            }
        }
        whole.extend_from_slice(&out.as_bytes()[here..]);
        std::mem::swap(out.buffer_mut(), &mut whole);
        core.give_buffer(whole);
        self.known = 0;
        self.commands = 0;
        self.bytes = 0;
        for slot in &mut self.batches {
            match slot {
                Some(batch) if batch.replies.as_bytes().len() > MAX_BYTES => *slot = None,
                Some(batch) => batch.clear(),
                None => {}
            }
        }
    }
}

fn take_filled(slot: &mut Option<Box<Batch>>) -> Option<Box<Batch>> {
    if slot.as_ref().is_some_and(|batch| !batch.heads.is_empty()) {
        slot.take()
    } else {
        None
    }
}

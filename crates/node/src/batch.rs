//! A batch: all commands of one pipeline that go to one other core (on a durable node: to the log
//! of one region), in one message, and back.
//!
//! The same box travels to the region and back; the session uses its buffers again.

use std::sync::Arc;

use base::{DbIndex, Refusal};
use resp::{Protocol, Reply};

use crate::command_list::clear_room;
use crate::{CommandList, CoreId, Place, Requester, Waiter};

/// Bytes of replies after which a session would rather send them than have more: the rest of its batch runs when they are sent.
/// A client that asks for much and reads little has then at most this much and one reply, whatever it asks for.
pub const REPLY_BYTES: usize = 1 << 20;

pub struct Batch {
    /// The core that runs it.
    pub target: CoreId,
    /// On a durable node: the one region all its keys are in, and whether a command writes.
    pub region: Place,
    pub writes: bool,
    /// A transaction: nothing comes between its commands, and if it is refused it is as a whole.
    pub is_transaction: bool,
    /// Reads may be answered by a replica that does not lead (cluster).
    pub readonly: bool,
    /// Where the answer goes: a core, and the ticket of a task there.
    pub from: CoreId,
    pub ticket: usize,
    pub client: Arc<Requester>,
    pub commands: CommandList,
    /// Commands that are not to be run because SQL rows could not be loaded, and why.
    pub refused: Vec<(usize, Refusal)>,
    /// Statistics number and database of each command.
    pub heads: Vec<(u16, DbIndex)>,
    /// The replies, one behind the other, and where each ends.
    pub replies: Reply,
    pub ends: Vec<usize>,
    /// Bytes of replies after which it comes back with the rest not run; writes run in any case, and all that comes before one.
    pub enough_bytes: usize,
    /// Reads among its commands, as its session counts them.
    pub reads: usize,
    /// Of a blocking command on a durable node, which is alone in its batch then. If it finds nothing
    /// the waiter is in line when the batch comes back, and there is no reply.
    pub waiter: Option<Arc<Waiter>>,
}

/// A batch on its way: only the pointer moves.
pub type BatchBox = Box<Batch>;

impl Batch {
    pub fn new(from: CoreId, target: CoreId, client: Arc<Requester>) -> Box<Self> {
        Box::new(Batch {
            target,
            region: 0,
            writes: false,
            is_transaction: false,
            readonly: false,
            from,
            ticket: 0,
            client,
            commands: CommandList::default(),
            refused: Vec::new(),
            heads: Vec::new(),
            replies: Reply::new(Protocol::Resp2),
            ends: Vec::new(),
            enough_bytes: usize::MAX,
            reads: 0,
            waiter: None,
        })
    }

    /// Why the command at this place is not to be run, if it is not.
    #[inline]
    pub fn refusal(&self, at: usize) -> Option<&Refusal> {
        let found = self.refused.iter().find(|(refused, _)| *refused == at);
        found.map(|(_, refusal)| refusal)
    }

    #[inline]
    pub fn is_refused(&self, at: usize) -> bool {
        self.refusal(at).is_some()
    }

    /// Whether what is left is to run another time.
    #[inline]
    pub fn has_enough(&self) -> bool {
        self.replies.len() >= self.enough_bytes
    }

    /// Forgets the replies so far, which were taken; what has not run is next.
    pub fn begin_rest(&mut self) {
        clear_room(self.replies.buffer_mut());
        self.ends.fill(0);
    }

    /// Ready for other commands.
    pub fn clear(&mut self) {
        self.refused.clear();
        self.waiter = None;
        self.writes = false;
        self.reads = 0;
        self.commands.clear();
        clear_room(&mut self.heads);
        clear_room(self.replies.buffer_mut());
        clear_room(&mut self.ends);
    }
}

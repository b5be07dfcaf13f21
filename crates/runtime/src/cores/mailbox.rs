//! A core's inbox, and waking a core only when it sleeps.
//!
//! A message is pushed to a lock-free queue. The receiving core finds it by itself while it is
//! busy: its sessions look at the queue after every turn. Only when it is about to sleep does it
//! say so (`sleeping`), and only then does a sender pay for a wake-up:
//!
//! ```text
//!   receiver, before parking          sender
//!   sleeping = true                   push
//!   queue empty? park : stay          sleeping.swap(false)? wake the inbox task
//! ```
//!
//! Both sides write before they read (sequentially consistent), so at least one sees the other.
//!
//! On a durable node a core that has an entry at the log writer can make no other before it is on
//! disk, and will be woken then. So writes for it do not wake it ([`Mailbox::send_with_log`]): they
//! are found when the writer's words are. `awaited` counts these words and is lowered by the core
//! before it looks at its queue for the last time, so the same rule holds.
//!
//! **Bounded**: a core may have at most [`CREDITS`] requests under way at each other core
//! ([`crate::Core::credit`]). Everything else answers a request, so the queue's length is bounded
//! and the inbox never has to refuse.

use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::Waker;

use bytes::Bytes;
use crossbeam_queue::SegQueue;
use keyspace::rows::{LoadRequest, Loaded, RowError};
use node::{Batch, BatchOutcome, EffectBatch, RegionBox};

use super::followers::Followers;
use super::tally::{Counted, Tally};
use super::{Core, CoreId, Place};
use crate::cluster::Task;

/// Requests (batches, lends) one core may have under way at another.
pub const CREDITS: u32 = 256;

/// What a core is to do for a crate above this one; it must not wait, but may start a task.
pub type CoreCall = Box<dyn FnOnce(&Rc<Core>) + Send>;

pub enum Message {
    /// Commands to run here; answered by `Done`.
    Batch(Box<Batch>),
    Done(Box<Batch>),
    /// Regions of this core are wanted; answered by `Lent`, later, in the order they were asked.
    Lend {
        from: CoreId,
        ticket: usize,
        regions: Vec<Place>,
    },
    /// `owner` lends what `ticket` asked for.
    Lent {
        owner: CoreId,
        ticket: usize,
        regions: Vec<RegionBox>,
    },
    Return {
        regions: Vec<RegionBox>,
    },
    /// Regions of this core are to be counted; answered by `Counted`.
    Tally {
        from: CoreId,
        ticket: usize,
        regions: Vec<Place>,
        tally: Tally,
    },
    Counted {
        owner: CoreId,
        ticket: usize,
        counted: Box<Counted>,
    },
    /// What followers of regions of this core have; answered by `FollowersTold`.
    Followers {
        from: CoreId,
        ticket: usize,
        asked: Vec<Followers>,
    },
    FollowersAnswered {
        owner: CoreId,
        ticket: usize,
        told: Vec<Followers>,
    },
    /// The reply of a blocked command.
    Served {
        ticket: usize,
        reply: resp::Reply,
    },
    /// A blocked command gave up while somebody looked for its reply: there is none.
    Unserved {
        ticket: usize,
    },
    /// A region comes back with changes to be kept (on a cluster node); answered by `Settled`.
    Keep(Box<EffectBatch>),
    Settled {
        ticket: usize,
        fate: BatchOutcome,
    },
    /// Another core found nothing of its own to evict.
    Evict,
    /// The log writer has these on disk, or never will. With a ticket they are of a
    /// commit of held regions.
    Logged {
        written: Vec<node::Logged>,
        commit: Option<usize>,
        /// Entries that this core proposed were among them ([`node::outgoing`]).
        is_ours: bool,
        ok: bool,
    },
    /// A reader has fetched the rows of a key.
    Fetched {
        ticket: usize,
        fetched: Box<(LoadRequest, Result<Loaded, RowError>)>,
    },
    /// A reader has brought rows into the block cache.
    Warmed {
        ticket: usize,
        /// The key whose rows cannot be read.
        unreadable: Option<Box<(LoadRequest, Loaded)>>,
    },
    /// Entries of a region's log that were not in memory.
    Entries {
        region: Place,
        entries: Result<Vec<replica::Entry>, String>,
    },
    /// Messages of peers for regions of this core.
    Raft {
        from: u64,
        messages: Vec<(Place, Bytes)>,
    },
    /// Of the node's own thread (cluster).
    Task(Box<Task>),
    /// A database has spoken about rows of a region of this core.
    Table(Box<crate::tables::SqlAnswer>),
    /// A question about rows of a region of this core; answered by `TableTold`.
    TableAsk(Box<crate::tables::Asked>),
    TableAnswered {
        ticket: usize,
        told: Box<Result<crate::tables::TableAnswer, base::Refusal>>,
    },
    /// What the log of a region has up to `index` is in the store, on disk. So many bytes may be kept for peers that lag.
    Cut {
        region: Place,
        index: u64,
        keep_bytes: u64,
    },
    /// What a crate above this one does on this core.
    Call(CoreCall),
    /// The node stops.
    Stop,
}

#[derive(Default)]
pub struct Mailbox {
    queue: SegQueue<Message>,
    sleeping: AtomicBool,
    inbox: OnceLock<Waker>,
    /// Words of the log writer that are under way to this core, and will wake it.
    awaited: AtomicUsize,
}

impl Mailbox {
    /// Called by other cores.
    #[inline]
    pub fn send(&self, message: Message) {
        self.push(message);
        self.wake_sleeper();
    }

    /// As [`Mailbox::send`], for who has more to leave here; [`Mailbox::wake_sleeper`] must follow.
    #[inline]
    pub fn push(&self, message: Message) {
        self.queue.push(message);
    }

    #[inline]
    pub fn wake_sleeper(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// As [`Mailbox::send`], for what this core can do nothing about before it hears from the log
    /// writer: if it will, it is left asleep until then.
    #[inline]
    pub fn send_with_log(&self, message: Message) {
        self.queue.push(message);
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed) == 0
            && self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::SeqCst)
        {
            self.wake();
        }
    }

    /// The log writer is given something that it will have words about.
    pub fn await_log(&self) {
        self.awaited.fetch_add(1, Ordering::SeqCst);
    }

    /// Its words are here: the core looks at its queue once more before it sleeps.
    pub fn on_log(&self) {
        self.awaited.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    pub fn receive(&self) -> Option<Message> {
        self.queue.pop()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The task that empties the queue; set once, when the core starts.
    pub fn set_inbox(&self, waker: Waker) {
        let _ = self.inbox.set(waker);
        self.wake();
    }

    /// Lets the inbox task run if there is something for it. Called by the core itself after each
    /// turn of a session.
    #[inline]
    pub fn poke(&self) {
        if !self.queue.is_empty() {
            self.wake();
        }
    }

    /// The core's thread is about to sleep.
    pub fn before_park(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.queue.is_empty() {
            self.sleeping.store(false, Ordering::SeqCst);
            self.wake();
        }
    }

    pub fn after_unpark(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.poke();
    }

    fn wake(&self) {
        if let Some(waker) = self.inbox.get() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn sleeper() -> (Mailbox, Arc<Wakes>) {
        let (mailbox, wakes) = (Mailbox::default(), Arc::new(Wakes::default()));
        mailbox.set_inbox(wakes.clone().into());
        mailbox.before_park();
        wakes.0.store(0, Ordering::SeqCst);
        (mailbox, wakes)
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let (mailbox, wakes) = sleeper();
        mailbox.send_with_log(Message::Evict);
        mailbox.send(Message::Evict);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_is_left_together_wakes_once() {
        let (mailbox, wakes) = sleeper();
        mailbox.push(Message::Evict);
        mailbox.push(Message::Evict);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        mailbox.wake_sleeper();
        mailbox.wake_sleeper();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn who_waits_for_the_log_sleeps_on_and_finds_all_when_it_comes() {
        let (mailbox, wakes) = sleeper();
        mailbox.await_log();
        mailbox.send_with_log(Message::Evict);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        mailbox.send(Message::Evict);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        mailbox.on_log();
        mailbox.before_park();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2, "does not sleep");
        while mailbox.receive().is_some() {}
        mailbox.before_park();
        mailbox.send_with_log(Message::Evict);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 3);
    }
}

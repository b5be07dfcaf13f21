//! The cores: threads that own regions and sessions, and how they work together.
//!
//! ```text
//!   map       slot → region → core
//!   run       one command on regions at hand        batch    commands for one other core
//!   lend      regions of several cores, together    serve    watches, blocked sessions
//!   mailbox   messages and wake-ups                 tickets  who waits for which answer
//!   event_loop   messages, the end of a turn         upkeep   expiry, idle sessions, garbage
//!   thread    the life of a core's thread           count    what regions have counted
//!   followers what followers of regions have (WAIT) tally, totals   sums over regions (INFO)
//! ```
//!
//! [`Core`] is single-threaded state in an `Rc` that every session of the core has. Its cells are
//! borrowed for moments only, never across an `await`.

mod batch;
mod count;
mod effects;
mod event_loop;
mod evict;
mod followers;
mod lend;
mod log_health;
mod mailbox;
mod prefetch;
mod run;
mod serve;
mod tally;
mod thread;
mod tickets;
mod totals;
mod upkeep;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use command::CommandSpec;
use node::{Effects, Seeds};
use resp::Args;
use settings::Settings;
use stats::CoreStats;
use stats::clients::Client;

pub use evict::Evictions;
pub use followers::{Followers, FollowersStanding};
pub use lend::Held;
pub use mailbox::{CREDITS, CoreCall, Mailbox, Message};
pub use node::{
    Absent, Again, Batch, BatchBox, Claim, Cold, CommandList, CoreId, MOST_REGIONS, Map, NOWHERE,
    OwnedRegions, Place, Places, REGIONS_PER_CORE, Ran, Region, RegionBox, Route, Waiter,
    WatchFlag, only_key, route,
};
pub use prefetch::{AHEAD_KEYS, Coming};
pub use run::{Call, call_function};
pub use tally::Tally;
pub use thread::start_cores;
pub use tickets::{Answer, Ticket, Tickets};
pub use totals::{Sums, Totals};

use crate::Shared;
use crate::clock::{clock_ms, now_at_ms, now_ms};
use crate::cluster::Outbox;

/// Buffers kept for the next session that needs one.
const SPARE_BUFFERS: usize = 64;
const BUFFER_BYTES: usize = 16 * 1024;
const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// What one thread owns. Lives in an `Rc`: every session of the core has it, nobody else.
pub struct Core {
    pub id: CoreId,
    pub shared: Arc<Shared>,
    pub regions: RefCell<OwnedRegions>,
    /// The task that ends the turns of a durable node; see `event_loop`.
    pub(crate) turn_ender: RefCell<Option<Waker>>,
    /// It is to propose what is queued.
    pub(crate) propose_asked: Cell<bool>,
    /// What the regions have asked for; see `effects`.
    pub(crate) effects: RefCell<Effects>,
    /// Messages for peers, gathered until the end of a turn (cluster).
    pub(crate) outbox: RefCell<Outbox>,
    /// Replicas elsewhere to which a snapshot is on its way (cluster).
    pub(crate) sending: RefCell<BTreeSet<u64>>,
    /// Tasks that wait for something to change about a region: it comes back, or learns which tables
    /// there are. Place and ticket.
    pub(crate) watching_regions: RefCell<Vec<(Place, usize)>>,
    /// What SQL answered to regions that are lent.
    pub(crate) sql_answers: RefCell<Vec<crate::tables::SqlAnswer>>,
    /// Set just before a command is run whose rows of tables could not be had: why.
    pub row_failure: Cell<Option<Box<base::Refusal>>>,
    /// Set just before a command is run that was found to be allowed to read.
    pub is_confirmed: Cell<bool>,
    boot_ms: Cell<u64>,
    /// Set just before a command is run that has been tried before.
    pub again: Cell<Again>,
    tickets: Tickets,
    /// By core: requests that may still be sent there, and who waits to.
    credits: Box<[Cell<u32>]>,
    creditless: RefCell<VecDeque<Waker>>,
    settings: RefCell<Arc<Settings>>,
    settings_version: Cell<u64>,
    now_ms: Cell<u64>,
    seeds: Seeds,
    clock: quanta::Clock,
    /// Reading of the clock when the last command ended.
    tick: Cell<u64>,
    /// `slowlog-log-slower-than` or `latency-monitor-threshold` in ticks, the lower.
    slow_ticks: Cell<u64>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Bytes of replies in batches given back in this turn.
    answered_bytes: Cell<usize>,
    /// The sessions of this core, for upkeep.
    clients: RefCell<BTreeMap<u64, Arc<Client>>>,
    /// Keys are to be given up; see `durable::evict`.
    pub(crate) eviction_asked: Cell<bool>,
    pub(crate) is_evicting: Cell<bool>,
    /// Regions whose rows are being read to find keys to give up. Not in the region: that may be lent when
    /// they are read.
    pub(crate) warming: RefCell<BTreeSet<Place>>,
    pub(crate) weighings: RefCell<crate::durable::Weighings>,
    /// What the regions had counted a second ago.
    noted: RefCell<count::Noted>,
    stopping: Cell<bool>,
    /// Changes are being handled; see `serve`.
    serving: Cell<bool>,
}

impl Core {
    pub(crate) fn new(id: CoreId, shared: Arc<Shared>, regions: OwnedRegions) -> Rc<Self> {
        let mut rng = fastrand::Rng::with_seed(!shared.seed.wrapping_add(id as u64));
        let settings = shared.settings.current();
        let core = Core {
            id,
            regions: RefCell::new(regions),
            turn_ender: RefCell::new(None),
            propose_asked: Cell::new(true),
            effects: RefCell::default(),
            outbox: RefCell::default(),
            sending: RefCell::default(),
            watching_regions: RefCell::default(),
            sql_answers: RefCell::default(),
            row_failure: Cell::default(),
            is_confirmed: Cell::default(),
            boot_ms: Cell::default(),
            again: Cell::default(),
            tickets: Tickets::new(),
            credits: (0..shared.map.cores())
                .map(|_| Cell::new(CREDITS))
                .collect(),
            creditless: RefCell::default(),
            settings: RefCell::new(settings),
            settings_version: Cell::new(0),
            now_ms: Cell::new(now_ms()),
            seeds: Seeds::new(rng.u64(..)),
            clock: shared.clock.clone(),
            tick: Cell::new(shared.clock.raw()),
            slow_ticks: Cell::new(u64::MAX),
            buffers: RefCell::default(),
            answered_bytes: Cell::new(0),
            clients: RefCell::default(),
            eviction_asked: Cell::new(false),
            is_evicting: Cell::new(false),
            warming: RefCell::default(),
            weighings: RefCell::default(),
            noted: RefCell::default(),
            stopping: Cell::new(false),
            serving: Cell::new(false),
            shared,
        };
        core.refresh_settings();
        Rc::new(core)
    }

    /// The settings as of this batch.
    #[inline]
    pub fn settings(&self) -> Ref<'_, Arc<Settings>> {
        self.settings.borrow()
    }

    /// Takes over changed settings; called once per batch and after a session command.
    #[inline]
    pub fn refresh_settings(&self) {
        let version = self.shared.settings.version();
        if version != self.settings_version.get() {
            self.settings_version.set(version);
            self.take_settings(self.shared.settings.current());
        }
    }

    #[cold]
    fn take_settings(&self, settings: Arc<Settings>) {
        // The lower of the two thresholds; `on_slow` then asks which it was.
        let latency_us = match settings.latency_monitor_threshold_ms {
            0 => None,
            ms => Some(ms.saturating_mul(1000)),
        };
        let slowlog_us = u64::try_from(settings.slowlog_slower_than_us).ok();
        self.slow_ticks
            .set(match slowlog_us.into_iter().chain(latency_us).min() {
                Some(us) => {
                    // Ticks per nanosecond, from a span long enough to be exact.
                    let span = 1u64 << 30;
                    let nanos = self.clock.delta_as_nanos(0, span).max(1);
                    (u128::from(us) * 1000 * u128::from(span) / u128::from(nanos))
                        .min(u128::from(u64::MAX - 1)) as u64
                }
                None => u64::MAX,
            });
        if let Some(durable) = &self.shared.durable {
            durable.writer.set_sync(settings.log_sync);
            durable
                .writer
                .set_group_commit_delay(settings.group_commit_delay);
            let tuning = Arc::new(settings.tuning.clone());
            for region in self.regions.borrow_mut().present() {
                region.space.set_load_tuning(tuning.clone());
            }
        }
        self.settings.replace(settings);
    }

    /// A batch of commands begins: the time is read, once for all of them.
    #[inline]
    pub fn begin_batch(&self) {
        let clock_ms = clock_ms();
        self.now_ms.set(now_at_ms(clock_ms));
        self.tick.set(self.clock.raw());
        if self.shared.cluster.is_some() {
            self.boot_ms.set(clock_ms);
        }
        self.refresh_settings();
    }

    /// The moment of this batch by the clock of leases. Read after the commands of the batch were
    /// received: what was true then is what they may see.
    #[inline]
    pub fn boot_ms(&self) -> u64 {
        self.boot_ms.get()
    }

    /// Now, by the clock of leases; 0 where there are none.
    pub(crate) fn lease_ms(&self) -> u64 {
        match self.shared.cluster {
            Some(_) => clock_ms(),
            None => 0,
        }
    }

    /// A reading of the clock that changes with every command.
    pub fn last_command_at(&self) -> u64 {
        self.tick.get()
    }

    /// The moment of this batch, Unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Randomness for one command.
    #[inline]
    pub fn next_seed(&self) -> u64 {
        self.seeds.next()
    }

    #[inline]
    pub fn stats(&self) -> &CoreStats {
        &self.shared.stats[self.id]
    }

    /// The sessions of this core.
    #[inline]
    pub fn clients(&self) -> &RefCell<BTreeMap<u64, Arc<Client>>> {
        &self.clients
    }

    pub(crate) fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    #[inline]
    pub fn send(&self, to: CoreId, message: Message) {
        if let Some(mailbox) = self.shared.mailboxes.get(to) {
            mailbox.send(message);
        }
    }

    /// Has something done on another core, or here at once.
    pub fn call_on(self: &Rc<Self>, to: CoreId, call: CoreCall) {
        match to == self.id {
            true => call(self),
            false => self.send(to, Message::Call(call)),
        }
    }

    /// Looks for messages; called after each turn of a session.
    #[inline]
    pub fn poke_inbox(&self) {
        if self.shared.map.cores() > 1 || self.shared.durable.is_some() {
            self.shared.mailboxes[self.id].poke();
        }
    }

    /// Waits for the right to send one more request to `core`; its answer gives it back.
    pub async fn credit(&self, core: CoreId) {
        std::future::poll_fn(|cx| match self.try_credit(core) {
            true => Poll::Ready(()),
            false => {
                self.creditless.borrow_mut().push_back(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    /// As [`Core::credit`], if that need not wait.
    fn try_credit(&self, core: CoreId) -> bool {
        let credit = &self.credits[core];
        let left = credit.get().checked_sub(1);
        left.inspect(|&left| credit.set(left)).is_some()
    }

    fn credit_back(&self, core: CoreId) {
        let credit = &self.credits[core];
        credit.set(credit.get() + 1);
        if credit.get() == 1 {
            // Those who wait look again; rare, so all of them.
            for waker in self.creditless.borrow_mut().drain(..) {
                waker.wake();
            }
        }
    }

    /// The regions of a command's keys, ascending.
    pub fn regions_of(&self, spec: &CommandSpec, args: &Args<'_>) -> Vec<Place> {
        node::regions_of(&self.shared.map, spec, args)
    }

    /// An empty buffer with room; give it back with [`Core::give_buffer`].
    #[inline]
    pub fn take_buffer(&self) -> Vec<u8> {
        let spare = self.buffers.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    #[inline]
    pub fn give_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < SPARE_BUFFERS && (1..=BUFFER_BYTES_KEPT).contains(&buffer.capacity()) {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

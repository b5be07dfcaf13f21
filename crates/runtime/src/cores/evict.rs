//! Making room: `maxmemory` and its policies.
//!
//! A command that may need memory is admitted only below the limit; above it, its core gives up
//! keys of its own regions first. A core that has none to give up asks the others and lets the
//! command pass as long as somebody still had something at their last try.
//!
//! On a durable node keys are given up by entries of the log (`durable::evict`), a little later.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Refusal;
use command::Flags;
use keyspace::EvictionPolicy;
use stats::memory::{live_memory, publish, used_memory};
use stats::reaper;

use super::mailbox::Message;
use super::run::Call;
use super::{Core, Place};

/// Keys given up for one command at most; the next command goes on.
const KEYS_AT_ONCE: usize = 128;

/// What cores tell each other about making room; one per core.
#[derive(Default)]
pub struct Evictions {
    /// At its last try the core had nothing to give up.
    found_none: AtomicBool,
    /// A request by another core is under way.
    asked: AtomicBool,
}

impl Evictions {
    fn found(&self) -> bool {
        !self.found_none.load(Ordering::Relaxed)
    }

    pub(crate) fn set_found(&self, found: bool) {
        self.found_none.store(!found, Ordering::Relaxed);
    }
}

impl Core {
    /// Whether a command may run as far as memory and disk go.
    #[inline]
    pub fn admit(self: &Rc<Self>, call: &Call<'_>) -> Result<(), Refusal> {
        if call.spec.is_write() && !self.shared.saving.last_bgsave_ok.load(Ordering::Relaxed) {
            self.check_disk()?;
        }
        if self.shared.durable.is_some() {
            let deny = call.spec.flags.contains(Flags::DENYOOM);
            return self.admit_durable(call.spec.is_write(), deny);
        }
        self.admit_memory(call.spec.flags.contains(Flags::DENYOOM))
    }

    /// As [`Core::admit`], for a command that is queued for EXEC: the queue itself takes memory, so
    /// none is queued beyond the limit.
    pub fn admit_queued(self: &Rc<Self>, writes: bool) -> Result<(), Refusal> {
        self.admit_exec(writes, true)
    }

    /// As [`Core::admit`], for an EXEC: whether one of its commands writes, and whether one needs
    /// memory.
    pub fn admit_exec(self: &Rc<Self>, writes: bool, needs_memory: bool) -> Result<(), Refusal> {
        if writes && !self.shared.saving.last_bgsave_ok.load(Ordering::Relaxed) {
            self.check_disk()?;
        }
        if self.shared.durable.is_some() {
            return self.admit_durable(writes, needs_memory);
        }
        self.admit_memory(needs_memory)
    }

    /// With a policy `maxmemory` limits the data set, and beyond it keys are evicted. With `noeviction`
    /// it limits memory, which is a cache here: values leave it and stay on disk, and only if that does
    /// not help are commands refused.
    fn admit_durable(self: &Rc<Self>, writes: bool, deny: bool) -> Result<(), Refusal> {
        if let (true, Some(durable)) = (writes, &self.shared.durable) {
            let refusal = match self.shared.cluster.is_none() {
                true => durable.refusal(),
                // If it failed for good, others lead.
                false => durable.full_refusal(),
            };
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        let maxmemory = self.settings().maxmemory;
        if maxmemory == 0 {
            return Ok(());
        }
        if self.settings().tuning.policy != EvictionPolicy::NoEviction {
            return match self.shared.data_set.bytes() <= maxmemory as u64 {
                true => Ok(()),
                false => self.await_room(deny),
            };
        }
        if used_memory() <= maxmemory {
            return Ok(());
        }
        self.keep_in_bounds();
        self.hand_over_garbage();
        match deny && live_memory() > maxmemory {
            true => Err(Refusal::OutOfMemory),
            false => Ok(()),
        }
    }

    /// The data set is too large: keys leave it by and by. A command that needs room passes meanwhile, as
    /// long as somebody found any.
    #[cold]
    fn await_room(self: &Rc<Self>, deny: bool) -> Result<(), Refusal> {
        self.ask_for_eviction();
        let hope = !deny
            || self.shared.evictions[self.id].found()
            || self.shared.is_expiry_paused(self.now_ms());
        match hope || self.ask_others() {
            true => Ok(()),
            false => Err(Refusal::OutOfMemory),
        }
    }

    #[inline]
    fn admit_memory(self: &Rc<Self>, deny: bool) -> Result<(), Refusal> {
        let maxmemory = self.settings().maxmemory;
        if maxmemory == 0 || used_memory() <= maxmemory {
            return Ok(());
        }
        self.make_room(maxmemory, deny)
    }

    /// The last background save failed: `stop-writes-on-bgsave-error`.
    #[cold]
    pub fn check_disk(&self) -> Result<(), Refusal> {
        let settings = self.settings();
        let failed = !self.shared.saving.last_bgsave_ok.load(Ordering::Relaxed);
        if failed && settings.stop_writes_on_bgsave_error && !settings.save.is_empty() {
            return Err(Refusal::new(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
                 persist to disk. Commands that may modify the data set are disabled, because this \
                 instance is configured to report errors during writes if RDB snapshotting fails \
                 (stop-writes-on-bgsave-error option). Please check the Redis logs for details \
                 about the RDB error.",
            ));
        }
        Ok(())
    }

    #[cold]
    fn make_room(self: &Rc<Self>, maxmemory: usize, deny: bool) -> Result<(), Refusal> {
        publish();
        self.hand_over_garbage();
        let settings = self.settings().clone();
        // While clients are paused the data stays as it is.
        if live_memory() <= maxmemory || self.shared.is_expiry_paused(self.now_ms()) {
            return Ok(());
        }
        if settings.tuning.policy == EvictionPolicy::NoEviction {
            return if deny {
                Err(Refusal::OutOfMemory)
            } else {
                Ok(())
            };
        }
        self.evict(maxmemory);
        let hope = self.shared.evictions[self.id].found();
        match hope || !deny || self.ask_others() {
            true => Ok(()),
            false => Err(Refusal::OutOfMemory),
        }
    }

    /// Asks the other cores to give up keys; whether one of them had some at its last try.
    fn ask_others(&self) -> bool {
        let mut hope = false;
        let others = (0..self.shared.map.cores()).filter(|&core| core != self.id);
        for core in others {
            let other = &self.shared.evictions[core];
            hope |= other.found();
            // One request at a time, also if it had nothing: it may have something now.
            if !other.asked.swap(true, Ordering::Relaxed) {
                self.send(core, Message::Evict);
            }
        }
        hope
    }

    /// What waits here to be freed is no data any more, and does not count once the reaper has it.
    fn hand_over_garbage(&self) {
        for region in self.regions.borrow_mut().present() {
            if region.space.has_garbage() {
                reaper::send(region.space.take_garbage());
            }
        }
        publish();
    }

    /// Gives up keys of regions that are here until below the limit.
    fn evict(self: &Rc<Self>, maxmemory: usize) {
        let settings = self.settings().clone();
        let mut evicted = 0;
        let mut lent = false;
        {
            let mut owned = self.regions.borrow_mut();
            let start = self.next_seed() as usize;
            let places: Vec<Place> = owned.places().collect();
            let count = places.len();
            let mut empty = 0;
            let mut at = start;
            while evicted < KEYS_AT_ONCE && empty < count && live_memory() > maxmemory {
                let Some(&id) = places.get(at % count) else {
                    break;
                };
                at = at.wrapping_add(1);
                let seed = self.next_seed();
                let region = owned.region_mut(id);
                lent |= region.is_none();
                let gave = region.is_some_and(|region| {
                    let gave = region
                        .space
                        .evict_one(self.now_ms(), seed, &settings.tuning);
                    if region.space.has_garbage() {
                        reaper::send(region.space.take_garbage());
                    }
                    gave
                });
                if gave {
                    evicted += 1;
                    empty = 0;
                } else {
                    empty += 1;
                }
                publish();
            }
        }
        self.stats().evicted_keys.add(evicted as u64);
        // What is lent may have keys to give up; below the limit nothing was tried.
        let found = evicted > 0 || lent || live_memory() <= maxmemory;
        self.shared.evictions[self.id].set_found(found);
        if evicted > 0 {
            self.serve_key_changes();
        }
    }

    pub(super) fn evict_for_others(self: &Rc<Self>) {
        let maxmemory = self.settings().maxmemory;
        let mine = &self.shared.evictions[self.id];
        mine.asked.store(false, Ordering::Relaxed);
        if self.shared.durable.is_some() {
            self.ask_for_eviction();
        } else if maxmemory > 0 {
            self.evict(maxmemory);
        }
    }
}

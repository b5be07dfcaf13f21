//! Keys that are not in memory: fetched from their rows, then the command runs again.
//!
//! Rows in the block cache are taken at once; others are fetched by a reader thread while the core
//! goes on. If several ask for one key the first answer counts: the keyspace knows which request it
//! still waits for, so what is put into the cache is never older than what was there.
//!
//! Rows of big collections, which are never loaded, are only brought into the block cache.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::DbIndex;
use keyspace::EvictionPolicy;
use keyspace::rows::{self, ColdRows, LoadRequest, Loaded, RowError};
use stats::memory::{publish, used_memory};

use crate::cores::{Answer, Cold, Core, Message, Place, Ticket};

/// Entries dropped from the cache after one turn at most; the next goes on.
const DROPPED_AT_ONCE: usize = 256;
/// A big collection comes into memory if it takes no more than this part of the cache.
const WHOLE_PART: usize = 8;
/// Rows that cannot be read are logged no more often than this.
const UNREADABLE_QUIET: Duration = Duration::from_secs(1);

impl Core {
    /// Sends a reader thread for entries of the log that are not in memory any more.
    pub(crate) fn fetch_entries(&self, place: Place, fetch: replica::Fetch) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let (core, shared) = (self.id, self.shared.clone());
        let log = durable.stores.log.clone();
        durable.readers.send(Box::new(move |_| {
            let entries = log.entries(fetch.region, fetch.low, fetch.high, fetch.max_bytes);
            if let Some(mailbox) = shared.mailboxes.get(core) {
                mailbox.send(Message::Entries {
                    region: place,
                    entries: entries.map_err(|error| error.to_string()),
                });
            }
        }));
    }

    /// Makes keys of a region of this core resident. If the region is lent meanwhile, whoever
    /// comes next finds out by itself.
    pub(crate) async fn load_keys_here(self: &Rc<Self>, id: Place, keys: &[(DbIndex, Box<[u8]>)]) {
        // Room is made before, so that what comes now stays until the command has run.
        self.keep_in_bounds();
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let mut fetching = Vec::new();
        {
            let mut owned = self.regions.borrow_mut();
            let Some(region) = owned.region_mut(id) else {
                return;
            };
            for (db, key) in keys {
                if let Some(request) = region.load_cached(&*durable.stores.rows, *db, key) {
                    fetching.push(self.fetch(request));
                }
            }
        }
        for ticket in fetching {
            if let Answer::Fetched(fetched) = ticket.await
                && let (request, Ok(loaded)) = *fetched
                && let Some(region) = self.regions.borrow_mut().region_mut(id)
            {
                region.space.insert_loaded(request, loaded);
            }
        }
    }

    /// As [`Core::warm`], for commands of a region of this core.
    pub(crate) async fn warm_here(self: &Rc<Self>, id: Place, cold: Vec<ColdRows>, tries: u8) {
        let unreadable = self.warm(cold, tries).await;
        if unreadable.is_empty() {
            return;
        }
        if let Some(region) = self.regions.borrow_mut().region_mut(id) {
            for (request, loaded) in unreadable {
                region.space.insert_loaded(request, loaded);
            }
        }
    }

    /// Waits until rows are in the block cache; the core goes on meanwhile. `tries`: how often the
    /// command that needs them has met cold rows before. Returns the keys whose rows cannot be read, for
    /// [`keyspace::Keyspace::insert_loaded`].
    pub async fn warm(
        self: &Rc<Self>,
        cold: Vec<ColdRows>,
        tries: u8,
    ) -> Vec<(LoadRequest, Loaded)> {
        let mut unreadable = Vec::new();
        let Some(durable) = &self.shared.durable else {
            return unreadable;
        };
        let mut warming = Vec::new();
        for rows in cold {
            let ticket = Ticket::new(self);
            let (number, core, shared) = (ticket.number(), self.id, self.shared.clone());
            durable.warmed.fetch_add(1, Ordering::Relaxed);
            durable.readers.send(Box::new(move |source| {
                let unreadable = match rows::warm(source, &rows, tries) {
                    Err(RowError::Failed(why)) => rows.unreadable(why),
                    _ => None,
                };
                if let Some((request, Loaded::Unreadable(why))) = &unreadable {
                    log_unreadable(request, why);
                }
                if let Some(mailbox) = shared.mailboxes.get(core) {
                    mailbox.send(Message::Warmed {
                        ticket: number,
                        unreadable: unreadable.map(Box::new),
                    });
                }
            }));
            warming.push(ticket);
        }
        for ticket in warming {
            if let Answer::Warmed(Some(failed)) = ticket.await {
                unreadable.push(*failed);
            }
        }
        unreadable
    }

    /// Gets what a command of a region of this core needed; it is to be run again, at once.
    pub async fn load_cold(self: &Rc<Self>, cold: Cold) {
        if cold.is_catalogue_old {
            self.follow_catalogue(cold.region).await;
            self.begin_batch();
            let lacks = {
                let catalogue = self.shared.catalogue.load();
                let mut owned = self.regions.borrow_mut();
                owned.region_mut(cold.region).is_some_and(|region| {
                    region.lacks_tables(catalogue.version) && !region.learn_tables(&catalogue)
                })
            };
            if lacks {
                // A follower that does not have all tables yet would deny what the leader has.
                let refusal = self.unserved_region(cold.region);
                self.row_failure.set(Some(Box::new(refusal)));
            }
            return;
        }
        if !cold.table_rows.is_empty() {
            let failed = self.load_rows(cold.region, cold.table_rows).await;
            self.begin_batch();
            let why = failed.into_iter().next();
            return self
                .row_failure
                .set(why.map(|(_, refusal)| Box::new(refusal)));
        }
        if !cold.keys.is_empty() {
            self.load_keys_here(cold.region, &cold.keys).await;
        }
        let tries = cold.again.tries().saturating_sub(1);
        self.warm_here(cold.region, cold.rows, tries).await;
        self.begin_batch();
        self.again.set(cold.again);
    }

    /// With a policy `maxmemory` limits the data set, not memory; see `durable::evict`.
    fn cache_limit(&self) -> usize {
        let settings = self.settings();
        let evicts = settings.tuning.policy != EvictionPolicy::NoEviction;
        match settings.maxmemory {
            0 => settings.cache_bytes,
            _ if evicts => settings.cache_bytes,
            most => settings.cache_bytes.min(most),
        }
    }

    /// Sends a reader thread for a big collection that is used a lot, to have it in memory; called now
    /// and then. One at a time: the other readers are for those who wait.
    pub(crate) fn read_wholes(&self) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let (most_bytes, now_ms) = (self.cache_limit() / WHOLE_PART, self.now_ms());
        for region in self.regions.borrow_mut().present() {
            region.space.take_wholes();
            if durable.is_reading_whole.load(Ordering::Relaxed) {
                continue;
            }
            let Some(job) = region.space.whole_job(now_ms, most_bytes) else {
                continue;
            };
            durable.is_reading_whole.store(true, Ordering::Relaxed);
            durable.wholes.fetch_add(1, Ordering::Relaxed);
            let shared = self.shared.clone();
            durable.readers.send(Box::new(move |_| {
                job.run();
                if let Some(durable) = &shared.durable {
                    durable.is_reading_whole.store(false, Ordering::Relaxed);
                }
            }));
        }
    }

    /// Drops what is beyond `cache-size` from memory; it is in the rows.
    pub(crate) fn keep_in_bounds(self: &Rc<Self>) {
        let limit = self.cache_limit();
        if used_memory() <= limit {
            return;
        }
        if self.shared.durable.as_ref().is_none_or(|it| it.is_failed()) {
            return; // what the store did not take is in memory only
        }
        publish();
        let settings = self.settings().clone();
        let now_ms = self.now_ms();
        let mut owned = self.regions.borrow_mut();
        let mut left = DROPPED_AT_ONCE;
        while left > 0 && used_memory() > limit {
            let mut dropped = false;
            for region in owned.present() {
                // What an entry waits for must not leave while the rest of it comes, and what the
                // store has not must stay.
                let waits = region.member.as_ref().is_some_and(|member| member.stalled);
                if waits || region.settle().is_err() {
                    continue;
                }
                for _ in 0..16 {
                    let seed = self.next_seed();
                    if !region.space.uncache_one(now_ms, seed, &settings.tuning) {
                        break;
                    }
                    dropped = true;
                    left = left.saturating_sub(1);
                }
            }
            publish();
            if !dropped {
                break;
            }
        }
    }
}

/// Tells the operator which rows cannot be read; not every time somebody asks for them.
pub(super) fn log_unreadable(request: &LoadRequest, why: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|at| at.elapsed() < UNREADABLE_QUIET) {
        return;
    }
    *last = Some(Instant::now());
    let key = request.key().get(..128).unwrap_or(request.key());
    tracing::error!(
        key = %key.escape_ascii(),
        "rows cannot be read: {why}. Commands that name this key are refused. Other replicas replace a damaged one; \
         a node alone serves all other keys: restore this one from a backup, or check the disk"
    );
}

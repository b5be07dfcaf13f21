//! Held regions of a durable node, for tasks of a session: what a command needs is loaded first, and what it
//! changed is committed ([`node::HeldRegions`], [`node::OwnedRegions::commit`]). Commands that are logged by
//! their effect go as one request to [`node::OwnedRegions::submit`] instead.

use std::rc::Rc;

use base::{DbIndex, Refusal};
use command::CommandSpec;
use keyspace::rows::{self, ColdRows, LoadRequest, Loaded, Tier};
use node::{Attempted, EffectRequest, Fetched, HeldLoad};
use resp::{Args, Reply};

use super::load::log_unreadable;
use crate::cores::{Again, Answer, BatchBox, Call, Core, Held, Message, Ran, Ticket};

/// Rows that commands on held regions may make, in all. An entry of the log is no larger (`ReplicaConfig`);
/// the entries of all regions are one record, and raft-engine takes none beyond 2 GiB.
const MOST_CHANGE_BYTES: usize = (1 << 30) - HEAD_BYTES;
/// Room for what an entry has besides rows.
const HEAD_BYTES: usize = 1024;

/// [`MOST_CHANGE_BYTES`], or `NEOKV_TEST_CHANGE_BYTES` in builds for tests.
pub(super) fn most_change_bytes() -> usize {
    let given = match cfg!(debug_assertions) {
        true => std::env::var("NEOKV_TEST_CHANGE_BYTES").ok(),
        false => None,
    };
    let given = given.and_then(|text| text.parse().ok());
    given.unwrap_or(MOST_CHANGE_BYTES)
}

impl Core {
    /// Runs commands that are logged by their effect, with those of others; the replies are in the batch
    /// that comes back. `None` if the node ends before.
    pub async fn run_effects(self: &Rc<Self>, mut request: EffectRequest) -> Option<BatchBox> {
        let ticket = Ticket::new(self);
        if let Some(batch) = request.batch_mut() {
            let heads = batch.heads.iter().enumerate();
            let named = heads.map(|(at, &(stat, db))| {
                let spec = self.shared.commands.spec(stat as usize);
                (spec, db, batch.commands.args(at))
            });
            self.load_named_rows(named).await;
            batch.ticket = ticket.number();
        }
        self.begin_batch();
        self.regions.borrow_mut().submit(request);
        self.wake_to_propose();
        match ticket.await {
            Answer::Batch(batch) => Some(batch),
            _ => None,
        }
    }

    /// Whether this core of a node alone runs groups of effect requests, so that a transaction had better join.
    pub fn has_effect_groups(&self) -> bool {
        let regions = self.regions.borrow();
        self.shared.cluster.is_none() && regions.has_groups(self.now_ms())
    }

    /// Reads what a group of effect requests needs; then it goes on.
    pub(crate) fn load_held(self: &Rc<Self>, load: HeldLoad) {
        let core = self.clone();
        tokio::task::spawn_local(async move {
            let mut loaded = core.fetch_all(load.requests).await;
            let unreadable = core.warm(load.rows, load.tries).await.into_iter();
            loaded.extend(unreadable.map(|(request, loaded)| (request, Ok(loaded))));
            core.begin_batch();
            core.on_regions(|owned, cx, out| owned.on_held_loaded(load.ticket, loaded, cx, out));
        });
    }

    async fn fetch_all(self: &Rc<Self>, requests: Vec<LoadRequest>) -> Vec<Fetched> {
        self.keep_in_bounds();
        let tickets: Vec<Ticket> = requests.into_iter().map(|it| self.fetch(it)).collect();
        let mut all = Vec::new();
        for ticket in tickets {
            if let Answer::Fetched(fetched) = ticket.await {
                all.push(*fetched);
            }
        }
        all
    }

    /// Asks a reader thread for the rows of a key.
    pub(super) fn fetch(self: &Rc<Self>, request: LoadRequest) -> Ticket {
        let ticket = Ticket::new(self);
        let (number, core, shared) = (ticket.number(), self.id, self.shared.clone());
        if let Some(durable) = &self.shared.durable {
            durable.note_load();
            durable.readers.send(Box::new(move |source| {
                let loaded = rows::load(source, &request, Tier::All);
                if let Ok(Loaded::Unreadable(why)) = &loaded {
                    log_unreadable(&request, why);
                }
                if let Some(mailbox) = shared.mailboxes.get(core) {
                    mailbox.send(Message::Fetched {
                        ticket: number,
                        fetched: Box::new((request, loaded)),
                    });
                }
            }));
        }
        ticket
    }
}

impl Held {
    /// Runs a data command over the held regions, first fetching what it needs.
    pub async fn run_loaded(&mut self, call: &Call<'_>, args: &Args<'_>, reply: &mut Reply) -> Ran {
        if self.core().shared.durable.is_none() {
            return self.run(call, args, reply);
        }
        let core = self.core().clone();
        self.load_named(call.spec, call.db, args).await;
        let mut again = Again::chosen(core.next_seed());
        loop {
            match self.attempt(call, args, reply, again).await {
                Ok(ran) => return ran,
                Err(cold) => {
                    for (request, loaded) in core.warm(cold, again.tries()).await {
                        let map = &core.shared.map;
                        self.regions_held().insert_loaded(map, request, loaded);
                    }
                }
            }
            again = again.next();
        }
    }

    /// Runs a command once its keys are in memory, unless it needs rows that are not: then nothing has
    /// happened.
    pub async fn attempt(
        &mut self,
        call: &Call<'_>,
        args: &Args<'_>,
        reply: &mut Reply,
        again: Again,
    ) -> Result<Ran, Vec<ColdRows>> {
        let core = self.core().clone();
        loop {
            let command = (call.spec, call.db, args);
            let attempted = core.with_context(|cx| {
                self.regions_held()
                    .attempt(command, again, reply, cx, |view, reply| {
                        core.invoke(call, view, args, reply)
                    })
            });
            match attempted {
                Attempted::Ran(ran) => return Ok(ran),
                Attempted::Lacks { keys, rows } => {
                    self.load(&keys).await;
                    if !rows.is_empty() {
                        return Err(rows);
                    }
                }
                Attempted::Refused(refusal) => {
                    core.stats().on_rejected(Some(call.stat));
                    core.refuse(&refusal, reply);
                    return Ok(Ran::Refused);
                }
            }
        }
    }

    /// Fetches the keys that a command is known to need.
    pub async fn load_named(&mut self, spec: &CommandSpec, db: DbIndex, args: &Args<'_>) {
        if self.core().shared.durable.is_some() {
            let map = &self.core().clone().shared.map;
            let keys = self.regions_held().cold_keys(map, spec, db, args);
            self.load(&keys).await;
        }
    }

    /// Fetches those of `keys` that are not in memory.
    pub async fn load_missing_of(&mut self, keys: Vec<(DbIndex, Box<[u8]>)>) {
        if self.core().shared.durable.is_some() {
            let map = &self.core().clone().shared.map;
            let keys = self.regions_held().not_resident(map, keys);
            self.load(&keys).await;
        }
    }

    /// Fetches what the last command looked for in vain; whether there was anything.
    pub async fn load_missing(&mut self) -> bool {
        let missing = self.regions_held().take_missing();
        self.load(&missing).await;
        !missing.is_empty()
    }

    /// Makes keys of the held regions resident.
    async fn load(&mut self, keys: &[(DbIndex, Box<[u8]>)]) {
        let core = self.core().clone();
        let Some(durable) = &core.shared.durable else {
            return;
        };
        if keys.is_empty() {
            return;
        }
        let (map, store) = (&core.shared.map, &*durable.stores.rows);
        core.keep_in_bounds();
        let requests = self.regions_held().load_cached(map, store, keys);
        for fetched in core.fetch_all(requests).await {
            if let (request, Ok(loaded)) = fetched {
                self.regions_held().insert_loaded(map, request, loaded);
            }
        }
    }

    /// Keeps what was changed: returns when it is on disk and in the store, on a cluster node when a quorum
    /// of each region has it (these regions are here then). What is too large for the log is undone and
    /// refused.
    pub async fn commit(&mut self) -> Result<(), Refusal> {
        let core = self.core().clone();
        if core.shared.durable.is_none() || !self.regions_held().is_dirty() {
            return Ok(());
        }
        let ticket = Ticket::new(&core);
        let (held, number) = (self.take_regions(), ticket.number());
        core.on_regions(|owned, cx, out| owned.commit(held, Some(number), cx, out));
        let Answer::Committed(committed) = ticket.await else {
            return Err(Refusal::new("ERR internal error"));
        };
        let (result, regions) = *committed;
        self.put_regions(regions);
        result
    }
}

#[cfg(test)]
mod tests {
    use replica::ReplicaConfig;
    use replica::entry::rows_payload;

    use super::*;

    /// Otherwise a region would have an entry that another of the same record cannot follow.
    #[test]
    fn what_is_taken_here_the_log_takes() {
        let head_bytes = rows_payload(1, 1, &[]).len();
        let largest = MOST_CHANGE_BYTES + head_bytes;
        assert!(largest <= ReplicaConfig::default().max_entry_bytes);
    }
}

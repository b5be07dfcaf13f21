//! From batches to entries: all commands that reach a region during one turn of its core go into
//! one log entry.
//!
//! A turn ends when the composer's task runs: it was woken by the first batch and stands behind
//! all sessions that were ready then. While an entry is on its way to the disk the next one
//! gathers ([`super::leaving`]): the slower the disk, the more commands share an
//! entry and a sync. When the disk has one, sessions that are ready then have their turn, the next
//! is sent, then the former is applied.
//!
//! Blocked sessions are served inside the entry: [`super::serve_behind`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use command::{Command, Traits};
use replica::Refused;
use replica::entry::EntryWriter;

use super::Flight;
use crate::cores::{BatchBox, Core, Home, Region, RegionId};

/// An entry takes no further batch beyond this size.
const ENTRY_BYTES: usize = 1024 * 1024;
/// A larger batch is an entry of its own: should the log not take it, nobody else is refused with it.
const ALONE_BYTES: usize = 16 * 1024 * 1024;
/// Entries that are on disk and wait to be applied (for rows to be read, say); more gather in the
/// turn meanwhile.
const MOST_FLIGHTS: usize = 64;

/// The command that carries what a leader's desk proposes; see `tables::desk`.
const ROW_APPLY: &[u8] = b"row.apply";

/// Whether a command goes through the log as it is. The others are logged by what they changed
/// ([`super::commit`]): their outcome depends on how values lie in memory.
pub fn is_logged_as_given(row: &Command) -> bool {
    !row.is(Traits::BY_EFFECT)
}

impl Core {
    /// A batch with writes has come: it becomes part of its region's next entry.
    pub(crate) fn enqueue(self: &Rc<Self>, batch: BatchBox) {
        self.note_writer(&batch.client);
        let mut home = self.home.borrow_mut();
        match home.turn_mut(batch.region) {
            Some(turn) => {
                if turn.is_empty() {
                    self.turns.borrow_mut().push(batch.region);
                }
                turn.push(batch);
            }
            None => {
                drop(home);
                return self.redirect_batch(batch, crate::cluster::Unserved::Elsewhere);
            }
        }
        drop(home);
        self.wake_composer();
    }

    pub(crate) fn wake_composer(&self) {
        self.compose_asked.set(true);
        if let Some(waker) = &*self.composer.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The task that ends turns.
    pub(crate) async fn run_composer(self: Rc<Self>) {
        while !self.is_stopping() {
            poll_fn(|cx| {
                *self.composer.borrow_mut() = Some(cx.waker().clone());
                match self.compose_asked.get() || self.is_end_of_turn_asked() || self.is_stopping()
                {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            if !self.compose_asked.take() {
                self.end_turn();
                continue;
            }
            if !self.logged.borrow().is_empty() {
                // What clients have sent meanwhile is read first: it shares the sync.
                tokio::task::yield_now().await;
            }
            self.begin_batch();
            self.compose_home();
            if self.is_eviction_asked() {
                self.evict_by_log();
            }
            let logged = std::mem::take(&mut *self.logged.borrow_mut());
            if !logged.is_empty() {
                self.end_turn(); // the disk has work while the former entries are applied
            }
            for id in logged {
                self.drive(id);
            }
            self.end_turn();
            self.tell_heard();
        }
    }

    /// Makes entries of what waits for regions of this core.
    pub(crate) fn compose_home(self: &Rc<Self>) {
        let waiting = std::mem::take(&mut *self.turns.borrow_mut());
        for id in waiting {
            self.compose(id);
            let mut home = self.home.borrow_mut();
            let desk = home.region_mut(id).and_then(|region| region.desk_mut());
            let proposes = desk.is_some_and(|desk| desk.has_proposals());
            if proposes || home.turn_mut(id).is_some_and(|turn| !turn.is_empty()) {
                self.turns.borrow_mut().push(id);
            }
        }
    }

    /// Makes entries of what waits for a region, unless enough of this core are on their way
    /// ([`super::leaving`]), or somebody waits to borrow it: then what is on its way is finished first.
    pub(crate) fn compose(self: &Rc<Self>, id: RegionId) {
        self.compose_unless(id, |home| self.is_writing() || home.is_wanted(id));
    }

    /// Makes an entry of what waits for a region, before whoever waits to borrow it.
    pub(crate) fn compose_first(self: &Rc<Self>, id: RegionId) {
        self.compose_unless(id, |_| false);
    }

    fn compose_unless(self: &Rc<Self>, id: RegionId, not_now: impl Fn(&Home) -> bool) {
        if let Some(refusal) = self
            .shared
            .durable
            .as_ref()
            .and_then(|durable| durable.refusal())
        {
            if self.shared.cluster.is_some() {
                return self.redirect_turn(id); // others lead by now, or soon
            }
            let mut home = self.home.borrow_mut();
            let batches = home.turn_mut(id).map(std::mem::take);
            drop(home);
            for batch in batches.unwrap_or_default() {
                self.refuse_batch(batch, &refusal);
            }
            return;
        }
        loop {
            let mut home = self.home.borrow_mut();
            let desk = home.region_mut(id).and_then(|region| region.desk_mut());
            let proposes = desk.is_some_and(|desk| desk.has_proposals());
            let is_empty = home.turn_mut(id).is_none_or(|turn| turn.is_empty());
            if is_empty && !proposes || not_now(&home) {
                return;
            }
            let catalogue_version = self.shared.catalogue_version();
            let (entries, batches) = {
                let Some(region) = home.region_mut(id) else {
                    return;
                };
                if region.is_led_elsewhere() {
                    drop(home);
                    return self.redirect_turn(id);
                }
                let is_busy = |member: &super::Member| {
                    member.replica.writes_in_flight() >= self.most_jobs()
                        || member.flights.len() >= MOST_FLIGHTS
                        || member.peers.is_some() && !member.replica.is_serving()
                };
                if region.member.as_deref().is_none_or(is_busy) {
                    return;
                }
                let is_behind = region.is_behind(catalogue_version);
                let entries = match region.desk_mut() {
                    Some(desk) => desk.take_proposals(),
                    None => Vec::new(),
                };
                let batches = match is_behind {
                    // Which keys are rows is not in the log yet.
                    true => Vec::new(),
                    false => home.turn_mut(id).map(take_entry).unwrap_or_default(),
                };
                if is_behind && entries.is_empty() {
                    drop(home);
                    return self.tend(id);
                }
                (entries, batches)
            };
            let Some(region) = home.region_mut(id) else {
                return;
            };
            let batches = match region.space.has_tables() {
                true => self.only_ready_of(region, batches),
                false => batches,
            };
            if entries.is_empty() && batches.is_empty() {
                continue;
            }
            let proposed = self.propose(region, entries, batches);
            drop(home);
            match proposed {
                Ok(()) => self.drive(id),
                Err((Refused::TooLarge, batches)) => {
                    let refusal = base::Refusal::new("ERR the command is too large for the log");
                    for batch in batches {
                        self.refuse_batch(batch, &refusal);
                    }
                }
                // It is handing over, or much waits for a majority: a little later.
                Err((Refused::Busy, batches)) => {
                    let mut home = self.home.borrow_mut();
                    if let Some(turn) = home.turn_mut(id) {
                        turn.splice(0..0, batches);
                    }
                    return;
                }
                Err((_, batches)) => batches.into_iter().for_each(|batch| {
                    self.redirect_batch(batch, crate::cluster::Unserved::Elsewhere)
                }),
            }
        }
    }

    /// Those of the batches that may go now; the others wait for rows of tables.
    fn only_ready_of(
        self: &Rc<Self>,
        region: &mut Region,
        batches: Vec<BatchBox>,
    ) -> Vec<BatchBox> {
        let member = region.member.as_deref_mut();
        match member.and_then(|member| member.desk.as_deref_mut()) {
            Some(desk) => self.only_ready(region.id, &region.space, desk, batches),
            None => batches,
        }
    }

    /// Proposes one entry of these batches; gives them back if the log does not take it.
    fn propose(
        &self,
        region: &mut Region,
        entries: Vec<table::Entry>,
        batches: Vec<BatchBox>,
    ) -> Result<(), (Refused, Vec<BatchBox>)> {
        let Some(mut member) = region.member.take() else {
            return Err((Refused::Busy, batches));
        };
        let stamp_ms = member.next_stamp(self.now_ms());
        let seed = self.next_seed();
        let bytes = batches.iter().map(|batch| batch.commands.logged_bytes());
        let mut entry = EntryWriter::with_capacity(bytes.sum());
        let mut serves = VecDeque::new();
        let mut count = 0;
        for table_entry in &entries {
            let bytes = table_entry.encode();
            entry.push(0, [ROW_APPLY, &bytes].into_iter());
            count += 1;
        }
        for batch in &batches {
            for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                let row = self.shared.commands.row(stat as usize);
                if !row.is_write() || batch.is_refused(at) {
                    continue;
                }
                let args = batch.commands.args(at);
                entry.push(db, args.iter_from(0));
                count += 1;
                if region.has_interest() && !batch.together {
                    let behind = count;
                    let mut line = (&mut entry, &mut count, &mut serves);
                    self.serve_behind(region, behind, row, db, &args, &mut line);
                }
            }
            if region.has_interest() && batch.together {
                // Those who wait come when the whole transaction is done.
                let behind = count;
                let mut line = (&mut entry, &mut count, &mut serves);
                for (at, &(stat, db)) in batch.heads.iter().enumerate() {
                    let row = self.shared.commands.row(stat as usize);
                    if row.is_write() && !batch.is_refused(at) {
                        let args = batch.commands.args(at);
                        self.serve_behind(region, behind, row, db, &args, &mut line);
                    }
                }
            }
        }
        let result = member.replica.propose(entry.finish(stamp_ms, seed));
        let Err(refused) = result else {
            let (index, term) = (member.replica.last_index(), member.replica.term());
            member.take_off(Flight {
                seed,
                tables: entries,
                batches,
                serves,
                ..Flight::new(index, term, stamp_ms)
            });
            if let Some(durable) = &self.shared.durable {
                durable.entries.fetch_add(1, Ordering::Relaxed);
                durable
                    .commands_logged
                    .fetch_add(count as u64, Ordering::Relaxed);
            }
            region.member = Some(member);
            return Ok(());
        };
        if let Some(desk) = member.desk.as_deref_mut() {
            self.forget_kicks(&region.space, desk, &batches);
        }
        region.member = Some(member);
        if let Some(desk) = region.desk_mut() {
            desk.put_back(entries);
        }
        for serve in serves.into_iter().rev() {
            self.put_back(region, serve.waiter, serve.db, &serve.key);
        }
        Err((refused, batches))
    }

    /// Passes on what a region's replica has to say, and applies what is committed.
    pub(crate) fn drive(self: &Rc<Self>, id: RegionId) {
        loop {
            let (write, is_ours, fetch, turned) = {
                let mut home = self.home.borrow_mut();
                let Some(region) = home.region_mut(id) else {
                    return;
                };
                let Some(member) = region.member.as_deref_mut() else {
                    return;
                };
                if !member.replica.has_ready() {
                    break;
                }
                let mut ready = std::mem::take(&mut member.ready);
                member.replica.ready(&mut ready);
                member.committed.extend(ready.committed.drain(..));
                let (write, fetch) = (ready.write.take(), ready.fetch.take());
                let is_ours = member.replica.is_leader();
                let has_peers = member.peers.is_some();
                let turned = has_peers.then(|| self.on_peer_ready(region, &mut ready));
                if let Some(member) = region.member.as_deref_mut() {
                    member.ready = ready;
                }
                (write, is_ours, fetch, turned)
            };
            if let Some(write) = write {
                self.gather_write(id, write, is_ours);
            }
            if let Some(fetch) = fetch {
                self.fetch_entries(id, fetch);
            }
            if let Some(turned) = turned {
                self.after_ready(id, turned);
            }
            self.ask_end_of_turn();
        }
        self.apply(id);
    }

    /// Sends a reader thread for entries of the log that are not in memory any more.
    fn fetch_entries(&self, id: RegionId, fetch: replica::Fetch) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        let (core, shared) = (self.id, self.shared.clone());
        let log = durable.stores.log.clone();
        durable.readers.send(Box::new(move |_| {
            let entries = log.entries(fetch.region, fetch.low, fetch.high, fetch.max_bytes);
            if let Some(mailbox) = shared.mailboxes.get(core) {
                mailbox.send(crate::cores::Message::Entries {
                    region: id,
                    entries: entries.map_err(|error| error.to_string()),
                });
            }
        }));
    }

    /// Entries of the log have been read.
    pub(crate) fn on_entries(
        self: &Rc<Self>,
        id: RegionId,
        entries: Result<Vec<replica::Entry>, String>,
    ) {
        self.begin_batch();
        let result = {
            let mut home = self.home.borrow_mut();
            let Some(member) = home.region_mut(id).and_then(|r| r.member.as_deref_mut()) else {
                return;
            };
            entries.and_then(|entries| {
                let fetched = member.replica.on_fetched(entries);
                fetched.map_err(|error| error.to_string())
            })
        };
        if let (Err(reason), Some(durable)) = (result, &self.shared.durable) {
            durable.fail(&reason);
            return self.fail_region(id);
        }
        self.drive(id);
    }

    /// The writer has words for regions of this core.
    pub(crate) fn on_logged(self: &Rc<Self>, numbers: &[(RegionId, u64)], ok: bool) {
        self.begin_batch();
        for &(id, number) in numbers {
            if !ok {
                self.fail_region(id);
                continue;
            }
            if let Some(member) = self
                .home
                .borrow_mut()
                .region_mut(id)
                .and_then(|region| region.member.as_deref_mut())
            {
                member.replica.on_persisted(number);
            }
            if self.is_led_elsewhere(id) {
                // Its leader waits for the word that it is here, and nobody sends us more.
                self.drive(id);
                continue;
            }
            let mut logged = self.logged.borrow_mut();
            if !logged.contains(&id) {
                logged.push(id);
            }
        }
        self.wake_composer();
    }

    /// Nothing followed what the writer told last: it need not wait for it.
    pub(crate) fn tell_heard(&self) {
        let unheard = self.unheard.take();
        if unheard > 0
            && let Some(durable) = &self.shared.durable
        {
            durable.writer.heard(unheard);
        }
    }

    /// The store has on disk what a region's log had before `index`.
    pub(crate) fn on_cut(&self, id: RegionId, index: u64, keep_bytes: u64) {
        // A region that is lent is told the next time.
        if let Some(member) = self
            .home
            .borrow_mut()
            .region_mut(id)
            .and_then(|region| region.member.as_deref_mut())
        {
            member.replica.set_keep_bytes(keep_bytes);
            let unneeded = member.replica.truncate_to(index);
            member.note_unneeded(id, unneeded);
        }
    }
}

/// The batches of one entry.
fn take_entry(turn: &mut Vec<BatchBox>) -> Vec<BatchBox> {
    let sizes = turn.iter().map(|batch| batch.commands.size_bytes());
    let count = entry_count(sizes);
    turn.drain(..count).collect()
}

/// How many batches of these sizes are one entry.
fn entry_count(sizes: impl Iterator<Item = usize>) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for size in sizes {
        if count > 0 && (bytes > ENTRY_BYTES || size > ALONE_BYTES) {
            break;
        }
        count += 1;
        bytes += size;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = 2 << 30;

    #[test]
    fn what_is_too_large_for_the_log_is_with_nobody_else() {
        let count = |sizes: &[usize]| entry_count(sizes.iter().copied());
        assert_eq!(count(&[100, HUGE, 100]), 1);
        assert_eq!(count(&[HUGE, 100]), 1);
        assert_eq!(count(&[100, 100, HUGE]), 2);
        assert_eq!(count(&[ENTRY_BYTES, 1, 1]), 2, "one may go beyond");
        assert_eq!(count(&[]), 0);
    }
}

//! The order of writes: commands that wait for a region become entries, entries go through Raft, and what is
//! committed is applied.
//!
//! All commands that reach a region during one turn of its core go into one entry. While an entry is on its way
//! to the disk the next one gathers ([`crate::outgoing`]): the slower the disk, the more commands share an entry
//! and a sync. Blocked sessions are served inside the entry ([`crate::serve_after`]).
//!
//! [`OwnedRegions::drive`] is the one place where a region's Raft replica is driven: what it has to write and to
//! say goes out, what is committed is applied.

use base::milestone;
use command::{CommandSpec, Traits};
use replica::Refused;
use replica::entry::EntryWriter;

use crate::effects::{Effects, Logged};
use crate::outgoing::most_jobs;
use crate::serve_after::Draft;
use crate::{BatchBox, Context, Member, Outcome, OwnedRegions, Place, Proposal, Region, Unserved};

/// An entry takes no further batch beyond this size.
const ENTRY_BYTES: usize = 1024 * 1024;
/// A larger batch is an entry of its own: should the log not take it, nobody else is refused with it.
const ALONE_BYTES: usize = 16 * 1024 * 1024;
/// Entries that are on disk and wait to be applied (for rows to be read, say); more gather in the queue
/// meanwhile.
const MOST_PROPOSALS: usize = 64;

/// The command that carries what a region's write-back proposes.
const ROW_APPLY: &[u8] = b"row.apply";

/// Whether a command goes through the log as it is. The others are logged by what they changed
/// ([`crate::effect_batch`]): their outcome depends on how values lie in memory.
pub fn is_logged_as_given(spec: &CommandSpec) -> bool {
    !spec.is(Traits::BY_EFFECT)
}

/// Which regions are to be left alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unless {
    /// Those that somebody waits to borrow, and all while enough of this core is on its way.
    BusyOrWanted,
    Never,
}

impl OwnedRegions {
    /// A batch with writes has come: it becomes part of its region's next entry
    /// ([`OwnedRegions::propose_queued`]). Given back if the region is not here.
    #[must_use]
    pub fn enqueue(&mut self, batch: BatchBox) -> Option<BatchBox> {
        let place = batch.region;
        let Some(queue) = self.queue_mut(place) else {
            return Some(batch);
        };
        milestone("the region queued the batch");
        let is_first = queue.is_empty();
        queue.push(batch);
        if is_first {
            self.note_queued(place);
        }
        None
    }

    /// Makes entries of what waits for regions of this core.
    pub fn propose_queued(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for place in std::mem::take(&mut self.queued) {
            self.propose(place, cx, out);
            let write_back = self.region_mut(place).and_then(|it| it.write_back_mut());
            let proposes = write_back.is_some_and(|it| it.has_proposals());
            if proposes || self.queue_mut(place).is_some_and(|it| !it.is_empty()) {
                self.note_queued(place);
            }
        }
    }

    /// Makes entries of what waits for a region, unless enough of this core are on their way, or
    /// somebody waits to borrow it: then what is on its way is finished first.
    pub fn propose(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        self.propose_unless(place, Unless::BusyOrWanted, cx, out);
    }

    /// Makes an entry of what waits for a region, before whoever waits to borrow it.
    pub fn propose_first(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        self.propose_unless(place, Unless::Never, cx, out);
    }

    fn propose_unless(
        &mut self,
        place: Place,
        unless: Unless,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some(refusal) = cx.failure() {
            if cx.is_cluster {
                return self.redirect_queue(place, out); // others lead by now, or soon
            }
            let batches = self.queue_mut(place).map(std::mem::take);
            let outcome = Outcome::Refused(refusal);
            let batches = batches.unwrap_or_default().into_iter();
            out.finished
                .extend(batches.map(|batch| (batch, outcome.clone())));
            return;
        }
        loop {
            let write_back = self.region_mut(place).and_then(|it| it.write_back_mut());
            let proposes = write_back.is_some_and(|it| it.has_proposals());
            let is_empty = self.queue_mut(place).is_none_or(|it| it.is_empty());
            let is_held = unless == Unless::BusyOrWanted
                && (self.outgoing.is_full(cx.is_cluster) || self.is_wanted(place));
            if is_empty && !proposes {
                return;
            }
            // Before the rest: what keeps it from proposing may be a disk that hangs.
            let region = self.region_mut(place);
            if region.is_some_and(|region| region.is_led_elsewhere()) {
                return self.redirect_queue(place, out);
            }
            if is_held {
                return;
            }
            let Some(region) = self.region_mut(place) else {
                return;
            };
            if region.member.as_deref().is_none_or(|it| it.is_busy(cx)) {
                return;
            }
            let is_catalogue_old = region.is_catalogue_old(cx.catalogue.version);
            let entries = match region.write_back_mut() {
                Some(write_back) => write_back.take_proposals(),
                None => Vec::new(),
            };
            if is_catalogue_old && entries.is_empty() {
                // Which keys are SQL rows is not in the log yet.
                return self.advance(place, cx, out);
            }
            let batches = match is_catalogue_old {
                true => Vec::new(),
                false => self.queue_mut(place).map(take_entry).unwrap_or_default(),
            };
            let Some(region) = self.region_mut(place) else {
                return;
            };
            let batches = match region.space.has_tables() {
                true => region.only_ready(batches, cx),
                false => batches,
            };
            if entries.is_empty() && batches.is_empty() {
                self.advance(place, cx, out);
                continue;
            }
            match region.propose(entries, batches, cx, out) {
                Ok(()) => self.drive(place, cx, out),
                // It is handing over, or much waits for a quorum: a little later.
                Err((Refused::Busy, batches)) => {
                    if let Some(queue) = self.queue_mut(place) {
                        queue.splice(0..0, batches);
                    }
                    return;
                }
                Err((refused, batches)) => {
                    let outcome = match refused {
                        Refused::TooLarge => Outcome::TooLarge,
                        _ => Outcome::Unserved(Unserved::Elsewhere),
                    };
                    let batches = batches.into_iter();
                    out.finished
                        .extend(batches.map(|batch| (batch, outcome.clone())));
                }
            }
        }
    }
}

impl OwnedRegions {
    /// Passes on what a region's replica has to say, and applies what is committed.
    pub fn drive(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        loop {
            let Some(region) = self.slots.region_mut(place) else {
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
            let is_ours = member.replica.is_leader();
            if let Some(write) = ready.write.take() {
                self.outgoing.push(place, write, is_ours, out);
            }
            if let Some(fetch) = ready.fetch.take() {
                out.fetches.push((place, fetch));
            }
            region.on_peer_ready(&mut ready, cx, out);
            if let Some(member) = region.member.as_deref_mut() {
                member.ready = ready;
            }
            self.outgoing.is_flush_asked = true;
        }
        self.apply(place, cx, out);
    }

    /// Entries of the log have been read.
    pub fn on_entries(
        &mut self,
        place: Place,
        entries: Result<Vec<replica::Entry>, String>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let Some(member) = self.member_mut(place) else {
            // The replica waits for them: it gets them when the region comes back.
            if let Some(slot) = self.slots.used_mut(place) {
                slot.parked_entries = Some(entries);
            }
            return;
        };
        let fetched = entries.and_then(|entries| {
            let fetched = member.replica.on_fetched(entries);
            fetched.map_err(|error| error.to_string())
        });
        if let Err(reason) = fetched {
            cx.host.fail(&reason);
            return self.fail_region(place, cx, out);
        }
        self.drive(place, cx, out);
    }

    /// The log writer has written these writes of regions, or has failed. Regions led elsewhere answer
    /// their leaders at once; the others go on with [`OwnedRegions::drive_logged`], behind what clients
    /// have sent meanwhile.
    pub fn on_logged(&mut self, written: &[Logged], ok: bool, cx: &Context<'_>, out: &mut Effects) {
        for &Logged {
            place,
            replica,
            number,
        } in written
        {
            if !ok {
                self.fail_region(place, cx, out);
                continue;
            }
            let Some(member) = self.member_mut(place) else {
                continue; // it is gone
            };
            if member.replica.id() != replica {
                continue; // another one is at its place by now, whose writes are not there yet
            }
            member.replica.on_persisted(number);
            let is_led_elsewhere = cx.is_cluster
                && self
                    .region_mut(place)
                    .is_some_and(|region| region.is_led_elsewhere());
            if is_led_elsewhere {
                // Its leader waits to hear that it is here, and nobody sends us more.
                self.drive(place, cx, out);
            } else if !self.logged.contains(&place) {
                self.logged.push(place);
            }
        }
        out.wakes = true;
    }

    /// Whether [`OwnedRegions::drive_logged`] has something to do.
    pub fn has_logged(&self) -> bool {
        !self.logged.is_empty()
    }

    /// Goes on with the regions whose last write is in the log.
    pub fn drive_logged(&mut self, cx: &Context<'_>, out: &mut Effects) {
        for place in std::mem::take(&mut self.logged) {
            self.drive(place, cx, out);
        }
    }

    /// The store has on disk what a region's log had before `index`.
    pub fn on_cut(&mut self, place: Place, index: u64, keep_bytes: u64) {
        // A region that is lent is told the next time.
        if let Some(member) = self.member_mut(place) {
            member.replica.set_keep_bytes(keep_bytes);
            let unneeded = member.replica.truncate_to(index);
            member.note_unneeded(place, unneeded);
        }
    }
}

impl Member {
    /// Whether nothing more is to be proposed now.
    fn is_busy(&self, cx: &Context<'_>) -> bool {
        self.replica.writes_in_flight() >= most_jobs(cx.is_cluster)
            || self.proposals.len() >= MOST_PROPOSALS
            || self.peers.is_some() && !self.replica.is_serving()
    }
}

impl Region {
    /// Proposes one entry of these batches; gives them back if the log does not take it.
    fn propose(
        &mut self,
        entries: Vec<table::Entry>,
        batches: Vec<BatchBox>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Result<(), (Refused, Vec<BatchBox>)> {
        let Some(mut member) = self.member.take() else {
            return Err((Refused::Busy, batches));
        };
        let stamp_ms = member.next_stamp(cx.now_ms);
        let bytes = batches.iter().map(|batch| batch.commands.logged_bytes());
        let mut draft = Draft {
            entry: EntryWriter::with_capacity(bytes.sum()),
            ..Draft::default()
        };
        for table_entry in &entries {
            let bytes = table_entry.encode();
            draft.entry.push(0, [ROW_APPLY, &bytes].into_iter());
            draft.count += 1;
        }
        for batch in &batches {
            self.draft(batch, &mut draft, cx, out);
        }
        let payload = draft.entry.finish(stamp_ms, cx.seed());
        milestone("the leader proposed the entry");
        let Err(refused) = member.replica.propose(payload) else {
            let (index, term) = (member.replica.last_index(), member.replica.term());
            member.add_proposal(Proposal {
                tables: entries,
                batches,
                serves: draft.serves,
                ..Proposal::new(index, term)
            });
            cx.host.on_proposed(draft.count);
            self.member = Some(member);
            return Ok(());
        };
        self.member = Some(member);
        self.forget_kicks(&batches, cx);
        if let Some(write_back) = self.write_back_mut() {
            write_back.put_back(entries);
        }
        for serve in draft.serves.into_iter().rev() {
            self.put_back(serve.waiter, serve.db, &serve.key, cx, out);
        }
        Err((refused, batches))
    }

    /// Adds the writes of a batch to an entry, and attempts for blocked sessions behind them.
    fn draft(&mut self, batch: &BatchBox, draft: &mut Draft, cx: &Context<'_>, out: &mut Effects) {
        let writes = |at: usize, stat: u16| {
            let spec = cx.specs.spec(stat as usize);
            (spec.is_write() && !batch.is_refused(at)).then_some(spec)
        };
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            let Some(spec) = writes(at, stat) else {
                continue;
            };
            let args = batch.commands.args(at);
            draft.entry.push(db, args.iter_from(0));
            draft.count += 1;
            if self.has_interest() && !batch.is_transaction {
                let after = draft.count;
                self.serve_after(after, (spec, db, &args), draft, cx, out);
            }
        }
        if !self.has_interest() || !batch.is_transaction {
            return;
        }
        // Those who wait come when the whole transaction is done.
        let after = draft.count;
        for (at, &(stat, db)) in batch.heads.iter().enumerate() {
            if let Some(spec) = writes(at, stat) {
                let args = batch.commands.args(at);
                self.serve_after(after, (spec, db, &args), draft, cx, out);
            }
        }
    }
}

impl Region {
    /// The part of a `Ready` that is about peers.
    fn on_peer_ready(&mut self, ready: &mut replica::Ready, cx: &Context<'_>, out: &mut Effects) {
        if self.member.as_ref().is_some_and(|it| it.peers.is_some()) {
            self.hear_peers(ready, cx, out);
        }
    }
}

/// The batches of one entry.
fn take_entry(queue: &mut Vec<BatchBox>) -> Vec<BatchBox> {
    let sizes = queue.iter().map(|batch| batch.commands.size_bytes());
    let count = entry_count(sizes);
    queue.drain(..count).collect()
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

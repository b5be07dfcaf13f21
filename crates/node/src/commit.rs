//! Committing what was done to held regions: the rows they changed become entries of their logs, and
//! nobody sees the regions before these are kept.
//!
//! ```text
//!   alone     the rows of all regions → ONE record of the log → synced → ONE write to the store
//!   cluster   each region → its own core, ahead of its log → proposed → a quorum keeps it, or it is undone
//! ```
//!
//! After a crash a node that is alone has all of the entries in its log or none, and each carries rows, not
//! commands, so it can be replayed on its region alone. In a cluster each region has a quorum of its own.
//!
//! **Too large for the log**: what runs on held regions is in memory before anybody knows how many rows it
//! makes (RENAME or COPY to another region writes a whole collection anew, SUNIONSTORE adds up several).
//! Memory is a cache of rows (decision 6), and a region is lent only when the store has all its rows, so
//! undoing is opening the region again from the store. Nothing has happened then, exactly: who watches a key
//! is not told, who waits for one goes on waiting. All of the region's memory goes, not only what was changed:
//! that is right whatever the commands did, and a client who does this pays with a cold cache.

use base::Refusal;
use keyspace::rows::{Changes, WriteError};
use replica::LogWrite;
use replica::entry::rows_payload;

use crate::effects::{Effects, LogJob};
use crate::held::HeldRegions;
use crate::{
    BatchOutcome, Context, EffectBatch, Outcome, OwnedRegions, Place, RegionBox, begin_entry,
    state_row, too_large,
};

/// Who waits for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitFor {
    /// A group of effect requests, by its ticket.
    Group(usize),
    /// A task of the host, by its ticket: [`Effects::committed`].
    Task(usize),
    /// Its client is gone: the regions go back when it is done.
    Nobody,
}

/// Held regions whose changes are on their way to be kept.
pub(crate) struct Commit {
    pub held: HeldRegions,
    by: CommitFor,
    /// Of a node that is alone.
    entries: Vec<Logged>,
    /// Of a cluster node: batch_outcomes that are still to come, and the regions they are of.
    awaited: Vec<(usize, Place)>,
    lost: Vec<(Place, Outcome)>,
}

/// The entry of one region.
struct Logged {
    /// Where the region is among those held.
    at: usize,
    place: Place,
    index: u64,
    /// Of the log write.
    number: u64,
    changes: Changes,
}

/// What became of a commit.
pub(crate) enum Committed {
    Done,
    /// They are undone; the node goes on.
    TooLarge,
    /// They are undone, and nothing is kept any more.
    Failed(Refusal),
    /// Of a cluster node: these regions have not kept what was done to them, or nobody can tell.
    Lost(Vec<(Place, Outcome)>),
}

impl Committed {
    /// What a client is told who waits for all of it.
    pub fn into_result(self) -> Result<(), Refusal> {
        match self {
            Committed::Done => Ok(()),
            Committed::TooLarge => Err(too_large()),
            Committed::Failed(refusal) => Err(refusal),
            Committed::Lost(lost) => match lost.last() {
                Some((_, outcome)) => Err(lost_refusal(outcome)),
                None => Ok(()),
            },
        }
    }
}

/// What is said of changes that are not kept.
pub(crate) fn lost_refusal(outcome: &Outcome) -> Refusal {
    match outcome {
        Outcome::TooLarge => too_large(),
        outcome => outcome.refusal(),
    }
}

impl OwnedRegions {
    /// Keeps what a task of the host did to regions it held. The regions that are not here by then are
    /// given back with the answer ([`Effects::committed`]), or go back if there is no ticket.
    pub fn commit(
        &mut self,
        held: HeldRegions,
        ticket: Option<usize>,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let by = ticket.map_or(CommitFor::Nobody, CommitFor::Task);
        if let Some((committed, held)) = self.begin_commit(held, by, cx, out) {
            self.end_commit(by, committed, held, cx, out);
        }
        self.run_groups(cx, out);
    }

    /// Begins a commit; what became of it, if that is known at once.
    pub(crate) fn begin_commit(
        &mut self,
        mut held: HeldRegions,
        by: CommitFor,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<(Committed, HeldRegions)> {
        if !held.is_dirty() {
            return Some((Committed::Done, held));
        }
        if cx.is_cluster {
            return self.commit_each(held, by, cx, out);
        }
        let dirty = held.dirty();
        let logged = match cx.failure() {
            Some(refusal) => Err(Committed::Failed(refusal)),
            None => match held.take_changes(&dirty, cx) {
                Some(taken) => held.propose_all(taken, cx),
                None => Err(held.undo(&dirty, cx)),
            },
        };
        match logged {
            Ok((entries, writes)) => {
                let places = entries.iter().map(|entry| entry.place).collect();
                let ticket = self.groups.ticket();
                out.jobs.push(LogJob {
                    places,
                    writes,
                    is_ours: false,
                    clients: 1,
                    commit: Some(ticket),
                });
                let commit = Commit {
                    held,
                    by,
                    entries,
                    awaited: Vec::new(),
                    lost: Vec::new(),
                };
                self.groups.commits.insert(ticket, commit);
                None
            }
            Err(committed) => {
                if let Committed::Failed(_) = committed {
                    held.give_up(&dirty, cx);
                }
                Some((committed, held))
            }
        }
    }

    /// The log writer has written the entries of a commit, or has failed.
    pub fn on_commit_logged(
        &mut self,
        ticket: usize,
        ok: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if let Some(mut commit) = self.groups.commits.remove(&ticket) {
            match (ok, cx.failure()) {
                (false, failure) => {
                    let dirty: Vec<usize> = commit.entries.iter().map(|it| it.at).collect();
                    commit.held.give_up(&dirty, cx);
                    let internal = || Refusal::new("ERR internal error");
                    let committed = Committed::Failed(failure.unwrap_or_else(internal));
                    self.end_commit(commit.by, committed, commit.held, cx, out);
                }
                (true, _) => self.write_rows(ticket, commit, cx, out),
            }
        }
        self.run_groups(cx, out);
    }

    /// The store may take rows again.
    pub fn retry_commit(&mut self, ticket: usize, cx: &Context<'_>, out: &mut Effects) {
        if let Some(commit) = self.groups.commits.remove(&ticket) {
            self.write_rows(ticket, commit, cx, out);
        }
        self.run_groups(cx, out);
    }

    /// Hands rows that are in the log to the store.
    fn write_rows(
        &mut self,
        ticket: usize,
        mut commit: Commit,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let changes: Vec<&Changes> = commit.entries.iter().map(|it| &it.changes).collect();
        let written = match cx.rows.map(|rows| rows.write(&changes)) {
            Some(Ok(())) => true,
            // It is in the log: it is kept, whatever becomes of the store.
            Some(Err(WriteError::Busy)) if cx.host.has_failed() => false,
            Some(Err(WriteError::Busy)) => {
                self.groups.commits.insert(ticket, commit);
                out.busy_commits.push(ticket);
                return;
            }
            Some(Err(WriteError::Failed(reason))) => {
                cx.host.fail(&reason);
                false
            }
            None => false,
        };
        for entry in &commit.entries {
            if let Some(region) = commit.held.regions_mut().get_mut(entry.at) {
                settle(region, entry, written, cx);
            }
        }
        self.end_commit(commit.by, Committed::Done, commit.held, cx, out);
    }

    /// On a cluster node: each region goes back, ahead of its log, to be kept there by its quorum.
    fn commit_each(
        &mut self,
        held: HeldRegions,
        by: CommitFor,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Option<(Committed, HeldRegions)> {
        let (dirty, clean): (Vec<_>, Vec<_>) = held
            .into_regions()
            .into_iter()
            .partition(|region| region.is_dirty());
        let mut awaited = Vec::new();
        for mut region in dirty {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let stamp_ms = member.next_stamp(cx.now_ms);
            let (index, term) = (member.replica.last_index() + 1, member.replica.term());
            let mut changes = Changes::new();
            region.space.note_term(term);
            region.space.end_entry(stamp_ms, &mut changes);
            let (id, ticket) = (region.id, self.groups.ticket());
            awaited.push((ticket, id));
            let batch = EffectBatch {
                region,
                changes,
                stamp_ms,
                index,
                term,
                from: self.core,
                ticket,
            };
            match cx.map.core_of(id) {
                owner if owner == self.core => self.on_effect_batch(batch, cx, out),
                owner => out.effect_batches.push((owner, batch)),
            }
        }
        let ticket = self.groups.ticket();
        let commit = Commit {
            held: HeldRegions::of(clean),
            by,
            entries: Vec::new(),
            awaited,
            lost: Vec::new(),
        };
        self.groups.commits.insert(ticket, commit);
        None
    }

    /// A region comes back with changes to be kept.
    pub fn on_effect_batch(&mut self, batch: EffectBatch, cx: &Context<'_>, out: &mut Effects) {
        let region = self.propose_effects(batch, cx, out);
        let place = region.id;
        self.take_back(vec![region], cx, out);
        self.drive(place, cx, out);
    }

    /// What became of the changes to one region.
    pub fn on_batch_outcome(
        &mut self,
        ticket: usize,
        fate: BatchOutcome,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        let waits = |commit: &Commit| commit.awaited.iter().any(|(of, _)| *of == ticket);
        let commits = &mut self.groups.commits;
        let Some((&of, _)) = commits.iter().find(|(_, commit)| waits(commit)) else {
            return;
        };
        if let Some(mut commit) = commits.remove(&of) {
            let places = commit.awaited.extract_if(.., |(it, _)| *it == ticket);
            for (_, place) in places.collect::<Vec<_>>() {
                if let BatchOutcome::Failed(outcome) = &fate {
                    commit.lost.push((place, outcome.clone()));
                }
            }
            match commit.awaited.is_empty() {
                true => {
                    let committed = Committed::Lost(commit.lost);
                    self.end_commit(commit.by, committed, commit.held, cx, out);
                }
                false => drop(self.groups.commits.insert(of, commit)),
            }
        }
        self.run_groups(cx, out);
    }

    fn end_commit(
        &mut self,
        by: CommitFor,
        committed: Committed,
        held: HeldRegions,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        match by {
            CommitFor::Group(ticket) => self.settle_group(ticket, committed, held, cx, out),
            CommitFor::Task(ticket) => {
                let result = committed.into_result();
                out.committed.push((ticket, result, held.into_regions()));
            }
            CommitFor::Nobody => self.give_back(held.into_regions(), cx, out),
        }
    }
}

impl HeldRegions {
    /// Where the regions are that were changed.
    fn dirty(&self) -> Vec<usize> {
        let regions = self.regions().iter().enumerate();
        let dirty = regions.filter(|(_, region)| region.is_dirty());
        dirty.map(|(at, _)| at).collect()
    }

    /// The rows that regions have changed, with the stamps of their entries; `None` if they are more than
    /// the log takes: then these regions are to be undone. All count together, for they are one record of
    /// the log; and before anything of them is proposed, which cannot be taken back.
    fn take_changes(
        &mut self,
        dirty: &[usize],
        cx: &Context<'_>,
    ) -> Option<Vec<(usize, u64, Changes)>> {
        let mut all = Vec::with_capacity(dirty.len());
        let mut left_bytes = cx.most_change_bytes;
        for &at in dirty {
            let region = self.regions_mut().get_mut(at)?;
            let stamp_ms = region.member.as_deref_mut()?.next_stamp(cx.now_ms);
            let mut changes = Changes::new();
            let space = &mut region.space;
            if !space.end_entry_within(stamp_ms, left_bytes, &mut changes) {
                return None;
            }
            left_bytes -= changes.size_bytes();
            all.push((at, stamp_ms, changes));
        }
        Some(all)
    }

    /// Makes entries of these rows, and what is to be written to the log, all in one record.
    fn propose_all(
        &mut self,
        taken: Vec<(usize, u64, Changes)>,
        cx: &Context<'_>,
    ) -> Result<(Vec<Logged>, Vec<LogWrite>), Committed> {
        let (mut entries, mut writes) = (Vec::new(), Vec::new());
        for (at, stamp_ms, mut changes) in taken {
            let Some(region) = self.regions_mut().get_mut(at) else {
                continue;
            };
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let mut rows = Vec::with_capacity(changes.size_bytes());
            changes.encode(&mut rows);
            let entry = rows_payload(stamp_ms, 0, &rows);
            drop(rows);
            member.note(region.space.home(), member.replica.last_index() + 1, &entry);
            member.take_feed(&mut changes);
            if let Err(refused) = member.replica.propose(entry) {
                let reason = format!("the log does not take a change: {refused}");
                cx.host.fail(&reason);
            }
            let index = member.replica.last_index();
            member.replica.ready(&mut member.ready);
            let Some(write) = member.ready.write.take() else {
                continue;
            };
            let number = write.number;
            writes.push(write);
            entries.push(Logged {
                at,
                place: region.id,
                index,
                number,
                changes,
            });
        }
        match cx.failure() {
            Some(refusal) => Err(Committed::Failed(refusal)),
            None => Ok((entries, writes)),
        }
    }

    /// Takes back what was done to the regions at these positions since they were lent, or since the last
    /// commit.
    fn undo(&mut self, dirty: &[usize], cx: &Context<'_>) -> Committed {
        let Some(rows) = cx.rows else {
            return Committed::TooLarge;
        };
        for &at in dirty {
            let Some(region) = self.regions_mut().get_mut(at) else {
                continue;
            };
            let state = state_row(&**rows, region.space.home());
            let undone = state.and_then(|state| {
                let space = &mut region.space;
                space.undo_entry(cx.seed(), state.as_deref())
            });
            match undone {
                Ok(garbage) => cx.host.discard(garbage),
                Err(reason) => {
                    // The store cannot be read: what is in memory stays ahead of the log.
                    cx.host.fail(&reason);
                    return cx.failure().map_or(Committed::TooLarge, Committed::Failed);
                }
            }
            region.is_undone = true;
            begin_entry(region);
        }
        Committed::TooLarge
    }

    /// Nothing is kept any more. What was changed is undone, for reads go on and must not see what its
    /// client is refused: a region has been lent only when the store had all of it. Unless it had given up
    /// before: then memory has more than the store, and there is nothing to go back to; but nothing runs on
    /// such a region that could matter ([`HeldRegions::attempt`]).
    fn give_up(&mut self, dirty: &[usize], cx: &Context<'_>) {
        let mut undone = dirty.to_vec();
        undone.retain(|&at| {
            let member = self.regions().get(at).and_then(|it| it.member.as_deref());
            member.is_some_and(|member| !member.failed)
        });
        self.undo(&undone, cx);
        for region in self.regions_mut() {
            if let Some(member) = region.member.as_deref_mut() {
                member.failed = true;
                if region.space.has_changes() {
                    region.space.forget_changes();
                }
                begin_entry(region);
            }
        }
    }
}

/// An entry of a held region is in the log, and in the store if that has taken its rows.
fn settle(region: &mut RegionBox, entry: &Logged, written: bool, cx: &Context<'_>) {
    let (place, index) = (entry.place, entry.index);
    if written {
        region.space.rows_written();
    }
    if let Some(member) = region.member.as_deref_mut() {
        member.replica.on_persisted(entry.number);
        member.replica.ready(&mut member.ready);
        debug_assert!(member.ready.write.is_none());
        let last = member.ready.committed.last();
        debug_assert_eq!(last.map(|it| it.index), Some(index));
        if let Some(committed) = last {
            let entry = crate::Executing {
                index,
                term: committed.term,
                payload: &committed.payload,
            };
            cx.host.on_executed(place, &member.replica, &entry);
        }
        member.ready.committed.clear();
        member.replica.on_applied(index);
        match written {
            true => member.note_progress(place, index),
            // Only the log has it: that must not be cut behind it, and collections on rows must not look
            // for it in the store.
            false => member.failed = true,
        }
    }
    if let Some(data_set) = cx.host.data_set() {
        region.tell_weight(data_set);
    }
    // The holder may go on; that is another entry then.
    begin_entry(region);
}

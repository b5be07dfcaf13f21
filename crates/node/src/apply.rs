//! Committed entries become state: they are executed, the rows they change go to the store with the
//! applied index in one write, then the replies leave.
//!
//! Nothing waits here. Keys that are not in memory are asked for ([`crate::ready`]), a store that is busy
//! is tried again a little later; the region's later entries wait meanwhile, other regions and all reads
//! go on.

use keyspace::rows::{Changes, WriteError};

use crate::audience::{Clients, Nobody};
use crate::effects::{DigestRequest, Effects, Load};
use crate::execute::execute;
use crate::member::Unwritten;
use crate::parsed::{Parsed, ParsedCommands, parse};
use crate::{
    BatchOutcome, Context, Executed, Executing, Outcome, OwnedRegions, Place, Proposal, Region,
    Serving, ready, unreadable,
};

/// Rows are handed to the store when there are this many bytes of them, or every 100 ms.
const SETTLE_BYTES: usize = 512 * 1024;
/// A store that is busy for longer than this is broken.
const BUSY_MOST_MS: u64 = 15_000;
/// Rows that were read may be gone when the entry is to run: after so many attempts it reads the disk
/// itself.
const ATTEMPTS: u8 = 8;

/// What one step came to.
enum Step {
    /// An entry is applied; these wait for it.
    Applied(Option<Proposal>),
    /// Another leader's entry took the place of one that this node proposed.
    Overtaken(Proposal),
    Nothing,
    /// Keys and rows are not in memory. The entry is still the next one.
    Cold(Load),
    /// The store takes no rows now. Nothing has happened to the entry: it is still the next one, and not
    /// applied to anybody who asks, nor overtaken for who waits for it.
    Busy,
    Failed(String),
}

impl OwnedRegions {
    /// Applies what is committed, as far as that is possible now.
    pub fn apply(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        let Some(region) = self.slots.region_mut(place) else {
            return;
        };
        let more_due = region.apply_all(cx, out);
        self.advance(place, cx, out);
        self.serve_waiting_reads(place, cx, out);
        if more_due {
            self.expire(place, cx, out);
        }
        self.grant_next(cx, out);
        out.wakes = true;
    }

    /// What applying waited for is here, or the store may take rows again.
    pub fn resume(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        if let Some(member) = self.member_mut(place) {
            member.stalled = false;
        }
        self.apply(place, cx, out);
    }

    /// Hands the rows of all regions that are here to the store; called now and then.
    pub fn settle_all(&mut self, cx: &Context<'_>) {
        for region in self.present() {
            let settled = region.settle();
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            // By the clock that never jumps.
            let now_ms = cx.clock_ms.max(1);
            // What an entry brought is taken when that is applied, which tries again and again.
            let entry_rows = match member.entry_rows {
                Some(_) => Err(WriteError::Busy),
                None => Ok(()),
            };
            match settled.and(entry_rows) {
                Ok(()) => member.busy_since_ms = 0,
                Err(WriteError::Busy) if member.busy_since_ms == 0 || cx.host.awaits_room() => {
                    member.busy_since_ms = now_ms;
                }
                Err(WriteError::Busy)
                    if now_ms.saturating_sub(member.busy_since_ms) < BUSY_MOST_MS => {}
                Err(WriteError::Busy) => {
                    let reason = "the store has taken nothing for a long time; is the disk full?";
                    cx.host.fail(reason);
                    member.failed = true;
                }
                Err(WriteError::Failed(reason)) => {
                    cx.host.fail(&reason);
                    member.failed = true;
                }
            }
        }
    }

    /// Gives back memory that regions at rest have kept for rows to come; called now and then.
    pub fn give_back_room(&mut self) {
        for region in self.present() {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            if member.open.is_none() && member.unwritten.is_none() {
                member.changes = Changes::new();
                member.parsed = ParsedCommands::default();
                region.space.give_back_room();
            }
        }
    }
}

impl Region {
    /// Applies what is committed, as far as that is possible now; whether more keys may be due.
    fn apply_all(&mut self, cx: &Context<'_>, out: &mut Effects) -> bool {
        let mut more_due = false;
        loop {
            let step = self.apply_next(cx, out);
            if let Some(member) = self.member.as_deref_mut() {
                member.stalled |= matches!(step, Step::Cold(_) | Step::Busy | Step::Failed(_));
            }
            match step {
                Step::Applied(proposal) => {
                    if out.applied.last() != Some(&self.id) {
                        out.applied.push(self.id);
                    }
                    out.has_changes |= self.space.has_key_changes();
                    if let Some(proposal) = proposal {
                        more_due |= proposal.expires_full;
                        let batches = proposal.batches.into_iter();
                        out.finished
                            .extend(batches.map(|batch| (batch, Outcome::Done)));
                        if let Some(effects) = proposal.effects {
                            out.batch_outcomes.push((
                                effects.from,
                                effects.ticket,
                                BatchOutcome::Committed,
                            ));
                        }
                    }
                }
                Step::Overtaken(proposal) => {
                    self.refuse_proposal(proposal, &Outcome::TryAgain, cx, out);
                }
                Step::Nothing => break,
                Step::Cold(load) => {
                    out.loads.push(load);
                    break;
                }
                Step::Busy => {
                    out.busy.push(self.id);
                    break;
                }
                Step::Failed(reason) => {
                    cx.host.fail(&reason);
                    self.fail(cx, out);
                    break;
                }
            }
        }
        let member = self.member.as_deref();
        if member.is_some_and(|member| member.failed && !member.proposals.is_empty()) {
            self.fail(cx, out);
        }
        more_due
    }

    fn apply_next(&mut self, cx: &Context<'_>, out: &mut Effects) -> Step {
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        if member.stalled || member.failed || member.damage.is_some() {
            return Step::Nothing;
        }
        let Some(committed) = member.committed.front() else {
            return Step::Nothing;
        };
        let (index, term) = (committed.index, committed.term);
        let front = member.proposals.front();
        let is_ours = match front.map(|proposal| (proposal.index, proposal.term)) {
            Some((at, of)) if at < index || at == index && of != term => {
                return match member.proposals.pop_front() {
                    Some(proposal) => Step::Overtaken(proposal),
                    None => Step::Nothing,
                };
            }
            Some((at, _)) => at == index,
            None => false,
        };
        let is_effects = is_ours && front.is_some_and(|it| it.effects.is_some());
        if member.entry_rows.is_some() {
            return self.apply_entry_rows(is_ours, cx);
        }
        if committed.change.is_some() {
            return self.apply_members(cx);
        }
        if is_effects && member.uncommitted == Some(index) {
            return self.apply_effects(index, cx);
        }
        self.apply_entry(index, term, is_ours, cx, out)
    }

    /// Executes the next committed entry. `is_ours`: sessions of this node wait for it.
    fn apply_entry(
        &mut self,
        index: u64,
        term: u64,
        is_ours: bool,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> Step {
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        let Some(committed) = member.committed.front() else {
            return Step::Nothing;
        };
        let payload = committed.payload.clone();
        let entry = match parse(cx.specs, index, &payload, &mut member.parsed) {
            Ok(entry) => entry,
            Err(reason) => return Step::Failed(reason),
        };
        let space = &mut self.space;
        let proposal = member.proposals.front().filter(|_| is_ours);
        let keys = ready::cold_keys(space, cx.specs, &payload, &entry, proposal);
        let (last, tries) = member.dry_runs;
        let tries = if last == index { tries } else { 0 };
        let mut rows = Vec::new();
        if keys.is_empty() && tries < ATTEMPTS {
            rows = ready::cold_rows(space, cx.specs, cx.tuning, &payload, &entry, proposal);
        }
        if !keys.is_empty() || !rows.is_empty() {
            if !rows.is_empty() {
                member.dry_runs = (index, tries + 1);
            }
            return Step::Cold(Load {
                place: self.id,
                keys,
                rows,
                tries,
                read: None,
            });
        }
        if let Some(refusal) =
            unreadable::refusal_of_entry(space, cx.specs, &payload, &entry, proposal)
            && self.has_other_voters()
        {
            self.space.forget_unreadable();
            self.quarantine(&refusal);
            return Step::Nothing;
        }
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        if matches!(entry.body, Parsed::Rows(_)) || member.unwritten.is_some() {
            // The store did not take the rows before: these would have to wait behind them.
            if let Err(error) = self.settle() {
                return self.on_write_error(error, cx);
            }
        }
        let may_wait = self.serving(cx.clock_ms) != Serving::No;
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        let (stamp_ms, seed) = (entry.stamp_ms, entry.seed);
        let is_stamped = !matches!(entry.body, Parsed::Empty);
        let mut proposal = match is_ours {
            true => member.proposals.pop_front(),
            false => None,
        };
        let space = &mut self.space;
        let (executed, room) = match &mut proposal {
            Some(proposal) => {
                let moment = (stamp_ms, seed);
                let (interests, served) = (&mut self.interests, &mut out.served);
                let mut clients = Clients::new(cx, proposal, interests, served, moment, may_wait);
                let (specs, tuning) = (cx.specs, cx.tuning);
                execute(space, specs, tuning, index, &payload, entry, &mut clients)
            }
            None => {
                let mut nobody = Nobody::default();
                let (specs, tuning) = (cx.specs, cx.tuning);
                execute(space, specs, tuning, index, &payload, entry, &mut nobody)
            }
        };
        member.parsed = room;
        cx.host.on_executed(
            self.id,
            &member.replica,
            &Executing {
                index,
                term,
                payload: &payload,
            },
        );
        let (stamp_ms, digest) = match executed {
            Executed::Rows { changes, stamp_ms } => {
                member.next_stamp(stamp_ms);
                if let Some(proposal) = proposal {
                    // As long as its entry is to be applied, those who wait for it do.
                    member.proposals.push_front(proposal);
                }
                member.set_entry_rows(space.home(), changes);
                return self.apply_entry_rows(is_ours, cx);
            }
            Executed::Commands { stamp_ms } => {
                member.next_stamp(stamp_ms);
                (stamp_ms, None)
            }
            Executed::Digest { id, stamp_ms } => (stamp_ms, Some(id)),
        };
        member.committed.pop_front();
        member.note(space.home(), index, &payload);
        space.note_term(term);
        // The entry that begins a leader's term has no stamp of its own; it is as late as the one before.
        let stamp_ms = match member.open {
            Some((_, last_ms)) if !is_stamped => last_ms,
            _ => stamp_ms,
        };
        member.open = Some((index, stamp_ms));
        member.replica.on_applied(index);
        match digest {
            Some(id) => self.take_digest(id, index, cx, out),
            None => self.settle_if_much(cx),
        }
        Step::Applied(proposal)
    }

    /// Hands rows of applied entries to the store when there are enough of them.
    fn settle_if_much(&mut self, cx: &Context<'_>) {
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        if let Some(reason) = self.space.take_failure() {
            cx.host.fail(&reason);
            member.failed = true;
        } else if self.space.unsettled_bytes() + member.noted_bytes() > SETTLE_BYTES
            && let Err(WriteError::Failed(reason)) = self.settle()
        {
            // It is in the log, so it is kept, and those who wait may know.
            cx.host.fail(&reason);
            if let Some(member) = self.member.as_deref_mut() {
                member.failed = true;
            }
        }
    }

    /// The rows as of this entry, for a digest.
    fn take_digest(&mut self, id: u64, index: u64, cx: &Context<'_>, out: &mut Effects) {
        let settled = self.settle();
        let moment = match (settled, cx.rows) {
            (Ok(()), Some(rows)) => Some(rows.snapshot()),
            _ => None,
        };
        let member = self.member.as_deref();
        let Some(peers) = member.and_then(|member| member.peers.as_deref()) else {
            return;
        };
        out.digests.push(DigestRequest {
            record: peers.record.clone(),
            id,
            index,
            moment,
        });
    }

    /// Applies an effect batch, whose effect is in memory already.
    fn apply_effects(&mut self, index: u64, cx: &Context<'_>) -> Step {
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        let is_settled = member.open.is_none() && member.unwritten.is_none();
        debug_assert!(is_settled, "it was settled when it was lent");
        let proposal = member.proposals.front_mut();
        let Some(effects) = proposal.and_then(|proposal| proposal.effects.as_mut()) else {
            return Step::Nothing;
        };
        let mut changes = std::mem::take(&mut effects.changes);
        if let Some(committed) = member.committed.pop_front() {
            member.note(self.space.home(), index, &committed.payload);
            let entry = executing(&committed);
            cx.host.on_executed(self.id, &member.replica, &entry);
        }
        member.take_feed(&mut changes);
        member.replica.on_applied(index);
        member.uncommitted = None;
        let proposal = member.proposals.pop_front();
        member.unwritten = Some(Unwritten { changes, index });
        // A store that is busy is tried again. The log has it, so it is kept even if the store is broken,
        // and those who wait may know.
        if let Err(WriteError::Failed(reason)) = self.settle() {
            cx.host.fail(&reason);
            if let Some(member) = self.member.as_deref_mut() {
                member.failed = true;
            }
        }
        Step::Applied(proposal)
    }

    /// Applies the entry whose rows the store is to take first.
    fn apply_entry_rows(&mut self, is_ours: bool, cx: &Context<'_>) -> Step {
        if let Err(error) = self.write_entry_rows() {
            return self.on_write_error(error, cx);
        }
        let member = self.member.as_deref_mut().filter(|_| is_ours);
        Step::Applied(member.and_then(|member| member.proposals.pop_front()))
    }

    /// Applies a change of members.
    fn apply_members(&mut self, cx: &Context<'_>) -> Step {
        if let Err(error) = self.settle() {
            return self.on_write_error(error, cx);
        }
        let Some(member) = self.member.as_deref_mut() else {
            return Step::Nothing;
        };
        let Some(committed) = member.committed.pop_front() else {
            return Step::Nothing;
        };
        let entry = executing(&committed);
        cx.host.on_executed(self.id, &member.replica, &entry);
        let unwritten = self.apply_change(&committed, cx);
        if let Some(member) = self.member.as_deref_mut() {
            member.unwritten = unwritten;
            member.replica.on_applied(committed.index);
        }
        match self.settle() {
            Err(WriteError::Failed(reason)) => Step::Failed(reason),
            // Memory has it, and so has the log: a store that is busy is tried again.
            Ok(()) | Err(WriteError::Busy) => Step::Applied(None),
        }
    }

    /// The store did not take rows: it is tried again, or it is broken.
    fn on_write_error(&mut self, error: WriteError, cx: &Context<'_>) -> Step {
        match error {
            WriteError::Busy if !cx.host.has_failed() => Step::Busy,
            WriteError::Busy => {
                if let Some(member) = self.member.as_deref_mut() {
                    member.failed = true;
                }
                Step::Nothing
            }
            WriteError::Failed(reason) => Step::Failed(reason),
        }
    }
}

fn executing(committed: &replica::Committed) -> Executing<'_> {
    Executing {
        index: committed.index,
        term: committed.term,
        payload: &committed.payload,
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;

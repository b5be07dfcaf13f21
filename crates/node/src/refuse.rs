//! Entries that come to nothing: those who wait for them are told.

use std::sync::Arc;

use base::DbIndex;

use crate::effects::{Effects, Served};
use crate::{
    BatchOutcome, Context, Outcome, OwnedRegions, Place, Proposal, Region, Serving, Waiter,
};

impl OwnedRegions {
    /// The log or the store failed: nothing that is on its way will be acknowledged.
    pub fn fail_region(&mut self, place: Place, cx: &Context<'_>, out: &mut Effects) {
        self.leave_failed(place, cx, out);
        if let Some(region) = self.region_mut(place) {
            region.fail(cx, out);
        }
        self.grant_next(cx, out);
        out.wakes = true;
    }

    /// What waits for a region's next entry is sent to whoever leads it.
    pub fn redirect_queue(&mut self, place: Place, out: &mut Effects) {
        let batches = self.queue_mut(place).map(std::mem::take);
        let batches = batches.unwrap_or_default().into_iter();
        let outcome = Outcome::Unserved(crate::Unserved::Elsewhere);
        out.finished
            .extend(batches.map(|batch| (batch, outcome.clone())));
    }
}

impl Region {
    pub(crate) fn fail(&mut self, cx: &Context<'_>, out: &mut Effects) {
        let Some(refusal) = cx.failure() else {
            return;
        };
        let Some(member) = self.member.as_deref_mut() else {
            return;
        };
        member.failed = true;
        out.looks_again.push(self.id);
        let proposals = std::mem::take(&mut member.proposals);
        let outcome = match cx.is_cluster {
            // Others may have it, and go on with it.
            true => Outcome::InDoubt,
            false => Outcome::Refused(refusal),
        };
        for proposal in proposals {
            self.refuse_proposal(proposal, &outcome, cx, out);
        }
    }

    /// Tells those who wait for an entry that it will not come to anything.
    pub fn refuse_proposal(
        &mut self,
        proposal: Proposal,
        outcome: &Outcome,
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        for serve in proposal.serves.into_iter().rev() {
            match cx.is_cluster {
                // Nobody will serve it here.
                true => out.served.push((serve.waiter, Served::LeaderChanged)),
                false => self.put_back(serve.waiter, serve.db, &serve.key, cx, out),
            }
        }
        let batches = proposal.batches.into_iter();
        out.finished
            .extend(batches.map(|batch| (batch, outcome.clone())));
        if let Some(effects) = proposal.effects {
            let fate = BatchOutcome::Failed(outcome.clone());
            out.batch_outcomes
                .push((effects.from, effects.ticket, fate));
        }
    }

    /// A claimed waiter for whom there was nothing goes back to its place in line. If another replica
    /// leads by now, those in line were told then, but not who was claimed.
    pub fn put_back(
        &mut self,
        waiter: Arc<Waiter>,
        db: DbIndex,
        key: &[u8],
        cx: &Context<'_>,
        out: &mut Effects,
    ) {
        if self.serving(cx.clock_ms) == Serving::No {
            out.served.push((waiter, Served::LeaderChanged));
            return;
        }
        self.put_waiter_first(db, key, waiter.clone());
        if waiter.claim.unserve() {
            out.served.push((waiter, Served::Nothing));
        }
    }
}

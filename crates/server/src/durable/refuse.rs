//! Entries that come to nothing: those who wait for them are told.

use std::rc::Rc;

use super::{Fate, Flight};
use crate::cores::{BatchBox, Core, RegionId};

impl Core {
    /// The log failed: nothing that is on its way will be acknowledged.
    pub(crate) fn fail_region(self: &Rc<Self>, id: RegionId) {
        let Some(refusal) = self
            .shared
            .durable
            .as_ref()
            .and_then(|durable| durable.refusal())
        else {
            return;
        };
        let flights = {
            let mut home = self.home.borrow_mut();
            let Some(member) = home.region_mut(id).and_then(|r| r.member.as_deref_mut()) else {
                return;
            };
            member.failed = true;
            std::mem::take(&mut member.flights)
        };
        let refusal = match self.shared.cluster {
            // Others may have it, and go on with it.
            Some(_) => super::in_doubt(),
            None => refusal,
        };
        for flight in flights {
            self.refuse_flight(id, flight, &refusal);
        }
        self.grant_next();
        self.wake_composer();
    }

    /// Tells those who wait for an entry that it will not come to anything.
    pub(crate) fn refuse_flight(
        self: &Rc<Self>,
        id: RegionId,
        flight: Flight,
        refusal: &base::Refusal,
    ) {
        for serve in flight.serves.into_iter().rev() {
            if self.shared.cluster.is_some() {
                // Nobody will serve it here.
                self.unblock_claimed(&serve.waiter);
            } else if let Some(region) = self.home.borrow_mut().region_mut(id) {
                self.put_back(region, serve.waiter, serve.db, &serve.key);
            }
        }
        for batch in flight.batches {
            self.refuse_batch(batch, refusal);
        }
        if let Some(kept) = flight.kept {
            self.answer_kept(kept.from, kept.ticket, Fate::Not(refusal.clone()));
        }
    }

    /// Answers every command of a batch with a refusal, a transaction with one.
    pub(super) fn refuse_batch(self: &Rc<Self>, mut batch: BatchBox, refusal: &base::Refusal) {
        batch.replies.truncate(0);
        batch.ends.clear();
        if batch.together {
            self.refuse(refusal, &mut batch.replies);
            return self.finish_batch(batch);
        }
        for _ in 0..batch.heads.len() {
            self.refuse(refusal, &mut batch.replies);
            batch.ends.push(batch.replies.len());
        }
        self.finish_batch(batch);
    }
}

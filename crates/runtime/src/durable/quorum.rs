//! Effect batches on a cluster node: what commands changed on held regions is kept by a quorum of each
//! region, or undone ([`node::EffectBatch`]).

use base::Refusal;
use keyspace::rows::Changes;
use node::{CoreId, EffectBatch, Fate, Outcome, in_doubt, too_large};

use crate::cores::{Answer, Core, Held, Message, Place, Ticket};

impl Held {
    /// Keeps what was changed, region by region; they are home when this returns.
    pub(super) async fn keep(&mut self) -> Result<(), Refusal> {
        let lost = self.keep_each().await;
        lost.into_iter().next_back().map_or(Ok(()), |it| Err(it.1))
    }

    /// As [`Held::keep`]; the regions whose changes are not kept, or nobody can tell, and what to say of
    /// that.
    pub(super) async fn keep_each(&mut self) -> Vec<(Place, Refusal)> {
        let core = self.core().clone();
        let mut tickets = Vec::new();
        let (dirty, clean): (Vec<_>, Vec<_>) = std::mem::take(self.regions_vec())
            .into_iter()
            .partition(|region| region.space.has_changes());
        *self.regions_vec() = clean;
        for mut region in dirty {
            let Some(member) = region.member.as_deref_mut() else {
                continue;
            };
            let stamp_ms = member.next_stamp(core.now_ms());
            let (index, term) = (member.replica.last_index() + 1, member.replica.term());
            let mut changes = Changes::new();
            region.space.note_term(term);
            region.space.end_entry(stamp_ms, &mut changes);
            let ticket = Ticket::new(&core);
            let id = region.id;
            let owner = core.shared.map.core_of(id);
            let batch = EffectBatch {
                region,
                changes,
                stamp_ms,
                index,
                term,
                from: core.id,
                ticket: ticket.number(),
            };
            match owner == core.id {
                true => core.on_effect_batch(batch),
                false => core.send(owner, Message::Keep(Box::new(batch))),
            }
            tickets.push((id, ticket));
        }
        let mut lost = Vec::new();
        for (id, ticket) in tickets {
            match ticket.await {
                Answer::Kept(Fate::Kept) => {}
                Answer::Kept(Fate::Not(Outcome::TooLarge)) => lost.push((id, too_large())),
                Answer::Kept(Fate::Not(outcome)) => lost.push((id, outcome.refusal())),
                _ => lost.push((id, in_doubt())),
            }
        }
        lost
    }
}

impl Core {
    pub(crate) fn answer_kept(&self, to: CoreId, ticket: usize, fate: Fate) {
        if to == self.id {
            let _ = self.tickets().deliver(ticket, Answer::Kept(fate));
        } else {
            self.send(to, Message::Settled { ticket, fate });
        }
    }
}

//! Commands on held regions of a cluster node: what they changed is kept by a majority, or undone.
//!
//! ```text
//!   holder's core                          the region's own core
//!   hold, run ─► rows ─► Keep ───────────► region home, ahead of its log: nobody reads it
//!                                          propose rows ─► majority ─► committed: rows to the store
//!   ticket ◄───────────────────────────── Kept(ok)          │
//!                                          leadership lost: memory is thrown away and read
//!                                          again from the store, which never was ahead
//! ```
//!
//! The region goes home before its entry is proposed, because its replica must hear its peers. Memory
//! is a cache of rows, so undoing is dropping it.

use std::rc::Rc;
use std::sync::Arc;

use base::Refusal;
use keyspace::Keyspace;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, layout};
use replica::entry::rows_payload;

use super::Flight;
use super::large::too_large;
use crate::cores::{Answer, Core, CoreId, Held, Message, Region, RegionBox, RegionId, Ticket};

/// What a holder did to a region, on its way to be kept.
pub struct Keep {
    pub region: RegionBox,
    pub changes: Changes,
    pub stamp_ms: u64,
    /// The entry it must become; another one came in between: it never was.
    pub index: u64,
    pub term: u64,
    pub from: CoreId,
    pub ticket: usize,
}

/// The part of a [`Flight`] whose effect is in memory already.
pub struct Kept {
    pub changes: Changes,
    pub from: CoreId,
    pub ticket: usize,
}

/// What became of a [`Keep`].
#[derive(Debug, Clone)]
pub enum Fate {
    Kept,
    /// Not kept, or nobody can tell: the words for the client say which.
    Not(Refusal),
}

impl Held {
    /// Keeps what was changed, region by region; they are home when this returns.
    pub(super) async fn keep(&mut self) -> Result<(), Refusal> {
        let lost = self.keep_each().await;
        lost.into_iter().next_back().map_or(Ok(()), |it| Err(it.1))
    }

    /// As [`Held::keep`]; the regions whose changes are not kept, or nobody can tell, and what to say of that.
    pub(super) async fn keep_each(&mut self) -> Vec<(RegionId, Refusal)> {
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
            let keep = Keep {
                region,
                changes,
                stamp_ms,
                index,
                term,
                from: core.id,
                ticket: ticket.number(),
            };
            match owner == core.id {
                true => core.on_keep(keep),
                false => core.send(owner, Message::Keep(Box::new(keep))),
            }
            tickets.push((id, ticket));
        }
        let mut lost = Vec::new();
        for (id, ticket) in tickets {
            match ticket.await {
                Answer::Kept(Fate::Kept) => {}
                Answer::Kept(Fate::Not(refusal)) => lost.push((id, refusal)),
                _ => lost.push((id, in_doubt())),
            }
        }
        lost
    }
}

/// What a client is told whose write may or may not have happened. Not a word that makes clients try
/// again by themselves: it might happen twice.
pub fn in_doubt() -> Refusal {
    Refusal::new(
        "INDOUBT the leader changed before a majority confirmed this write; it may or may not have \
         happened, read to find out",
    )
}

/// What a client is told whose command surely did not happen: clients try again by themselves, and
/// find the new leader.
pub fn try_again() -> Refusal {
    Refusal::new(CHANGING)
}

pub const CHANGING: &str = "TRYAGAIN the leader of this slot is changing";

impl Core {
    /// A region comes home with changes to be kept.
    pub(crate) fn on_keep(self: &Rc<Self>, keep: Keep) {
        self.begin_batch();
        let Keep { mut region, .. } = keep;
        let id = region.id;
        let mut fate = None;
        if let Some(member) = region.member.as_deref_mut() {
            let replica = &mut member.replica;
            let is_next = replica.is_leader()
                && replica.term() == keep.term
                && replica.last_index() + 1 == keep.index;
            let most_bytes = self.shared.durable.as_ref().map(|it| it.most_change_bytes);
            let propose = || {
                let size_bytes = keep.changes.size_bytes();
                if most_bytes.is_some_and(|most| size_bytes > most) {
                    return Err(replica::Refused::TooLarge);
                }
                let mut rows = Vec::with_capacity(size_bytes);
                keep.changes.encode(&mut rows);
                replica.propose(rows_payload(keep.stamp_ms, 0, &rows))
            };
            match is_next.then(propose) {
                Some(Ok(())) => {
                    member.ahead = Some(keep.index);
                    member.take_off(Flight {
                        kept: Some(Kept {
                            changes: keep.changes,
                            from: keep.from,
                            ticket: keep.ticket,
                        }),
                        ..Flight::new(keep.index, keep.term, keep.stamp_ms)
                    });
                }
                Some(Err(replica::Refused::TooLarge)) => fate = Some(Fate::Not(too_large())),
                _ => fate = Some(Fate::Not(try_again())),
            }
        }
        if let Some(fate) = fate {
            self.undo(&mut region);
            self.answer_kept(keep.from, keep.ticket, fate);
        }
        self.take_back(vec![region]);
        self.drive(id);
    }

    pub(super) fn answer_kept(&self, to: CoreId, ticket: usize, fate: Fate) {
        if to == self.id {
            let _ = self.tickets().deliver(ticket, Answer::Kept(fate));
        } else {
            self.send(to, Message::Kept { ticket, fate });
        }
    }

    /// Throws away what is in memory of a region: the store has what its log has.
    pub(crate) fn undo(self: &Rc<Self>, region: &mut Region) {
        let Some(durable) = &self.shared.durable else {
            return;
        };
        self.close_desk(region);
        let home = region.space.home();
        match open_space(&durable.stores.rows, home, self.next_seed()) {
            Ok(space) => {
                region.replace_space(space);
                if let Some(member) = region.member.as_deref_mut() {
                    member.ahead = None;
                }
            }
            Err(reason) => durable.fail(&reason),
        }
    }
}

/// The keyspace of a region as the store has it.
pub fn open_space(rows: &Arc<dyn RowStore>, home: u64, seed: u64) -> Result<Keyspace, String> {
    let state = state_row(&**rows, home)?;
    let source: Arc<dyn RowSource> = rows.clone();
    Keyspace::durable(seed, home, state.as_deref(), source)
        .map_err(|what| format!("region {home}: {what}"))
}

/// The state row of a region, if it has one.
pub(super) fn state_row(rows: &dyn RowStore, home: u64) -> Result<Option<Vec<u8>>, String> {
    let mut state: Option<Vec<u8>> = None;
    let key = layout::state_key(home);
    rows.get(Family::Info, &key, Tier::All, &mut |value| {
        state = Some(value.into())
    })
    .map_err(|error| format!("the state of region {home} cannot be read: {error:?}"))?;
    Ok(state)
}

//! Effect batches on a cluster node: commands that ran on regions lent to another core, whose changes a
//! quorum keeps, or which are undone.
//!
//! ```text
//!   borrower's core                        the region's own core
//!   hold, run ─► rows ─► EffectBatch ────► region back, ahead of its log: nobody reads it
//!                                          propose rows ─► quorum ─► committed: rows to the store
//!   ticket ◄───────────────────────────── BatchOutcome              │
//!                                          leadership lost: memory is thrown away and read
//!                                          again from the store, which never was ahead
//! ```
//!
//! The region goes back before its entry is proposed, because its replica must hear its peers. Memory is
//! a cache of rows, so undoing is dropping it.

use std::sync::Arc;

use keyspace::Keyspace;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier, layout};
use replica::entry::rows_payload;

use crate::effects::Effects;
use crate::member::EffectsOf;
use crate::{Context, CoreId, Outcome, OwnedRegions, Proposal, Region, RegionBox};

/// What a borrower did to a region, on its way to be kept.
pub struct EffectBatch {
    pub region: RegionBox,
    pub changes: Changes,
    pub stamp_ms: u64,
    /// The entry it must become; another one came in between: it never was.
    pub index: u64,
    pub term: u64,
    pub from: CoreId,
    pub ticket: usize,
}

/// What became of an [`EffectBatch`].
#[derive(Debug, Clone)]
pub enum BatchOutcome {
    Committed,
    /// Not committed, or nobody can tell.
    Failed(Outcome),
}

/// Prepares a region that was just borrowed: what is done to it now is the next entry.
pub fn begin_entry(region: &mut Region) {
    if let Some(member) = &region.member {
        if member.failed {
            region.space.stop_writing();
        }
        region.space.continue_entry(member.replica.last_index() + 1);
    }
}

impl OwnedRegions {
    /// A region comes back with changes: they are proposed, or undone if that cannot be. The region is
    /// the caller's to put back; it is driven then.
    pub fn propose_effects(
        &mut self,
        batch: EffectBatch,
        cx: &Context<'_>,
        out: &mut Effects,
    ) -> RegionBox {
        let EffectBatch { mut region, .. } = batch;
        let mut failed = None;
        if let Some(member) = region.member.as_deref_mut() {
            let replica = &mut member.replica;
            let is_next = replica.is_leader()
                && replica.term() == batch.term
                && replica.last_index() + 1 == batch.index;
            let propose = || {
                let size_bytes = batch.changes.size_bytes();
                if size_bytes > cx.most_change_bytes {
                    return Err(replica::Refused::TooLarge);
                }
                let mut rows = Vec::with_capacity(size_bytes);
                batch.changes.encode(&mut rows);
                replica.propose(rows_payload(batch.stamp_ms, 0, &rows))
            };
            match is_next.then(propose) {
                Some(Ok(())) => {
                    member.uncommitted = Some(batch.index);
                    member.add_proposal(Proposal {
                        effects: Some(EffectsOf {
                            changes: batch.changes,
                            from: batch.from,
                            ticket: batch.ticket,
                        }),
                        ..Proposal::new(batch.index, batch.term)
                    });
                }
                Some(Err(replica::Refused::TooLarge)) => failed = Some(Outcome::TooLarge),
                _ => failed = Some(Outcome::TryAgain),
            }
        }
        if let Some(outcome) = failed {
            region.undo(cx, out);
            out.batch_outcomes
                .push((batch.from, batch.ticket, BatchOutcome::Failed(outcome)));
        }
        region
    }
}

impl Region {
    /// Throws away what is in memory: the store has what the log has.
    pub fn undo(&mut self, cx: &Context<'_>, out: &mut Effects) {
        let Some(rows) = cx.rows else {
            return;
        };
        self.close_write_back(out);
        match open_space(rows, self.space.home(), cx.seed()) {
            Ok(space) => {
                self.replace_space(space);
                if let Some(member) = self.member.as_deref_mut() {
                    member.uncommitted = None;
                }
            }
            Err(reason) => cx.host.fail(&reason),
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
pub fn state_row(rows: &dyn RowStore, home: u64) -> Result<Option<Vec<u8>>, String> {
    let mut state: Option<Vec<u8>> = None;
    let key = layout::state_key(home);
    rows.get(Family::Info, &key, Tier::All, &mut |value| {
        state = Some(value.into())
    })
    .map_err(|error| format!("the state of region {home} cannot be read: {error:?}"))?;
    Ok(state)
}

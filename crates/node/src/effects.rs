//! What is to be done outside: gathered while events are handled, carried out by a core of the
//! server or by the simulator.

use std::sync::Arc;

use base::cluster::{NodeId, ReplicaId};
use base::{DbIndex, Refusal};
use keyspace::rows::{ColdRows, LoadRequest, Loaded, RowError, RowSource};
use replica::{Fetch, LogWrite, Message, SnapshotHead};
use table::leader::{Action, End};

use crate::{
    BatchBox, BatchOutcome, CoreId, EffectBatch, Outcome, Place, RegionBox, ReplicaRecord, Waiter,
};

#[derive(Default)]
pub struct Effects {
    /// To be appended to the log, each in one write; then [`crate::OwnedRegions::on_logged`].
    pub jobs: Vec<LogJob>,
    /// To be sent: node, region, message. They may be lost.
    pub messages: Vec<(NodeId, u64, Message)>,
    /// Entries to be read from the log; then [`crate::OwnedRegions::on_entries`].
    pub fetches: Vec<(Place, Fetch)>,
    /// What an entry or a read needs in memory; then [`crate::OwnedRegions::resume`], or
    /// [`crate::OwnedRegions::resume_read`].
    pub loads: Vec<Load>,
    /// Regions whose rows the store did not take: soon [`crate::OwnedRegions::resume`].
    pub busy: Vec<Place>,
    /// Batches that are over.
    pub finished: Vec<(BatchBox, Outcome)>,
    /// Batches that look again: to be given to [`crate::OwnedRegions::enqueue`].
    pub requeued: Vec<BatchBox>,
    /// Blocked sessions that are over.
    pub served: Vec<(Arc<Waiter>, Served)>,
    /// What became of effect batches: core, ticket; [`crate::OwnedRegions::on_batch_outcome`] there.
    pub batch_outcomes: Vec<(CoreId, usize, BatchOutcome)>,
    /// Tickets that wait to read a region: whether they may, or have to look again. Those beyond
    /// [`crate::READS`] are for [`crate::OwnedRegions::resume_read`].
    pub reads: Vec<(usize, bool)>,
    /// Regions for those who waited to borrow them. A ticket beyond [`crate::GROUPS`] of this core is for
    /// [`crate::OwnedRegions::on_lent`].
    pub grants: Vec<Grant>,
    /// Regions of other cores that a group of effect requests wants to borrow; then
    /// [`crate::OwnedRegions::on_lent`].
    pub borrows: Vec<Borrow>,
    /// Regions that go back to other cores: [`crate::OwnedRegions::take_back`] there.
    pub returns: Vec<(CoreId, Vec<RegionBox>)>,
    /// Regions that go back to other cores with changes: [`crate::OwnedRegions::on_effect_batch`] there.
    pub effect_batches: Vec<(CoreId, EffectBatch)>,
    /// What a group of effect requests needs in memory; then [`crate::OwnedRegions::on_held_loaded`].
    pub held_loads: Vec<HeldLoad>,
    /// Commits of tasks that are over, by their tickets; with the regions that are not here.
    pub committed: Vec<(usize, Result<(), Refusal>, Vec<RegionBox>)>,
    /// Commits whose rows the store did not take: soon [`crate::OwnedRegions::retry_commit`].
    pub busy_commits: Vec<usize>,
    /// Regions that came back.
    pub returned: Vec<Place>,
    /// Soon [`crate::OwnedRegions::serve_lines`].
    pub serves_soon: bool,
    pub snapshots_wanted: Vec<(Place, ReplicaId)>,
    /// Snapshots that are to take the place of a region's state.
    pub installs: Vec<(Place, SnapshotHead)>,
    /// Digests of regions as of an entry.
    pub digests: Vec<DigestRequest>,
    /// For SQL.
    pub rows: Vec<RowsRequest>,
    /// Tickets that wait for SQL rows; `None`: the leader's term ended, look again. Those beyond
    /// [`crate::READS`] are for [`crate::OwnedRegions::resume_read_of_rows`].
    pub row_answers: Vec<(u64, Option<End>)>,
    /// Regions whose reads look again: [`crate::OwnedRegions::look_again`].
    pub looks_again: Vec<Place>,
    /// Regions of which entries were applied.
    pub applied: Vec<Place>,
    /// Keys that somebody watches or waits for may have changed.
    pub has_changes: bool,
    /// Something waits for [`crate::OwnedRegions::propose_queued`].
    pub wakes: bool,
}

/// Writes of several regions that go to the log in one record.
pub struct LogJob {
    pub places: Vec<Place>,
    pub writes: Vec<LogWrite>,
    /// Some of it was proposed here, and so many clients wait for it.
    pub is_ours: bool,
    pub clients: u32,
    /// Entries of held regions: then [`crate::OwnedRegions::on_commit_logged`] with this ticket.
    pub commit: Option<usize>,
}

/// A write of the log that is on disk, or failed. A replica that came to the place of another one meanwhile has
/// nothing to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    pub place: Place,
    pub replica: ReplicaId,
    pub number: u64,
}

impl LogJob {
    /// What is to be told of its writes.
    pub fn logged(places: &[Place], writes: &[LogWrite]) -> Vec<Logged> {
        let both = places.iter().zip(writes);
        both.map(|(&place, write)| Logged {
            place,
            replica: write.replica,
            number: write.number,
        })
        .collect()
    }
}

/// The rows of a key that were read, or not.
pub type Fetched = (LoadRequest, Result<Loaded, RowError>);

/// Keys of held regions whose rows are to be read, and rows of big collections that are to be brought into
/// the block cache.
pub struct HeldLoad {
    pub ticket: usize,
    pub requests: Vec<LoadRequest>,
    pub rows: Vec<ColdRows>,
    /// How often such rows were met before.
    pub tries: u8,
}

/// Regions of another core that a group wants to borrow.
pub struct Borrow {
    pub owner: CoreId,
    pub ticket: usize,
    pub regions: Vec<Place>,
}

/// Keys and rows of big collections that are not in memory.
pub struct Load {
    pub place: Place,
    pub keys: Vec<(DbIndex, Box<[u8]>)>,
    pub rows: Vec<ColdRows>,
    /// How often such rows were met before.
    pub tries: u8,
    /// For a read: then [`crate::OwnedRegions::resume_read`] with this ticket; else for an entry.
    pub read: Option<usize>,
}

/// What a blocked session is told.
pub enum Served {
    Reply(resp::Reply),
    /// It has cancelled while it was being served, and there was nothing.
    Nothing,
    /// Another replica leads now.
    LeaderChanged,
}

/// Regions for a core that waited for them.
pub struct Grant {
    pub core: CoreId,
    pub ticket: usize,
    pub regions: Vec<RegionBox>,
}

/// An entry asked for a digest of the region's rows at this index.
pub struct DigestRequest {
    pub record: ReplicaRecord,
    pub id: u64,
    pub index: u64,
    /// The rows at that moment; `None`: the store was busy.
    pub moment: Option<Arc<dyn RowSource>>,
}

/// A question to SQL; the answer names `place` and `write_back`.
pub struct RowsRequest {
    pub place: Place,
    pub write_back: u64,
    pub action: Action,
}

impl Effects {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        let Effects {
            jobs,
            messages,
            fetches,
            loads,
            busy,
            finished,
            requeued,
            served,
            batch_outcomes,
            reads,
            grants,
            snapshots_wanted,
            installs,
            digests,
            rows,
            row_answers,
            looks_again,
            applied,
            borrows,
            returns,
            effect_batches,
            held_loads,
            committed,
            busy_commits,
            returned,
            serves_soon,
            has_changes,
            wakes,
        } = self;
        !has_changes
            && !serves_soon
            && borrows.is_empty()
            && returns.is_empty()
            && effect_batches.is_empty()
            && held_loads.is_empty()
            && committed.is_empty()
            && busy_commits.is_empty()
            && returned.is_empty()
            && !wakes
            && jobs.is_empty()
            && messages.is_empty()
            && fetches.is_empty()
            && loads.is_empty()
            && busy.is_empty()
            && finished.is_empty()
            && requeued.is_empty()
            && served.is_empty()
            && batch_outcomes.is_empty()
            && reads.is_empty()
            && grants.is_empty()
            && snapshots_wanted.is_empty()
            && installs.is_empty()
            && digests.is_empty()
            && rows.is_empty()
            && row_answers.is_empty()
            && looks_again.is_empty()
            && applied.is_empty()
    }
}

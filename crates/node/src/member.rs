//! A region's part in the log: its replica, and the entries on their way.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{DbIndex, clock};
use keyspace::rows::{Changes, RowStore, WriteError, feed};
use replica::{Committed, Ready, Replica};

use crate::parsed::ParsedCommands;
use crate::{BatchBox, CoreId, Peers, Place, Progress, Region, Waiter, WriteBack};

pub struct Member {
    pub replica: Replica,
    /// On a cluster node.
    pub peers: Option<Box<Peers>>,
    /// What its leader does about SQL rows; only while it leads.
    pub write_back: Option<Box<WriteBack>>,
    /// Proposed and not applied, in the order of the log.
    pub proposals: VecDeque<Proposal>,
    /// Committed and not applied; more than the one being applied only while that waits.
    pub committed: VecDeque<Committed>,
    /// The log or the store failed: nothing is proposed or applied any more.
    pub failed: bool,
    /// Why nothing is applied any more: rows of this replica cannot be read ([`crate::unreadable`]).
    pub damage: Option<String>,
    pub is_damage_told: bool,
    /// Applying waits for rows to be read or for the store to catch up.
    pub stalled: bool,
    /// Entries were applied whose rows are not taken yet ([`Region::settle`]): the last one's index
    /// and stamp.
    pub open: Option<(u64, u64)>,
    /// Rows of what was applied that the store has not taken yet.
    pub unwritten: Option<Unwritten>,
    /// Rows that the next of `committed` brings, while the store has not taken them: it is not applied.
    pub entry_rows: Option<Changes>,
    /// Since when the store takes nothing; 0: it does.
    pub busy_since_ms: u64,
    rows: Arc<dyn RowStore>,
    progress: Arc<Progress>,
    /// Memory is ahead of the log: it has the effect of this entry, which a majority does not have
    /// yet ([`crate::EffectBatch`]). Nobody reads the region meanwhile.
    pub uncommitted: Option<u64>,
    /// The last entry that removes due keys, as it was proposed; see [`Member::is_expiring`].
    pub expiring: u64,
    pub eviction: Eviction,
    pub last_stamp_ms: u64,
    /// The entry that was last found to need cold rows, and how often.
    pub dry_runs: (u64, u8),
    /// Room used again.
    pub ready: Ready,
    pub changes: Changes,
    pub(crate) parsed: ParsedCommands,
    /// Entries for the feed, to be written with the rows they made; none without `--binlog`.
    pub feed: Option<Changes>,
}

/// An entry that this node proposed, and who waits for it.
#[derive(Default)]
pub struct Proposal {
    pub index: u64,
    /// An entry of another term at this index: this one never was.
    pub term: u64,
    /// What the write-back of the region proposed; the first commands of the entry.
    pub tables: Vec<table::Entry>,
    pub batches: Vec<BatchBox>,
    /// Attempts for blocked sessions, in the order they are in the entry.
    pub serves: VecDeque<Serve>,
    /// As many keys were due as an entry may remove: there may be more.
    pub expires_full: bool,
    /// It removes keys to make room.
    pub evicts: bool,
    /// An effect batch of a cluster node; then there is nothing else.
    pub effects: Option<EffectsOf>,
}

/// The part of a proposal whose effect is in memory already, and who waits for it.
pub struct EffectsOf {
    pub changes: Changes,
    pub from: CoreId,
    pub ticket: usize,
}

/// How far a region has come with giving up keys; see the server's `durable::evict`.
#[derive(Default)]
pub struct Eviction {
    /// The last entry that removes such keys, as it was proposed, and what they count; see [`Member::is_evicting`].
    pub last: (u64, u64),
    /// Chooses the keys; the same until some are found.
    pub seed: Option<u64>,
    /// How often rows were read to find some.
    pub tries: u8,
}

impl Proposal {
    pub fn new(index: u64, term: u64) -> Proposal {
        Proposal {
            index,
            term,
            ..Proposal::default()
        }
    }
}

/// Where an entry of this node's belongs. Mostly at the end; but a node that led before, and leads
/// again with a shorter log, still has entries of then, further on, of which nobody knows yet whether
/// they will be: they must not stand before those of now, which are decided first.
fn insert(proposals: &mut VecDeque<Proposal>, proposal: Proposal) {
    let before = proposals.iter().rposition(|it| it.index <= proposal.index);
    proposals.insert(before.map_or(0, |at| at + 1), proposal);
}

/// Rows of entries that were run, up to this one.
pub struct Unwritten {
    pub changes: Changes,
    pub index: u64,
}

/// An attempt for a blocked session, made when the key it waits for may have got something.
pub struct Serve {
    /// Behind this many commands of the entry.
    pub after: usize,
    pub waiter: Arc<Waiter>,
    pub db: DbIndex,
    pub key: Box<[u8]>,
}

impl Member {
    /// An entry was proposed.
    pub fn add_proposal(&mut self, proposal: Proposal) {
        insert(&mut self.proposals, proposal);
    }

    pub fn new(
        replica: Replica,
        last_stamp_ms: u64,
        rows: Arc<dyn RowStore>,
        progress: Arc<Progress>,
    ) -> Self {
        Member {
            replica,
            peers: None,
            write_back: None,
            open: None,
            busy_since_ms: 0,
            rows,
            progress,
            proposals: VecDeque::new(),
            committed: VecDeque::new(),
            failed: false,
            damage: None,
            is_damage_told: false,
            stalled: false,
            unwritten: None,
            entry_rows: None,
            uncommitted: None,
            expiring: 0,
            eviction: Eviction::default(),
            dry_runs: (0, 0),
            last_stamp_ms,
            ready: Ready::default(),
            changes: Changes::new(),
            parsed: ParsedCommands::default(),
            feed: None,
        }
    }

    /// The next of `committed` brings these rows; its record for the feed goes with them.
    pub fn set_entry_rows(&mut self, home: u64, mut changes: Changes) {
        if let (Some(_), Some(committed)) = (&self.feed, self.committed.front()) {
            feed::note(&mut changes, home, committed.index, &committed.payload);
        }
        self.entry_rows = Some(changes);
    }

    /// Nothing is on its way, or nothing will arrive: what is applied is all there is.
    pub fn is_quiet(&self) -> bool {
        self.failed || !self.replica.has_unapplied() && self.replica.writes_in_flight() == 0
    }

    /// An entry that removes due keys is on its way. It may never have come to anything: another leader's took its place, and the log
    /// is shorter now.
    pub fn is_expiring(&self) -> bool {
        let index = self.expiring.min(self.replica.last_index());
        index > self.replica.applied_index()
    }

    /// An entry that gives up keys is on its way; it may never have come to anything, as in [`Member::is_expiring`].
    pub fn is_evicting(&self) -> bool {
        let index = self.eviction.last.0.min(self.replica.last_index());
        index > self.replica.applied_index()
    }

    /// What such an entry will take off the data set.
    pub fn leaving_bytes(&self) -> u64 {
        match self.is_evicting() {
            true => self.eviction.last.1,
            false => 0,
        }
    }

    /// The state row of its region, as the store has it.
    pub(crate) fn state_row(&self, home: u64) -> Option<Vec<u8>> {
        crate::state_row(&*self.rows, home).ok()?
    }

    /// The store has everything up to this entry.
    pub fn note_progress(&self, place: Place, index: u64) {
        self.progress.note_applied(place, index);
    }

    /// Nobody needs the log before this entry.
    pub fn note_unneeded(&self, place: Place, index: u64) {
        self.progress.note_unneeded(place, index);
    }

    /// The stamp of the next entry: the time, but not back within what clocks may differ.
    pub fn next_stamp(&mut self, now_ms: u64) -> u64 {
        self.last_stamp_ms = clock::next_stamp(self.last_stamp_ms, now_ms);
        self.last_stamp_ms
    }
}

impl Region {
    /// Takes the rows of what was applied since the last time and hands them to the store, with the
    /// applied index, in one write. Many entries make one write: a key that changed often has one
    /// row, and the store sorts them in at once. The log has it all meanwhile.
    pub fn settle(&mut self) -> Result<(), WriteError> {
        let Some(member) = self.member.as_deref_mut() else {
            return Ok(());
        };
        if member.failed {
            return Ok(());
        }
        if member.unwritten.is_none() {
            let Some((index, stamp_ms)) = member.open.take() else {
                return Ok(());
            };
            let mut changes = std::mem::take(&mut member.changes);
            self.space.end_entry(stamp_ms, &mut changes);
            member.take_feed(&mut changes);
            member.unwritten = Some(Unwritten { changes, index });
        }
        let Some(mut done) = member.unwritten.take() else {
            return Ok(());
        };
        if let Err(error) = member.rows.write(&[&done.changes]) {
            member.unwritten = Some(done);
            return Err(error);
        }
        self.space.rows_written();
        member.progress.note_applied(self.id, done.index);
        done.changes.clear();
        member.changes = done.changes;
        Ok(())
    }

    /// Applies the next entry, whose rows were brought: the store takes them, memory follows, and only then
    /// is it applied to anybody who asks. If the store is busy, nothing has happened and it is still the next.
    /// Rows of all entries before must have been taken.
    pub fn write_entry_rows(&mut self) -> Result<(), WriteError> {
        let Some(member) = self.member.as_deref_mut() else {
            return Ok(());
        };
        let (Some(changes), Some(committed)) = (member.entry_rows.take(), member.committed.front())
        else {
            return Ok(());
        };
        if let Err(error) = member.rows.write(&[&changes]) {
            member.entry_rows = Some(changes);
            return Err(error);
        }
        let index = committed.index;
        member.committed.pop_front();
        self.space.rows_written();
        self.space.apply_rows(&changes);
        member.progress.note_applied(self.id, index);
        member.replica.on_applied(index);
        member.busy_since_ms = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use keyspace::rows::MapStore;
    use replica::{MapLog, ReplicaConfig};

    use super::*;

    #[test]
    fn entries_of_a_former_term_stand_behind_those_that_are_decided_before() {
        let mut proposals = VecDeque::new();
        // Led in term 2, lost all of it but entry 10, leads again in term 4.
        let proposed = [(12, 2), (13, 2), (14, 2), (11, 4), (12, 4), (13, 4)];
        for (index, term) in proposed {
            insert(&mut proposals, Proposal::new(index, term));
        }
        let order: Vec<_> = proposals.iter().map(|it| (it.index, it.term)).collect();
        let expected = [(11, 4), (12, 2), (12, 4), (13, 2), (13, 4), (14, 2)];
        assert_eq!(order, expected);
    }

    /// A leader proposed the removal of keys, was cut off, and leads again with a log that others have shortened.
    #[test]
    fn an_entry_that_never_was_is_not_waited_for() {
        let replica = Replica::new(ReplicaConfig::default(), &MapLog::new()).unwrap();
        let progress = Arc::new(Progress::new(1));
        let mut member = Member::new(replica, 0, Arc::new(MapStore::new()), progress);
        let ready = &mut Ready::default();
        member.replica.propose(vec![1]).unwrap();
        member.expiring = member.replica.last_index();
        assert!(member.is_expiring());
        while member.replica.has_ready() {
            member.replica.ready(ready);
            if let Some(write) = ready.write.take() {
                member.replica.on_persisted(write.number);
            }
            for entry in ready.committed.drain(..) {
                member.replica.on_applied(entry.index);
            }
        }
        assert!(!member.is_expiring());
        member.expiring = member.replica.last_index() + 5;
        assert!(!member.is_expiring(), "nothing of it is on its way");
    }
}

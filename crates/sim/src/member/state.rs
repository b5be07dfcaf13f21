//! The state of a region as a whole: what is kept beside its rows, its export for another node, and
//! the install of such an export.

use std::rc::Rc;
use std::sync::Arc;

use keyspace::Keyspace;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier};
use replica::{Bytes, Members, Position, SnapshotHead};

use super::{Around, Fact, Member};
use crate::disk::Disk;

/// The rows of a region at one moment, as files would hold them.
#[derive(Debug, Clone, Default)]
pub struct Files {
    pub name: u64,
    rows: Vec<(Family, Vec<u8>, Vec<u8>)>,
}

/// What a replica must be told at its start, in a row of its own: as of the applied index.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    pub members: Members,
    pub snapshot: Position,
}

impl Kept {
    fn key(region: u64) -> Vec<u8> {
        format!("kept {region}").into_bytes()
    }

    pub fn read(disk: &Disk, region: u64) -> Option<Kept> {
        let mut words: Vec<u64> = Vec::new();
        let key = Kept::key(region);
        let found = disk.rows.get(Family::Info, &key, Tier::All, &mut |row| {
            let parts = row.as_chunks().0.iter();
            words.extend(parts.map(|word| u64::from_le_bytes(*word)));
        });
        if found != Ok(true) {
            return None;
        }
        let mut words = words.into_iter();
        let mut list = || -> Option<Vec<u64>> {
            let len = words.next()?;
            Some(words.by_ref().take(len as usize).collect())
        };
        let members = Members {
            voters: list()?,
            learners: list()?,
            voters_outgoing: list()?,
            learners_next: list()?,
            auto_leave: !list()?.is_empty(),
        };
        let position = list()?;
        let snapshot = Position {
            index: *position.first()?,
            term: *position.get(1)?,
        };
        Some(Kept { members, snapshot })
    }

    pub fn write(&self, disk: &mut Disk, region: u64) {
        let Members {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
        } = &self.members;
        let mut value = Vec::new();
        let leave = if *auto_leave { vec![1] } else { Vec::new() };
        let position = vec![self.snapshot.index, self.snapshot.term];
        for list in [
            voters,
            learners,
            voters_outgoing,
            learners_next,
            &leave,
            &position,
        ] {
            value.extend((list.len() as u64).to_le_bytes());
            value.extend(list.iter().flat_map(|word| word.to_le_bytes()));
        }
        let mut changes = Changes::new();
        changes.put(Family::Info, &Kept::key(region), &value);
        let _ = disk.rows.write(&[&changes]);
    }

    pub fn remove(disk: &mut Disk, region: u64) {
        let mut changes = Changes::new();
        changes.delete(Family::Info, &Kept::key(region));
        let _ = disk.rows.write(&[&changes]);
    }
}

pub fn open_space(disk: &Disk, region: u64) -> Result<Keyspace, String> {
    let source: Arc<dyn RowSource> = disk.rows.clone();
    Keyspace::durable(7, region, disk.state(region).as_deref(), source)
}

/// The files of a snapshot, if they are here.
pub fn files_of(head: &SnapshotHead, disk: &Disk) -> Option<Rc<Files>> {
    let name = u64::from_le_bytes(*head.data.first_chunk()?);
    disk.files.get(&name).cloned()
}

impl Member {
    /// A copy of the region for another member, as of what is applied here.
    pub(super) fn export(&mut self, to: u64, around: &mut Around<'_>) {
        if let Err(error) = self.settle(around, false) {
            around.out.failure = Some(error);
            return;
        }
        let (index, term, _) = self.ran;
        if term == 0 {
            // Nothing was applied since the start: the term is not known here. It is asked again.
            self.replica.report_snapshot(to, false);
            return;
        }
        let name = around.rng.u64(..);
        let rows = around.disk.region_rows(self.region);
        let head = SnapshotHead {
            index,
            term,
            members: self.kept.members.clone(),
            data: Bytes::copy_from_slice(&name.to_le_bytes()),
        };
        let files = Rc::new(Files { name, rows });
        let made = (self.region, to, head, files);
        around.out.snapshots.push(made);
    }

    /// The region becomes what the files hold, on disk before anybody is told.
    pub(super) fn install(
        &mut self,
        head: &SnapshotHead,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        let files = files_of(head, around.disk).ok_or("the files of a snapshot are gone")?;
        around.disk.remove_rows(self.region);
        let mut changes = Changes::new();
        for (family, key, value) in &files.rows {
            changes.put(*family, key, value);
        }
        around.disk.write_rows(&changes);
        self.kept = Kept {
            members: head.members.clone(),
            snapshot: head.position(),
        };
        self.kept.write(around.disk, self.region);
        around.disk.flush();
        self.space = open_space(around.disk, self.region)?;
        if self.space.applied_index() != head.index {
            let found = self.space.applied_index();
            return Err(format!("a snapshot of {} holds {found}", head.index));
        }
        self.digest = around.disk.digest(self.region);
        self.committed.clear();
        // Whether what was proposed is part of it, nobody knows: no answer.
        self.flights.retain(|flight| flight.index > head.index);
        self.is_stalled = false;
        self.ran = (head.index, head.term, self.space.last_stamp_ms());
        self.replica.on_installed(head.index);
        around.out.facts.push(Fact::Installed {
            region: self.region,
            replica: self.id(),
            index: head.index,
            digest: self.digest,
        });
        Ok(())
    }
}

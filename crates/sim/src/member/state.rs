//! The state of a region as a whole: what is kept beside its rows, its export for another node, and
//! the install of such an export.

use std::rc::Rc;
use std::sync::Arc;

use base::cluster::Descriptor;
use keyspace::Keyspace;
use keyspace::rows::{Changes, Family, RowSource, RowStore};
use replica::{Bytes, SnapshotHead};
use server::cluster::seats::{self, ReplicaRecord};

use super::{Around, Fact, Member};
use crate::disk::Disk;

/// The rows of a region at one moment, as files would hold them.
#[derive(Debug, Clone, Default)]
pub struct Files {
    pub name: u64,
    descriptor: Descriptor,
    rows: Vec<(Family, Vec<u8>, Vec<u8>)>,
}

/// What the disk says of a replica, with its rows; nothing before its members ever changed.
pub fn read_seat(disk: &Disk, region: u64) -> Option<ReplicaRecord> {
    let seats = seats::records(&*disk.rows).ok()?;
    seats.into_iter().find(|seat| seat.region() == region)
}

pub fn write_seat(disk: &mut Disk, seat: &ReplicaRecord) {
    let mut changes = Changes::new();
    seat.put(&mut changes);
    let _ = disk.rows.write(&[&changes]);
}

/// The replica is destroyed, and never made again.
pub fn remove_seat(disk: &mut Disk, region: u64, replica: u64) {
    let mut changes = Changes::new();
    seats::put_gone(&mut changes, region, replica);
    let _ = disk.rows.write(&[&changes]);
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
        let name = around.rng.u64(..);
        let rows = around.disk.region_rows(self.region);
        let head = SnapshotHead {
            index,
            term,
            members: self.replica.members().clone(),
            data: Bytes::copy_from_slice(&name.to_le_bytes()),
        };
        let descriptor = self.seat.descriptor.clone();
        let files = Rc::new(Files {
            name,
            descriptor,
            rows,
        });
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
        self.seat.descriptor = files.descriptor.clone();
        self.seat.set_snapshot(head.position());
        if seats::members_of(&self.seat.descriptor) != head.members {
            return Err(format!("a snapshot of {} has other members", head.index));
        }
        write_seat(around.disk, &self.seat);
        around.disk.flush();
        self.space = open_space(around.disk, self.region)?;
        self.space.note_applied(around.catalogue.is_used);
        self.applied.clear();
        self.close_desk(around);
        self.tell_all_rows(around);
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
        self.tell_descriptor(head.index, around);
        Ok(())
    }
}

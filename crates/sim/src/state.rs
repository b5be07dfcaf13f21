//! The state of a region as a whole: opening it from the disk, its export for another node, and the
//! install of such an export.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use keyspace::rows::{Changes, Family, RowStore, State};
use node::replica_record::{self, ReplicaRecord};
use node::{Open, Pace, Replay, open_space};
use replica::{Bytes, LogStore, SnapshotHead};

use crate::bugs::Bug;
use crate::disk::{Disk, Voteless};
use crate::effects::{Effects, Fact};
use crate::machine::Node;
use crate::regions::{SPECS, TUNING};

/// The rows of a region at one moment, as files would hold them.
#[derive(Debug, Clone, Default)]
pub struct Files {
    pub name: u64,
    rows: Vec<(Family, Vec<u8>, Vec<u8>)>,
}

/// What the disk says of a replica.
pub fn read_record(disk: &Disk, region: u64) -> Option<ReplicaRecord> {
    let records = replica_record::records(&*disk.rows).ok()?;
    records.into_iter().find(|record| record.region() == region)
}

/// A replica begins to be: its record and an empty state are on disk.
pub fn make(disk: &mut Disk, record: &ReplicaRecord) {
    let mut changes = Changes::new();
    record.put(&mut changes);
    disk.rows.put(&changes);
    let state = State {
        descriptor: record.descriptor.to_bytes().into(),
        ..State::default()
    };
    let _ = disk.rows.create_regions(&[(record.region(), state)]);
    disk.flush();
}

/// The replica is destroyed, and never made again.
pub fn remove_record(disk: &mut Disk, region: u64, replica: u64) {
    let mut changes = Changes::new();
    replica_record::put_gone(&mut changes, region, replica);
    disk.rows.put(&changes);
}

/// The files of a snapshot, if they are here.
pub fn files_of(head: &SnapshotHead, files: &BTreeMap<u64, Rc<Files>>) -> Option<Rc<Files>> {
    let name = u64::from_le_bytes(*head.data.first_chunk()?);
    files.get(&name).cloned()
}

impl Node {
    /// Opens a replica from what the disk holds; `made` if it holds nothing yet.
    pub fn open(&mut self, region: u64, true_us: u64, out: &mut Effects) {
        let Some(place) = self.places.get(&region).cloned() else {
            return;
        };
        if self.limits.is_alone {
            return self.replay(region, true_us, out);
        }
        let known = read_record(&self.disk, region);
        let record = match self.bug {
            Bug::ForgetReplicaRecord => place.record,
            _ => known.unwrap_or(place.record),
        };
        let rows: Arc<dyn RowStore> = self.disk.rows.clone();
        let voteless = Voteless(self.disk.log.clone());
        let log: &dyn LogStore = match self.bug {
            Bug::ForgetVote => &voteless,
            _ => &*self.disk.log,
        };
        let open = Open {
            rows: &rows,
            log,
            progress: &self.regions.progress,
            pace: Pace {
                quiet_ticks: self.limits.quiet_ticks,
                keep_entries: self.limits.keep_entries,
                ..Pace::default()
            },
            feed: false,
            clock_ms: self.now_ms(true_us),
            seed: self.rng.u64(..),
        };
        let (bug, back) = (self.bug, self.rng.u64(..3));
        let forgotten = record.clone();
        let opened = open.region(&record, region as usize, |config| {
            config.batch_bytes = 2000;
            config.recent_bytes = 4000;
            config.message_bytes = 2000;
            match bug {
                Bug::VoteAtOnce => config.now_ms = 1,
                Bug::ApplyTwice if config.applied > forgotten.snapshot_index + 3 => {
                    config.applied -= back;
                }
                Bug::ForgetReplicaRecord => config.members = forgotten.members(config.applied),
                _ => {}
            }
        });
        let id = self.id;
        match opened {
            Ok(opened) => {
                let replica = opened.member.as_deref().map(|member| &member.replica);
                let (replica, applied) = replica.map_or((0, 0), |it| (it.id(), it.applied_index()));
                out.facts.push(Fact::Started {
                    region,
                    replica,
                    applied,
                });
                let core = self.regions.core_of(region);
                self.regions.owned[core].add(opened);
                self.tell_all_rows(region, out);
                self.on_region(region, true_us, out, |owned, cx, asked| {
                    owned.drive(region as usize, cx, asked);
                });
            }
            Err(error) => out.failure = Some(format!("node {id} cannot start: {error}")),
        }
    }

    /// Opens a region of a node that is alone: its log is executed again.
    fn replay(&mut self, region: u64, true_us: u64, out: &mut Effects) {
        let rows: Arc<dyn RowStore> = self.disk.rows.clone();
        let seed = self.rng.u64(..);
        let mut replay = Replay {
            rows: &rows,
            log: &*self.disk.log,
            progress: &self.regions.progress,
            specs: &SPECS,
            tuning: &TUNING,
            feed: false,
            pause: &mut |_| {},
            applied: 0,
            replayed: 0,
        };
        match replay.open(region as usize, region, seed) {
            Ok(opened) => {
                let applied = opened.space.applied_index();
                out.facts.push(Fact::Started {
                    region,
                    replica: 1,
                    applied,
                });
                let core = self.regions.core_of(region);
                self.regions.owned[core].add(opened);
                self.on_region(region, true_us, out, |owned, cx, asked| {
                    owned.drive(region as usize, cx, asked);
                });
            }
            Err(error) => {
                let id = self.id;
                out.failure = Some(format!("node {id} cannot start: {error:?}"));
            }
        }
    }

    /// A copy of the region for another member, as of what is applied here.
    pub fn export(&mut self, region: u64, to: u64, out: &mut Effects) {
        if self.regions.sending.contains(&to) {
            return; // it is told of when it is there, or not to be had
        }
        let Some(at) = self.regions.region_mut(region) else {
            return;
        };
        // What is not in the store yet cannot be sent; it is asked for again.
        let Some(mut head) = at.snapshot_head() else {
            return;
        };
        self.regions.sending.insert(to);
        let name = self.rng.u64(..);
        head.data = Bytes::copy_from_slice(&name.to_le_bytes());
        let rows = self.disk.rows.region_rows(region);
        let files = Rc::new(Files { name, rows });
        out.snapshots.push((region, to, head, files));
    }

    /// A snapshot got to `to`, or did not.
    pub fn on_snapshot_sent(
        &mut self,
        (region, to): (u64, u64),
        head: Option<&SnapshotHead>,
        true_us: u64,
        out: &mut Effects,
    ) {
        self.regions.sending.remove(&to);
        self.on_region(region, true_us, out, |owned, cx, asked| {
            if let Some(member) = owned.member_mut(region as usize) {
                match head {
                    Some(head) => member.replica.on_snapshot_made(to, head),
                    None => member.replica.report_snapshot(to, false),
                }
            }
            owned.drive(region as usize, cx, asked);
        });
    }

    /// The region becomes what the files hold, on disk before anybody is told.
    pub fn install(
        &mut self,
        region: u64,
        head: &SnapshotHead,
        true_us: u64,
        out: &mut Effects,
    ) -> Result<(), String> {
        let files = files_of(head, &self.disk.files).ok_or("the files of a snapshot are gone")?;
        self.disk.remove_rows(region);
        let mut changes = Changes::new();
        for (family, key, value) in &files.rows {
            changes.put(*family, key, value);
        }
        self.disk.rows.put(&changes);
        self.disk.flush();
        let rows: Arc<dyn RowStore> = self.disk.rows.clone();
        let space = open_space(&rows, region, self.rng.u64(..))?;
        let found = space.applied_index();
        if found != head.index {
            return Err(format!("a snapshot of {} holds {found}", head.index));
        }
        let digest = self.disk.rows.digest(region);
        let replica = self.record(region).map_or(0, |record| record.replica);
        out.facts.push(Fact::Installed {
            region,
            replica,
            index: head.index,
            digest,
        });
        self.on_region(region, true_us, out, |owned, cx, asked| {
            if let Some(at) = owned.region_mut(region as usize) {
                at.on_installed(head.index, space, cx);
            }
            owned.drive(region as usize, cx, asked);
        });
        let record = self.record(region).ok_or("the region is gone")?;
        if replica_record::members_of(&record.descriptor) != head.members {
            return Err(format!("a snapshot of {} has other members", head.index));
        }
        self.tell_all_rows(region, out);
        Ok(())
    }
}

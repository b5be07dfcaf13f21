//! Replicas come to this node and leave it.
//!
//! ```text
//!   order: create ─► record kept, on disk ─► opened, at a free place ─► its core ─► slots lead there
//!   order: destroy ─► taken from its core ─► "gone" kept, on disk ─► rows and log removed
//! ```
//!
//! All of it but the hand-over to the core happens on the node's own thread.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};

use base::cluster::RegionId;
use keyspace::rows::{Changes, Family, State, Tier, layout};
use node::{Open, Pace, Progress, forget_log, has_log};

use super::Cluster;
use super::replica_record::{self, ReplicaRecord};
use super::snapshots::Done;
use crate::clock::clock_ms;
use crate::cores::{Core, Message, NOWHERE, Place, Region, RegionBox};
use crate::durable::Stores;

/// A node has room for so many replicas.
pub const MOST_PLACES: usize = 8192;

/// Which region is at which place.
#[derive(Default)]
pub struct Table(RwLock<HashMap<RegionId, Place>>);

impl Table {
    pub fn place_of(&self, region: RegionId) -> Option<Place> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&region).copied()
    }

    /// The lowest free place; the one it has, if it has one.
    pub fn take(&self, region: RegionId) -> Option<Place> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&place) = table.get(&region) {
            return Some(place);
        }
        let mut used: Vec<Place> = table.values().copied().collect();
        used.sort_unstable();
        let place = (0..)
            .zip(&used)
            .find(|(free, used)| free != *used)
            .map_or(used.len(), |(free, _)| free);
        (place < MOST_PLACES).then(|| {
            table.insert(region, place);
            place
        })
    }

    pub fn free(&self, region: RegionId) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&region);
    }

    pub fn all(&self) -> Vec<(RegionId, Place)> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table
            .iter()
            .map(|(&region, &place)| (region, place))
            .collect()
    }
}

/// Before replicas that meta has ordered are opened: their records are on disk, and nothing else of their regions is.
pub fn prepare(stores: &Stores, records: &[ReplicaRecord]) -> Result<(), String> {
    let rows = &*stores.rows;
    let mut changes = Changes::new();
    for record in records {
        clear(stores, record)?;
        record.put(&mut changes);
    }
    replica_record::write(rows, &changes, super::pause)?;
    let state = |record: &ReplicaRecord| {
        let descriptor = record.descriptor.to_bytes().into();
        let state = State {
            descriptor,
            ..State::default()
        };
        (record.region(), state)
    };
    let states: Vec<_> = records.iter().map(state).collect();
    rows.create_regions(&states)
        .map_err(|error| error.to_string())?;
    replica_record::keep(rows)
}

/// What a replica of the region that was destroyed here has left, if the node died in the middle of that: the next one
/// would take state and log for its own.
fn clear(stores: &Stores, record: &ReplicaRecord) -> Result<(), String> {
    let (region, log) = (record.region(), &*stores.log);
    let mut is_left = has_log(log, region)?;
    let key = layout::state_key(region);
    let found = stores
        .rows
        .get(Family::Info, &key, Tier::All, &mut |_| is_left = true);
    found.map_err(|error| format!("the store cannot be read: {error:?}"))?;
    if is_left {
        let removed = stores
            .rows
            .remove_region(region, &record.descriptor.segments);
        removed.map_err(|error| error.to_string())?;
        forget_log(log, region)?;
    }
    Ok(())
}

/// Opens a replica from what the stores have of it.
pub fn open(
    stores: &Stores,
    record: &ReplicaRecord,
    place: Place,
    progress: &Arc<Progress>,
    pace: Pace,
    seed: u64,
) -> Result<RegionBox, String> {
    let open = Open {
        rows: &stores.rows,
        log: &*stores.log,
        progress,
        pace,
        feed: stores.feed,
        clock_ms: clock_ms(),
        seed,
    };
    open.region(record, place, |config| {
        // One that no frame between nodes could carry would stop the region.
        config.max_entry_bytes = super::start::FRAME_BYTES - (1 << 20);
    })
}

impl Cluster {
    /// The slots of a replica lead to its place from now on.
    pub fn lead_slots(&self, record: &ReplicaRecord, place: Place) {
        if record.descriptor.member(record.replica).is_none() {
            return; // no member yet: others have to answer
        }
        for segment in &record.descriptor.segments {
            let slots = segment.slots();
            self.places.set(*slots.start(), *slots.end(), place);
        }
    }

    /// The slots of a place lead nowhere.
    pub fn drop_slots(&self, record: &ReplicaRecord, place: Place) {
        for segment in &record.descriptor.segments {
            for slot in segment.slots() {
                if self.places.of_slot(slot) == place {
                    self.places.set(slot, slot, NOWHERE);
                }
            }
        }
    }
}

impl Core {
    /// A replica begins to be here.
    pub(crate) fn on_add(self: &Rc<Self>, region: RegionBox) {
        let id = region.id;
        if let (Some(cluster), Some(record)) = (&self.shared.cluster, record_of(&region)) {
            cluster.lead_slots(record, id);
        }
        self.regions.borrow_mut().add(region);
        self.drive(id);
        self.end_turn();
    }

    /// A replica leaves. Answers false while it is lent or a snapshot is being installed (a thread writes its rows, and
    /// brings them here): ask again; and if the order was made before the replica became a member.
    pub(crate) fn on_remove(
        self: &Rc<Self>,
        id: Place,
        order: &meta::wire::Order,
        done: &Sender<bool>,
    ) {
        let removed =
            self.on_regions(|regions, cx, out| regions.remove_replica(id, order, cx, out));
        match removed {
            Some(region) => {
                if let (Some(cluster), Some(record)) = (&self.shared.cluster, record_of(&region)) {
                    cluster.drop_slots(record, id);
                }
                let _ = done.send(true);
            }
            None => {
                let _ = done.send(!self.regions.borrow_mut().is_used(id));
            }
        }
    }
}

fn record_of(region: &Region) -> Option<&ReplicaRecord> {
    let member = region.member.as_deref()?;
    Some(&member.peers.as_deref()?.record)
}

/// What the node's thread tells a core.
pub enum Task {
    Add(RegionBox),
    Remove {
        place: Place,
        order: Box<meta::wire::Order>,
        done: Sender<bool>,
    },
    /// To the leader.
    Lead {
        place: Place,
        order: Box<meta::wire::Order>,
        failed: Sender<String>,
    },
    Report {
        to: Sender<Vec<meta::wire::ReplicaReport>>,
    },
    /// To the leader: ask all replicas of the region.
    Digest {
        place: Place,
        id: u64,
        done: Sender<bool>,
    },
    /// A thread has done what a region wanted.
    Snapshot {
        place: Place,
        done: Done,
    },
    /// A node is gone: quiet followers of its leaders wake up.
    NodeDown(u64),
    /// What was last sent to a node may not have arrived.
    NodeBroken(u64),
}

impl Core {
    pub(crate) fn on_task(self: &Rc<Self>, task: Task) {
        self.begin_batch();
        match task {
            Task::Add(region) => self.on_add(region),
            Task::Remove { place, order, done } => self.on_remove(place, &order, &done),
            Task::Lead {
                place,
                order,
                failed,
            } => {
                if let Err(why) = self.on_lead_order(place, &order) {
                    let _ = failed.send(why);
                }
            }
            Task::Report { to } => {
                let _ = to.send(self.report());
            }
            Task::Digest { place, id, done } => {
                let _ = done.send(self.on_digest_asked(place, id));
            }
            Task::Snapshot { place, done } => self.on_snapshot_done(place, done),
            Task::NodeDown(node) => self.on_node_down(node),
            Task::NodeBroken(node) => self.regions.borrow_mut().on_node_broken(node),
        }
    }
}

impl From<Task> for Message {
    fn from(task: Task) -> Message {
        Message::Task(Box::new(task))
    }
}

#[cfg(test)]
mod tests {
    use base::cluster::{Descriptor, Epoch, Member as RecordMember, Role, Segment};
    use keyspace::rows::{
        MapStore, RegionError, RowError, RowSource, RowStore, StoreStats, WriteError,
    };
    use replica::{Entry, HardState, LogStore, LogWrite, MapLog};

    use super::*;

    /// A map that can make and remove regions.
    struct Rows(MapStore);

    impl RowSource for Rows {
        fn get(
            &self,
            family: Family,
            key: &[u8],
            tier: Tier,
            found: &mut dyn FnMut(&[u8]),
        ) -> Result<bool, RowError> {
            self.0.get(family, key, tier, found)
        }

        fn scan(
            &self,
            family: Family,
            from: &[u8],
            to: &[u8],
            descending: bool,
            tier: Tier,
            each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), RowError> {
            self.0.scan(family, from, to, descending, tier, each)
        }
    }

    impl RowStore for Rows {
        fn write(&self, changes: &[&Changes]) -> Result<(), WriteError> {
            self.0.write(changes)
        }

        fn checkpoint(&self) -> Result<(), RowError> {
            Ok(())
        }

        fn snapshot(&self) -> Arc<dyn RowSource> {
            self.0.snapshot()
        }

        fn set_alive(&self, _alive: &[(u64, u64)]) {}

        fn start_compaction(&self) {}

        fn tidy(&self, _everything: bool) {}

        fn stop_tidying(&self) {}

        fn stats(&self) -> StoreStats {
            StoreStats::default()
        }

        fn create_regions(&self, regions: &[(RegionId, State)]) -> Result<(), RegionError> {
            for (region, state) in regions {
                let (mut is_there, key) = (false, layout::state_key(*region));
                let _ = self.get(Family::Info, &key, Tier::All, &mut |_| is_there = true);
                if !is_there {
                    put_state(self, *region, state);
                }
            }
            Ok(())
        }

        fn remove_region(&self, region: RegionId, _: &[Segment]) -> Result<(), RegionError> {
            let mut changes = Changes::new();
            changes.delete(Family::Info, &layout::state_key(region));
            self.write(&[&changes]).expect("a map");
            Ok(())
        }
    }

    fn put_state(rows: &Rows, region: RegionId, state: &State) {
        let (mut value, mut changes) = (Vec::new(), Changes::new());
        state.push(&mut value);
        changes.put(Family::Info, &layout::state_key(region), &value);
        rows.write(&[&changes]).expect("a map");
    }

    /// The record was given up, and the node died before state and log had gone.
    #[test]
    fn a_replica_takes_over_nothing_of_one_that_was_destroyed() {
        let (rows, log) = (Rows(MapStore::default()), MapLog::new());
        let old = State {
            applied_index: 5,
            applied_term: 3,
            ..State::default()
        };
        put_state(&rows, 1, &old);
        let entry = |index| Entry {
            index,
            term: 3,
            ..Entry::default()
        };
        let left = LogWrite {
            region: 1,
            entries: (2..=9).map(entry).collect(),
            hard_state: Some(HardState {
                term: 3,
                vote: 11,
                commit: 5,
                ..HardState::default()
            }),
            ..LogWrite::default()
        };
        log.write(&[left], true).expect("a map");
        let stores = Stores {
            rows: Arc::new(rows),
            log: Arc::new(log),
            feed: false,
        };
        let record = ReplicaRecord {
            descriptor: Descriptor {
                region: 1,
                epoch: Epoch::FIRST,
                segments: Vec::new(),
                members: vec![RecordMember::new(12, 1, Role::Learner)],
            },
            replica: 12,
            ..ReplicaRecord::default()
        };
        prepare(&stores, std::slice::from_ref(&record)).expect("room");
        let progress = Arc::new(Progress::new(1));
        let opened = open(&stores, &record, 0, &progress, Pace::default(), 1).expect("a replica");
        let replica = &opened.member.as_ref().expect("a member").replica;
        let numbers = (
            replica.applied_index(),
            replica.last_index(),
            replica.term(),
        );
        assert_eq!(numbers, (0, 0, 0));
    }
}

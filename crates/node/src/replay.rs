//! The start of a region of a node that is alone: rows as of the last checkpoint, then the log behind them,
//! executed again.

use std::sync::Arc;

use keyspace::rows::{self, Changes, RowStore, WriteError};
use keyspace::{Keyspace, Tuning};
use replica::{LogStore, Members, Ready, Replica, ReplicaConfig};

use crate::{Member, Place, Progress, Region, RegionBox, Specs, execute_payload, open_space};

/// The only member of every region of a node that is alone.
const REPLICA_ID: u64 = 1;

/// What opening the regions of a node that is alone needs.
pub struct Replay<'a> {
    pub rows: &'a Arc<dyn RowStore>,
    pub log: &'a dyn LogStore,
    pub progress: &'a Arc<Progress>,
    pub specs: &'a Specs,
    pub tuning: &'a Tuning,
    /// Whether entries are kept in the feed, too.
    pub feed: bool,
    /// Called while the store is busy, and behind every entry, with what was executed so far.
    pub pause: &'a mut dyn FnMut(Paused),
    /// Entries that were executed.
    pub applied: u64,
    /// Of these, the ones that are not empty: those that elect a leader are.
    pub replayed: u64,
}

/// Why a replay gives its caller a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// The store takes nothing now.
    StoreBusy,
    /// So many entries were executed.
    Replayed(u64),
}

/// Why a region cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayError {
    Rows(String),
    Log(String),
    /// An entry, or the state of the region, cannot be read.
    Entry(String),
}

impl Replay<'_> {
    /// Opens a region and brings it up to the end of its log.
    pub fn open(&mut self, place: Place, home: u64, seed: u64) -> Result<RegionBox, ReplayError> {
        let log = |what: String| ReplayError::Log(what);
        let mut space = open_space(self.rows, home, seed).map_err(ReplayError::Entry)?;
        let config = ReplicaConfig {
            region: home,
            replica: REPLICA_ID,
            members: Members::of_voters([REPLICA_ID]),
            applied: space.applied_index(),
            seed,
            ..ReplicaConfig::default()
        };
        let replica = Replica::new(config, self.log);
        let mut replica = replica.map_err(|error| log(error.to_string()))?;
        let mut ready = Ready::default();
        while !replica.may_serve(0) {
            replica.ready(&mut ready);
            if let Some(fetch) = ready.fetch.take() {
                let fetched = replica.fetch_now(&fetch, self.log);
                fetched.map_err(|error| log(error.to_string()))?;
            }
            if let Some(write) = ready.write.take() {
                let number = write.number;
                let written = self.log.write(&[write], true);
                written.map_err(|error| log(error.to_string()))?;
                replica.on_persisted(number);
            }
            for committed in ready.committed.drain(..) {
                self.apply(&mut space, committed.index, &committed.payload)?;
                replica.on_applied(committed.index);
            }
        }
        self.progress.set_region(place, home, space.applied_index());
        let (rows, progress) = (self.rows.clone(), self.progress.clone());
        let mut member = Member::new(replica, space.last_stamp_ms(), rows, progress);
        member.feed = self.feed.then(Changes::new);
        Ok(Box::new(Region::durable(place, space, Box::new(member))))
    }

    fn apply(
        &mut self,
        space: &mut Keyspace,
        index: u64,
        payload: &[u8],
    ) -> Result<(), ReplayError> {
        let mut changes = Changes::new();
        let store = self.rows;
        let is_rows = execute_payload(
            space,
            &**store,
            index,
            payload,
            self.specs,
            self.tuning,
            &mut changes,
        )
        .map_err(ReplayError::Entry)?;
        if self.feed {
            rows::feed::note(&mut changes, space.home(), index, payload);
        }
        loop {
            match store.write(&[&changes]) {
                Ok(()) => break,
                Err(WriteError::Busy) => (self.pause)(Paused::StoreBusy),
                Err(WriteError::Failed(what)) => return Err(ReplayError::Rows(what)),
            }
        }
        space.rows_written();
        if is_rows {
            space.apply_rows(&changes);
        }
        space.take_key_changes();
        space.take_garbage();
        self.applied += 1;
        self.replayed += u64::from(!payload.is_empty());
        (self.pause)(Paused::Replayed(self.replayed));
        Ok(())
    }
}

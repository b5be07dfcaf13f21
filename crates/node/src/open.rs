//! Opening a replica from what the stores have of it.

use std::sync::Arc;

use keyspace::rows::{Changes, RowStore};
use replica::{FOUNDED, LogStore, Position, Replica, ReplicaConfig};

use crate::replica_record::descriptor_of;
use crate::{Member, Peers, Place, Progress, Region, RegionBox, ReplicaRecord, open_space};

/// How fast time goes for replicas, and how much of the log they keep.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub tick_ms: u64,
    pub election_ticks: usize,
    pub heartbeat_ticks: usize,
    pub quiet_ticks: usize,
    /// Of the log, for members that lag.
    pub keep_entries: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            tick_ms: 100,
            election_ticks: 10,
            heartbeat_ticks: 2,
            quiet_ticks: 30,
            keep_entries: 10_000,
        }
    }
}

/// What a replica begins with.
pub struct Open<'a> {
    pub rows: &'a Arc<dyn RowStore>,
    pub log: &'a dyn LogStore,
    pub progress: &'a Arc<Progress>,
    pub pace: Pace,
    /// Entries are kept in the change feed, too.
    pub feed: bool,
    /// By the clock of leases.
    pub clock_ms: u64,
    pub seed: u64,
}

impl Open<'_> {
    /// Opens a replica of a region that has peers. `adjust` may change how Raft begins (tests).
    pub fn region(
        &self,
        record: &ReplicaRecord,
        place: Place,
        adjust: impl FnOnce(&mut ReplicaConfig),
    ) -> Result<RegionBox, String> {
        let home = record.region();
        let space = open_space(self.rows, home, self.seed)?;
        let mut record = record.clone();
        let state = space.state();
        if let Some(descriptor) = descriptor_of(&state) {
            record.descriptor = descriptor;
        }
        let (first, last) = self.log.span(home).unwrap_or_default();
        let is_installed = state.applied_index > last || state.applied_index + 1 == first;
        if is_installed && state.applied_index > record.snapshot_index {
            // A snapshot was installed, and the node ended before its log began behind it, or before
            // rows of what the log has behind it were on disk: the record does not know of it.
            record.take_state(&state);
        } else if state.applied_index == 0 && record.snapshot_index > FOUNDED.index {
            // It was begun to be installed and its files are gone: this replica knows nothing.
            record.set_snapshot(Position::default());
        }
        let mut config = ReplicaConfig {
            region: home,
            replica: record.replica,
            members: record.members(space.applied_index()),
            applied: space.applied_index(),
            snapshot: record.snapshot(),
            seed: self.seed,
            now_ms: self.clock_ms,
            tick_ms: self.pace.tick_ms,
            election_ticks: self.pace.election_ticks,
            heartbeat_ticks: self.pace.heartbeat_ticks,
            quiet_ticks: self.pace.quiet_ticks,
            keep_entries: self.pace.keep_entries,
            ..ReplicaConfig::default()
        };
        adjust(&mut config);
        let replica = Replica::new(config, self.log)
            .map_err(|error| format!("region {home} cannot be opened: {error}"))?;
        self.progress.set_region(place, home, space.applied_index());
        let stamp_ms = space.last_stamp_ms();
        let mut member = Member::new(replica, stamp_ms, self.rows.clone(), self.progress.clone());
        member.feed = self.feed.then(Changes::new);
        member.peers = Some(Box::new(Peers::new(record)));
        Ok(Box::new(Region::durable(place, space, Box::new(member))))
    }
}

//! What a node keeps of its member of meta: one row of the store, and the same bytes are a snapshot.

use base::cluster::{Descriptor, Epoch, META_REGION, Member, ReplicaId, Role};
use bytes::Bytes;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier};
use meta::state::{Command, State};
use meta::wire::Create;
use prost::Message;
use replica::{FOUNDED, LogStore, Members, SnapshotHead};

use crate::ReplicaRecord;
use crate::replica_log::{forget_log, has_log};
use crate::replica_record::{self, gone, write};

const ROW: &[u8] = b"meta";

/// An entry of the log of region 0.
#[derive(Clone, PartialEq, Message)]
pub struct MetaEntry {
    #[prost(uint64, tag = "1")]
    pub stamp_ms: u64,
    #[prost(message, required, tag = "2")]
    pub command: Command,
}

/// The state of a member of meta, with the index it stands at.
#[derive(Clone, PartialEq, Message)]
pub struct MetaRecord {
    #[prost(message, required, tag = "1")]
    pub record: ReplicaRecord,
    #[prost(uint64, tag = "2")]
    pub applied: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub state: Bytes,
    #[prost(uint64, tag = "4")]
    pub applied_term: u64,
}

impl MetaRecord {
    /// Of a member that has no state yet.
    pub fn new(record: ReplicaRecord) -> MetaRecord {
        MetaRecord {
            record,
            applied: 0,
            applied_term: 0,
            state: Bytes::new(),
        }
    }

    /// Of the founder of a cluster, node 1: the only member.
    pub fn of_founder() -> MetaRecord {
        let mut record = ReplicaRecord {
            descriptor: Descriptor {
                region: META_REGION,
                epoch: Epoch::FIRST,
                segments: Vec::new(),
                members: vec![Member::new(1, 1, Role::Voter)],
            },
            replica: 1,
            ..ReplicaRecord::default()
        };
        record.set_snapshot(FOUNDED);
        MetaRecord::new(record)
    }

    /// Makes the record that an order wants, durable when it returns. `None` if that replica, or a newer
    /// one, was destroyed on this node.
    pub fn create(
        create: Create,
        rows: &dyn RowStore,
        log: &dyn LogStore,
        pause: fn(),
    ) -> Result<Option<MetaRecord>, String> {
        if gone(rows, META_REGION)? >= create.replica {
            return Ok(None);
        }
        // A former member's, if the node died before the log was forgotten.
        if has_log(log, META_REGION)? {
            forget_log(log, META_REGION)?;
        }
        let record = MetaRecord::new(ReplicaRecord::made(create));
        record.keep(rows, pause)?;
        Ok(Some(record))
    }

    pub fn read(rows: &dyn RowSource) -> Result<Option<MetaRecord>, String> {
        let mut found = None;
        rows.get(Family::Info, ROW, Tier::All, &mut |value| {
            found = Some(MetaRecord::decode(value));
        })
        .map_err(|error| format!("the store cannot be read: {error:?}"))?;
        found
            .transpose()
            .map_err(|error| format!("the row of the meta service is damaged: {error}"))
    }

    /// Reads a snapshot of another member, for this one's `replica`; returns the state in it, too.
    pub fn of_snapshot(
        head: &SnapshotHead,
        replica: ReplicaId,
    ) -> Result<(MetaRecord, State), String> {
        let received = MetaRecord::decode(head.data.clone());
        let mut received = received.map_err(|error| error.to_string())?;
        received.record.replica = replica;
        received.record.set_snapshot(head.position());
        let state = State::decode(&received.state).map_err(|error| error.to_string())?;
        Ok((received, state))
    }

    /// The snapshot that another member of meta gets.
    pub fn into_snapshot(self, members: Members) -> SnapshotHead {
        SnapshotHead {
            index: self.applied,
            term: self.applied_term,
            members,
            data: self.encode_to_vec().into(),
        }
    }

    /// The state that was kept; an empty one, if the member has none yet.
    pub fn state(&self) -> Result<State, String> {
        match self.state.is_empty() {
            true => Ok(State::default()),
            false => State::decode(&self.state).map_err(|error| error.to_string()),
        }
    }

    /// Whether this node founds a cluster and may not have finished.
    pub fn is_founding(rows: &dyn RowSource) -> Result<bool, String> {
        let kept = MetaRecord::read(rows)?;
        Ok(kept.is_some_and(|it| it.state.is_empty() && it.record.snapshot() == FOUNDED))
    }

    /// Durable when it returns. `pause` is called while the store is busy.
    pub fn keep(&self, rows: &dyn RowStore, pause: fn()) -> Result<(), String> {
        let mut changes = Changes::new();
        changes.put(Family::Info, ROW, &self.encode_to_vec());
        write(rows, &changes, pause)?;
        replica_record::keep(rows)
    }

    /// This node is no member of meta any more, `replica` was the last: its row and its log go.
    pub fn remove(
        replica: ReplicaId,
        rows: &dyn RowStore,
        log: &dyn LogStore,
        pause: fn(),
    ) -> Result<(), String> {
        let mut changes = Changes::new();
        replica_record::put_gone(&mut changes, META_REGION, replica);
        changes.delete(Family::Info, ROW);
        write(rows, &changes, pause)?;
        replica_record::keep(rows)?;
        forget_log(log, META_REGION)
    }
}

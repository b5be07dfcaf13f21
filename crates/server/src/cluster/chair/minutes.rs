//! All that is kept of a member of meta: one row of the store, and the same bytes are a snapshot.
//!
//! Used by the server's member and by the simulator's, so both keep, send and forget the same.

use base::cluster::{Descriptor, Epoch, META_REGION, Member as SeatOf, ReplicaId, Role};
use bytes::Bytes;
use keyspace::rows::{Changes, Family, RowSource, RowStore, Tier};
use meta::state::State;
use prost::Message;
use replica::{FOUNDED, Members, SnapshotHead};

use super::super::seats::{self, ReplicaRecord};

const ROW: &[u8] = b"meta";

/// All that is kept of a member of meta.
#[derive(Clone, PartialEq, Message)]
pub struct Minutes {
    #[prost(message, required, tag = "1")]
    pub seat: ReplicaRecord,
    #[prost(uint64, tag = "2")]
    pub applied: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub state: Bytes,
    #[prost(uint64, tag = "4")]
    pub applied_term: u64,
}

impl Minutes {
    /// Of a cluster that begins.
    pub fn found(seat: ReplicaRecord) -> Minutes {
        Minutes {
            seat,
            applied: 0,
            applied_term: 0,
            state: Bytes::new(),
        }
    }

    /// Of the founder of a cluster, node 1: the only member.
    pub fn of_founder() -> Minutes {
        let mut seat = ReplicaRecord {
            descriptor: Descriptor {
                region: META_REGION,
                epoch: Epoch::FIRST,
                segments: Vec::new(),
                members: vec![SeatOf::new(1, 1, Role::Voter)],
            },
            replica: 1,
            ..ReplicaRecord::default()
        };
        seat.set_snapshot(FOUNDED);
        Minutes::found(seat)
    }

    pub fn read(rows: &dyn RowSource) -> Result<Option<Minutes>, String> {
        let mut found = None;
        rows.get(Family::Info, ROW, Tier::All, &mut |value| {
            found = Some(Minutes::decode(value));
        })
        .map_err(|error| format!("the store cannot be read: {error:?}"))?;
        found
            .transpose()
            .map_err(|error| format!("the row of the meta service is damaged: {error}"))
    }

    /// As another member of meta sent them, for this one's `replica`; and the state in them.
    pub fn of_head(head: &SnapshotHead, replica: ReplicaId) -> Result<(Minutes, State), String> {
        let received = Minutes::decode(head.data.clone());
        let mut minutes = received.map_err(|error| error.to_string())?;
        minutes.seat.replica = replica;
        minutes.seat.set_snapshot(head.position());
        let state = State::decode(&minutes.state).map_err(|error| error.to_string())?;
        Ok((minutes, state))
    }

    /// As another member of meta gets them.
    pub fn into_head(self, members: Members) -> SnapshotHead {
        SnapshotHead {
            index: self.applied,
            term: self.applied_term,
            members,
            data: self.encode_to_vec().into(),
        }
    }

    /// The state that was kept; of a cluster that begins, an empty one.
    pub fn state(&self) -> Result<State, String> {
        match self.state.is_empty() {
            true => Ok(State::default()),
            false => State::decode(&self.state).map_err(|error| error.to_string()),
        }
    }

    /// Whether this node founds a cluster and may not have finished.
    pub fn is_founding(rows: &dyn RowSource) -> Result<bool, String> {
        let minutes = Minutes::read(rows)?;
        Ok(minutes.is_some_and(|it| it.state.is_empty() && it.seat.snapshot() == FOUNDED))
    }

    /// Durable when it returns.
    pub fn keep(&self, rows: &dyn RowStore) -> Result<(), String> {
        let mut changes = Changes::new();
        changes.put(Family::Info, ROW, &self.encode_to_vec());
        seats::write(rows, &changes, super::super::pause)?;
        seats::keep(rows)
    }

    /// To `changes`: this node is no member of meta any more, `replica` was the last.
    pub fn put_gone(changes: &mut Changes, replica: ReplicaId) {
        seats::put_gone(changes, META_REGION, replica);
        changes.delete(Family::Info, ROW);
    }
}

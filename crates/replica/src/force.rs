//! A replica is made the only voter of its region, because a majority of the voters is lost for good.
//!
//! Raft has no such step: it gives up what the lost ones may have acknowledged. Done to the log of a node that does not
//! run, by `neokv ctl unsafe-recover` only:
//!
//! ```text
//!   log    … applied │ write, change of members, write      before
//!   log    … applied │ write, nothing,           write      after: all of it counts, nobody new is a member
//!   term   t         ─► t + TERMS                           what the lost ones say is older than what is said here
//! ```
//!
//! That the replica is the only member is kept by the state machine, as always: the caller does that next.

use bytes::Bytes;
use raft::eraftpb::EntryType;

use crate::config::{Position, ReplicaConfig, ReplicaError};
use crate::log::{LogError, LogStore, LogWrite};
use crate::map_log::MapLog;
use crate::members::Members;
use crate::membership::Change;
use crate::replica::Replica;

/// More elections than the lost ones can have had, or can have before they are removed.
const TERMS: u64 = 1_000_000;
const ALL: usize = usize::MAX;

/// What the log of a replica has behind its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    pub last: Position,
    /// Changes of members that the state does not have and that are known to be committed: they count.
    pub changes: Vec<Change>,
    /// Further ones, of which this replica does not know whether they ever happened.
    pub open_changes: usize,
}

/// Looks at the log behind `applied`.
pub fn tail(log: &dyn LogStore, region: u64, applied: Position) -> Result<Tail, LogError> {
    let commit = log.hard_state(region)?.unwrap_or_default().commit;
    let mut tail = Tail {
        last: applied,
        changes: Vec::new(),
        open_changes: 0,
    };
    for entry in behind(log, region, applied.index)? {
        tail.last = Position {
            index: entry.index,
            term: entry.term,
        };
        match entry.get_entry_type() {
            EntryType::EntryNormal => {}
            _ if entry.index <= commit => tail.changes.push(Change {
                context: entry.context,
                data: entry.data,
            }),
            _ => tail.open_changes += 1,
        }
    }
    Ok(tail)
}

/// The members after each of these changes, as replica `replica` would count them.
pub fn members_after(
    replica: u64,
    members: Members,
    changes: &[Change],
) -> Result<Vec<Members>, ReplicaError> {
    let config = ReplicaConfig {
        replica,
        members,
        ..ReplicaConfig::default()
    };
    let mut replica = Replica::new(config, &MapLog::new())?;
    let after = changes.iter().map(|change| replica.apply_members(change));
    Ok(after.collect())
}

/// Changes the log of a region so that its replica on this node may be the only voter; on disk when it returns.
pub fn force(log: &dyn LogStore, region: u64, applied: u64) -> Result<(), LogError> {
    let mut hard = log.hard_state(region)?.unwrap_or_default();
    hard.term = hard.term.saturating_add(TERMS);
    hard.vote = raft::INVALID_ID;
    let entries = behind(log, region, applied)?.into_iter();
    let entries = entries.skip_while(|entry| entry.get_entry_type() == EntryType::EntryNormal);
    let entries = entries.map(|mut entry| {
        if entry.get_entry_type() != EntryType::EntryNormal {
            entry.set_entry_type(EntryType::EntryNormal);
            (entry.data, entry.context) = (Bytes::new(), Bytes::new());
        }
        entry
    });
    let write = LogWrite {
        region,
        entries: entries.collect(),
        hard_state: Some(hard),
        ..LogWrite::default()
    };
    log.write(&[write], true)
}

fn behind(
    log: &dyn LogStore,
    region: u64,
    applied: u64,
) -> Result<Vec<raft::eraftpb::Entry>, LogError> {
    match log.span(region) {
        Some((first, last)) if last > applied => {
            log.entries(region, first.max(applied + 1), last + 1, ALL)
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, HardState};

    use super::*;

    #[test]
    fn changes_of_members_are_taken_out_and_everything_else_stays() {
        let log = MapLog::new();
        let entry = |index, kind, data: &'static [u8]| Entry {
            index,
            term: 3,
            entry_type: kind,
            data: Bytes::from_static(data),
            ..Entry::default()
        };
        let (normal, change) = (EntryType::EntryNormal, EntryType::EntryConfChangeV2);
        let kinds = [
            (5, normal),
            (6, change),
            (7, normal),
            (8, change),
            (9, normal),
        ];
        let write = LogWrite {
            region: 1,
            entries: kinds
                .iter()
                .map(|&(at, kind)| entry(at, kind, b"x"))
                .collect(),
            hard_state: Some(HardState {
                term: 4,
                vote: 2,
                commit: 6,
                ..HardState::default()
            }),
            ..LogWrite::default()
        };
        log.write(&[write], true).unwrap();
        let applied = |index| Position { index, term: 3 };
        let found = tail(&log, 1, applied(5)).unwrap();
        assert_eq!(
            (found.last, found.changes.len(), found.open_changes),
            (applied(9), 1, 1)
        );
        assert!(tail(&log, 1, applied(6)).unwrap().changes.is_empty());
        assert_eq!(tail(&log, 1, applied(9)).unwrap().last, applied(9));
        force(&log, 1, 6).unwrap();
        let after = log.entries(1, 5, 10, ALL).unwrap();
        let shown: Vec<_> = after
            .iter()
            .map(|it| (it.get_entry_type(), it.data.len()))
            .collect();
        let expected = [
            (normal, 1),
            (change, 1),
            (normal, 1),
            (normal, 0),
            (normal, 1),
        ];
        assert_eq!(shown, expected);
        let hard = log.hard_state(1).unwrap().unwrap();
        assert_eq!((hard.term, hard.vote, hard.commit), (4 + TERMS, 0, 6));
    }

    #[test]
    fn committed_changes_count() {
        use protobuf::Message as _;
        use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};
        let mut change = ConfChangeV2::default();
        let single = |node_id, change_type| ConfChangeSingle {
            node_id,
            change_type,
            ..ConfChangeSingle::default()
        };
        let singles = vec![single(4, ConfChangeType::AddLearnerNode)];
        change.set_changes(singles.into());
        let change = Change {
            context: Bytes::new(),
            data: change.write_to_bytes().unwrap().into(),
        };
        let after = members_after(1, Members::of_voters([1, 2, 3]), &[change]).unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(
            (&after[0].voters[..], &after[0].learners[..]),
            (&[1, 2, 3][..], &[4][..])
        );
    }
}

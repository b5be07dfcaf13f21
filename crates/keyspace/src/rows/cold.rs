//! Rows that are not in memory: a command that needs some is not kept waiting on its core.
//!
//! ```text
//!   read_cached(true) ─► run ─► take_cold ─┬─ nothing: the reply counts
//!         ▲                                └─ rows ─► warm (a reader thread) ─┐
//!         └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Keys are loaded and then resident; rows of big collections and those SCAN looks for keys in are only
//! brought into the store's block cache, and the command runs again. So nothing that was read earlier is
//! ever used: what is true is what the store says when the command runs to its end. Somebody else's
//! blocks may push these out before that, so whoever runs commands tries a few times and then reads
//! wherever the rows are.
//!
//! A command that ran on cold rows saw a part of what there is: its reply is void, as one of a command
//! that missed a key. It may change nothing, so commands that write are *dry_runs* first: all they do
//! goes to the database [`VOID`], where a big collection is present as an echo of itself
//! ([`super::handle::Handle::echo`]). A dry_run tells only which rows to warm; the command then runs on
//! whatever the store says.

use std::sync::Arc;

use base::DbIndex;

use super::handle::Job;
use super::{Family, RowError, RowSource, Tier, VOID, layout};
use crate::Keyspace;
use crate::memory::entry::Entry;
use crate::memory::table::Position;

/// What is read of a range at first, some blocks; each time the command comes back it is four times as
/// much, for most ranges are short.
const AHEAD_BYTES: usize = 8 * 1024;
const AHEAD_MOST: usize = 4 * 1024 * 1024;
/// Collections in memory of at most so many elements take part in a dry_run: SMOVE from a small set
/// to a big one looks at both.
const ECHO_ELEMENTS: usize = 16;

/// Rows that a command needed and memory has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdRows {
    pub(super) family: Family,
    pub(super) range: ColdRange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColdRange {
    Row(Box<[u8]>),
    /// From one end on, no further than the other.
    Between {
        from: Box<[u8]>,
        to: Box<[u8]>,
        descending: bool,
    },
    /// The index of the collection whose rows begin so …
    NoIndex(Box<[u8]>),
    /// … and the job of making it.
    Index(IndexJob),
}

#[derive(Clone)]
pub(crate) struct IndexJob(pub(super) Arc<Job>);

impl PartialEq for IndexJob {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for IndexJob {}

impl std::fmt::Debug for IndexJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IndexJob")
    }
}

/// Brings rows into the store's cache, waiting for the disk; `tries`: how often the command has come
/// back before.
pub fn warm(source: &dyn RowSource, rows: &ColdRows, tries: u8) -> Result<(), RowError> {
    match &rows.range {
        ColdRange::Row(key) => {
            source.get(rows.family, key, Tier::All, &mut |_| ())?;
        }
        ColdRange::NoIndex(_) => {}
        ColdRange::Index(job) => job.0.run().map_err(RowError::Failed)?,
        ColdRange::Between {
            from,
            to,
            descending,
        } => {
            let ahead = AHEAD_BYTES << (2 * u32::from(tries)).min(16);
            let ahead = ahead.min(AHEAD_MOST);
            let mut bytes = 0;
            let each = &mut |key: &[u8], value: &[u8]| {
                bytes += key.len() + value.len();
                bytes < ahead
            };
            source.scan(rows.family, from, to, *descending, Tier::All, each)?;
        }
    }
    Ok(())
}

impl Keyspace {
    /// Whether reads of rows stop where memory ends, noting what they miss.
    pub fn read_cached(&mut self, only: bool) {
        if let Some(durable) = &self.durable {
            durable.shared.read_cached(only);
        }
    }

    /// Rows that commands needed and memory has not: to be warmed, and the commands run again.
    pub fn take_cold(&mut self) -> Vec<ColdRows> {
        self.forget_void();
        match &self.durable {
            Some(durable) if durable.shared.is_cold() => {
                let mut cold = durable.shared.take_cold();
                for rows in &mut cold {
                    if let ColdRange::NoIndex(base) = &rows.range
                        && let Some(job) = self.ask_for_index(base)
                    {
                        rows.range = ColdRange::Index(IndexJob(job));
                    }
                }
                cold.dedup();
                cold
            }
            _ => Vec::new(),
        }
    }

    fn ask_for_index(&mut self, base: &[u8]) -> Option<Arc<Job>> {
        let (row, ..) = layout::split_sub_key(base)?;
        let at = layout::parse_metadata_key(row)?;
        let hash = self.hash(at.key);
        let db = self.dbs.iter_mut().find(|db| db.index_id == at.index_id)?;
        let position = db.table.find(hash, at.key)?;
        db.entry_mut(position)?.handle()?.ask_for_index()
    }

    /// Whether a key is a big collection that stays in its rows.
    pub fn is_on_rows(&mut self, db: DbIndex, key: &[u8]) -> bool {
        if !self.may_be_on_rows() {
            return false;
        }
        let hash = self.hash(key);
        self.dbs.get_mut(db as usize).is_some_and(|db| {
            let position = db.table.find(hash, key);
            let entry = position.and_then(|position| db.entry_mut(position));
            entry.is_some_and(|entry| entry.handle().is_some())
        })
    }

    /// Whether there is any such collection, or was.
    #[inline]
    pub fn may_be_on_rows(&self) -> bool {
        let durable = self.durable.as_ref();
        durable.is_some_and(|durable| durable.shared.has_handles())
    }

    /// For a dry_run: what there is at a key, in the database that is thrown away. Only of big
    /// collections and very small ones; others have nothing to warm.
    pub(crate) fn echo(&mut self, db: usize, hash: u64, key: &[u8]) -> Option<Position> {
        let from = self.dbs.get_mut(db)?;
        let position = from.table.find(hash, key)?;
        let echo = from
            .entry_mut(position)?
            .handle()
            .map(|handle| handle.echo());
        let entry = from.table.at(position)?;
        let birth = entry.birth();
        let echo = match echo {
            Some(handle) => {
                let value = entry.value().with_handle(handle)?;
                Entry::value(key, value, birth)
            }
            None if entry.elements().is_some_and(|n| n <= ECHO_ELEMENTS) => {
                Entry::copy(entry, birth)
            }
            None => return None,
        };
        Some(self.dbs.get_mut(VOID)?.insert(hash, echo))
    }
}

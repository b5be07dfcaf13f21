//! The part of the log in memory: what raft-rs sees as its `Storage`.
//!
//! ```text
//!   base            fetched                     tail
//!    │  ....... ▓▓▓▓▓▓▓▓▓▓▓▓▓ ............. ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│
//!    └ its term is known, its payload not needed       last ┘
//! ```
//!
//! *tail* ends at the last entry; entries get here the moment they leave for the disk, and leave
//! when they are on disk and applied. *fetched* is one batch read back from the log store: for
//! replay after a start, or for a follower far behind. What is in neither is asked for, never
//! read here: the answer to raft-rs is "not now", and [`Wants`] remembers to tell the owner.
//!
//! Invariant: an entry that is in neither part is on disk.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use raft::eraftpb::{Entry, EntryType, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::sizes::Sizes;
use crate::terms::Terms;

/// What an entry costs in memory beside its payload.
const ENTRY_BYTES: usize = 160;
/// Followers waiting for old entries; one more is served at its next heartbeat.
const MAX_WAITING: usize = 16;

pub(crate) struct Recent {
    pub(crate) initial: RaftState,
    /// Entries up to here are gone or never needed again; the term of this one is known.
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) terms: Terms,
    pub(crate) sizes: Sizes,
    pub(crate) fetched: Run,
    pub(crate) tail: Run,
    /// raft-rs reads through a shared reference, so wishes need a cell.
    pub(crate) wants: RefCell<Wants>,
    /// Snapshots whose files are with the member they are for.
    pub(crate) offers: BTreeMap<u64, Snapshot>,
}

/// Reads that could not be answered from memory.
#[derive(Default)]
pub(crate) struct Wants {
    /// The next entry to apply.
    pub(crate) apply: Option<u64>,
    /// Entries for followers, with what raft-rs wants to hear when they are here.
    pub(crate) sends: Vec<(u64, GetEntriesContext)>,
    /// Members that need what is gone.
    pub(crate) snapshots: BTreeSet<u64>,
}

/// Consecutive entries.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) first: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Run {
    pub(crate) fn new(first: u64, entries: Vec<Entry>) -> Run {
        let bytes = entries.iter().map(cost).sum();
        Run {
            first,
            entries: entries.into(),
            bytes,
        }
    }

    /// One behind its last entry.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    #[inline]
    fn holds(&self, index: u64) -> bool {
        self.first <= index && index < self.end()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Entries from `low` on, before `high`; at least one, then while they fit `max_bytes`.
    fn copy(&self, low: u64, high: u64, max_bytes: u64) -> Vec<Entry> {
        let from = (low - self.first) as usize;
        let until = (high.min(self.end()) - self.first) as usize;
        let mut size = 0;
        let entries = self.entries.range(from..until);
        let fits = entries
            .clone()
            .take_while(|entry| {
                let first = size == 0;
                size += (entry.data.len() + 16) as u64;
                first || size <= max_bytes
            })
            .count();
        let mut out = Vec::with_capacity(fits);
        out.extend(entries.take(fits).cloned());
        out
    }

    fn cut_from(&mut self, index: u64) {
        while self.end() > index.max(self.first) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= cost(&entry);
            }
        }
    }

    /// Lets go of entries up to `index` while more than `keep_bytes` are held.
    fn drop_front(&mut self, index: u64, keep_bytes: usize) {
        while self.first <= index && self.bytes > keep_bytes {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= cost(&entry);
            self.first += 1;
        }
    }
}

fn cost(entry: &Entry) -> usize {
    entry.data.len() + ENTRY_BYTES
}

impl Recent {
    /// Entries on their way to disk. Those already here from the first of them on are replaced.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first().map(|entry| entry.index) else {
            return;
        };
        if first < self.tail.end() {
            self.tail.cut_from(first);
            self.fetched.cut_from(first);
            self.sizes.cut_from(first);
            if first < self.tail.first {
                self.tail = Run::new(first, Vec::new());
            }
        }
        for entry in entries {
            self.terms.set_from(entry.index, entry.term);
            self.sizes.add(entry.index, entry.data.len() as u64);
            self.tail.bytes += cost(entry);
            self.tail.entries.push_back(entry.clone());
        }
        self.last = self.tail.end() - 1;
    }

    /// Entries up to `index` are applied and on disk; `keep_bytes` of them may stay.
    pub(crate) fn release(&mut self, index: u64, keep_bytes: usize) {
        self.tail.drop_front(index, keep_bytes);
        self.fetched.drop_front(index, keep_bytes);
    }

    pub(crate) fn truncate_to(&mut self, index: u64) {
        self.base = index;
        self.terms.forget_before(index);
        self.sizes.forget_to(index);
        self.tail.drop_front(index, 0);
        self.fetched.drop_front(index, 0);
    }

    /// A snapshot was installed: the log begins anew behind it.
    pub(crate) fn begin_behind(&mut self, index: u64, term: u64) {
        self.base = index;
        self.last = index;
        self.terms = Terms::behind(index, term);
        self.sizes = Sizes::default();
        self.fetched = Run::default();
        self.tail = Run::new(index + 1, Vec::new());
        *self.wants.get_mut() = Wants::default();
    }

    /// raft-rs wants to know whether a change of members is among these entries, nothing else.
    /// What is not in memory might be one: then it must not campaign before it has applied them.
    fn looking_for_changes(&self, low: u64, high: u64) -> Vec<Entry> {
        for run in [&self.tail, &self.fetched] {
            if run.holds(low) && high <= run.end() {
                return run.copy(low, high, u64::MAX);
            }
        }
        let mut unknown = Entry::default();
        unknown.set_entry_type(EntryType::EntryConfChangeV2);
        vec![unknown]
    }
}

impl Storage for Recent {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        // Reads that decide about a campaign are the only ones without a limit.
        let Some(max_size) = max_size.into() else {
            return Ok(self.looking_for_changes(low, high));
        };
        for run in [&self.tail, &self.fetched] {
            if run.holds(low) {
                return Ok(run.copy(low, high, max_size));
            }
        }
        let mut wants = self.wants.borrow_mut();
        if context.can_async() {
            if wants.sends.len() < MAX_WAITING {
                wants.sends.push((low, context));
            }
            Err(Error::Store(StorageError::LogTemporarilyUnavailable))
        } else {
            // For entries to apply raft-rs takes no "not now", but it takes "none".
            wants.apply = Some(low);
            Ok(Vec::new())
        }
    }

    #[inline]
    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.base {
            Err(Error::Store(StorageError::Compacted))
        } else if index > self.last {
            Err(Error::Store(StorageError::Unavailable))
        } else {
            Ok(self.terms.at(index))
        }
    }

    #[inline]
    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base + 1)
    }

    #[inline]
    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    /// A follower that needs entries before `base` waits for its snapshot.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let offer = self.offers.get(&to);
        if let Some(offer) = offer.filter(|offer| offer.get_metadata().index >= self.base) {
            return Ok(offer.clone());
        }
        self.wants.borrow_mut().snapshots.insert(to);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

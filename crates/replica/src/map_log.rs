//! A log store in a map, for tests and the simulator: it forgets what a crash would.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use raft::eraftpb::{Entry, HardState};

use crate::log::{LogError, LogStore, LogWrite};

/// Two copies: what a reader sees, and what is on disk. A sync makes them equal, a crash too.
#[derive(Debug, Default)]
pub struct MapLog {
    logs: Mutex<Copies>,
}

#[derive(Debug, Default)]
struct Copies {
    seen: Logs,
    synced: Logs,
    /// What the next sync adds to `synced`: doing it again is cheaper than copying all.
    unsynced: Vec<Change>,
    syncs: u64,
    /// Reads from now on fail, as do writes.
    broken: Option<LogError>,
}

#[derive(Debug, Clone)]
enum Change {
    /// All of it or nothing, whatever regions it is about.
    Write(Vec<LogWrite>),
    Truncate {
        region: u64,
        index: u64,
    },
}

type Logs = BTreeMap<u64, OneLog>;

#[derive(Debug, Default, Clone)]
struct OneLog {
    hard_state: Option<HardState>,
    entries: BTreeMap<u64, Entry>,
}

impl MapLog {
    pub fn new() -> MapLog {
        MapLog::default()
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails: everything not synced is gone. The store can be used again.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// Like [`crash`](Self::crash), but the first `kept` of the writes not synced did get there.
    pub fn crash_keeping(&self, kept: usize) {
        let copies = &mut *self.copies();
        for change in copies.unsynced.drain(..).take(kept) {
            make(&mut copies.synced, change);
        }
        copies.seen = copies.synced.clone();
        copies.broken = None;
    }

    /// Writes since the last sync.
    pub fn unsynced(&self) -> usize {
        self.copies().unsynced.len()
    }

    /// Everything fails with this from now on, until a crash.
    pub fn break_with(&self, error: LogError) {
        self.copies().broken = Some(error);
    }

    /// The commit index that a crash leaves of a region's log.
    pub fn synced_commit(&self, region: u64) -> u64 {
        let copies = self.copies();
        let log = copies.synced.get(&region);
        let state = log.and_then(|log| log.hard_state.as_ref());
        state.map_or(0, |state| state.commit)
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.copies().syncs
    }
}

fn make(logs: &mut Logs, change: Change) {
    match change {
        Change::Write(writes) => {
            for write in writes {
                let log = logs.entry(write.region).or_default();
                if write.reset.is_some() {
                    *log = OneLog::default();
                }
                if let Some(first) = write.entries.first() {
                    log.entries.split_off(&first.index);
                }
                for entry in write.entries {
                    log.entries.insert(entry.index, entry);
                }
                if let Some(hard_state) = write.hard_state {
                    log.hard_state = Some(hard_state);
                }
            }
        }
        Change::Truncate { region, index } => {
            if let Some(log) = logs.get_mut(&region) {
                log.entries = log.entries.split_off(&index);
            }
        }
    }
}

impl Copies {
    fn check(&self) -> Result<(), LogError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn make(&mut self, change: Change) {
        make(&mut self.seen, change.clone());
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        self.syncs += 1;
        for change in self.unsynced.drain(..) {
            make(&mut self.synced, change);
        }
    }
}

impl LogStore for MapLog {
    fn write(&self, writes: &[LogWrite], sync: bool) -> Result<(), LogError> {
        let mut copies = self.copies();
        copies.check()?;
        // A hole in a log is a bug of the caller; raft-engine would not take it either.
        let mut ends = BTreeMap::new();
        for write in writes {
            let (Some(first), Some(last)) = (write.entries.first(), write.entries.last()) else {
                continue;
            };
            if write.reset.is_some_and(|index| first.index == index + 1) {
                ends.insert(write.region, last.index + 1);
                continue;
            }
            let on_disk = copies.seen.get(&write.region);
            let end = ends.entry(write.region).or_insert_with(|| {
                let last = on_disk.and_then(|log| log.entries.last_key_value());
                last.map_or(first.index, |(&last, _)| last + 1)
            });
            if first.index > *end {
                let text = format!("entry {} where {end} is next", first.index);
                return Err(LogError::Failed(text));
            }
            *end = last.index + 1;
        }
        copies.make(Change::Write(writes.to_vec()));
        if sync {
            copies.sync();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), LogError> {
        let mut copies = self.copies();
        copies.check()?;
        copies.sync();
        Ok(())
    }

    fn regions(&self) -> Vec<u64> {
        self.copies().seen.keys().copied().collect()
    }

    fn hard_state(&self, region: u64) -> Result<Option<HardState>, LogError> {
        let copies = self.copies();
        copies.check()?;
        Ok(copies
            .seen
            .get(&region)
            .and_then(|log| log.hard_state.clone()))
    }

    fn span(&self, region: u64) -> Option<(u64, u64)> {
        let copies = self.copies();
        let entries = &copies.seen.get(&region)?.entries;
        let first = *entries.first_key_value()?.0;
        let last = *entries.last_key_value()?.0;
        Some((first, last))
    }

    fn entries(
        &self,
        region: u64,
        low: u64,
        high: u64,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, LogError> {
        let copies = self.copies();
        copies.check()?;
        let Some(log) = copies.seen.get(&region) else {
            return Ok(Vec::new());
        };
        let mut size = 0;
        let entries = log
            .entries
            .range(low..high.max(low))
            .map(|(_, entry)| entry);
        Ok(entries
            .take_while(|entry| {
                let first = size == 0;
                size += entry.data.len() + 1;
                first || size <= max_bytes
            })
            .cloned()
            .collect())
    }

    fn tidy(&self) -> Result<(), LogError> {
        Ok(())
    }

    fn truncate(&self, region: u64, index: u64) -> Result<(), LogError> {
        let mut copies = self.copies();
        copies.check()?;
        copies.make(Change::Truncate { region, index });
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        let copies = self.copies();
        let logs = copies.seen.values();
        logs.flat_map(|log| log.entries.values())
            .map(|entry| entry.data.len() as u64 + 16)
            .sum()
    }
}

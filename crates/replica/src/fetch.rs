//! Entries that are not in memory any more: read by the owner, brought back here.
//!
//! Two need them: replay after a start (what is committed and not applied), and a leader whose
//! follower is far behind. One batch at a time is held, so memory stays bounded.

use raft::eraftpb::Entry;

use crate::config::ReplicaError;
use crate::log::LogStore;
use crate::recent::Run;
use crate::replica::Replica;

/// `LogStore::entries` with these arguments, please.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub region: u64,
    pub low: u64,
    pub high: u64,
    pub max_bytes: usize,
}

impl Replica {
    pub(crate) fn wants_fetch(&self) -> bool {
        let wants = self.node.store().wants.borrow();
        self.fetching.is_none() && (wants.apply.is_some() || !wants.sends.is_empty())
    }

    pub(crate) fn next_fetch(&mut self) -> Option<Fetch> {
        if !self.wants_fetch() {
            return None;
        }
        let recent = self.node.store();
        let wants = recent.wants.borrow();
        // What is to be applied goes first: reads of clients wait for it.
        let low = wants.apply.or(wants.sends.first().map(|&(low, _)| low))?;
        let fetch = Fetch {
            region: self.config.region,
            low,
            high: recent.tail.first.max(low + 1),
            max_bytes: self.config.batch_bytes,
        };
        drop(wants);
        self.fetching = Some(fetch.clone());
        Some(fetch)
    }

    /// The log begins anew: what is being read belongs to the old one.
    pub(crate) fn void_fetch(&mut self) {
        if let Some(fetch) = &mut self.fetching {
            fetch.low = 0;
        }
    }

    /// What the log store answered. An error here, or one of the store, stops the region.
    pub fn on_fetched(&mut self, mut entries: Vec<Entry>) -> Result<(), ReplicaError> {
        let Some(fetch) = self.fetching.take() else {
            return Ok(());
        };
        let recent = self.node.mut_store();
        let wants = recent.wants.get_mut();
        wants.apply.take_if(|low| *low == fetch.low);
        let sends = std::mem::take(&mut wants.sends);
        if fetch.low > recent.base {
            // While the read was under way a new leader may have replaced the log's tail: such
            // entries are not committed, and their successors are in memory.
            let until = recent.tail.first.saturating_sub(fetch.low) as usize;
            entries.truncate(until);
            if until > 0 {
                recent.check(fetch.low, &entries)?;
                recent.fetched = Run::new(fetch.low, entries);
            }
        }
        // raft-rs tries again; those it cannot serve yet ask anew.
        for (_, context) in sends {
            self.node.on_entries_fetched(context);
        }
        Ok(())
    }

    /// Reads in place. Blocks: for the start, and for tests.
    pub fn fetch_now(&mut self, fetch: &Fetch, log: &dyn LogStore) -> Result<(), ReplicaError> {
        let entries = log.entries(fetch.region, fetch.low, fetch.high, fetch.max_bytes)?;
        self.on_fetched(entries)
    }
}

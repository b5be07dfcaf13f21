//! Big collections that are used a lot come into memory whole (`handle/whole.rs` says how).
//!
//! The region's holder asks now and then which are wanted, sends a reader thread for one, and lets the
//! keyspace take over what is made: at the latest when the next entry is applied, so that little has
//! to be added to it.

use std::sync::Arc;

use super::handle::WholeJob;
use super::layout;
use crate::Keyspace;
use crate::memory::entry::{Birth, Entry};

impl Keyspace {
    /// The job of making a collection whole that is used a lot and takes no more than `most_bytes`; one
    /// at a time. `now_ms` tells how fast collections are used.
    pub fn whole_job(&mut self, now_ms: u64, most_bytes: usize) -> Option<Arc<WholeJob>> {
        self.take_wholes();
        let durable = self.durable.as_ref()?;
        durable.shared.set_seconds(now_ms / 1000);
        if !durable.becoming.is_empty() {
            return None;
        }
        for base in durable.shared.wanted_whole() {
            if let Some(job) = self.begin_whole(&base, most_bytes) {
                return Some(job);
            }
        }
        None
    }

    fn begin_whole(&mut self, base: &[u8], most_bytes: usize) -> Option<Arc<WholeJob>> {
        let (row, ..) = layout::split_sub_key(base)?;
        let at = layout::parse_metadata_key(row)?;
        let hash = self.hash(at.key);
        let db = self.dbs.iter_mut().find(|db| db.index_id == at.index_id)?;
        let position = db.table.find(hash, at.key)?;
        let entry = db.table.at(position)?;
        let kind = entry.kind();
        if !kind.comes_whole() {
            return None;
        }
        let generation = entry.value().generation()?;
        let handle = db.entry_mut(position)?.handle()?;
        let durable = self.durable.as_mut()?;
        let job = handle.become_whole((kind, generation), &durable.tuning, most_bytes);
        match &job {
            Some(job) => durable.becoming.push(job.clone()),
            None => handle.stay_on_rows(),
        }
        job
    }

    /// As [`Keyspace::whole_job`], for a key however little it is used.
    #[cfg(test)]
    pub(super) fn whole_job_of(&mut self, db: base::DbIndex, key: &[u8]) -> Option<Arc<WholeJob>> {
        let hash = self.hash(key);
        let db = self.dbs.get_mut(db as usize)?;
        let position = db.table.find(hash, key)?;
        let base = db.entry_mut(position)?.handle()?.base().to_vec();
        self.begin_whole(&base, usize::MAX)
    }

    /// Whether [`Keyspace::take_wholes`] may have something to do.
    #[inline]
    pub fn has_whole(&self) -> bool {
        let durable = self.durable.as_ref();
        durable.is_some_and(|durable| durable.shared.has_whole())
    }

    /// Puts collections that are made where their handles were.
    pub fn take_wholes(&mut self) {
        let Some(durable) = self.durable.as_mut().filter(|it| it.shared.take_whole()) else {
            return;
        };
        let becoming = std::mem::take(&mut durable.becoming);
        let (done, others) = becoming.into_iter().partition(|job| job.is_done());
        durable.becoming = others;
        let done: Vec<Arc<WholeJob>> = done;
        done.iter().for_each(|job| self.put_whole(job));
    }

    fn put_whole(&mut self, job: &Arc<WholeJob>) {
        let parts = layout::split_sub_key(&job.base);
        let Some(at) = parts.and_then(|(row, ..)| layout::parse_metadata_key(row)) else {
            return;
        };
        let hash = self.hash(at.key);
        let db = self.dbs.iter_mut().find(|db| db.index_id == at.index_id);
        let found = db.and_then(|db| {
            let position = db.table.find(hash, at.key)?;
            let handle = db.entry_mut(position)?.handle()?;
            handle.is_becoming(job).then_some((db, position))
        });
        let made = job.take();
        let Some((db, position)) = found else {
            // The collection is gone, or another: so is this, where such things go.
            if let Some(value) = made {
                let birth = Birth {
                    deadline_ms: None,
                    clock: 0,
                    parity: false,
                    marked: false,
                };
                self.dispose(Entry::value(at.key, value, birth));
            }
            return;
        };
        let before = db.weight_at(position);
        if made.is_some() {
            db.note_left(position);
        }
        let Some(entry) = db.entry_mut(position) else {
            return;
        };
        match made {
            Some(value) => {
                entry.replace_collection(value);
                db.bytes += db.weight_at(position) - before;
            }
            None => {
                if let Some(handle) = entry.handle() {
                    handle.stay_on_rows();
                }
            }
        }
    }
}

//! A dump as rows, without a keyspace in between.
//!
//! ```text
//!   dump::read_parts ─► Import (a Sink) ─► Changes of bounded size ─► the store
//!                                          rows of parts, heads of values, states of regions
//! ```
//!
//! What is in memory is one batch, never a value: a collection may be larger than the machine.
//!
//! A collection that does not end in the batch it began in has a head from its first batch on, with
//! its generation: otherwise a compaction in between would take its elements for those of a key that
//! is gone. Its size is put right when it ends.
//!
//! *Invariants*: every batch has the state of the regions it touches; counts and sizes are those of
//! the rows, which [`Import::check`] proves by reading all of them (a dump may name a key or an element
//! twice). Until then nobody may be served from the store: to whoever calls this, the import is
//! whole or it is nothing.

mod check;

use base::DbIndex;
use base::limits::DATABASES;
use rdb::Error;

use super::layout::{self, Body, Metadata};
use super::{Changes, Family, Recorder, State};
use crate::dumped::Sink;
use crate::{Kind, Part};

/// A batch is written when it has grown to this size.
const BATCH_BYTES: usize = 1 << 20;
/// The log goes on behind this entry, which only the imported rows have: a member of the region that
/// does not have them cannot be brought up to date by the log alone.
const INDEX: u64 = 1;
/// As of [`INDEX`]; generations of later entries are greater.
const FIRST_GENERATION: u64 = INDEX << super::durable::GENERATION_SHIFT;

/// Hands a batch to the store; returns when the store has it.
pub type Write<'a> = dyn FnMut(&Changes) -> Result<(), String> + 'a;

pub struct Import<'a> {
    regions: Vec<Region>,
    /// The region a key belongs to, as a place in `regions`.
    region_of: &'a dyn Fn(&[u8]) -> usize,
    now_ms: u64,
    write: &'a mut Write<'a>,
    changes: Changes,
    current: Current,
    row: Vec<u8>,
    value: Vec<u8>,
    pub keys: u64,
    /// Keys left out because their time had passed.
    pub expired: u64,
}

struct Region {
    home: u64,
    state: State,
    /// Changed since its state was last written.
    is_touched: bool,
}

/// The value that is being read.
struct Current {
    region: usize,
    db: usize,
    key: Vec<u8>,
    kind: Kind,
    expire_at_ms: Option<u64>,
    generation: u64,
    size: u64,
    /// What its metadata row says behind that: a string, or the extra bytes of another kind.
    extra: Vec<u8>,
}

impl<'a> Import<'a> {
    /// Into empty regions; `homes` by region, as `region_of` counts them.
    pub fn new(
        homes: &[u64],
        region_of: &'a dyn Fn(&[u8]) -> usize,
        now_ms: u64,
        write: &'a mut Write<'a>,
    ) -> Self {
        let region = |&home| Region {
            home,
            state: State {
                applied_index: INDEX,
                stamp_ms: now_ms,
                generation: FIRST_GENERATION,
                ..State::default()
            },
            is_touched: true,
        };
        Import {
            regions: homes.iter().map(region).collect(),
            region_of,
            now_ms,
            write,
            changes: Changes::new(),
            current: Current {
                region: 0,
                db: 0,
                key: Vec::new(),
                kind: Kind::String,
                expire_at_ms: None,
                generation: 0,
                size: 0,
                extra: Vec::new(),
            },
            row: Vec::new(),
            value: Vec::new(),
            keys: 0,
            expired: 0,
        }
    }

    /// Writes what is left: all rows are in the store then.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.write_batch()
    }

    /// The (home, index id) pairs that get rows, for [`super::RowStore::set_alive`].
    pub fn alive(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.iter();
        regions.flat_map(|it| it.state.alive(it.home)).collect()
    }

    fn write_batch(&mut self) -> Result<(), Error> {
        for region in self.regions.iter_mut().filter(|it| it.is_touched) {
            region.is_touched = false;
            self.value.clear();
            region.state.push(&mut self.value);
            let key = layout::state_key(region.home);
            self.changes.put(Family::Info, &key, &self.value);
        }
        let written = (self.write)(&self.changes);
        self.changes.clear();
        written.map_err(Error::Stopped)
    }

    /// The metadata row of the value that is being read, as far as it has been.
    fn put_head(&mut self) {
        let Some(region) = self.regions.get(self.current.region) else {
            return;
        };
        let Some(db) = region.state.dbs.get(self.current.db) else {
            return;
        };
        let it = &self.current;
        self.row.clear();
        layout::push_metadata_key(&mut self.row, region.home, db.index_id, &it.key);
        self.value.clear();
        let body = match it.kind {
            Kind::String => Body::String(&it.extra),
            _ => Body::Collection {
                generation: it.generation,
                size: it.size,
                extra: &it.extra,
            },
        };
        let head = Metadata {
            kind: it.kind,
            expire_at_ms: it.expire_at_ms,
            body,
        };
        head.push(&mut self.value);
        self.changes.put(Family::Metadata, &self.row, &self.value);
    }

    /// What the element rows of the value begin with.
    fn base_row(&mut self) {
        let it = &self.current;
        let Some(region) = self.regions.get(it.region) else {
            return;
        };
        let index_id = region.state.dbs.get(it.db).map_or(0, |db| db.index_id);
        self.row.clear();
        layout::push_base(&mut self.row, region.home, index_id, &it.key, it.generation);
    }
}

impl Sink for Import<'_> {
    fn begin(&mut self, db: DbIndex, key: &[u8], kind: Kind, expire_at_ms: Option<u64>) -> bool {
        if expire_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
            self.expired += 1;
            return false;
        }
        debug_assert!(db < DATABASES);
        let it = &mut self.current;
        it.region = (self.region_of)(key);
        it.db = usize::from(db);
        it.key.clear();
        it.key.extend_from_slice(key);
        it.kind = kind;
        it.expire_at_ms = expire_at_ms;
        it.size = 0;
        it.extra.clear();
        if let Some(region) = self.regions.get_mut(it.region)
            && kind != Kind::String
        {
            region.state.generation += 1;
            it.generation = region.state.generation;
        }
        true
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), Error> {
        if self.current.kind != Kind::String {
            self.base_row();
        }
        let mut rows = Recorder::new(&mut self.changes, &mut self.row);
        let it = &mut self.current;
        it.kind.import(part, it.size, &mut rows, &mut it.extra);
        self.current.size += 1;
        if self.changes.size_bytes() > BATCH_BYTES {
            self.put_head();
            if let Some(region) = self.regions.get_mut(self.current.region) {
                region.is_touched = true;
            }
            self.write_batch()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<bool, Error> {
        if self.current.kind != Kind::String && self.current.size == 0 {
            return Ok(false);
        }
        self.put_head();
        let it = &self.current;
        let Some(region) = self.regions.get_mut(it.region) else {
            return Ok(false);
        };
        region.is_touched = true;
        if let Some(db) = region.state.dbs.get_mut(it.db) {
            db.keys += 1;
            if let Some(deadline_ms) = it.expire_at_ms {
                db.with_deadline += 1;
                self.row.clear();
                layout::push_expiry_key(
                    &mut self.row,
                    region.home,
                    db.index_id,
                    deadline_ms,
                    &it.key,
                );
                self.changes.put(Family::Expiry, &self.row, b"");
            }
        }
        self.keys += 1;
        if self.changes.size_bytes() > BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{MapStore, RowSource, RowStore, Tier};

    const HOME: u64 = 7;

    /// Whether all elements in the store belong to a key that is there.
    fn has_no_orphans(store: &MapStore) -> bool {
        store.all(Family::Data).iter().all(|(row, _)| {
            let (owner, generation, _) = layout::split_sub_key(row).unwrap();
            let mut found = None;
            let mut head = |value: &[u8]| found = Metadata::parse(value).unwrap().generation();
            let _ = store.get(Family::Metadata, owner, Tier::All, &mut head);
            found == Some(generation)
        })
    }

    #[test]
    fn batches_are_bounded_and_no_element_is_without_its_key() {
        let store = MapStore::new();
        let mut batches = 0;
        let mut write = |changes: &Changes| {
            batches += 1;
            assert!(changes.size_bytes() < 2 * BATCH_BYTES);
            store.write(&[changes]).unwrap();
            assert!(has_no_orphans(&store));
            Ok(())
        };
        let region_of = |_: &[u8]| 0;
        let mut import = Import::new(&[HOME], &region_of, 1000, &mut write);
        assert!(import.begin(0, b"hash", Kind::Hash, Some(2000)));
        for n in 0..3000u32 {
            let field = n.to_be_bytes();
            let part = Part {
                name: &field,
                value: &[b'x'; 1000],
            };
            import.part(part).unwrap();
        }
        assert!(import.end().unwrap());
        assert!(!import.begin(0, b"due", Kind::String, Some(1000)));
        assert!(import.begin(3, b"empty", Kind::List, None));
        assert!(!import.end().unwrap());
        import.finish().unwrap();
        import.check(&store, &mut |_| {}).unwrap();
        assert_eq!((import.keys, import.expired), (1, 1));

        let (_, state) = &store.all(Family::Info)[0];
        let state = State::parse(state).unwrap();
        assert_eq!(state.applied_index, INDEX);
        assert_eq!((state.dbs[0].keys, state.dbs[0].with_deadline), (1, 1));
        assert_eq!(store.all(Family::Expiry).len(), 1);

        // What is missing, or too much, is seen.
        let (row, value) = store.all(Family::Data)[5].clone();
        let mut change = Changes::new();
        change.delete(Family::Data, &row);
        store.write(&[&change]).unwrap();
        assert!(import.check(&store, &mut |_| {}).is_err());
        let mut change = Changes::new();
        change.put(Family::Data, &row, &value);
        change.delete(Family::Metadata, &store.all(Family::Metadata)[0].0);
        store.write(&[&change]).unwrap();
        assert!(import.check(&store, &mut |_| {}).is_err());
        assert_eq!(batches, 3);
    }
}

//! How large the data set of a durable keyspace is: what `maxmemory` limits there once a policy of
//! eviction is chosen (decision 30).
//!
//! The weight of a key follows from its value alone: the bytes it consists of, and a fixed amount for
//! the key and for each element, about what they take in memory. It does not tell whether the value is
//! in memory, so it stays what it was when a value leaves memory or comes back.
//!
//! ```text
//!   a change         Db::bytes += weight after − weight before        no look at anything else
//!   leaves, loaded   nothing
//!   opened           unknown; a thread reads all rows and the sum is added   (Weighing)
//! ```
//!
//! Weights take constant time. What is counted for a big collection is remembered while it is not whole in memory
//! ([`Counted`]), so that exactly this goes when it goes. How that changes while it is in its rows is guessed by the number of its
//! elements, and a follower that takes rows over does not know what they replace: such guesses add up in
//! [`Keyspace::doubtful_bytes`], and when they are many the rows are read again.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base::cluster::Segment;

use crate::memory::db::Db;
use crate::memory::entry::EntryRef;
use crate::memory::table::Position;
use crate::rows::layout::{self, Body, Metadata};
use crate::rows::{Family, Gauge, Pace, RowError, RowSource, State, VOID, reach};
use crate::{Keyspace, Kind};

/// For a key beside its own bytes and those of its value: head, table, allocator.
const KEY: usize = 48;
/// For a collection beside that.
const COLLECTION: usize = 48;
/// For an element of a collection that is not packed.
pub(crate) const ELEMENT: usize = 24;
/// For an element in the order of scores.
pub(crate) const SCORE: usize = 32;
/// For an integer that is kept as one.
const INT: usize = 8;
/// For an element in rows: their bytes are not known.
const ROW: usize = 64;
/// Collections of so many elements are packed, about.
const PACKED_MOST: u64 = 128;
/// For an element of a packed collection, beside its bytes.
const PACKED: usize = 2;
/// Bytes of the row of a list's element that are no part of it.
const POSITION: i64 = 8;
const LAST_SLOT: u16 = base::slot::SLOT_COUNT - 1;

/// What the elements of a collection count that is not whole in memory: so many bytes when there were so many
/// elements, and of others in proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    bytes: u64,
    elements: u64,
}

impl Counted {
    /// Nothing but their number is known.
    pub fn guessed(elements: usize) -> Counted {
        let elements = (elements as u64).max(1);
        Counted {
            bytes: elements * ROW as u64,
            elements,
        }
    }

    /// What so many elements count.
    #[inline]
    pub fn of(self, elements: usize) -> usize {
        let bytes = u128::from(self.bytes) * elements as u128;
        (bytes / u128::from(self.elements.max(1))) as usize
    }

    pub fn bytes(self) -> usize {
        self.bytes as usize
    }
}

/// A collection beside its elements.
pub(crate) fn of_collection(key: &[u8]) -> usize {
    KEY + key.len() + COLLECTION
}

/// No key counts less.
pub(crate) fn least(key: &[u8]) -> u64 {
    (KEY + key.len()) as u64
}

/// A key as its metadata row says; of a collection, a guess.
pub(crate) fn of_row(key: &[u8], metadata: &Metadata<'_>) -> usize {
    KEY + key.len()
        + match metadata.body {
            Body::String(bytes) => bytes.len(),
            Body::Collection { size, .. } => {
                COLLECTION + Counted::guessed(size as usize).of(size as usize)
            }
        }
}

/// A metadata row and what is counted for elements beside the bytes of their rows.
fn of_head(row: &[u8], value: &[u8]) -> i64 {
    let parts = layout::parse_metadata_key(row).zip(Metadata::parse(value));
    let Some((at, metadata)) = parts else {
        return 0;
    };
    let key = (KEY + at.key.len()) as i64;
    let Body::Collection { size, .. } = metadata.body else {
        return of_row(at.key, &metadata) as i64;
    };
    let element = match metadata.kind {
        Kind::List => PACKED as i64 - POSITION,
        _ if size <= PACKED_MOST => PACKED as i64,
        Kind::Zset => (ELEMENT + SCORE) as i64,
        _ => ELEMENT as i64,
    };
    key + COLLECTION as i64 + element * size as i64
}

impl EntryRef<'_> {
    /// What a key and its value count.
    #[inline]
    pub(crate) fn weight(self) -> usize {
        use crate::ValueRef;
        let value = match self.value() {
            ValueRef::String(base::Atom::Int(_)) => INT,
            ValueRef::String(base::Atom::Bytes(bytes)) => bytes.len(),
            ValueRef::List(it) => COLLECTION + it.weight(),
            ValueRef::Set(it) => COLLECTION + it.weight(),
            ValueRef::Zset(it) => COLLECTION + it.weight(),
            ValueRef::Hash(it) => COLLECTION + it.weight(),
        };
        KEY + self.key().len() + value
    }

    /// About how much memory a big value gives back. Of a collection in one block, which may as well stay in its rows,
    /// that is little.
    pub(crate) fn freed_bytes(self) -> usize {
        use crate::ValueRef;
        let blocks = match self.value() {
            ValueRef::String(_) => return self.raw_capacity().max(1),
            ValueRef::List(it) => it.allocations(),
            ValueRef::Set(it) => it.allocations(),
            ValueRef::Zset(it) => it.allocations(),
            ValueRef::Hash(it) => it.allocations(),
        };
        match blocks {
            0 | 1 => 1,
            _ => self.weight(),
        }
    }

    /// What the elements of a collection count.
    pub(crate) fn counted(self) -> Option<Counted> {
        let elements = self.elements()?;
        Some(Counted {
            bytes: self.weight().saturating_sub(of_collection(self.key())) as u64,
            elements: elements as u64,
        })
    }
}

impl Db {
    /// What the entry at a position counts; nothing if this database is not counted.
    #[inline]
    pub(crate) fn weight_at(&self, position: Position) -> i64 {
        match self.is_counted {
            true => self.table.at(position).map_or(0, |it| it.weight() as i64),
            false => 0,
        }
    }

    /// The entry at a position is new.
    #[inline]
    pub(crate) fn count_in(&mut self, position: Position) {
        self.bytes += self.weight_at(position);
    }

    /// An entry was taken out and does not exist any more.
    #[inline]
    pub(crate) fn count_out(&mut self, entry: EntryRef<'_>) {
        if self.is_counted {
            self.bytes -= entry.weight() as i64;
        }
    }

    /// What a key counts in the mean.
    pub(crate) fn mean_weight(&self) -> u64 {
        (self.bytes.max(0) as u64) / (self.len() as u64).max(1)
    }

    /// What a key counts that is in rows only, about.
    pub(crate) fn cold_weight(&self, key: &[u8], mean: u64) -> u64 {
        match self.counted.get(key) {
            Some(counted) => (of_collection(key) + counted.bytes()) as u64,
            None => mean.max(least(key)),
        }
    }

    /// Before the entry at a position leaves the table, or becomes another: if the rows are being read, what is
    /// found about a collection must not be counted again.
    #[inline]
    pub(crate) fn note_left(&mut self, position: Position) {
        if self.left.is_some() {
            self.note_left_slow(position);
        }
    }

    #[cold]
    fn note_left_slow(&mut self, position: Position) {
        let Some(entry) = self.table.at(position) else {
            return;
        };
        if entry.elements().is_none() {
            return;
        }
        let key: Box<[u8]> = entry.key().into();
        let handle = self.entry_mut(position).and_then(|it| it.handle());
        let counted = handle.map(|it| it.counted());
        if let Some(left) = &mut self.left {
            left.entry(key).or_insert(counted);
        }
    }
}

/// Collections that have left a table; those that were in their rows with what was counted.
pub(crate) type Left = HashMap<Box<[u8]>, Option<Counted>>;

/// By index id: what a database weighs more than was counted.
type Differences = Vec<(u64, i64)>;

/// What the rows of a region weigh.
#[derive(Clone)]
pub(crate) struct Found {
    dbs: Differences,
    /// Big collections: index id, key.
    big: Vec<(u64, Box<[u8]>, Counted)>,
}

/// A [`Weighing`] that is on its way.
pub(crate) struct Awaited {
    /// Where its result is left; `None`: it failed.
    result: Arc<OnceLock<Option<Found>>>,
    /// What was in doubt when it began.
    doubtful_bytes: u64,
    was_known: bool,
}

/// The rows of a region are to be read to know what they weigh.
pub struct Weighing {
    region: u64,
    /// Less what was counted when the moment was taken that is read.
    dbs: Differences,
    state: State,
    /// Collections of more elements stay in their rows.
    rows_from_elements: u64,
    result: Arc<OnceLock<Option<Found>>>,
}

impl Weighing {
    /// Reads all rows of the region at a moment. Not for cores. `pace` is told how many bytes were read
    /// since the last time.
    pub fn run(self, moment: &dyn RowSource, pace: &mut Pace<'_>) {
        let found = self.read(moment, pace);
        let _ = self.result.set(found.ok().flatten());
    }
}

impl Drop for Weighing {
    /// Whoever waits for it should not do so for ever.
    fn drop(&mut self) {
        let _ = self.result.set(None);
    }
}

impl Weighing {
    /// `None` if `pace` ended it.
    fn read(&self, moment: &dyn RowSource, pace: &mut Pace<'_>) -> Result<Option<Found>, RowError> {
        let mut dbs = self.dbs.clone();
        // By their metadata rows: bytes and elements.
        let mut big: HashMap<Box<[u8]>, (i64, u64)> = HashMap::new();
        let segment = Segment::new(self.region, 0..=LAST_SLOT);
        let mut gauge = Gauge::new(pace);
        let whole = reach(moment, &[segment], &self.state, &mut |row| {
            let read = row.key.len() + row.value.len();
            let weight = match row.family {
                Family::Metadata => {
                    let weight = of_head(row.key, row.value);
                    if let Some((key, size)) = self.big(row.key, row.value) {
                        let elements = weight - of_collection(key) as i64;
                        big.insert(row.key.into(), (elements, size));
                    }
                    weight
                }
                Family::Data => {
                    let parts = layout::split_sub_key(row.key);
                    let sub = parts.map_or(0, |(_, _, sub)| sub.len());
                    let weight = (sub + row.value.len()) as i64;
                    if let Some((of, ..)) = parts.filter(|_| !big.is_empty())
                        && let Some((bytes, _)) = big.get_mut(of)
                    {
                        *bytes += weight;
                    }
                    weight
                }
                _ => return gauge.add(read),
            };
            let id = layout::split_prefix(row.key).map(|(_, id, _)| id);
            if let Some((_, sum)) = dbs.iter_mut().find(|(of, _)| Some(*of) == id) {
                *sum += weight;
            }
            gauge.add(read)
        })?;
        let big = big.into_iter().filter_map(|(row, (bytes, elements))| {
            let at = layout::parse_metadata_key(&row)?;
            let counted = Counted {
                bytes: bytes.max(0) as u64,
                elements,
            };
            Some((at.index_id, at.key.into(), counted))
        });
        let big = big.collect();
        Ok(whole.then_some(Found { dbs, big }))
    }

    /// The key and the number of elements if that is a collection that stays in its rows.
    fn big<'a>(&self, row: &'a [u8], value: &[u8]) -> Option<(&'a [u8], u64)> {
        match Metadata::parse(value)?.body {
            Body::Collection { size, .. } if size > self.rows_from_elements => {
                Some((layout::parse_metadata_key(row)?.key, size))
            }
            _ => None,
        }
    }
}

impl Keyspace {
    /// What the keys of all databases weigh, in memory or not, as far as it is known.
    pub fn data_bytes(&self) -> u64 {
        let dbs = self.dbs.iter().take(VOID);
        dbs.map(|db| db.bytes.max(0) as u64).sum()
    }

    /// How much of [`Keyspace::data_bytes`] may be wrong; `None` if the rows were never read.
    pub fn doubtful_bytes(&self) -> Option<u64> {
        let durable = self.durable.as_ref()?;
        durable.is_weighed.then(|| durable.shared.doubtful_bytes())
    }

    /// To be run on the rows of this moment, which must be all that was applied;
    /// [`Keyspace::take_weighed`] takes its result over.
    pub fn begin_weighing(&mut self) -> Weighing {
        let result = Arc::default();
        let mut rows_from_elements = u64::MAX;
        if let Some(durable) = &mut self.durable {
            rows_from_elements = durable.tuning.rows_from_elements as u64;
            durable.awaited = Some(Awaited {
                result: Arc::clone(&result),
                doubtful_bytes: durable.shared.doubtful_bytes(),
                was_known: durable.is_weighed,
            });
        }
        for db in self.dbs.iter_mut().take(VOID) {
            db.left = Some(Box::default());
        }
        let dbs = self.dbs.iter().take(VOID);
        Weighing {
            region: self.home(),
            dbs: dbs.map(|db| (db.index_id, -db.bytes)).collect(),
            state: self.state(),
            rows_from_elements,
            result,
        }
    }

    /// Whether the rows are being read.
    pub fn is_weighing(&self) -> bool {
        self.durable.as_ref().is_some_and(|it| it.awaited.is_some())
    }

    /// Takes over what the rows of a former moment weighed, once they are read; what has changed since is
    /// counted already. `Some(false)` if they could not be read.
    pub fn take_weighed(&mut self) -> Option<bool> {
        let durable = self.durable.as_mut()?;
        durable.awaited.as_ref()?.result.get()?;
        let awaited = durable.awaited.take()?;
        let found = awaited.result.get().cloned().flatten();
        let left: Vec<(u64, Left)> = self
            .dbs
            .iter_mut()
            .take(VOID)
            .filter_map(|db| Some((db.index_id, *db.left.take()?)))
            .collect();
        let Some(found) = found else {
            return Some(false);
        };
        // Unless something was met meanwhile of which it is not known what was counted.
        durable.is_weighed |= !awaited.was_known;
        durable.shared.forget_doubt(awaited.doubtful_bytes);
        for (id, bytes) in found.dbs {
            // One that was flushed meanwhile has another id.
            if let Some(db) = self.dbs.iter_mut().take(VOID).find(|db| db.index_id == id) {
                db.bytes += bytes;
            }
        }
        for (id, key, counted) in found.big {
            let hash = self.hash(&key);
            let Some(db) = self.dbs.iter_mut().take(VOID).find(|db| db.index_id == id) else {
                continue;
            };
            let left = left.iter().find(|(of, _)| *of == id);
            match left.and_then(|(_, left)| left.get(&key)) {
                Some(left) => db.keep_counted(*left, counted),
                None => db.recount(hash, key, counted),
            }
        }
        Some(true)
    }
}

impl Db {
    /// A collection in its rows went, or came into memory, since they were read: what went with it is what was
    /// counted for it then.
    fn keep_counted(&mut self, former: Option<Counted>, found: Counted) {
        if let Some(former) = former {
            self.bytes -= found.bytes as i64 - former.of(found.elements as usize) as i64;
        }
    }

    /// A big collection counts what its rows weigh.
    fn recount(&mut self, hash: u64, key: Box<[u8]>, found: Counted) {
        let Some(position) = self.table.find(hash, &key) else {
            self.counted.insert(key, found);
            return;
        };
        let before = self.weight_at(position);
        let handle = self.entry_mut(position).and_then(|it| it.handle());
        let Some(handle) = handle else {
            return; // it was whole all the time
        };
        // What has changed since the rows were read was counted by the former measure.
        let former = handle.counted().of(found.elements as usize) as i64;
        handle.set_counted(found);
        self.bytes += self.weight_at(position) - before - (found.bytes as i64 - former);
    }
}

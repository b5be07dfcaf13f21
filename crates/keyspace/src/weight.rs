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
//! Weights take constant time. Of a collection that is in its rows only the number of elements is
//! known, and a follower that takes rows over does not know what they replace: such guesses add up in
//! [`Keyspace::doubtful_bytes`], and when they are many the rows are read again.

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

/// A collection of so many elements that is in its rows.
pub(crate) fn on_rows(elements: usize) -> usize {
    elements * ROW
}

/// A key as its metadata row says; of a collection, a guess.
pub(crate) fn of_row(key: &[u8], metadata: &Metadata<'_>) -> usize {
    KEY + key.len()
        + match metadata.body {
            Body::String(bytes) => bytes.len(),
            Body::Collection { size, .. } => COLLECTION + on_rows(size as usize),
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
}

/// By index id: what a database weighs more than was counted.
type Differences = Vec<(u64, i64)>;

/// Where the result of a [`Weighing`] is left; `None`: it failed.
pub(crate) type Weighed = Arc<OnceLock<Option<Differences>>>;

/// The rows of a region are to be read to know what they weigh.
pub struct Weighing {
    region: u64,
    /// Less what was counted when the moment was taken that is read.
    dbs: Differences,
    state: State,
    result: Weighed,
}

impl Weighing {
    /// Reads all rows of the region at a moment. Not for cores. `pace` is told how many bytes were read
    /// since the last time.
    pub fn run(self, moment: &dyn RowSource, pace: &mut Pace<'_>) {
        let sums = read(self.region, &self.state, self.dbs.clone(), moment, pace);
        let _ = self.result.set(sums.ok().flatten());
    }
}

impl Drop for Weighing {
    /// Whoever waits for it should not do so for ever.
    fn drop(&mut self) {
        let _ = self.result.set(None);
    }
}

/// Adds what the rows of a region weigh to `sums`; `None` if `pace` ended it.
fn read(
    region: u64,
    state: &State,
    mut sums: Differences,
    moment: &dyn RowSource,
    pace: &mut Pace<'_>,
) -> Result<Option<Differences>, RowError> {
    let segment = Segment::new(region, 0..=LAST_SLOT);
    let mut gauge = Gauge::new(pace);
    let whole = reach(moment, &[segment], state, &mut |row| {
        let read = row.key.len() + row.value.len();
        let weight = match row.family {
            Family::Metadata => of_head(row.key, row.value),
            Family::Data => {
                let sub = layout::split_sub_key(row.key).map_or(0, |(_, _, sub)| sub.len());
                (sub + row.value.len()) as i64
            }
            _ => return gauge.add(read),
        };
        let id = layout::split_prefix(row.key).map(|(_, id, _)| id);
        if let Some((_, sum)) = sums.iter_mut().find(|(of, _)| Some(*of) == id) {
            *sum += weight;
        }
        gauge.add(read)
    })?;
    Ok(whole.then_some(sums))
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
        durable.doubtful_bytes
    }

    /// The value of so many bytes was guessed.
    pub(crate) fn doubt(&mut self, bytes: usize) {
        let durable = self.durable.as_mut();
        if let Some(doubtful) = durable.and_then(|it| it.doubtful_bytes.as_mut()) {
            *doubtful += bytes as u64;
        }
    }

    /// To be run on the rows of this moment, which must be all that was applied;
    /// [`Keyspace::take_weighed`] takes its result over.
    pub fn begin_weighing(&mut self) -> Weighing {
        let result = Weighed::default();
        if let Some(durable) = &mut self.durable {
            durable.weighed = Some(result.clone());
        }
        let dbs = self.dbs.iter().take(VOID);
        Weighing {
            region: self.home(),
            dbs: dbs.map(|db| (db.index_id, -db.bytes)).collect(),
            state: self.state(),
            result,
        }
    }

    /// Whether the rows are being read.
    pub fn is_weighing(&self) -> bool {
        self.durable.as_ref().is_some_and(|it| it.weighed.is_some())
    }

    /// Takes over what the rows of a former moment weighed, once they are read; what has changed since is
    /// counted already.
    pub fn take_weighed(&mut self) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let result = durable.weighed.as_ref().and_then(|it| it.get()).cloned();
        let Some(differences) = result else {
            return;
        };
        durable.weighed = None;
        let Some(differences) = differences else {
            return; // it could not be read
        };
        for (id, bytes) in differences {
            // One that was flushed meanwhile has another id.
            if let Some(db) = self.dbs.iter_mut().take(VOID).find(|db| db.index_id == id) {
                db.bytes += bytes;
            }
        }
        if let Some(durable) = &mut self.durable {
            durable.doubtful_bytes = Some(0);
        }
    }
}

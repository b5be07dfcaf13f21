//! Reading all rows of a region to find out what they weigh, while commands go on (decision 30).
//!
//! The result is what the rows of a moment weigh, less what was counted then: it is added to what is counted by now. What
//! is found about a big collection is kept with it ([`Counted`]), unless that went or came into memory meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base::cluster::Segment;

use crate::Keyspace;
use crate::memory::db::Db;
use crate::rows::layout::{self, Body, Metadata};
use crate::rows::{Family, Gauge, Pace, RowError, RowSource, State, VOID, reach};
use crate::weight::{COLLECTION, Counted, KEY, of_collection, of_row};

const LAST_SLOT: u16 = base::slot::SLOT_COUNT - 1;

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
    key + COLLECTION as i64 + metadata.kind.overhead(size) * size as i64
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

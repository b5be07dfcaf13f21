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

use crate::kind::{InMemory, each_value, string};
use crate::memory::db::Db;
use crate::memory::entry::EntryRef;
use crate::memory::table::Position;
use crate::rows::VOID;
use crate::rows::layout::{Body, Metadata};
use crate::{Keyspace, ValueRef};

/// For a key beside its own bytes and those of its value: head, table, allocator.
pub(crate) const KEY: usize = 48;
/// For a collection beside that.
pub(crate) const COLLECTION: usize = 48;
/// For an element of a collection that is not packed.
pub(crate) const ELEMENT: usize = 24;
/// For an element in the order of scores.
pub(crate) const SCORE: usize = 32;
/// For an element of a packed collection, beside its bytes.
pub(crate) const PACKED: usize = 2;
/// Collections of so many elements are packed, about.
pub(crate) const PACKED_MOST: u64 = 128;
/// For an element in rows: their bytes are not known.
const ROW: usize = 64;
/// What the elements of a collection count that is not whole in memory: so many bytes when there were so many
/// elements, and of others in proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) bytes: u64,
    pub(crate) elements: u64,
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

impl EntryRef<'_> {
    /// What a key and its value count.
    #[inline]
    pub(crate) fn weight(self) -> usize {
        let value = each_value!(
            self.value(),
            ValueRef: String(atom) => string::weight(atom),
            it => COLLECTION + it.weight(),
        );
        KEY + self.key().len() + value
    }

    /// About how much memory a big value gives back. Of a collection in one block, which may as well stay in its rows,
    /// that is little.
    pub(crate) fn freed_bytes(self) -> usize {
        let blocks = each_value!(
            self.value(),
            ValueRef: String(_) => return self.raw_capacity().max(1),
            it => it.allocations(),
        );
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
}

//! Ranks in a big collection: boundaries between chunks of rows, and how many rows each chunk has.
//!
//! ```text
//!   first key   │ ""  │ "ant" │ "bee" │ …        a key belongs to the last chunk that begins
//!   rows        │ 256 │  311  │  198  │ …        not after it
//! ```
//!
//! A rank is the rows of the chunks before, and a walk inside one chunk. Made by one walk over all
//! keys when it is first needed (`build.rs`: not on a core); from then on every insertion and removal is counted, a chunk of
//! too many rows is split and an empty one dropped.
//!
//! Invariants: there is at least one chunk; the first begins with nothing; boundaries ascend; the
//! counts are those of the rows and add up to the collection's length.

use std::sync::Arc;

use super::{Handle, Walk};
use crate::rows::Tier;

#[derive(Clone)]
struct Chunk {
    first: Box<[u8]>,
    rows: usize,
}

#[derive(Clone)]
pub(super) struct Index {
    chunks: Vec<Chunk>,
}

impl Index {
    fn new() -> Self {
        let first = Box::default();
        Index {
            chunks: vec![Chunk { first, rows: 0 }],
        }
    }

    fn chunk_of(&self, key: &[u8]) -> usize {
        let behind = self.chunks.partition_point(|chunk| *chunk.first <= *key);
        behind.saturating_sub(1)
    }

    /// Rows before a chunk.
    fn before(&self, chunk: usize) -> usize {
        self.chunks.iter().take(chunk).map(|it| it.rows).sum()
    }

    /// Where row `n` is: the first key of its chunk, and the rows before it there.
    fn locate(&self, n: usize) -> Option<(&[u8], usize)> {
        let mut inside = n;
        for chunk in &self.chunks {
            if inside < chunk.rows {
                return Some((&chunk.first, inside));
            }
            inside -= chunk.rows;
        }
        None
    }

    /// Counts a row in; the chunk is split the next time a row comes there.
    pub(super) fn add(&mut self, key: &[u8]) {
        let at = self.chunk_of(key);
        if let Some(chunk) = self.chunks.get_mut(at) {
            chunk.rows += 1;
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return;
        };
        chunk.rows = chunk.rows.saturating_sub(1);
        if chunk.rows == 0 && self.chunks.len() > 1 {
            self.chunks.remove(at);
            if let Some(first) = self.chunks.first_mut() {
                first.first = Box::default();
            }
        }
    }

    pub(super) fn memory_usage(&self) -> usize {
        let keys: usize = self.chunks.iter().map(|chunk| chunk.first.len()).sum();
        keys + self.chunks.capacity() * size_of::<Chunk>()
    }
}

impl Handle {
    /// What `look` finds in the index, which is made if there is none.
    fn with_index<R>(&self, look: impl FnOnce(&Index) -> R) -> R {
        self.take_built();
        if self.index.borrow().is_none() {
            if self.is_echo || self.home.shared.tier() == Tier::Cache {
                self.home
                    .shared
                    .note_wanted_index(self.order, &self.home.base);
                return look(&Index::new());
            }
            let index = self.make_index();
            *self.index.borrow_mut() = Some(Arc::new(index));
            *self.building.borrow_mut() = None;
        }
        match &*self.index.borrow() {
            Some(index) => look(index),
            None => look(&Index::new()),
        }
    }

    pub(super) fn make_index(&self) -> Index {
        let mut index = Index::new();
        let mut rows = 0;
        self.all(&mut |sub, _| {
            if rows > 0 && rows % self.chunk == 0 {
                let (first, rows) = (sub.into(), 0);
                index.chunks.push(Chunk { first, rows });
            }
            if let Some(last) = index.chunks.last_mut() {
                last.rows += 1;
            }
            rows += 1;
        });
        if rows != self.len {
            self.fail(&format!("{rows} of {} elements", self.len));
        }
        index
    }

    /// Rows before `key`, which need not be there.
    pub fn rank(&self, key: &[u8]) -> usize {
        let (first, mut rank) = self.with_index(|index| {
            let at = index.chunk_of(key);
            let first = index.chunks.get(at).map(|chunk| chunk.first.clone());
            (first.unwrap_or_default(), index.before(at))
        });
        self.between(self.order, (&first, Some(key)), false, &mut |_, _| {
            rank += 1;
            true
        });
        rank
    }

    /// The rows in order, from row `n` on. The first and the last are found without an index.
    pub fn walk_from(&self, n: usize) -> Walk<'_> {
        if n == 0 {
            return Walk::new(self, self.order, (b"", None), false);
        }
        let place = self.with_index(|index| {
            let (first, inside) = index.locate(n)?;
            Some((first.to_vec(), inside))
        });
        match place {
            Some((first, inside)) => {
                Walk::new(self, self.order, (&first, None), false).skip_rows(inside)
            }
            None => Walk::nothing(self),
        }
    }

    /// The rows in order, from row `n` on backwards.
    pub fn walk_back_from(&self, n: usize) -> Walk<'_> {
        let behind = Walk::new(self, self.order, (b"", None), true);
        if n >= self.len {
            return Walk::nothing(self);
        }
        if n + 1 == self.len {
            return behind;
        }
        match self.walk_from(n + 1).for_one().next() {
            Some((key, _)) => Walk::new(self, self.order, (b"", Some(key)), true),
            None => Walk::nothing(self),
        }
    }

    /// A row at random.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(&[u8], &[u8])> {
        if self.len == 0 {
            return None;
        }
        let n = rng.usize(..self.len);
        let row = self.walk_from(n).for_one().next();
        if row.is_none() {
            self.fail(&format!("no element {n} of {}", self.len));
        }
        row
    }

    /// An element was added under this key, which is noted already.
    pub fn count_in(&mut self, key: &[u8]) {
        self.len += 1;
        self.index_in(key);
    }

    /// An element was removed, which is noted already.
    pub fn count_out(&mut self, key: &[u8]) {
        self.len = self.len.saturating_sub(1);
        self.index_out(key);
    }

    fn note_for_building(&mut self, came: bool, key: &[u8]) {
        if let Some(building) = self.building.get_mut() {
            building.note(came, key);
        }
    }

    /// The index to be changed, if there is one; an echo only looks at the one it shares.
    fn own_index(&mut self) -> Option<&mut Index> {
        match self.is_echo {
            true => None,
            false => self.index.get_mut().as_mut().map(Arc::make_mut),
        }
    }

    /// As [`Handle::count_in`] for an element that only has another place in the order.
    pub fn index_in(&mut self, key: &[u8]) {
        let most = 2 * self.chunk;
        self.note_for_building(true, key);
        let Some(index) = self.own_index() else {
            return;
        };
        let at = index.chunk_of(key);
        let Some(chunk) = index.chunks.get_mut(at) else {
            return;
        };
        chunk.rows += 1;
        let (rows, first) = (chunk.rows, chunk.first.clone());
        if rows <= most {
            return;
        }
        let half = rows / 2;
        let (mut seen, mut middle) = (0, None);
        self.between(self.order, (&first, None), false, &mut |sub, _| {
            if seen == half {
                middle = Some(sub.into());
            }
            seen += 1;
            seen <= half
        });
        if let (Some(index), Some(middle)) = (self.own_index(), middle) {
            if let Some(chunk) = index.chunks.get_mut(at) {
                chunk.rows = half;
            }
            let chunk = Chunk {
                first: middle,
                rows: rows - half,
            };
            index.chunks.insert(at + 1, chunk);
        }
    }

    pub fn index_out(&mut self, key: &[u8]) {
        self.note_for_building(false, key);
        if let Some(index) = self.own_index() {
            index.remove(key);
        }
    }
}

//! A big sorted set: a table that owns the members with their scores, and their order.
//!
//! Invariant: table and order hold the same cells with the same scores; a cell leaves the order
//! before it leaves the table. That is what makes the handles in the order good.

use std::ops::Range;

use super::order::{Bytes, Entry, Order};
use crate::collection::cell::{self, Cell, CellRef, Handle};
use crate::memory::table::Table;
use crate::weight;

pub(super) struct Ranked {
    pub(super) table: Table<Cell<f64>>,
    pub(super) order: Order<Handle>,
}

impl Ranked {
    pub(super) fn new(seed: u64) -> Self {
        Ranked {
            table: Table::new(seed),
            order: Order::new(),
        }
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        let cell = self.table.get(self.table.hash(member), member)?;
        Some(cell.head())
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let cell = self.table.get(self.table.hash(member), member)?;
        // SAFETY: as in `add`.
        let member = unsafe { cell.handle() };
        let score = cell.head();
        Some(self.order.rank(&Entry { score, member }))
    }

    /// Adds a member that is not there.
    pub(super) fn add(&mut self, hash: u64, member: &[u8], score: f64) {
        let cell = Cell::new(score, member, b"");
        // SAFETY: the table beside the order owns the cell, see the invariant.
        let member = unsafe { cell.look().handle() };
        self.table.insert(hash, cell);
        self.order.insert(Entry { score, member });
    }

    /// Sets the score of a member, adding it if new; its former score.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        self.update(member, |_| Some(score)).0
    }

    /// Sets the score of a member to what `decide` makes of the former one, if anything; both.
    pub(super) fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> (Option<f64>, Option<f64>) {
        let hash = self.table.hash(member);
        let position = self.table.find(hash, member);
        let cell = position.and_then(|position| self.table.at(position));
        let former = cell.map(CellRef::head);
        let decided = decide(former);
        match (position, cell, decided) {
            (Some(position), Some(cell), Some(score)) if former != decided => {
                let entry = Entry {
                    score: cell.head(),
                    // SAFETY: as in `add`.
                    member: unsafe { cell.handle() },
                };
                Cell::set_head(&mut self.table, position, score);
                self.order.set_score(&entry, score);
            }
            (None, _, Some(score)) => self.add(hash, member, score),
            _ => {}
        }
        (former, decided)
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let position = self.table.find(self.table.hash(member), member)?;
        let cell = self.table.at(position)?;
        let score = cell.head();
        // SAFETY: as in `add`.
        let member = unsafe { cell.handle() };
        self.order.remove(&Entry { score, member });
        self.table.remove(position);
        Some(score)
    }

    /// See [`crate::weight`].
    pub(super) fn weight(&self) -> usize {
        self.table.weight() + self.table.len() * weight::SCORE
    }

    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Order<Handle>>() + cell::table_memory(&self.table) + self.order.memory_usage().0
    }

    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        let table = &mut self.table;
        self.order.remove_range(ranks, &mut |member| {
            let bytes = member.bytes();
            if let Some(position) = table.find(table.hash(bytes), bytes) {
                table.remove(position);
            }
        });
    }
}

impl Bytes for Handle {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.key()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Handle::is_same(self, other)
    }
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        let mut copy = Ranked {
            table: self.table.empty(),
            order: Order::new(),
        };
        // In order, so that the copy's leaves come out full.
        for (score, member) in self.order.iter_from(0) {
            let member = member.bytes();
            copy.add(copy.table.hash(member), member, score);
        }
        copy
    }
}

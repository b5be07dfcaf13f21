//! A big sorted set: a table that owns the members with their scores, and their order.
//!
//! Invariant: table and order hold the same cells with the same scores; a cell leaves the order
//! before it leaves the table. That is what makes the handles in the order good.

use std::ops::Range;

use super::cell::{self, Cell, Handle};
use super::order::{self, Entry, Order};
use crate::memory::table::Table;

pub(super) struct Ranked {
    pub(super) table: Table<Cell<f64>>,
    pub(super) order: Order<Handle>,
}

impl Ranked {
    pub(super) fn new() -> Self {
        Ranked {
            table: cell::new_table(),
            order: Order::new(),
        }
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        let cell = self.table.get(self.table.hash(member), member)?;
        Some(cell.head())
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.count_below(|entry| {
            order::order(
                entry.score,
                || order::Bytes::bytes(&entry.member),
                score,
                || member,
            )
            .is_lt()
        }))
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
        let hash = self.table.hash(member);
        let Some(position) = self.table.find(hash, member) else {
            self.add(hash, member, score);
            return None;
        };
        let cell = self.table.at(position)?;
        let former = cell.head();
        if former != score {
            // SAFETY: as in `add`.
            let member = unsafe { cell.handle() };
            self.order.remove(&Entry {
                score: former,
                member,
            });
            Cell::set_head(&mut self.table, position, score);
            self.order.insert(Entry { score, member });
        }
        Some(former)
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

    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Order<Handle>>() + cell::table_memory(&self.table) + self.order.memory_usage().0
    }

    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        let table = &mut self.table;
        self.order.remove_range(ranks, &mut |member| {
            let bytes = order::Bytes::bytes(&member);
            if let Some(position) = table.find(table.hash(bytes), bytes) {
                table.remove(position);
            }
        });
    }
}

impl Clone for Ranked {
    fn clone(&self) -> Self {
        let mut copy = Ranked::new();
        // In order, so that the copy's leaves come out full.
        for entry in self.order.iter_from(0) {
            let member = order::Bytes::bytes(&entry.member);
            copy.add(copy.table.hash(member), member, entry.score);
        }
        copy
    }
}

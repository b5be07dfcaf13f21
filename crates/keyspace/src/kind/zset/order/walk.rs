//! Entry after entry, upwards or downwards: a leaf at a time, and the next leaf by its rank.
//!
//! Leaves do not know their neighbours, so that splitting and joining need not mend links; one descent
//! per leaf costs little beside its entries.

use std::ops::Range;

use super::{Bytes, Leaf, Order};

/// Entries of one leaf.
struct Entries<'a, M> {
    scores: std::slice::Iter<'a, f64>,
    members: std::slice::Iter<'a, M>,
}

impl<M> Default for Entries<'_, M> {
    fn default() -> Self {
        Entries {
            scores: [].iter(),
            members: [].iter(),
        }
    }
}

impl<'a, M: Bytes> Entries<'a, M> {
    fn of(leaf: &'a Leaf<M>, places: Range<usize>) -> Self {
        Entries {
            scores: leaf.scores()[places.clone()].iter(),
            members: leaf.members()[places].iter(),
        }
    }
}

/// Entries upwards: a leaf at a time, each found by its rank.
pub(in crate::kind::zset) struct Upward<'a, M> {
    order: &'a Order<M>,
    next: usize,
    leaf: Entries<'a, M>,
}

impl<'a, M> Upward<'a, M> {
    pub(super) fn new(order: &'a Order<M>, start: usize) -> Self {
        Upward {
            order,
            next: start.min(order.len),
            leaf: Entries::default(),
        }
    }
}

impl<'a, M: Bytes> Iterator for Upward<'a, M> {
    type Item = (f64, &'a M);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(score) = self.leaf.scores.next() {
            return Some((*score, self.leaf.members.next()?));
        }
        if self.next == self.order.len {
            return None;
        }
        let (leaf, at) = self.order.leaf(self.next)?;
        self.leaf = Entries::of(leaf, at..leaf.len());
        self.next += leaf.len() - at;
        Some((*self.leaf.scores.next()?, self.leaf.members.next()?))
    }
}

/// Entries downwards.
pub(in crate::kind::zset) struct Downward<'a, M> {
    order: &'a Order<M>,
    left: usize,
    leaf: Entries<'a, M>,
}

impl<'a, M> Downward<'a, M> {
    pub(super) fn new(order: &'a Order<M>, start: usize) -> Self {
        Downward {
            order,
            left: if start < order.len { start + 1 } else { 0 },
            leaf: Entries::default(),
        }
    }
}

impl<'a, M: Bytes> Iterator for Downward<'a, M> {
    type Item = (f64, &'a M);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(score) = self.leaf.scores.next_back() {
            return Some((*score, self.leaf.members.next_back()?));
        }
        let (leaf, at) = self.order.leaf(self.left.checked_sub(1)?)?;
        self.leaf = Entries::of(leaf, 0..at + 1);
        self.left -= at + 1;
        Some((
            *self.leaf.scores.next_back()?,
            self.leaf.members.next_back()?,
        ))
    }
}

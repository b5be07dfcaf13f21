//! An inner node: for each child the least entry below it and how many there are, in arrays beside
//! the children, so that a search and a sum read memory in a row.
//!
//! Invariants: the first `least.len()` places of all three arrays are in use and speak of the same
//! children; places behind them hold no child.

use super::node::Node;
use super::{Bytes, Entry, FANOUT, Sorted};

pub(super) struct Inner<M> {
    pub(super) least: Sorted<M, FANOUT>,
    pub(super) counts: [usize; FANOUT],
    pub(super) children: [Option<Node<M>>; FANOUT],
}

impl<M: Bytes> Inner<M> {
    pub(super) fn new(only: Node<M>) -> Self {
        let mut inner = Inner {
            least: Sorted::new(only.least()),
            counts: [0; FANOUT],
            children: [const { None }; FANOUT],
        };
        inner.counts[0] = only.count();
        inner.children[0] = Some(only);
        inner
    }

    pub(super) fn counts(&self) -> &[usize] {
        &self.counts[..self.least.len()]
    }

    /// The child that has `entry`, or would have it.
    #[inline]
    pub(super) fn child_of(&self, entry: &Entry<M>) -> usize {
        match self.least.find(entry) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    /// Adds a child at a place above 0; there is room.
    pub(super) fn insert_child(&mut self, at: usize, node: Node<M>) {
        let len = self.least.len();
        self.least.insert(at, node.least());
        self.counts.copy_within(at..len, at + 1);
        self.counts[at] = node.count();
        self.children[at..=len].rotate_right(1);
        self.children[at] = Some(node);
    }

    /// Adds a child at a place above 0; the right half if the node had to be split.
    pub(super) fn add_child(&mut self, at: usize, node: Node<M>, last: bool) -> Option<Node<M>> {
        if self.least.len() < FANOUT {
            self.insert_child(at, node);
            return None;
        }
        if last && at == FANOUT {
            return Some(Node::Inner(Box::new(Inner::new(node))));
        }
        let mut right = Box::new(self.split_off(FANOUT / 2));
        match at.checked_sub(FANOUT / 2) {
            Some(at) if at > 0 => right.insert_child(at, node),
            _ => self.insert_child(at, node),
        }
        Some(Node::Inner(right))
    }

    pub(super) fn remove_child(&mut self, at: usize) -> Option<Node<M>> {
        let len = self.least.len();
        self.least.remove(at);
        self.counts.copy_within(at + 1..len, at);
        self.children[at..len].rotate_left(1);
        self.children[len - 1].take()
    }

    /// Splits the children from `at` on off; there are some.
    fn split_off(&mut self, at: usize) -> Self {
        let len = self.least.len();
        let mut right = Inner {
            least: self.least.split_off(at),
            counts: [0; FANOUT],
            children: [const { None }; FANOUT],
        };
        right.counts[..len - at].copy_from_slice(&self.counts[at..len]);
        right.children[..len - at].swap_with_slice(&mut self.children[at..len]);
        right
    }

    /// Takes over the children of `right`; there is room.
    fn append(&mut self, right: &mut Self) {
        let (at, more) = (self.least.len(), right.least.len());
        self.counts[at..at + more].copy_from_slice(right.counts());
        self.children[at..at + more].swap_with_slice(&mut right.children[..more]);
        self.least.append(&right.least);
    }

    /// Drops the children that have become empty.
    pub(super) fn drop_empty(&mut self) {
        let mut kept = 0;
        for at in 0..self.least.len() {
            if self.counts[at] > 0 {
                self.least.set(kept, self.least.get(at));
                self.counts[kept] = self.counts[at];
                self.children.swap(kept, at);
                kept += 1;
            }
        }
        let gone = self.least.len() - kept;
        self.least.remove_many(kept, gone);
        self.children[kept..].fill_with(|| None);
    }

    /// Joins the child `at`, if it has become narrow, with a neighbour that has room.
    pub(super) fn join(&mut self, at: usize) {
        let widths = |at: usize| self.children.get(at)?.as_ref().map(Node::width);
        let Some((narrow, most)) = widths(at).filter(|&(width, most)| width < most / 4) else {
            return;
        };
        let fits = |at: usize| widths(at).is_some_and(|(other, _)| other + narrow <= most / 4 * 3);
        let left = if fits(at + 1) {
            at
        } else if at > 0 && fits(at - 1) {
            at - 1
        } else {
            return;
        };
        self.counts[left] += self.counts[left + 1];
        let right = self.remove_child(left + 1);
        match (&mut self.children[left], right) {
            (Some(Node::Leaf(leaf)), Some(Node::Leaf(right))) => leaf.append(&right),
            (Some(Node::Inner(inner)), Some(Node::Inner(mut right))) => inner.append(&mut right),
            _ => unreachable!("siblings are equally deep"),
        }
    }
}

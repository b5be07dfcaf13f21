//! The order of a big sorted set: a counted B+tree over (score, member).
//!
//! ```text
//!                     least scores  │ … │          inner: up to FANOUT children, an array for each
//!                     least members │ … │
//!                     counts        │ … │
//!                     children      │ ∙ │ ∙ │
//!          ┌ scores, members ┐ ┌ scores, members ┐   leaf: up to LEAF entries, two arrays
//! ```
//!
//! A search reads the arrays of scores and touches a member's bytes only where scores tie
//! ([`super::sorted`]). Each inner node knows how many entries are below each child: rank, selection by
//! rank and counting below a bound are one descent. Members are owned elsewhere ([`super::ranked`]).
//!
//! Invariants: no node is empty; all leaves are equally deep; the least entry of a child is the least
//! entry below it, so no handle of a removed member is ever looked through. A node under a quarter full is
//! joined with a neighbour where both fit into three quarters of a node.
//!
//! Here is what asks and what begins at the root. [`node`] is what a node does with the entries below
//! it, [`inner`] how an inner node keeps its arrays in step, [`walk`] reading entry after entry.

mod inner;
mod node;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::Range;

use inner::Inner;
use node::Node;
pub(super) use walk::{Downward, Upward};

use super::sorted::Sorted;
pub(super) use super::sorted::{Bytes, Entry};

/// Entries of a leaf: it fills 1 KiB. Of 31, 63 and 127 the quickest with a million members.
const LEAF: usize = 63;
/// Children of an inner node; 32 were no quicker.
const FANOUT: usize = 64;

type Leaf<M> = Sorted<M, LEAF>;

pub(super) struct Order<M> {
    root: Option<Node<M>>,
    len: usize,
}

impl<M: Bytes> Order<M> {
    pub(super) fn new() -> Self {
        Order { root: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry that is not there.
    pub(super) fn insert(&mut self, entry: Entry<M>) {
        self.len += 1;
        let Some(root) = &mut self.root else {
            self.root = Some(Node::Leaf(Box::new(Sorted::new(entry))));
            return;
        };
        if let Some(right) = root.insert(entry, true)
            && let Some(left) = self.root.take()
        {
            let mut inner = Box::new(Inner::new(left));
            inner.insert_child(1, right);
            self.root = Some(Node::Inner(inner));
        }
    }

    /// Removes an entry that is there; whether it was.
    pub(super) fn remove(&mut self, entry: &Entry<M>) -> bool {
        let removed = self.root.as_mut().is_some_and(|root| root.remove(entry));
        self.len -= usize::from(removed);
        self.lower_root();
        removed
    }

    /// Gives an entry that is there another score.
    pub(super) fn set_score(&mut self, entry: &Entry<M>, score: f64) {
        let to = Entry { score, ..*entry };
        // Most scores move a little: within one leaf, nothing above it changes.
        if !self.root.as_mut().is_some_and(|root| root.shift(entry, to)) && self.remove(entry) {
            self.insert(to);
        }
    }

    /// Removes the entries of these ranks (which exist), giving each member to `each`.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>, each: &mut dyn FnMut(M)) {
        if let Some(root) = &mut self.root
            && !ranks.is_empty()
        {
            self.len -= ranks.len();
            root.remove_range(ranks, each);
            self.lower_root();
        }
    }

    fn lower_root(&mut self) {
        if self.len == 0 {
            self.root = None;
        }
        while let Some(Node::Inner(inner)) = &mut self.root
            && inner.least.len() == 1
        {
            self.root = inner.children[0].take();
        }
    }

    /// Number of entries before `entry`, which is there.
    pub(super) fn rank(&self, entry: &Entry<M>) -> usize {
        self.count(
            |inner| inner.child_of(entry),
            |leaf| leaf.find_present(entry).unwrap_or_default(),
        )
    }

    /// Number of entries with a score below this one; with `equal`, of those not above it.
    pub(super) fn count_scores(&self, score: f64, equal: bool) -> usize {
        self.count(
            |inner| inner.least.count_scores(score, equal).saturating_sub(1),
            |leaf| leaf.count_scores(score, equal),
        )
    }

    /// Number of entries with the lowest score, which is `score`, whose member is `below`; that holds for
    /// the first of them.
    pub(super) fn count_members(&self, score: f64, below: impl Fn(&M) -> bool) -> usize {
        let count = |scores: &[f64], members: &[M]| {
            let ties = scores.partition_point(|other| *other <= score);
            members[..ties].partition_point(&below)
        };
        self.count(
            |inner| {
                let least = &inner.least;
                count(least.scores(), least.members()).saturating_sub(1)
            },
            |leaf| count(leaf.scores(), leaf.members()),
        )
    }

    /// Number of entries before the one that `child` and then `place` lead to.
    #[inline]
    fn count(
        &self,
        child: impl Fn(&Inner<M>) -> usize,
        place: impl Fn(&Leaf<M>) -> usize,
    ) -> usize {
        let mut count = 0;
        let mut node = self.root.as_ref();
        while let Some(here) = node {
            match here {
                Node::Leaf(leaf) => return count + place(leaf),
                Node::Inner(inner) => {
                    let at = child(inner);
                    count += inner.counts[..at].iter().sum::<usize>();
                    node = inner.children[at].as_ref();
                }
            }
        }
        count
    }

    /// The leaf that has the entry of this rank, and the entry's place in it.
    fn leaf(&self, rank: usize) -> Option<(&Leaf<M>, usize)> {
        let mut rest = rank;
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return (rest < leaf.len()).then_some((leaf, rest)),
                Node::Inner(inner) => {
                    let mut at = 0;
                    while rest >= *inner.counts().get(at)? {
                        rest -= inner.counts[at];
                        at += 1;
                    }
                    node = inner.children[at].as_ref()?;
                }
            }
        }
    }

    /// Entries from this rank on, upwards.
    pub(super) fn iter_from(&self, start: usize) -> Upward<'_, M> {
        Upward::new(self, start)
    }

    /// Entries from this rank on, downwards.
    pub(super) fn iter_rev_from(&self, start: usize) -> Downward<'_, M> {
        Downward::new(self, start)
    }

    /// Bytes and number of the blocks the nodes take.
    pub(super) fn memory_usage(&self) -> (usize, usize) {
        self.root.as_ref().map_or((0, 0), Node::memory_usage)
    }
}

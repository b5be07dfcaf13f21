//! What a node does with the entries below it: add, remove, move one, remove many.
//!
//! Each operation goes down to a leaf and mends on the way back: what has become too full splits and
//! hands its right half to its parent, what is empty goes, what is narrow is joined with a neighbour,
//! and counts and least entries follow.

use std::ops::Range;

use super::inner::Inner;
use super::{Bytes, Entry, FANOUT, LEAF, Leaf, Sorted};

pub(super) enum Node<M> {
    Leaf(Box<Leaf<M>>),
    Inner(Box<Inner<M>>),
}

impl<M: Bytes> Node<M> {
    pub(super) fn least(&self) -> Entry<M> {
        match self {
            Node::Leaf(leaf) => leaf.get(0),
            Node::Inner(inner) => inner.least.get(0),
        }
    }

    /// Entries below.
    pub(super) fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts().iter().sum(),
        }
    }

    /// Entries or children in the node itself, and how many there may be.
    pub(super) fn width(&self) -> (usize, usize) {
        match self {
            Node::Leaf(leaf) => (leaf.len(), LEAF),
            Node::Inner(inner) => (inner.least.len(), FANOUT),
        }
    }

    /// Adds an entry; the right half if the node had to be split. `last`: the node is on the right
    /// edge of the tree, where entries that arrive in order are expected: it stays full then.
    pub(super) fn insert(&mut self, entry: Entry<M>, last: bool) -> Option<Node<M>> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.find(&entry).unwrap_or_else(|at| at);
                if leaf.len() < LEAF {
                    leaf.insert(at, entry);
                    return None;
                }
                if last && at == LEAF {
                    return Some(Node::Leaf(Box::new(Sorted::new(entry))));
                }
                let mut right = Box::new(leaf.split_off(LEAF / 2));
                match at.checked_sub(LEAF / 2) {
                    Some(at) if at > 0 => right.insert(at, entry),
                    _ => leaf.insert(at, entry),
                }
                Some(Node::Leaf(right))
            }
            Node::Inner(inner) => {
                let found = inner.least.find(&entry);
                if found == Err(0) {
                    inner.least.set(0, entry);
                }
                let at = found.unwrap_or_else(|at| at.saturating_sub(1));
                let last = last && at + 1 == inner.least.len();
                let split = inner.children[at].as_mut()?.insert(entry, last);
                inner.counts[at] += 1;
                let right = split?;
                inner.counts[at] -= right.count();
                inner.add_child(at + 1, right, last)
            }
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry<M>) -> bool {
        match self {
            Node::Leaf(leaf) => {
                let found = leaf.find_present(entry);
                if let Some(at) = found {
                    leaf.remove(at);
                }
                found.is_some()
            }
            Node::Inner(inner) => {
                let found = inner.least.find(entry);
                let at = found.unwrap_or_else(|at| at.saturating_sub(1));
                let Some(child) = &mut inner.children[at] else {
                    return false;
                };
                if !child.remove(entry) {
                    return false;
                }
                let (width, most) = child.width();
                inner.counts[at] -= 1;
                if width == 0 {
                    inner.remove_child(at);
                    return true;
                }
                if found.is_ok() {
                    inner.least.set(at, child.least());
                }
                if width < most / 4 {
                    inner.join(at);
                }
                true
            }
        }
    }

    /// Changes `entry` to `to`, another score of the same member, if both lie inside the same leaf,
    /// not at its edges. Whether that was so.
    pub(super) fn shift(&mut self, entry: &Entry<M>, to: Entry<M>) -> bool {
        let mut node = self;
        loop {
            match node {
                Node::Inner(inner) => {
                    let at = inner.child_of(entry);
                    match &mut inner.children[at] {
                        Some(child) => node = child,
                        None => return false,
                    }
                }
                Node::Leaf(leaf) => {
                    // Far moves are the work of one comparison with each edge.
                    let scores = leaf.scores();
                    if to.score <= scores[0] || to.score >= scores[scores.len() - 1] {
                        return false;
                    }
                    let (Some(from), Err(place)) = (leaf.find_present(entry), leaf.find(&to))
                    else {
                        return false;
                    };
                    let inside = from > 0;
                    if inside {
                        leaf.shift(from, place - usize::from(place > from), to);
                    }
                    return inside;
                }
            }
        }
    }

    pub(super) fn remove_range(&mut self, ranks: Range<usize>, each: &mut dyn FnMut(M)) {
        match self {
            Node::Leaf(leaf) => {
                leaf.members()[ranks.clone()].iter().copied().for_each(each);
                leaf.remove_many(ranks.start, ranks.len());
            }
            Node::Inner(inner) => {
                let mut end = 0;
                let mut edges = [usize::MAX; 2];
                for at in 0..inner.least.len() {
                    let start = end;
                    end += inner.counts[at];
                    let here = ranks.start.max(start)..ranks.end.min(end);
                    let Some(child) = inner.children[at].as_mut().filter(|_| !here.is_empty())
                    else {
                        continue;
                    };
                    child.remove_range(here.start - start..here.end - start, each);
                    inner.counts[at] -= here.len();
                    if inner.counts[at] > 0 {
                        inner.least.set(at, child.least());
                    }
                    edges = [edges[0].min(at), at];
                }
                inner.drop_empty();
                // What is left of the children at both ends now lies at or before these places.
                for at in edges.into_iter().rev() {
                    inner.join(at.min(FANOUT));
                    inner.join(edges[0].saturating_add(1));
                }
            }
        }
    }

    pub(super) fn memory_usage(&self) -> (usize, usize) {
        match self {
            Node::Leaf(leaf) => (size_of_val(&**leaf), 1),
            Node::Inner(inner) => inner.children.iter().flatten().fold(
                (size_of_val(&**inner), 1),
                |(bytes, blocks), child| {
                    let below = child.memory_usage();
                    (bytes + below.0, blocks + below.1)
                },
            ),
        }
    }
}

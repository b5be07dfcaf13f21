//! The order of a big sorted set: a counted B+tree over (score, member).
//!
//! ```text
//!                     ┌ least, count, node ┬ least, count, node ┐        inner: up to 64 children
//!                     └────────┬───────────┴──────────┬─────────┘
//!          ┌ (score, member) … ┐          ┌ (score, member) … ┐          leaf: up to 64 entries
//! ```
//!
//! Scores lie in the leaves beside a handle to the member, so a search touches a member's bytes only
//! where scores tie. Each inner node knows how many entries are below each child: rank, selection by
//! rank and counting below a bound are one descent. Members are owned elsewhere ([`super::ranked`]).
//!
//! Invariants: no node is empty but a root that is a leaf; all leaves are equally deep; `least` is the least
//! entry below the child, so no handle of a removed member stays in the tree. A node under a quarter full is
//! joined with a neighbour where both fit into three quarters of a node.

use std::cmp::Ordering;
use std::ops::Range;

const LEAF: usize = 64;
const FANOUT: usize = 64;

/// A handle to a member's bytes.
pub(super) trait Bytes: Copy {
    fn bytes(&self) -> &[u8];
}

#[derive(Clone, Copy)]
pub(super) struct Entry<M> {
    pub(super) score: f64,
    pub(super) member: M,
}

impl<M: Bytes> Entry<M> {
    #[inline]
    fn order(&self, other: &Entry<M>) -> Ordering {
        order(
            self.score,
            || self.member.bytes(),
            other.score,
            || other.member.bytes(),
        )
    }
}

/// The order of two entries; the members are asked for only on a tie.
#[inline]
pub(super) fn order<'a, 'b>(
    score: f64,
    member: impl FnOnce() -> &'a [u8],
    other_score: f64,
    other: impl FnOnce() -> &'b [u8],
) -> Ordering {
    match score.partial_cmp(&other_score) {
        Some(Ordering::Less) => Ordering::Less,
        Some(Ordering::Greater) => Ordering::Greater,
        _ => member().cmp(other()),
    }
}

struct Child<M> {
    least: Entry<M>,
    count: usize,
    node: Node<M>,
}

enum Node<M> {
    Leaf(Vec<Entry<M>>),
    Inner(Vec<Child<M>>),
}

pub(super) struct Order<M> {
    root: Node<M>,
    len: usize,
}

impl<M: Bytes> Order<M> {
    pub(super) fn new() -> Self {
        Order {
            root: Node::Leaf(Vec::new()),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry that is not there.
    pub(super) fn insert(&mut self, entry: Entry<M>) {
        self.len += 1;
        if let Some(right) = self.root.insert(entry, true) {
            let left = std::mem::replace(&mut self.root, Node::Inner(Vec::with_capacity(FANOUT)));
            if let Node::Inner(children) = &mut self.root {
                children.extend([left, right].into_iter().filter_map(Child::of));
            }
        }
    }

    /// Removes an entry; whether it was there.
    pub(super) fn remove(&mut self, entry: &Entry<M>) -> bool {
        let removed = self.root.remove(entry);
        self.len -= usize::from(removed);
        self.lower_root();
        removed
    }

    /// Removes the entries of these ranks (which exist), giving each member to `each`.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>, each: &mut dyn FnMut(M)) {
        if ranks.is_empty() {
            return;
        }
        self.len -= ranks.len();
        self.root.remove_range(ranks, each);
        self.lower_root();
    }

    fn lower_root(&mut self) {
        while let Node::Inner(children) = &mut self.root {
            match children.len() {
                0 => self.root = Node::Leaf(Vec::new()),
                1 => {
                    if let Some(only) = children.pop() {
                        self.root = only.node;
                    }
                }
                _ => break,
            }
        }
    }

    /// Number of entries for which `below` holds; it holds for a prefix of the order.
    pub(super) fn count_below(&self, below: impl Fn(&Entry<M>) -> bool) -> usize {
        let mut count = 0;
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return count + entries.partition_point(&below),
                Node::Inner(children) => {
                    let at = children
                        .partition_point(|child| below(&child.least))
                        .saturating_sub(1);
                    count += children[..at]
                        .iter()
                        .map(|child| child.count)
                        .sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// The leaf that has the entry of this rank, and the entry's place in it.
    fn leaf(&self, rank: usize) -> (&[Entry<M>], usize) {
        let mut rest = rank;
        let mut node = &self.root;
        'down: loop {
            match node {
                Node::Leaf(entries) => return (entries, rest.min(entries.len())),
                Node::Inner(children) => {
                    for child in children {
                        if rest < child.count {
                            node = &child.node;
                            continue 'down;
                        }
                        rest -= child.count;
                    }
                    return (&[], 0);
                }
            }
        }
    }

    /// Entries from this rank on, upwards.
    pub(super) fn iter_from(&self, start: usize) -> Upward<'_, M> {
        Upward {
            order: self,
            next: start.min(self.len),
            leaf: [].iter(),
        }
    }

    /// Entries from this rank on, downwards.
    pub(super) fn iter_rev_from(&self, start: usize) -> Downward<'_, M> {
        Downward {
            order: self,
            left: if start < self.len { start + 1 } else { 0 },
            leaf: [].iter(),
        }
    }

    /// Bytes and number of the blocks the nodes take.
    pub(super) fn memory_usage(&self) -> (usize, usize) {
        self.root.memory_usage()
    }
}

impl<M: Bytes> Child<M> {
    /// `None` for an empty node.
    fn of(node: Node<M>) -> Option<Self> {
        Some(Child {
            least: node.least()?,
            count: node.count(),
            node,
        })
    }
}

impl<M: Bytes> Node<M> {
    fn least(&self) -> Option<Entry<M>> {
        match self {
            Node::Leaf(entries) => entries.first().copied(),
            Node::Inner(children) => children.first().map(|child| child.least),
        }
    }

    /// Entries below.
    fn count(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.iter().map(|child| child.count).sum(),
        }
    }

    /// Entries or children in the node itself.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }

    /// Adds an entry; the right half if the node had to be split. `last`: the node is on the right
    /// edge of the tree, where entries that arrive in order are expected: it stays full then.
    fn insert(&mut self, entry: Entry<M>, last: bool) -> Option<Node<M>> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.partition_point(|other| other.order(&entry).is_lt());
                insert_at(entries, at, entry, LEAF, last).map(Node::Leaf)
            }
            Node::Inner(children) => {
                let at = child_of(children, &entry);
                let last = last && at + 1 == children.len();
                let child = &mut children[at];
                let split = child.node.insert(entry, last);
                child.count += 1;
                if entry.order(&child.least).is_lt() {
                    child.least = entry;
                }
                let right = Child::of(split?)?;
                child.count -= right.count;
                insert_at(children, at + 1, right, FANOUT, last).map(Node::Inner)
            }
        }
    }

    fn remove(&mut self, entry: &Entry<M>) -> bool {
        match self {
            Node::Leaf(entries) => {
                let found = entries.binary_search_by(|other| other.order(entry));
                if let Ok(at) = found {
                    entries.remove(at);
                }
                found.is_ok()
            }
            Node::Inner(children) => {
                let at = child_of(children, entry);
                let child = &mut children[at];
                if !child.node.remove(entry) {
                    return false;
                }
                child.count -= 1;
                match child.node.least() {
                    Some(least) => {
                        child.least = least;
                        join(children, at);
                    }
                    None => {
                        children.remove(at);
                    }
                }
                true
            }
        }
    }

    fn remove_range(&mut self, ranks: Range<usize>, each: &mut dyn FnMut(M)) {
        match self {
            Node::Leaf(entries) => entries.drain(ranks).for_each(|entry| each(entry.member)),
            Node::Inner(children) => {
                let mut end = 0;
                let mut edges = [usize::MAX; 2];
                for (at, child) in children.iter_mut().enumerate() {
                    let start = end;
                    end += child.count;
                    let here = ranks.start.max(start)..ranks.end.min(end);
                    if here.is_empty() {
                        continue;
                    }
                    child
                        .node
                        .remove_range(here.start - start..here.end - start, each);
                    child.count -= here.len();
                    if let Some(least) = child.node.least() {
                        child.least = least;
                    }
                    edges = [edges[0].min(at), at];
                }
                children.retain(|child| child.count > 0);
                // What is left of the children at both ends now lies at or before these places.
                for at in edges.into_iter().rev() {
                    join(children, at.min(children.len()));
                    join(children, edges[0] + 1);
                }
            }
        }
    }

    fn memory_usage(&self) -> (usize, usize) {
        match self {
            Node::Leaf(entries) => (entries.capacity() * size_of::<Entry<M>>(), 1),
            Node::Inner(children) => children.iter().fold(
                (children.capacity() * size_of::<Child<M>>(), 1),
                |(bytes, blocks), child| {
                    let below = child.node.memory_usage();
                    (bytes + below.0, blocks + below.1)
                },
            ),
        }
    }
}

/// The child that has `entry`, or would have it.
#[inline]
fn child_of<M: Bytes>(children: &[Child<M>], entry: &Entry<M>) -> usize {
    children
        .partition_point(|child| child.least.order(entry).is_le())
        .saturating_sub(1)
}

/// Inserts into a node of at most `max` items; the right half if it had to be split.
#[inline]
fn insert_at<T>(items: &mut Vec<T>, at: usize, item: T, max: usize, last: bool) -> Option<Vec<T>> {
    if items.len() < max {
        if items.len() == items.capacity() {
            items.reserve_exact((items.len() + 4).min(max - items.len()));
        }
        items.insert(at, item);
        return None;
    }
    let mut right = Vec::with_capacity(max);
    if last && at == max {
        right.push(item);
        return Some(right);
    }
    right.extend(items.drain(max / 2..));
    match at.checked_sub(max / 2) {
        Some(at) if at > 0 => right.insert(at, item),
        _ => items.insert(at, item),
    }
    Some(right)
}

/// Joins the child `at`, if it has become narrow, with a neighbour that has room.
fn join<M: Bytes>(children: &mut Vec<Child<M>>, at: usize) {
    let width = |at: usize| children.get(at).map(|child| child.node.width());
    let Some(narrow) = width(at).filter(|&width| width < LEAF / 4) else {
        return;
    };
    let fits = |at: usize| width(at).is_some_and(|other| other + narrow <= LEAF / 4 * 3);
    let left = if fits(at + 1) {
        at
    } else if at > 0 && fits(at - 1) {
        at - 1
    } else {
        return;
    };
    let right = children.remove(left + 1);
    let into = &mut children[left];
    into.count += right.count;
    match (&mut into.node, right.node) {
        (Node::Leaf(entries), Node::Leaf(more)) => entries.extend(more),
        (Node::Inner(children), Node::Inner(more)) => children.extend(more),
        _ => unreachable!("siblings are equally deep"),
    }
}

/// Entries upwards: a leaf at a time, each found by its rank.
pub(super) struct Upward<'a, M> {
    order: &'a Order<M>,
    next: usize,
    leaf: std::slice::Iter<'a, Entry<M>>,
}

impl<'a, M: Bytes> Iterator for Upward<'a, M> {
    type Item = &'a Entry<M>;

    #[inline]
    fn next(&mut self) -> Option<&'a Entry<M>> {
        if let Some(entry) = self.leaf.next() {
            return Some(entry);
        }
        if self.next == self.order.len {
            return None;
        }
        let (leaf, at) = self.order.leaf(self.next);
        self.leaf = leaf[at..].iter();
        self.next += self.leaf.len();
        self.leaf.next()
    }
}

/// Entries downwards.
pub(super) struct Downward<'a, M> {
    order: &'a Order<M>,
    left: usize,
    leaf: std::slice::Iter<'a, Entry<M>>,
}

impl<'a, M: Bytes> Iterator for Downward<'a, M> {
    type Item = &'a Entry<M>;

    #[inline]
    fn next(&mut self) -> Option<&'a Entry<M>> {
        if let Some(entry) = self.leaf.next_back() {
            return Some(entry);
        }
        let (leaf, at) = self.order.leaf(self.left.checked_sub(1)?);
        self.leaf = leaf[..=at].iter();
        self.left -= self.leaf.len();
        self.leaf.next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bytes for &'static [u8] {
        fn bytes(&self) -> &[u8] {
            self
        }
    }

    fn check(node: &Node<&'static [u8]>, root: bool) -> usize {
        assert!(root || node.width() > 0);
        if let Node::Inner(children) = node {
            assert!(children.len() <= FANOUT);
            let depths: Vec<usize> = children
                .iter()
                .map(|child| {
                    assert_eq!(child.count, child.node.count());
                    let least = child.node.least().unwrap();
                    assert!(child.least.order(&least).is_eq());
                    check(&child.node, false)
                })
                .collect();
            assert!(depths.iter().all(|&depth| depth == depths[0]));
            return depths[0] + 1;
        }
        0
    }

    fn all(order: &Order<&'static [u8]>) -> Vec<(i64, &'static [u8])> {
        let up: Vec<_> = order
            .iter_from(0)
            .map(|entry| (entry.score as i64, entry.member))
            .collect();
        let mut down: Vec<_> = order
            .iter_rev_from(order.len().wrapping_sub(1))
            .map(|entry| (entry.score as i64, entry.member))
            .collect();
        down.reverse();
        assert_eq!(up, down);
        up
    }

    #[test]
    fn agrees_with_a_sorted_vector() {
        let members: Vec<&'static [u8]> = (0..40)
            .map(|n| &*Vec::leak(format!("m{n}").into_bytes()))
            .collect();
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..6 {
            let mut order = Order::new();
            let mut model = std::collections::BTreeSet::new();
            for step in 0..20_000 {
                // In order, at random over few scores, or at random over many.
                let score = [step, rng.i64(0..100), rng.i64(0..1_000_000)][round % 3];
                let member = members[rng.usize(0..40)];
                if model.insert((score, member)) {
                    order.insert(Entry {
                        score: score as f64,
                        member,
                    });
                }
                if rng.u8(0..4) == 0 {
                    let at = rng.usize(0..model.len());
                    let Some(&(score, member)) = model.iter().nth(at.min(50)) else {
                        continue;
                    };
                    model.remove(&(score, member));
                    assert!(order.remove(&Entry {
                        score: score as f64,
                        member,
                    }));
                }
            }
            check(&order.root, true);
            assert_eq!(all(&order), model.iter().copied().collect::<Vec<_>>());
            let mut sorted: Vec<_> = model.into_iter().collect();
            while !sorted.is_empty() {
                let start = rng.usize(0..sorted.len());
                let most = (sorted.len() - start).min(sorted.len() / 3 + 2);
                let end = start + rng.usize(0..=most);
                let mut gone = 0;
                order.remove_range(start..end, &mut |_| gone += 1);
                assert_eq!(gone, end - start);
                sorted.drain(start..end);
                check(&order.root, true);
                assert_eq!(all(&order), sorted);
                if let Some(&(score, member)) = sorted.get(start) {
                    let entry = Entry {
                        score: score as f64,
                        member,
                    };
                    assert_eq!(
                        order.count_below(|other| other.order(&entry).is_lt()),
                        start
                    );
                }
            }
        }
    }

    #[test]
    fn arrivals_in_order_fill_the_leaves() {
        let mut order = Order::new();
        for n in 0..10_000 {
            order.insert(Entry {
                score: f64::from(n),
                member: &b"m"[..],
            });
        }
        assert!(order.memory_usage().0 < 10_000 * 26);
    }
}

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

use std::ops::Range;

use super::sorted::Sorted;
pub(super) use super::sorted::{Bytes, Entry};

/// Entries of a leaf: it fills 1 KiB. Of 31, 63 and 127 the quickest with a million members.
const LEAF: usize = 63;
/// Children of an inner node; 32 were no quicker.
const FANOUT: usize = 64;

type Leaf<M> = Sorted<M, LEAF>;

struct Inner<M> {
    least: Sorted<M, FANOUT>,
    counts: [usize; FANOUT],
    children: [Option<Node<M>>; FANOUT],
}

enum Node<M> {
    Leaf(Box<Leaf<M>>),
    Inner(Box<Inner<M>>),
}

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
        Upward {
            order: self,
            next: start.min(self.len),
            leaf: Entries::default(),
        }
    }

    /// Entries from this rank on, downwards.
    pub(super) fn iter_rev_from(&self, start: usize) -> Downward<'_, M> {
        Downward {
            order: self,
            left: if start < self.len { start + 1 } else { 0 },
            leaf: Entries::default(),
        }
    }

    /// Bytes and number of the blocks the nodes take.
    pub(super) fn memory_usage(&self) -> (usize, usize) {
        self.root.as_ref().map_or((0, 0), Node::memory_usage)
    }
}

impl<M: Bytes> Inner<M> {
    fn new(only: Node<M>) -> Self {
        let mut inner = Inner {
            least: Sorted::new(only.least()),
            counts: [0; FANOUT],
            children: [const { None }; FANOUT],
        };
        inner.counts[0] = only.count();
        inner.children[0] = Some(only);
        inner
    }

    fn counts(&self) -> &[usize] {
        &self.counts[..self.least.len()]
    }

    /// The child that has `entry`, or would have it.
    #[inline]
    fn child_of(&self, entry: &Entry<M>) -> usize {
        match self.least.find(entry) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    /// Adds a child at a place above 0; there is room.
    fn insert_child(&mut self, at: usize, node: Node<M>) {
        let len = self.least.len();
        self.least.insert(at, node.least());
        self.counts.copy_within(at..len, at + 1);
        self.counts[at] = node.count();
        self.children[at..=len].rotate_right(1);
        self.children[at] = Some(node);
    }

    fn remove_child(&mut self, at: usize) -> Option<Node<M>> {
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
    fn drop_empty(&mut self) {
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
    fn join(&mut self, at: usize) {
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

impl<M: Bytes> Node<M> {
    fn least(&self) -> Entry<M> {
        match self {
            Node::Leaf(leaf) => leaf.get(0),
            Node::Inner(inner) => inner.least.get(0),
        }
    }

    /// Entries below.
    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts().iter().sum(),
        }
    }

    /// Entries or children in the node itself, and how many there may be.
    fn width(&self) -> (usize, usize) {
        match self {
            Node::Leaf(leaf) => (leaf.len(), LEAF),
            Node::Inner(inner) => (inner.least.len(), FANOUT),
        }
    }

    /// Adds an entry; the right half if the node had to be split. `last`: the node is on the right
    /// edge of the tree, where entries that arrive in order are expected: it stays full then.
    fn insert(&mut self, entry: Entry<M>, last: bool) -> Option<Node<M>> {
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

    fn remove(&mut self, entry: &Entry<M>) -> bool {
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
    fn shift(&mut self, entry: &Entry<M>, to: Entry<M>) -> bool {
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

    fn remove_range(&mut self, ranks: Range<usize>, each: &mut dyn FnMut(M)) {
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

    fn memory_usage(&self) -> (usize, usize) {
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

impl<M: Bytes> Inner<M> {
    /// Adds a child at a place above 0; the right half if the node had to be split.
    fn add_child(&mut self, at: usize, node: Node<M>, last: bool) -> Option<Node<M>> {
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
}

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
pub(super) struct Upward<'a, M> {
    order: &'a Order<M>,
    next: usize,
    leaf: Entries<'a, M>,
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
pub(super) struct Downward<'a, M> {
    order: &'a Order<M>,
    left: usize,
    leaf: Entries<'a, M>,
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

#[cfg(test)]
mod tests {
    use super::*;

    impl Bytes for &'static [u8] {
        fn bytes(&self) -> &[u8] {
            self
        }
        fn is_same(&self, other: &Self) -> bool {
            std::ptr::eq(*self, *other)
        }
    }

    fn check(node: &Node<&'static [u8]>) -> usize {
        assert!(node.width().0 > 0);
        if let Node::Inner(inner) = node {
            let depths: Vec<usize> = (0..inner.least.len())
                .map(|at| {
                    let child = inner.children[at].as_ref().unwrap();
                    assert_eq!(inner.counts[at], child.count());
                    let (least, below) = (inner.least.get(at), child.least());
                    assert_eq!((least.score, least.member), (below.score, below.member));
                    check(child)
                })
                .collect();
            assert!(inner.children[depths.len()..].iter().all(Option::is_none));
            assert!(depths.iter().all(|&depth| depth == depths[0]));
            return depths[0] + 1;
        }
        0
    }

    fn all(order: &Order<&'static [u8]>) -> Vec<(i64, &'static [u8])> {
        let up: Vec<_> = order
            .iter_from(0)
            .map(|(score, member)| (score as i64, *member))
            .collect();
        let mut down: Vec<_> = order
            .iter_rev_from(order.len().wrapping_sub(1))
            .map(|(score, member)| (score as i64, *member))
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
                    // Moves: some within a leaf, some far.
                    let &(score, member) = model.iter().nth(rng.usize(0..model.len())).unwrap();
                    let by = [1, 2, 5_000][rng.usize(0..3)];
                    let to = score + rng.i64(-by..=by);
                    if model.insert((to, member)) {
                        model.remove(&(score, member));
                        let entry = Entry {
                            score: score as f64,
                            member,
                        };
                        order.set_score(&entry, to as f64);
                    }
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
            order.root.as_ref().map(check);
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
                order.root.as_ref().map(check);
                assert_eq!(all(&order), sorted);
                if let Some(&(score, member)) = sorted.get(start) {
                    let entry = Entry {
                        score: score as f64,
                        member,
                    };
                    assert_eq!(order.rank(&entry), start);
                    for (equal, end) in [(false, 0), (true, 1)] {
                        assert_eq!(
                            order.count_scores(entry.score, equal),
                            sorted.partition_point(|&(other, _)| other < score + end)
                        );
                    }
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

//! A few entries of a sorted set in order: the scores in one array, the handles to the members in
//! another.
//!
//! ```text
//!   scores   │ 1.0 │ 2.5 │ 2.5 │ 7.0 │ …  N
//!   members  │  ∙  │  ∙  │  ∙  │  ∙  │ …  N     ──► bytes, owned elsewhere
//! ```
//!
//! A search counts the lower scores: loads and compares that do not wait for each other, a cache line
//! of eight scores at a time. Members are looked at only among equal scores, and a member that is the
//! one looked for is known by its handle.
//!
//! Invariants: never made empty; places from `len` on hold copies of former entries that nothing reads.

use std::cmp::Ordering;

/// A handle to a member's bytes.
pub(super) trait Bytes: Copy {
    fn bytes(&self) -> &[u8];

    /// Whether both are handles to the same bytes; may say no where it does not know.
    fn is_same(&self, other: &Self) -> bool;
}

#[derive(Clone, Copy)]
pub(super) struct Entry<M> {
    pub(super) score: f64,
    pub(super) member: M,
}

#[inline]
fn by_member<M: Bytes>(member: &M, other: &M) -> Ordering {
    if member.is_same(other) {
        Ordering::Equal
    } else {
        member.bytes().cmp(other.bytes())
    }
}

pub(super) struct Sorted<M, const N: usize> {
    len: u32,
    scores: [f64; N],
    members: [M; N],
}

impl<M: Bytes, const N: usize> Sorted<M, N> {
    pub(super) fn new(entry: Entry<M>) -> Self {
        Sorted {
            len: 1,
            scores: [entry.score; N],
            members: [entry.member; N],
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.len as usize).min(N)
    }

    #[inline]
    pub(super) fn scores(&self) -> &[f64] {
        &self.scores[..self.len()]
    }

    #[inline]
    pub(super) fn members(&self) -> &[M] {
        &self.members[..self.len()]
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry<M> {
        Entry {
            score: self.scores[at],
            member: self.members[at],
        }
    }

    #[inline]
    pub(super) fn set(&mut self, at: usize, entry: Entry<M>) {
        self.scores[at] = entry.score;
        self.members[at] = entry.member;
    }

    /// Number of scores below `score`; with `equal`, of those not above it.
    #[inline]
    pub(super) fn count_scores(&self, score: f64, equal: bool) -> usize {
        let scores = self.scores();
        if equal {
            scores
                .iter()
                .map(|&other| usize::from(other <= score))
                .sum()
        } else {
            scores.iter().map(|&other| usize::from(other < score)).sum()
        }
    }

    /// Where an entry is, or where it would be.
    #[inline]
    pub(super) fn find(&self, entry: &Entry<M>) -> Result<usize, usize> {
        let at = self.count_scores(entry.score, false);
        if self.scores().get(at) != Some(&entry.score) {
            return Err(at);
        }
        self.find_among_equal(at, entry)
    }

    /// Where an entry is that is here for certain: if no other has its score, its member is not looked at.
    #[inline]
    pub(super) fn find_present(&self, entry: &Entry<M>) -> Option<usize> {
        let at = self.count_scores(entry.score, false);
        let scores = self.scores();
        if scores.get(at) != Some(&entry.score) {
            return None;
        }
        if scores.get(at + 1) != Some(&entry.score) {
            return Some(at);
        }
        self.find_among_equal(at, entry).ok()
    }

    fn find_among_equal(&self, start: usize, entry: &Entry<M>) -> Result<usize, usize> {
        let ties = self.scores()[start..].partition_point(|&other| other <= entry.score);
        self.members()[start..start + ties]
            .binary_search_by(|other| by_member(other, &entry.member))
            .map(|at| start + at)
            .map_err(|at| start + at)
    }

    /// Makes room for an entry; there is some.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, entry: Entry<M>) {
        let len = self.len();
        self.scores.copy_within(at..len, at + 1);
        self.members.copy_within(at..len, at + 1);
        self.set(at, entry);
        self.len = len as u32 + 1;
    }

    #[inline]
    pub(super) fn remove(&mut self, at: usize) {
        self.remove_many(at, 1);
    }

    pub(super) fn remove_many(&mut self, at: usize, count: usize) {
        let len = self.len();
        self.scores.copy_within(at + count..len, at);
        self.members.copy_within(at + count..len, at);
        self.len = (len - count) as u32;
    }

    /// Puts `entry` for the one at `at`, and in its order `to`, counted without the former.
    #[inline]
    pub(super) fn shift(&mut self, at: usize, to: usize, entry: Entry<M>) {
        if at < to {
            self.scores.copy_within(at + 1..to + 1, at);
            self.members.copy_within(at + 1..to + 1, at);
        } else {
            self.scores.copy_within(to..at, to + 1);
            self.members.copy_within(to..at, to + 1);
        }
        self.set(to, entry);
    }

    /// Splits the entries from `at` on off; there are some.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = Sorted::new(self.get(at));
        let count = self.len() - at;
        right.scores[..count].copy_from_slice(&self.scores[at..at + count]);
        right.members[..count].copy_from_slice(&self.members[at..at + count]);
        right.len = count as u32;
        self.len = at as u32;
        right
    }

    /// Takes over the entries of `right`; there is room.
    pub(super) fn append(&mut self, right: &Self) {
        let (at, count) = (self.len(), right.len());
        self.scores[at..at + count].copy_from_slice(right.scores());
        self.members[at..at + count].copy_from_slice(right.members());
        self.len = (at + count) as u32;
    }
}

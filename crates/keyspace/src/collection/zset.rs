//! Sorted sets: order by score, then member bytes. (Skeleton.)

use base::Atom;

use crate::{Edit, Tuning};

/// One end of a score range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreBound {
    pub score: f64,
    pub exclusive: bool,
}

/// One end of a range by member, all scores being equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// `-`: before everything.
    Min,
    /// `+`: after everything.
    Max,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

#[derive(Clone)]
pub struct Zset(());

impl Zset {
    pub fn new() -> Self {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn score(&self, _member: &[u8]) -> Option<f64> {
        todo!()
    }
    /// Position from the lowest, O(log n).
    pub fn rank(&self, _member: &[u8]) -> Option<usize> {
        todo!()
    }
    /// Entries from rank `start` on, towards higher ranks.
    pub fn iter_from(&self, _start: usize) -> Box<dyn Iterator<Item = (Atom<'_>, f64)> + '_> {
        todo!()
    }
    /// Entries from rank `start` on, towards lower ranks.
    pub fn iter_rev_from(&self, _start: usize) -> Box<dyn Iterator<Item = (Atom<'_>, f64)> + '_> {
        todo!()
    }
    /// Ranks of the entries with scores between the two bounds: `start..end` (empty if none).
    pub fn score_range(&self, _min: ScoreBound, _max: ScoreBound) -> std::ops::Range<usize> {
        todo!()
    }
    /// Ranks of the entries with members between the two bounds.
    pub fn lex_range(&self, _min: LexBound<'_>, _max: LexBound<'_>) -> std::ops::Range<usize> {
        todo!()
    }
    pub fn random(&self, _rng: &mut fastrand::Rng) -> Option<(Atom<'_>, f64)> {
        todo!()
    }
    pub fn scan(&self, _cursor: u64, _count: usize, _each: &mut dyn FnMut(Atom<'_>, f64)) -> u64 {
        todo!()
    }
    pub fn encoding(&self) -> &'static str {
        todo!()
    }
    pub fn memory_usage(&self) -> usize {
        todo!()
    }
    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, _member: &[u8], _score: f64, _tuning: &Tuning) -> Option<f64> {
        todo!()
    }
    /// Removes a member; its former score.
    pub fn remove(&mut self, _member: &[u8]) -> Option<f64> {
        todo!()
    }
    /// Removes the entries of these ranks.
    pub fn remove_range(&mut self, _ranks: std::ops::Range<usize>) {
        todo!()
    }
}

impl Default for Zset {
    fn default() -> Self {
        Self::new()
    }
}

impl Edit<'_, Zset> {
    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let (zset, tuning) = self.parts();
        let former = zset.insert(member, score, tuning);
        self.mark(usize::from(former != Some(score)));
        former
    }
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let former = self.parts().0.remove(member);
        self.mark(usize::from(former.is_some()));
        former
    }
    pub fn remove_range(&mut self, ranks: std::ops::Range<usize>) {
        let n = ranks.len();
        self.parts().0.remove_range(ranks);
        self.mark(n);
    }
}

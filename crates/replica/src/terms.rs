//! The term of every index of the log, without the log.
//!
//! Terms never fall along a log, so it is a list of runs: a handful of pairs however long the
//! log. raft-rs asks for terms of entries that left memory long ago (to match a follower's log,
//! to prove a commit); this answers without the disk.

#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// (first index of the run, its term); ascending in both. Never empty.
    runs: Vec<(u64, u64)>,
}

impl Terms {
    /// A log that begins behind `index`, whose own term is still known.
    pub(crate) fn behind(index: u64, term: u64) -> Terms {
        Terms {
            runs: vec![(index, term)],
        }
    }

    /// The term at `index`, which the caller knows to be inside the log.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        match self.runs.last() {
            Some(&(first, term)) if first <= index => term,
            _ => {
                let behind = self.runs.partition_point(|&(first, _)| first <= index);
                behind
                    .checked_sub(1)
                    .and_then(|at| self.runs.get(at))
                    .map_or(0, |&(_, term)| term)
            }
        }
    }

    /// From `index` on, the term is `term`; what was known from there on is void.
    #[inline]
    pub(crate) fn set_from(&mut self, index: u64, term: u64) {
        while self.runs.len() > 1 && self.runs.last().is_some_and(|&(first, _)| first >= index) {
            self.runs.pop();
        }
        if self.runs.last().is_none_or(|&(_, last)| last != term) {
            self.runs.push((index, term));
        }
    }

    /// Indices before `index` will not be asked for again.
    pub(crate) fn forget_before(&mut self, index: u64) {
        let keep = self.runs.partition_point(|&(first, _)| first <= index);
        self.runs.drain(..keep.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::Terms;

    #[test]
    fn runs_answer_like_a_list() {
        let mut terms = Terms::behind(0, 0);
        for (index, term) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 4)] {
            terms.set_from(index, term);
        }
        assert_eq!(
            (0..=5).map(|i| terms.at(i)).collect::<Vec<_>>(),
            [0, 1, 1, 2, 4, 4]
        );
        assert_eq!(terms.runs.len(), 4);
        // A new leader replaces the tail.
        terms.set_from(3, 5);
        assert_eq!(
            (0..=5).map(|i| terms.at(i)).collect::<Vec<_>>(),
            [0, 1, 1, 5, 5, 5]
        );
        terms.forget_before(2);
        assert_eq!(
            (2..=5).map(|i| terms.at(i)).collect::<Vec<_>>(),
            [1, 5, 5, 5]
        );
        assert_eq!(terms.runs.len(), 2);
    }
}

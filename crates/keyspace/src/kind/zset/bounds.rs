//! The ends of ranges in a sorted set.

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

impl ScoreBound {
    /// Whether `score` is before a range that begins here.
    pub(super) fn is_above(&self, score: f64) -> bool {
        score < self.score || (self.exclusive && score == self.score)
    }

    /// Whether `score` is not after a range that ends here.
    pub(super) fn reaches(&self, score: f64) -> bool {
        score < self.score || (!self.exclusive && score == self.score)
    }
}

impl LexBound<'_> {
    pub(super) fn is_above(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Included(bound) => member < *bound,
            LexBound::Excluded(bound) => member <= *bound,
        }
    }

    pub(super) fn reaches(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Included(bound) => member <= *bound,
            LexBound::Excluded(bound) => member < *bound,
        }
    }
}

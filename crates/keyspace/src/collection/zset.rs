//! Sorted sets: order by score, then member bytes.
//!
//! Small ones are packed records in order (member, score, and the size of both written backwards),
//! found by walking; big ones are [`Ranked`]. The conversion is never undone. Scores are never NaN;
//! 0 and −0 are equal in order and each is kept as given.

use std::cmp::Ordering;
use std::ops::Range;

use base::{Atom, IntText};

use super::cell::Handle;
use super::element::{self, Form};
use super::order::{self, Bytes, Downward, Upward};
use super::packed::Packed;
use super::ranked::Ranked;
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

impl ScoreBound {
    /// Whether `score` is before a range that begins here.
    fn is_above(&self, score: f64) -> bool {
        score < self.score || (self.exclusive && score == self.score)
    }

    /// Whether `score` is not after a range that ends here.
    fn reaches(&self, score: f64) -> bool {
        score < self.score || (!self.exclusive && score == self.score)
    }
}

impl LexBound<'_> {
    fn is_above(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Included(bound) => member < *bound,
            LexBound::Excluded(bound) => member <= *bound,
        }
    }

    fn reaches(&self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Included(bound) => member <= *bound,
            LexBound::Excluded(bound) => member < *bound,
        }
    }
}

#[derive(Clone)]
pub struct Zset(Shape);

#[derive(Clone)]
enum Shape {
    Packed(Packed),
    Ranked(Box<Ranked>),
}

/// A record of the packed form.
struct Record<'a> {
    member: Atom<'a>,
    score: f64,
    /// All of it, its backward size too.
    size: usize,
}

#[inline]
fn first(run: &[u8]) -> Record<'_> {
    let (member, size) = element::read(run);
    let (score, score_size) = element::read_score(&run[size..]);
    let size = size + score_size;
    Record {
        member,
        score,
        size: size + element::back_size(size),
    }
}

#[inline]
fn last(run: &[u8]) -> Record<'_> {
    let (size, back) = element::read_back(run);
    first(&run[run.len() - size - back..])
}

/// Where a member is in the packed form: offset and rank.
fn find(run: &[u8], form: &Form<'_>) -> Option<(usize, usize)> {
    let (mut at, mut rank) = (0, 0);
    while at < run.len() {
        if form.is_at(&run[at..]) {
            return Some((at, rank));
        }
        let size = element::skip(&run[at..]);
        let size = size + element::skip(&run[at + size..]);
        at += size + element::back_size(size);
        rank += 1;
    }
    None
}

/// Writes a record where it belongs.
fn put(packed: &mut Packed, form: &Form<'_>, member: &[u8], score: f64) {
    let run = packed.run();
    let mut at = 0;
    let mut room = IntText::default();
    let mut goes_after = |record: &Record<'_>| {
        order::order(
            score,
            || member,
            record.score,
            || record.member.bytes(&mut room),
        ) == Ordering::Greater
    };
    if !run.is_empty() && goes_after(&last(run)) {
        at = run.len();
    }
    while at < run.len() {
        let record = first(&run[at..]);
        if !goes_after(&record) {
            break;
        }
        at += record.size;
    }
    let score = Form::score(score);
    let size = form.size() + score.size();
    let out = packed.insert(at, size + element::back_size(size));
    let member_size = form.write(out);
    score.write(&mut out[member_size..]);
    element::write_back(&mut out[size..], size);
}

impl Zset {
    pub fn new() -> Self {
        Zset(Shape::Packed(Packed::new()))
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Shape::Packed(packed) => packed.len(),
            Shape::Ranked(ranked) => ranked.order.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Shape::Packed(packed) => {
                let (at, _) = find(packed.run(), &Form::of(member))?;
                Some(first(&packed.run()[at..]).score)
            }
            Shape::Ranked(ranked) => ranked.score(member),
        }
    }

    /// Position from the lowest, O(log n).
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.0 {
            Shape::Packed(packed) => find(packed.run(), &Form::of(member)).map(|(_, rank)| rank),
            Shape::Ranked(ranked) => ranked.rank(member),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Entries from rank `start` on, towards higher ranks.
    pub fn iter_from(&self, start: usize) -> Iter<'_> {
        Iter(match &self.0 {
            Shape::Packed(packed) => IterShape::Packed(&packed.run()[offset(packed, start)..]),
            Shape::Ranked(ranked) => IterShape::Ranked(ranked.order.iter_from(start)),
        })
    }

    /// Entries from rank `start` on, towards lower ranks.
    pub fn iter_rev_from(&self, start: usize) -> Iter<'_> {
        Iter(match &self.0 {
            Shape::Packed(packed) if start >= packed.len() => IterShape::PackedRev(&[]),
            Shape::Packed(packed) => {
                IterShape::PackedRev(&packed.run()[..offset(packed, start + 1)])
            }
            Shape::Ranked(ranked) => IterShape::RankedRev(ranked.order.iter_rev_from(start)),
        })
    }

    /// Ranks of the entries with scores between the two bounds: `start..end` (empty if none).
    pub fn score_range(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let (start, end) = match &self.0 {
            Shape::Packed(_) => (
                self.iter()
                    .take_while(|entry| min.is_above(entry.1))
                    .count(),
                self.iter().take_while(|entry| max.reaches(entry.1)).count(),
            ),
            Shape::Ranked(ranked) => (
                ranked.order.count_below(|entry| min.is_above(entry.score)),
                ranked.order.count_below(|entry| max.reaches(entry.score)),
            ),
        };
        start..end.max(start)
    }

    /// Ranks of the entries with members between the two bounds.
    pub fn lex_range(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let (start, end) = match &self.0 {
            Shape::Packed(_) => {
                let mut room = IntText::default();
                let mut other = IntText::default();
                (
                    self.iter()
                        .take_while(|entry| min.is_above(entry.0.bytes(&mut room)))
                        .count(),
                    self.iter()
                        .take_while(|entry| max.reaches(entry.0.bytes(&mut other)))
                        .count(),
                )
            }
            Shape::Ranked(ranked) => (
                ranked
                    .order
                    .count_below(|entry| min.is_above(entry.member.bytes())),
                ranked
                    .order
                    .count_below(|entry| max.reaches(entry.member.bytes())),
            ),
        };
        start..end.max(start)
    }

    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Atom<'_>, f64)> {
        if self.is_empty() {
            return None;
        }
        self.iter_from(rng.usize(..self.len())).next()
    }

    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(Atom<'_>, f64)) -> u64 {
        match &self.0 {
            Shape::Packed(_) => {
                self.iter().for_each(|(member, score)| each(member, score));
                0
            }
            Shape::Ranked(ranked) => ranked.table.scan(cursor, count, |cell| {
                each(Atom::Bytes(cell.key()), cell.head());
            }),
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Shape::Packed(_) => "listpack",
            Shape::Ranked(_) => "skiplist",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Shape::Packed(packed) => packed.memory_usage(),
                Shape::Ranked(ranked) => ranked.memory_usage(),
            }
    }

    /// Blocks of memory to free: how long dropping the set takes.
    pub fn allocations(&self) -> usize {
        match &self.0 {
            Shape::Packed(_) => 1,
            Shape::Ranked(ranked) => 1 + ranked.order.len(),
        }
    }

    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, member: &[u8], score: f64, tuning: &Tuning) -> Option<f64> {
        if let Shape::Packed(packed) = &mut self.0 {
            let form = Form::of(member);
            if let Some((at, _)) = find(packed.run(), &form) {
                let record = first(&packed.run()[at..]);
                let (former, size) = (record.score, record.size);
                if former != score {
                    packed.remove(at, size);
                    put(packed, &form, member, score);
                }
                return Some(former);
            }
            if packed.len() < tuning.zset_max_packed_entries
                && member.len() <= tuning.zset_max_packed_value
                && packed.has_room(member.len() + 20)
            {
                put(packed, &form, member, score);
                return None;
            }
            self.convert();
        }
        match &mut self.0 {
            Shape::Ranked(ranked) => ranked.insert(member, score),
            Shape::Packed(_) => unreachable!("converted above"),
        }
    }

    fn convert(&mut self) {
        let mut ranked = Box::new(Ranked::new());
        let mut room = IntText::default();
        for (member, score) in self.iter() {
            let member = member.bytes(&mut room);
            ranked.add(ranked.table.hash(member), member, score);
        }
        self.0 = Shape::Ranked(ranked);
    }

    /// Removes a member; its former score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.0 {
            Shape::Packed(packed) => {
                let (at, _) = find(packed.run(), &Form::of(member))?;
                let record = first(&packed.run()[at..]);
                let (score, size) = (record.score, record.size);
                packed.remove(at, size);
                Some(score)
            }
            Shape::Ranked(ranked) => ranked.remove(member),
        }
    }

    /// Removes the entries of these ranks.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        if ranks.is_empty() {
            return;
        }
        match &mut self.0 {
            Shape::Packed(packed) => {
                let start = offset(packed, ranks.start);
                let end = offset(packed, ranks.end);
                packed.remove_many(start, end - start, ranks.len());
            }
            Shape::Ranked(ranked) => ranked.remove_range(ranks),
        }
    }
}

/// Where the record of this rank begins; the end if there are fewer.
fn offset(packed: &Packed, rank: usize) -> usize {
    let run = packed.run();
    if rank >= packed.len() {
        return run.len();
    }
    if rank <= packed.len() / 2 {
        return (0..rank).fold(0, |at, _| at + first(&run[at..]).size);
    }
    (rank..packed.len()).fold(run.len(), |at, _| {
        let (size, back) = element::read_back(&run[..at]);
        at - size - back
    })
}

/// Entries of a sorted set, towards higher ranks or towards lower ones.
pub struct Iter<'a>(IterShape<'a>);

enum IterShape<'a> {
    Packed(&'a [u8]),
    PackedRev(&'a [u8]),
    Ranked(Upward<'a, Handle>),
    RankedRev(Downward<'a, Handle>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Atom<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match &mut self.0 {
            IterShape::Packed([]) | IterShape::PackedRev([]) => return None,
            IterShape::Packed(run) => {
                let record = first(run);
                *run = &run[record.size..];
                return Some((record.member, record.score));
            }
            IterShape::PackedRev(run) => {
                let record = last(run);
                *run = &run[..run.len() - record.size];
                return Some((record.member, record.score));
            }
            IterShape::Ranked(entries) => entries.next()?,
            IterShape::RankedRev(entries) => entries.next()?,
        };
        Some((Atom::Bytes(entry.member.bytes()), entry.score))
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

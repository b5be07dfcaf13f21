//! Sorted sets: order by score, then member bytes.
//!
//! Small ones are packed records in order (member, score, and the size of both written backwards),
//! found by walking; big ones are [`Ranked`]. The conversion is never undone. Scores are never NaN;
//! 0 and −0 are equal in order and each is kept as given.

use std::ops::Range;

use base::{Atom, IntText};

use super::cell::Handle;
use super::element::{self, Form};
use super::order::{Bytes, Downward, Upward};
use super::packed::Packed;
use super::ranked::Ranked;
use crate::rows::Recorder;
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
pub struct Zset {
    shape: Shape,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    pub(crate) generation: u64,
}

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

/// The score of the first record of a run, and the record's size.
#[inline]
fn first_score(run: &[u8]) -> (f64, usize) {
    let member = element::skip(run);
    let (score, size) = element::read_score(&run[member..]);
    let size = member + size;
    (score, size + element::back_size(size))
}

/// The size of the first record of a run.
#[inline]
fn first_size(run: &[u8]) -> usize {
    let member = element::skip(run);
    let size = member + element::skip(&run[member..]);
    size + element::back_size(size)
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
        at += first_size(&run[at..]);
        rank += 1;
    }
    None
}

/// Where a new record of (score, member) goes in the packed form, and the record that the member has
/// there already with its offset; all in one walk. The place is counted with the former record.
fn place<'a>(
    run: &'a [u8],
    form: &Form<'_>,
    member: &[u8],
    score: f64,
) -> (usize, Option<(usize, Record<'a>)>) {
    let mut found = None;
    let mut goes = None;
    let mut room = IntText::default();
    let mut at = 0;
    while at < run.len() && (found.is_none() || goes.is_none()) {
        let record = first(&run[at..]);
        let size = record.size;
        if goes.is_none()
            && (score < record.score
                || (score == record.score && member <= record.member.bytes(&mut room)))
        {
            goes = Some(at);
        }
        if found.is_none() && form.is_at(&run[at..]) {
            found = Some((at, record));
        }
        at += size;
    }
    (goes.unwrap_or(run.len()), found)
}

/// Writes a record over `out`, which has its size.
fn write(out: &mut [u8], form: &Form<'_>, score: &Form<'_>) {
    let member = form.write(out);
    let size = member + score.write(&mut out[member..]);
    element::write_back(&mut out[size..], size);
}

/// Sets the score of a member; its former score. A new one is added only if `takes`, or else
/// `Err` says that it is not there.
fn put(packed: &mut Packed, member: &[u8], score: f64, takes: bool) -> Result<Option<f64>, ()> {
    let form = Form::of(member);
    let (goes, found) = place(packed.run(), &form, member, score);
    let found = found.map(|(at, record)| (at, record.size, record.score));
    if found.is_none() && !takes {
        return Err(());
    }
    let score_form = Form::score(score);
    let size = form.size() + score_form.size();
    let size = size + element::back_size(size);
    match found {
        Some((_, _, former)) if former == score => {}
        Some((at, old, _)) if old == size => {
            // The records between the two places move over by one.
            let out = if goes > at {
                let between = packed.replace(at, goes - at, goes - at);
                between.copy_within(size.., 0);
                let start = between.len() - size;
                &mut between[start..]
            } else {
                let between = packed.replace(goes, at + size - goes, at + size - goes);
                between.copy_within(..at - goes, size);
                &mut between[..size]
            };
            write(out, &form, &score_form);
        }
        Some((at, old, _)) => {
            packed.remove(at, old);
            let goes = if goes > at { goes - old } else { goes };
            write(packed.insert(goes, size), &form, &score_form);
        }
        None => write(packed.insert(goes, size), &form, &score_form),
    }
    Ok(found.map(|(_, _, former)| former))
}

impl Zset {
    pub fn new() -> Self {
        Zset {
            shape: Shape::Packed(Packed::new()),
            generation: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.shape {
            Shape::Packed(packed) => packed.len(),
            Shape::Ranked(ranked) => ranked.order.len(),
        }
    }

    /// Asks for the memory that lookups of these members will touch.
    pub(crate) fn prefetch<'k>(&self, members: impl Iterator<Item = &'k [u8]>) {
        if let Shape::Ranked(ranked) = &self.shape {
            ranked.table.prefetch_all(members);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.shape {
            Shape::Packed(packed) => {
                let (at, _) = find(packed.run(), &Form::of(member))?;
                Some(first_score(&packed.run()[at..]).0)
            }
            Shape::Ranked(ranked) => ranked.score(member),
        }
    }

    /// Position from the lowest, O(log n).
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.shape {
            Shape::Packed(packed) => find(packed.run(), &Form::of(member)).map(|(_, rank)| rank),
            Shape::Ranked(ranked) => ranked.rank(member),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Entries from rank `start` on, towards higher ranks.
    pub fn iter_from(&self, start: usize) -> Iter<'_> {
        Iter(match &self.shape {
            Shape::Packed(packed) => IterShape::Packed(&packed.run()[offset(packed, start)..]),
            Shape::Ranked(ranked) => IterShape::Ranked(ranked.order.iter_from(start)),
        })
    }

    /// Entries from rank `start` on, towards lower ranks.
    pub fn iter_rev_from(&self, start: usize) -> Iter<'_> {
        Iter(match &self.shape {
            Shape::Packed(packed) if start >= packed.len() => IterShape::PackedRev(&[]),
            Shape::Packed(packed) => {
                IterShape::PackedRev(&packed.run()[..offset(packed, start + 1)])
            }
            Shape::Ranked(ranked) => IterShape::RankedRev(ranked.order.iter_rev_from(start)),
        })
    }

    /// Ranks of the entries with scores between the two bounds: `start..end` (empty if none).
    pub fn score_range(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let (start, end) = match &self.shape {
            Shape::Packed(packed) => {
                // One walk, over the scores only.
                let (mut run, mut start, mut end) = (packed.run(), 0, 0);
                while !run.is_empty() {
                    let (score, size) = first_score(run);
                    if !max.reaches(score) && !min.is_above(score) {
                        break;
                    }
                    start += usize::from(min.is_above(score));
                    end += usize::from(max.reaches(score));
                    run = &run[size..];
                }
                (start, end)
            }
            Shape::Ranked(ranked) => (
                ranked.order.count_scores(min.score, min.exclusive),
                ranked.order.count_scores(max.score, !max.exclusive),
            ),
        };
        start..end.max(start)
    }

    /// Ranks of the entries with members between the two bounds.
    pub fn lex_range(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let (start, end) = match &self.shape {
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
                    .count_members(|member| min.is_above(member.bytes())),
                ranked
                    .order
                    .count_members(|member| max.reaches(member.bytes())),
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
        match &self.shape {
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
        match self.shape {
            Shape::Packed(_) => "listpack",
            Shape::Ranked(_) => "skiplist",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.shape {
                Shape::Packed(packed) => packed.memory_usage(),
                Shape::Ranked(ranked) => ranked.memory_usage(),
            }
    }

    /// Blocks of memory to free: how long dropping the set takes.
    pub fn allocations(&self) -> usize {
        match &self.shape {
            Shape::Packed(_) => 1,
            Shape::Ranked(ranked) => 1 + ranked.order.len(),
        }
    }

    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, member: &[u8], score: f64, tuning: &Tuning) -> Option<f64> {
        if let Shape::Packed(packed) = &mut self.shape {
            let takes = packed.len() < tuning.zset_max_packed_entries
                && member.len() <= tuning.zset_max_packed_value
                && packed.has_room(member.len() + 20);
            if let Ok(former) = put(packed, member, score, takes) {
                return former;
            }
            self.convert(tuning);
        }
        match &mut self.shape {
            Shape::Ranked(ranked) => ranked.insert(member, score),
            Shape::Packed(_) => unreachable!("converted above"),
        }
    }

    fn convert(&mut self, tuning: &Tuning) {
        let mut ranked = Box::new(Ranked::new(tuning.hash_seed));
        let mut room = IntText::default();
        for (member, score) in self.iter() {
            let member = member.bytes(&mut room);
            ranked.add(ranked.table.hash(member), member, score);
        }
        self.shape = Shape::Ranked(ranked);
    }

    /// Changes the score of a member to what `decide` makes of it (`None`: not there before; not to be
    /// changed after). The former score, and the one decided on: a big set looks the member up once.
    pub fn update(
        &mut self,
        member: &[u8],
        tuning: &Tuning,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> (Option<f64>, Option<f64>) {
        if let Shape::Ranked(ranked) = &mut self.shape {
            return ranked.update(member, decide);
        }
        let former = self.score(member);
        let score = decide(former);
        if let Some(score) = score {
            self.insert(member, score, tuning);
        }
        (former, score)
    }

    /// Writes the rows of all members.
    pub(crate) fn record(&self, rows: &mut Recorder<'_>) {
        let mut text = IntText::default();
        for (member, score) in self.iter() {
            rows.put_score(member.bytes(&mut text), None, score);
        }
    }

    /// Removes a member; its former score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.shape {
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
        match &mut self.shape {
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
        return (0..rank).fold(0, |at, _| at + first_size(&run[at..]));
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
        let (score, member) = match &mut self.0 {
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
        Some((Atom::Bytes(member.bytes()), score))
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
        self.note_score(member, former, Some(score));
        former
    }

    /// Notes that a member has another score, unless it has the former one still.
    #[inline]
    fn note_score(&mut self, member: &[u8], former: Option<f64>, score: Option<f64>) {
        let Some(score) = score.filter(|_| former != score) else {
            return;
        };
        if let Some((mut rows, _)) = self.recorder() {
            rows.put_score(member, former, score);
        }
        self.mark(1);
    }

    /// Changes the score of a member to what `decide` makes of the former one; see [`Zset::update`].
    pub fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> (Option<f64>, Option<f64>) {
        let (zset, tuning) = self.parts();
        let (former, score) = zset.update(member, tuning, decide);
        self.note_score(member, former, score);
        (former, score)
    }
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let former = self.parts().0.remove(member);
        if let Some(former) = former
            && let Some((mut rows, _)) = self.recorder()
        {
            rows.delete_score(member, former);
        }
        self.mark(usize::from(former.is_some()));
        former
    }
    pub fn remove_range(&mut self, ranks: std::ops::Range<usize>) {
        let n = ranks.len();
        if let Some((mut rows, zset)) = self.recorder() {
            let mut text = IntText::default();
            for (member, score) in zset.iter_from(ranks.start).take(n) {
                rows.delete_score(member.bytes(&mut text), score);
            }
        }
        self.parts().0.remove_range(ranks);
        self.mark(n);
    }
}

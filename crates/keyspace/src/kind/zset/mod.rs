//! Sorted sets: order by score, then member bytes.
//!
//! Small ones are packed records in order (`records.rs`), found by walking; big ones are [`Ranked`]. The
//! conversion is never undone. Scores are never NaN; 0 and −0 are equal in order and each is kept as
//! given. A big one that was loaded from its rows stays there (`on_rows.rs`).

mod bounds;
mod digest;
mod edit;
mod on_rows;
mod order;
mod ranked;
mod rdb;
mod records;
mod rows;
mod sorted;

use std::ops::Range;

use base::{Atom, IntText};

pub use self::bounds::{LexBound, ScoreBound};
use self::order::{Bytes, Downward, Upward};
use self::ranked::Ranked;
use self::records::{find, first, first_score, last, offset, put};
use crate::Tuning;
use crate::collection::cell::Handle as CellHandle;
use crate::collection::element::Form;
use crate::collection::shape::{Look, Shape};
use crate::kind::InMemory;
use crate::rows::{Walk, cursor_in_memory};

pub struct Zset {
    shape: Shape<Ranked>,
    /// Which of the key's lives its rows belong to; 0 if it has none.
    generation: u64,
}

impl Zset {
    pub fn new() -> Self {
        Zset {
            shape: Shape::new(),
            generation: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self.shape.look() {
            Look::Packed(packed) => packed.len(),
            Look::Indexed(ranked) => ranked.order.len(),
            Look::Rows(handle) => handle.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.shape.look() {
            Look::Packed(packed) => {
                let (at, _) = find(packed.run(), &Form::of(member))?;
                Some(first_score(&packed.run()[at..]).0)
            }
            Look::Indexed(ranked) => ranked.score(member),
            Look::Rows(handle) => on_rows::score(handle, member),
        }
    }

    /// Position from the lowest, O(log n).
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match self.shape.look() {
            Look::Packed(packed) => find(packed.run(), &Form::of(member)).map(|(_, rank)| rank),
            Look::Indexed(ranked) => ranked.rank(member),
            Look::Rows(handle) => on_rows::rank(handle, member),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Entries from rank `start` on, towards higher ranks.
    pub fn iter_from(&self, start: usize) -> Iter<'_> {
        Iter(match self.shape.look() {
            Look::Packed(packed) => IterShape::Packed(&packed.run()[offset(packed, start)..]),
            Look::Indexed(ranked) => IterShape::Ranked(ranked.order.iter_from(start)),
            Look::Rows(handle) => IterShape::Rows(Box::new(handle.walk_from(start))),
        })
    }

    /// Entries from rank `start` on, towards lower ranks.
    pub fn iter_rev_from(&self, start: usize) -> Iter<'_> {
        Iter(match self.shape.look() {
            Look::Packed(packed) if start >= packed.len() => IterShape::PackedRev(&[]),
            Look::Packed(packed) => {
                IterShape::PackedRev(&packed.run()[..offset(packed, start + 1)])
            }
            Look::Indexed(ranked) => IterShape::RankedRev(ranked.order.iter_rev_from(start)),
            Look::Rows(handle) => IterShape::Rows(Box::new(handle.walk_back_from(start))),
        })
    }

    /// Ranks of the entries with scores between the two bounds: `start..end` (empty if none).
    pub fn score_range(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let (start, end) = match self.shape.look() {
            Look::Packed(packed) => {
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
            Look::Indexed(ranked) => (
                ranked.order.count_scores(min.score, min.exclusive),
                ranked.order.count_scores(max.score, !max.exclusive),
            ),
            Look::Rows(handle) => on_rows::score_range(handle, min, max),
        };
        start..end.max(start)
    }

    /// Ranks of the entries with members between the two bounds. Meant for equal scores; with others, the
    /// range begins behind the first entries that are before it and ends behind the first that reach its
    /// end, however the set is kept.
    pub fn lex_range(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let start = self.count_first(min, LexBound::is_above);
        let end = self.count_first(max, LexBound::reaches);
        start..end.max(start)
    }

    /// Number of entries before the first whose member is not on this side of the bound.
    fn count_first<'a>(&self, bound: LexBound<'a>, is: fn(&LexBound<'a>, &[u8]) -> bool) -> usize {
        let mut room = IntText::default();
        let mut is_first = |member: Atom<'_>| is(&bound, member.bytes(&mut room));
        let mut count_from = |start| {
            let rest = self.iter_from(start);
            rest.take_while(|entry| is_first(entry.0)).count()
        };
        match (bound, self.shape.look()) {
            (LexBound::Min, _) => 0,
            (LexBound::Max, _) => self.len(),
            (_, Look::Packed(_)) => count_from(0),
            (_, Look::Indexed(ranked)) => {
                let Some((_, score)) = self.iter().next() else {
                    return 0;
                };
                // Those with the lowest score, mostly all, are sorted by member.
                let order = &ranked.order;
                let ties = order.count_scores(score, true);
                match order.count_members(score, |member| is(&bound, member.bytes())) {
                    count if count < ties => count,
                    _ => ties + count_from(ties),
                }
            }
            (LexBound::Included(member) | LexBound::Excluded(member), Look::Rows(handle)) => {
                on_rows::count_first(handle, member, &|other| is(&bound, other))
            }
        }
    }

    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Atom<'_>, f64)> {
        if self.is_empty() {
            return None;
        }
        match self.shape.look() {
            Look::Rows(handle) => handle.random(rng).map(on_rows::entry),
            _ => self.iter_from(rng.usize(..self.len())).next(),
        }
    }

    pub fn scan(&self, cursor: u64, count: usize, each: &mut dyn FnMut(Atom<'_>, f64)) -> u64 {
        match self.shape.look() {
            Look::Packed(_) => {
                self.iter().for_each(|(member, score)| each(member, score));
                0
            }
            Look::Indexed(ranked) => ranked.table.scan(cursor_in_memory(cursor), count, |cell| {
                each(Atom::Bytes(cell.key()), cell.head());
            }),
            Look::Rows(handle) => handle.scan(cursor, count, &mut |member, value| {
                each(Atom::Bytes(member), on_rows::parse(value));
            }),
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self.shape.look() {
            Look::Packed(_) => "listpack",
            Look::Indexed(_) | Look::Rows(_) => "skiplist",
        }
    }

    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match self.shape.look() {
                Look::Packed(packed) => packed.memory_usage(),
                Look::Indexed(ranked) => ranked.memory_usage(),
                Look::Rows(handle) => handle.memory_usage(),
            }
    }

    /// Sets the score of a member, adding it if new; its former score.
    pub fn insert(&mut self, member: &[u8], score: f64, tuning: &Tuning) -> Option<f64> {
        if let Look::Packed(packed) = self.shape.look_mut() {
            let takes = packed.len() < tuning.zset_max_packed_entries
                && member.len() <= tuning.zset_max_packed_value
                && packed.has_room(member.len() + 20);
            if let Ok(former) = put(packed, member, score, takes) {
                return former;
            }
            self.convert(tuning);
        }
        match self.shape.look_mut() {
            Look::Indexed(ranked) => ranked.insert(member, score),
            Look::Rows(handle) => on_rows::update(handle, member, |_| Some(score)).0,
            Look::Packed(_) => unreachable!("converted above"),
        }
    }

    fn convert(&mut self, tuning: &Tuning) {
        let mut ranked = Ranked::new(tuning.hash_seed);
        let mut room = IntText::default();
        for (member, score) in self.iter() {
            let member = member.bytes(&mut room);
            ranked.add(ranked.table.hash(member), member, score);
        }
        self.shape = Shape::indexed(ranked);
    }

    /// Changes the score of a member to what `decide` makes of it (`None`: not there before; not to be
    /// changed after). The former score, and the one decided on: a big set looks the member up once.
    pub fn update(
        &mut self,
        member: &[u8],
        tuning: &Tuning,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> (Option<f64>, Option<f64>) {
        match self.shape.look_mut() {
            Look::Indexed(ranked) => return ranked.update(member, decide),
            Look::Rows(handle) => return on_rows::update(handle, member, decide),
            Look::Packed(_) => {}
        }
        let former = self.score(member);
        let score = decide(former);
        if let Some(score) = score {
            self.insert(member, score, tuning);
        }
        (former, score)
    }

    /// Removes a member; its former score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self.shape.look_mut() {
            Look::Packed(packed) => {
                let (at, _) = find(packed.run(), &Form::of(member))?;
                let record = first(&packed.run()[at..]);
                let (score, size) = (record.score, record.size);
                packed.remove(at, size);
                Some(score)
            }
            Look::Indexed(ranked) => ranked.remove(member),
            Look::Rows(handle) => on_rows::remove(handle, member),
        }
    }

    /// Removes the entries of these ranks.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        if ranks.is_empty() {
            return;
        }
        match self.shape.look_mut() {
            Look::Packed(packed) => {
                let start = offset(packed, ranks.start);
                let end = offset(packed, ranks.end);
                packed.remove_many(start, end - start, ranks.len());
            }
            Look::Indexed(ranked) => ranked.remove_range(ranks),
            Look::Rows(handle) => on_rows::remove_range(handle, ranks),
        }
    }
}

/// Entries of a sorted set, towards higher ranks or towards lower ones.
pub struct Iter<'a>(IterShape<'a>);

enum IterShape<'a> {
    Packed(&'a [u8]),
    PackedRev(&'a [u8]),
    Ranked(Upward<'a, CellHandle>),
    RankedRev(Downward<'a, CellHandle>),
    Rows(Box<Walk<'a>>),
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
            IterShape::Rows(walk) => return walk.next().map(on_rows::entry),
        };
        Some((Atom::Bytes(member.bytes()), score))
    }
}

impl Clone for Zset {
    fn clone(&self) -> Self {
        let shape = match self.shape.look() {
            Look::Packed(packed) => Shape::Packed(packed.clone()),
            Look::Indexed(ranked) => Shape::indexed(ranked.clone()),
            Look::Rows(handle) => Shape::on_rows(handle.clone()),
        };
        Zset {
            shape,
            generation: self.generation,
        }
    }
}

impl Default for Zset {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory for Zset {
    fn len(&self) -> usize {
        Zset::len(self)
    }

    fn encoding(&self) -> &'static str {
        Zset::encoding(self)
    }

    fn memory_usage(&self) -> usize {
        Zset::memory_usage(self)
    }

    fn weight(&self) -> usize {
        match self.shape.look() {
            Look::Packed(packed) => packed.run().len(),
            Look::Indexed(ranked) => ranked.weight(),
            Look::Rows(handle) => handle.weight(),
        }
    }

    fn allocations(&self) -> usize {
        match self.shape.look() {
            Look::Packed(_) | Look::Rows(_) => 1,
            Look::Indexed(ranked) => 1 + ranked.order.len(),
        }
    }

    /// The third argument is a member.
    fn prefetch<'k>(&self, arguments: impl Iterator<Item = [&'k [u8]; 2]>) {
        if let Look::Indexed(ranked) = self.shape.look() {
            ranked
                .table
                .prefetch_all(arguments.map(|[_, member]| member));
        }
    }
}

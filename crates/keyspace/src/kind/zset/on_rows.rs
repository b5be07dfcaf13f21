//! A sorted set on rows: what its rows mean.
//!
//! ```text
//!   data    member              → score, 8 bytes             by member
//!   order   score8  member      → nothing, or '-' for −0     by score, then member: ranks, ranges
//! ```

use std::ops::Range;

use base::Atom;

use super::bounds::ScoreBound;
use super::rows::{score_value, sign};
use crate::rows::layout::{behind, score_from, score8};
use crate::rows::{Family, Handle, Recorder};

/// The score a row of `data` has.
pub(super) fn parse(value: &[u8]) -> f64 {
    value
        .first_chunk()
        .map_or(0.0, |bits| f64::from_bits(u64::from_be_bytes(*bits)))
}

/// Member and score of a row in the order of scores.
pub(super) fn entry<'a>((key, value): (&'a [u8], &'a [u8])) -> (Atom<'a>, f64) {
    let (score, member) = split(key, value);
    (Atom::Bytes(member), score)
}

fn split<'a>(key: &'a [u8], value: &[u8]) -> (f64, &'a [u8]) {
    let Some((score, member)) = key.split_first_chunk() else {
        return (0.0, b"");
    };
    match score_from(*score) {
        score if score == 0.0 && !value.is_empty() => (-0.0, member),
        score => (score, member),
    }
}

fn order_key(score: f64, member: &[u8]) -> Vec<u8> {
    [&score8(score), member].concat()
}

pub(super) fn score(handle: &Handle, member: &[u8]) -> Option<f64> {
    handle.read(Family::Data, member, parse)
}

pub(super) fn rank(handle: &Handle, member: &[u8]) -> Option<usize> {
    let score = score(handle, member)?;
    Some(handle.rank(&order_key(score, member)))
}

/// First rank of a range and the first behind it.
pub(super) fn score_range(handle: &Handle, min: ScoreBound, max: ScoreBound) -> (usize, usize) {
    let rank = |score, with_equal| match (score, with_equal) {
        (f64::NEG_INFINITY, false) => 0,
        (f64::INFINITY, true) => handle.len(),
        (score, false) => handle.rank(&score8(score)),
        (score, true) => handle.rank(&behind(&score8(score))),
    };
    (
        rank(min.score, min.exclusive),
        rank(max.score, !max.exclusive),
    )
}

/// Entries before the first whose member is not on this side of a bound, which is at `member`.
pub(super) fn count_first(handle: &Handle, member: &[u8], is: &dyn Fn(&[u8]) -> bool) -> usize {
    let Some((key, value)) = handle.walk_from(0).for_one().next() else {
        return 0;
    };
    // Those with the lowest score, mostly all, are sorted by member.
    let (score, _) = split(key, value);
    let mut key = order_key(score, member);
    if is(member) {
        key.push(0);
    }
    let others = behind(&score8(score));
    let (mut count, ties) = (handle.rank(&key), handle.rank(&others));
    if count == ties {
        handle.between(Family::Score, (&others, None), false, &mut |key, value| {
            let is_first = is(split(key, value).1);
            count += usize::from(is_first);
            is_first
        });
    }
    count
}

/// See [`super::Zset::update`].
pub(super) fn update(
    handle: &mut Handle,
    member: &[u8],
    decide: impl FnOnce(Option<f64>) -> Option<f64>,
) -> (Option<f64>, Option<f64>) {
    let former = score(handle, member);
    let decided = decide(former);
    let Some(score) = decided.filter(|_| former != decided) else {
        return (former, decided);
    };
    let key = order_key(score, member);
    handle.put(member, &score_value(score));
    handle.put_in_order(&key, Some(sign(score)));
    match former {
        None => handle.count_in(&key),
        Some(former) => {
            let former = order_key(former, member);
            handle.put_in_order(&former, None);
            handle.index_out(&former);
            handle.index_in(&key);
        }
    }
    (former, decided)
}

pub(super) fn remove(handle: &mut Handle, member: &[u8]) -> Option<f64> {
    let former = score(handle, member)?;
    drop_entry(handle, &order_key(former, member));
    Some(former)
}

fn drop_entry(handle: &mut Handle, key: &[u8]) {
    handle.delete(key.get(8..).unwrap_or_default());
    handle.put_in_order(key, None);
    handle.count_out(key);
}

pub(super) fn remove_range(handle: &mut Handle, ranks: Range<usize>) {
    let keys = handle.walk_from(ranks.start).take(ranks.len());
    let keys: Vec<Vec<u8>> = keys.map(|(key, _)| key.to_vec()).collect();
    keys.iter().for_each(|key| drop_entry(handle, key));
}

/// Writes the rows of all members.
pub(super) fn record(handle: &Handle, rows: &mut Recorder<'_>) {
    handle.all(&mut |key, value| {
        let (score, member) = split(key, value);
        rows.put_score(member, None, score);
    });
}

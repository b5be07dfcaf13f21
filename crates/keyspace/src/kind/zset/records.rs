//! A small sorted set: packed records in order, each a member, its score, and the size of both written
//! backwards.

use base::{Atom, IntText};

use crate::collection::element::{self, Form};
use crate::collection::packed::Packed;

/// A record of the packed form.
pub(super) struct Record<'a> {
    pub member: Atom<'a>,
    pub score: f64,
    /// All of it, its backward size too.
    pub size: usize,
}

#[inline]
pub(super) fn first(run: &[u8]) -> Record<'_> {
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
pub(super) fn first_score(run: &[u8]) -> (f64, usize) {
    let member = element::skip(run);
    let (score, size) = element::read_score(&run[member..]);
    let size = member + size;
    (score, size + element::back_size(size))
}

/// The size of the first record of a run.
#[inline]
pub(super) fn first_size(run: &[u8]) -> usize {
    let member = element::skip(run);
    let size = member + element::skip(&run[member..]);
    size + element::back_size(size)
}

#[inline]
pub(super) fn last(run: &[u8]) -> Record<'_> {
    let (size, back) = element::read_back(run);
    first(&run[run.len() - size - back..])
}

/// Where a member is in the packed form: offset and rank.
pub(super) fn find(run: &[u8], form: &Form<'_>) -> Option<(usize, usize)> {
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
pub(super) fn place<'a>(
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
pub(super) fn write(out: &mut [u8], form: &Form<'_>, score: &Form<'_>) {
    let member = form.write(out);
    let size = member + score.write(&mut out[member..]);
    element::write_back(&mut out[size..], size);
}

/// Sets the score of a member; its former score. A new one is added only if `takes`, or else
/// `Err` says that it is not there.
pub(super) fn put(
    packed: &mut Packed,
    member: &[u8],
    score: f64,
    takes: bool,
) -> Result<Option<f64>, ()> {
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

/// Where the record of this rank begins; the end if there are fewer.
pub(super) fn offset(packed: &Packed, rank: usize) -> usize {
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

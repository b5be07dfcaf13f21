//! Rows of a write in the order of their keys: the memtable finds the place of each beside that of
//! the one before, instead of searching it from the top.
//!
//! ```text
//!   many rows, in order already (a run)  ─────────────────┐
//!   many rows, in order already          ─────────────────┼─ merged ─► each row once, its last change
//!   all others  ─ sorted by a window of their keys ───────┘
//! ```
//!
//! Keys of one write have much in common (region, database, often a prefix of the application), so
//! comparing them whole is slow. To sort, what all have in common is found first; behind it sixteen
//! bytes are taken as a number, and whole keys are compared only where these are equal.

use std::cell::RefCell;
use std::cmp::Ordering;

use keyspace::rows::{Change, Changes, Family};

/// Fewer rows are sorted with all others, whether they are in order or not: merging is for few parts.
const MANY: usize = 1024;

/// Room for more rows is not kept.
const ROWS_KEPT: usize = 256 << 10;

/// Where a change is, and the part of its key behind what all keys of its family have in common.
struct Row {
    window: u128,
    place: usize,
    part: u32,
    family: u8,
    /// Bytes of the key that are in the window; [`LONG`] if not all of the rest are.
    seen: u8,
}

const LONG: u8 = u8::MAX;

impl Row {
    /// By family and key. Whole keys are far apart in memory: they are looked at only where the
    /// windows do not tell.
    fn cmp<'a>(&self, other: &Row, key: impl Fn(&Row) -> Option<&'a [u8]>) -> Ordering {
        let near = (self.family, self.window).cmp(&(other.family, other.window));
        near.then_with(|| match (self.seen, other.seen) {
            (LONG, _) | (_, LONG) => key(self).cmp(&key(other)),
            // One goes on with zeros.
            (seen, other) => seen.cmp(&other),
        })
    }
}

thread_local! {
    /// Room used again: fresh memory of this size costs more than sorting in it.
    static ROWS: RefCell<Vec<Row>> = const { RefCell::new(Vec::new()) };
}

/// Calls `each` with the changes, family by family, ascending; of equal rows only with the last.
pub(crate) fn for_each_in_order<'a>(parts: &[&'a Changes], mut each: impl FnMut(Change<'a>)) {
    let (runs, loose): (Vec<_>, Vec<_>) = (0..parts.len()).partition(|&part| {
        parts
            .get(part)
            .is_some_and(|part| part.len() >= MANY && is_in_order(part))
    });
    ROWS.with_borrow_mut(|rows| {
        sort(rows, parts, &loose);
        let sorted = rows.iter().filter_map(|row| {
            let change = parts.get(row.part as usize)?.at(row.place)?;
            Some((row.part as usize, change))
        });
        let mut sources: Vec<Source<'_, 'a>> = vec![Source::new(Box::new(sorted))];
        for part in runs {
            let changes = parts.get(part).into_iter().flat_map(|part| part.iter());
            let changes = changes.map(move |change| (part, change));
            sources.push(Source::new(Box::new(changes)));
        }
        merge(sources, &mut each);
        rows.clear();
        rows.shrink_to(ROWS_KEPT);
    });
}

fn is_in_order(changes: &Changes) -> bool {
    let rows = changes.iter().map(|(family, key, _)| (family, key));
    rows.is_sorted_by(|a, b| a < b)
}

/// Sorts the rows of these parts; those that are equal by their age.
fn sort(rows: &mut Vec<Row>, parts: &[&Changes], loose: &[usize]) {
    rows.clear();
    let mut common: [Option<&[u8]>; Family::ALL.len()] = Default::default();
    for &part in loose {
        for place in parts.get(part).into_iter().flat_map(|part| part.places()) {
            let Some((family, key)) = row_at(parts, part, place) else {
                continue;
            };
            if let Some(common) = common.get_mut(family as usize) {
                *common = Some(common.map_or(key, |common| begin_of_both(common, key)));
            }
            rows.push(Row {
                window: 0,
                place,
                part: part as u32,
                family: family as u8,
                seen: LONG,
            });
        }
    }
    let common = common.map(|common| common.map_or(0, <[u8]>::len));
    let key = |row: &Row| row_at(parts, row.part as usize, row.place).map(|(_, key)| key);
    for row in rows.iter_mut() {
        let from = common.get(usize::from(row.family)).copied();
        let rest = key(row).and_then(|key| key.get(from?..));
        let rest = rest.unwrap_or_default();
        row.window = window(rest);
        if rest.len() <= size_of_val(&row.window) {
            row.seen = rest.len() as u8;
        }
    }
    rows.sort_unstable_by(|a, b| {
        let row = a.cmp(b, key);
        row.then_with(|| (a.part, a.place).cmp(&(b.part, b.place)))
    });
    // Of equal rows the last stays.
    rows.dedup_by(|later, kept| {
        let same = later.cmp(kept, key).is_eq();
        if same {
            std::mem::swap(later, kept);
        }
        same
    });
}

fn row_at<'a>(parts: &[&'a Changes], part: usize, place: usize) -> Option<(Family, &'a [u8])> {
    let (family, key, _) = parts.get(part)?.at(place)?;
    Some((family, key))
}

/// What both begin with.
fn begin_of_both<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    if b.starts_with(a) {
        return a;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    a.get(..same).unwrap_or_default()
}

/// The first sixteen bytes as a number that orders as they do; a shorter key is not above a longer.
fn window(key: &[u8]) -> u128 {
    match key.first_chunk() {
        Some(window) => u128::from_be_bytes(*window),
        None => {
            let mut window = [0; 16];
            window[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(window)
        }
    }
}

/// Rows in order, each with the part it is from: a later part is newer.
struct Source<'s, 'a> {
    head: Option<(usize, Change<'a>)>,
    rest: Box<dyn Iterator<Item = (usize, Change<'a>)> + 's>,
}

impl<'s, 'a> Source<'s, 'a> {
    fn new(mut rest: Box<dyn Iterator<Item = (usize, Change<'a>)> + 's>) -> Self {
        let head = rest.next();
        Source { head, rest }
    }
}

fn merge<'a>(mut sources: Vec<Source<'_, 'a>>, each: &mut impl FnMut(Change<'a>)) {
    sources.retain(|source| source.head.is_some());
    while sources.len() > 1 {
        let Some(change) = next(&mut sources) else {
            return;
        };
        each(change);
        if sources.iter().any(|source| source.head.is_none()) {
            sources.retain(|source| source.head.is_some());
        }
    }
    // No others to compare with.
    for source in sources {
        source
            .head
            .into_iter()
            .chain(source.rest)
            .for_each(|(_, change)| each(change));
    }
}

/// The least of the heads, of equal ones the newest; those sources go on.
fn next<'a>(sources: &mut [Source<'_, 'a>]) -> Option<Change<'a>> {
    let mut least: Option<(usize, Change<'a>)> = None;
    for source in sources.iter() {
        let Some(head) = source.head else {
            continue;
        };
        let order = least.map_or(Ordering::Less, |least| {
            let row = (head.1.0, head.1.1).cmp(&(least.1.0, least.1.1));
            row.then_with(|| least.0.cmp(&head.0))
        });
        if order.is_lt() {
            least = Some(head);
        }
    }
    let (_, change) = least?;
    for source in sources.iter_mut() {
        if let Some((_, (family, key, _))) = source.head
            && (family, key) == (change.0, change.1)
        {
            source.head = source.rest.next();
        }
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_order_is_that_of_a_map_and_the_last_change_counts() {
        let mut dice = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let mut parts = [Changes::new(), Changes::new()];
            let mut model = BTreeMap::new();
            let prefix = vec![dice.u8(..); dice.usize(0..20)];
            for n in 0..dice.usize(0..60) {
                let mut key = prefix.clone();
                key.truncate(dice.usize(prefix.len().saturating_sub(1)..=prefix.len()));
                let alphabet = [0, 1, 255];
                key.extend((0..dice.usize(0..20)).map(|_| alphabet[dice.usize(0..3)]));
                key.truncate(dice.usize(0..24));
                let family = Family::ALL[dice.usize(0..3)];
                let part = &mut parts[usize::from(n > 25)];
                match dice.bool() {
                    true => part.put(family, &key, &[n as u8]),
                    false => part.delete(family, &key),
                }
            }
            for (family, key, value) in parts.iter().flat_map(|part| part.iter()) {
                model.insert((family as u8, key), value);
            }
            let mut rows = Vec::new();
            for_each_in_order(&[&parts[0], &parts[1]], |(family, key, value)| {
                rows.push(((family as u8, key), value));
            });
            assert_eq!(rows, model.into_iter().collect::<Vec<_>>());
        }
    }

    /// Parts that are in order, others, and rows that are in several of them.
    #[test]
    fn runs_and_loose_parts_become_one_order() {
        let mut dice = fastrand::Rng::with_seed(5);
        for _ in 0..20 {
            let mut parts: Vec<Changes> = Vec::new();
            let mut model = BTreeMap::new();
            for age in 0..dice.u32(1..7) {
                let keys = dice.u32(1..6000);
                let mut rows: Vec<u32> =
                    (0..dice.u32(1..3000)).map(|_| dice.u32(0..keys)).collect();
                if dice.bool() {
                    rows.sort_unstable();
                    rows.dedup();
                }
                let family = Family::ALL[dice.usize(0..2)];
                let mut part = Changes::new();
                for row in rows {
                    let (key, value) = (row.to_be_bytes(), age.to_be_bytes());
                    model.insert((family as u8, key), value);
                    part.put(family, &key, &value);
                }
                parts.push(part);
            }
            let parts: Vec<&Changes> = parts.iter().collect();
            let mut rows = Vec::new();
            for_each_in_order(&parts, |(family, key, value)| {
                let key: [u8; 4] = key.try_into().unwrap();
                rows.push(((family as u8, key), value.unwrap().try_into().unwrap()));
            });
            assert_eq!(rows, model.into_iter().collect::<Vec<_>>());
        }
    }
}

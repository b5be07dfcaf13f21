//! Rows of a write in the order of their keys: the memtable finds the place of each beside that of
//! the one before, instead of searching it from the top.
//!
//! ```text
//!   oldest  many rows, in order already (a run)  ─────────────────┐
//!           many rows, in order already          ─────────────────┼─ merged ─► each row once, its last change
//!   newest  all others  ─ sorted by a window of their keys ───────┘
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
    /// There was no such row before the first change of it.
    is_new: bool,
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

/// Calls `each` with the changes of `parts`, the oldest first, family by family, ascending; of equal rows only with the last, and not
/// at all if it came and went ([`Change::is_nothing`]).
pub(crate) fn for_each_in_order<'a>(parts: &[&'a Changes], mut each: impl FnMut(Change<'a>)) {
    let is_run = |part: &&&Changes| part.len() >= MANY && is_in_order(part);
    let (runs, loose) = parts.split_at(parts.iter().take_while(is_run).count());
    ROWS.with_borrow_mut(|rows| {
        sort(rows, loose);
        let sorted = rows.iter().filter_map(|row| {
            let is_new = row.is_new;
            Some(Change {
                is_new,
                ..loose.get(row.part as usize)?.at(row.place)?
            })
        });
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for (age, run) in runs.iter().enumerate() {
            sources.extend(Source::new(age, Box::new(run.iter())));
        }
        sources.extend(Source::new(runs.len(), Box::new(sorted)));
        merge(sources, &mut |change: Change<'a>| {
            if !change.is_nothing() {
                each(change);
            }
        });
        rows.clear();
        rows.shrink_to(ROWS_KEPT);
    });
}

fn is_in_order(changes: &Changes) -> bool {
    let rows = changes.iter().map(|change| change.row());
    rows.is_sorted_by(|a, b| a < b)
}

/// Sorts the rows of these parts; those that are equal by their age.
fn sort(rows: &mut Vec<Row>, parts: &[&Changes]) {
    rows.clear();
    let mut common: [Option<&[u8]>; Family::ALL.len()] = Default::default();
    for (part, changes) in parts.iter().enumerate() {
        for place in changes.places() {
            let Some(change) = changes.at(place) else {
                continue;
            };
            let (family, key) = change.row();
            if let Some(common) = common.get_mut(family as usize) {
                *common = Some(common.map_or(key, |common| begin_of_both(common, key)));
            }
            rows.push(Row {
                window: 0,
                place,
                part: part as u32,
                family: family as u8,
                seen: LONG,
                is_new: change.is_new,
            });
        }
    }
    let common = common.map(|common| common.map_or(0, <[u8]>::len));
    let key = |row: &Row| {
        let change = parts.get(row.part as usize)?.at(row.place)?;
        Some(change.key)
    };
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
    // Of equal rows the last stays; whether there was one before tells the first.
    rows.dedup_by(|later, kept| {
        let same = later.cmp(kept, key).is_eq();
        if same {
            later.is_new = kept.is_new;
            std::mem::swap(later, kept);
        }
        same
    });
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

/// Rows in order, of some age.
struct Source<'s, 'a> {
    head: Change<'a>,
    age: usize,
    rest: Box<dyn Iterator<Item = Change<'a>> + 's>,
}

impl<'s, 'a> Source<'s, 'a> {
    /// None if there are no rows.
    fn new(age: usize, mut rest: Box<dyn Iterator<Item = Change<'a>> + 's>) -> Option<Self> {
        let head = rest.next()?;
        Some(Source { head, age, rest })
    }

    /// Of equal rows the older change comes first.
    fn is_before(&self, other: &Self) -> bool {
        let rows = self.head.row().cmp(&other.head.row());
        rows.then(self.age.cmp(&other.age)).is_lt()
    }
}

/// The sources stand in the order of their heads, the least last: most often the one that was taken from goes
/// back to the end, or near it.
fn merge<'a>(sources: Vec<Source<'_, 'a>>, each: &mut impl FnMut(Change<'a>)) {
    let mut line: Vec<Source<'_, 'a>> = Vec::with_capacity(sources.len());
    for source in sources {
        queue(&mut line, source);
    }
    while line.len() > 1 {
        let Some(mut change) = take_least(&mut line) else {
            return;
        };
        while line.last().is_some_and(|it| it.head.row() == change.row()) {
            change = take_least(&mut line).map_or(change, |newer| change.replaced_by(newer));
        }
        each(change);
    }
    // No others to compare with.
    for source in line {
        std::iter::once(source.head)
            .chain(source.rest)
            .for_each(&mut *each);
    }
}

fn queue<'s, 'a>(line: &mut Vec<Source<'s, 'a>>, source: Source<'s, 'a>) {
    let behind = line.iter().rev().take_while(|it| it.is_before(&source));
    line.insert(line.len() - behind.count(), source);
}

/// The least head; its source goes on.
fn take_least<'a>(line: &mut Vec<Source<'_, 'a>>) -> Option<Change<'a>> {
    let mut source = line.pop()?;
    let change = source.head;
    if let Some(head) = source.rest.next() {
        source.head = head;
        queue(line, source);
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
            for change in parts.iter().flat_map(|part| part.iter()) {
                model.insert((change.family as u8, change.key), change.value);
            }
            let mut rows = Vec::new();
            for_each_in_order(&[&parts[0], &parts[1]], |change| {
                rows.push(((change.family as u8, change.key), change.value));
            });
            assert_eq!(rows, model.into_iter().collect::<Vec<_>>());
        }
    }

    /// Rows come and go, some of them said to be new: what comes out makes the same rows of those that were
    /// there, and deletes none that never were.
    #[test]
    fn rows_that_came_and_went_are_left_out() {
        let mut dice = fastrand::Rng::with_seed(7);
        for _ in 0..30 {
            let keys = dice.u32(1..3000);
            let there: BTreeMap<u32, u8> = (0..keys)
                .filter(|_| dice.bool())
                .map(|key| (key, 0))
                .collect();
            let mut after = there.clone();
            let mut told_new = BTreeMap::new();
            let mut parts: Vec<Changes> = Vec::new();
            for age in 1..dice.u8(2..8) {
                let mut rows: Vec<u32> =
                    (0..dice.u32(1..4000)).map(|_| dice.u32(0..keys)).collect();
                if dice.bool() {
                    rows.sort_unstable();
                    rows.dedup();
                }
                let mut part = Changes::new();
                for key in rows {
                    let bytes = key.to_be_bytes();
                    let is_new = !after.contains_key(&key) && dice.u8(..4) > 0;
                    let goes = after.contains_key(&key) && dice.bool();
                    told_new.entry(key).or_insert(is_new && !goes);
                    match (goes, is_new) {
                        (true, _) => part.delete(Family::Score, &bytes),
                        (false, true) => part.put_new(Family::Score, &bytes, &[age]),
                        (false, false) => part.put(Family::Score, &bytes, &[age]),
                    }
                    match goes {
                        true => after.remove(&key),
                        false => after.insert(key, age),
                    };
                }
                parts.push(part);
            }
            let parts: Vec<&Changes> = parts.iter().collect();
            let mut made = there.clone();
            for_each_in_order(&parts, |change| {
                let key = u32::from_be_bytes(change.key.try_into().unwrap());
                match change.value {
                    Some(value) => made.insert(key, value[0]),
                    None => made.remove(&key),
                };
                assert_eq!(change.is_new, told_new[&key]);
                assert!(change.value.is_some() || !told_new[&key]);
            });
            assert_eq!(made, after);
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
            for_each_in_order(&parts, |change| {
                let key: [u8; 4] = change.key.try_into().unwrap();
                let value = change.value.unwrap().try_into().unwrap();
                rows.push(((change.family as u8, key), value));
            });
            assert_eq!(rows, model.into_iter().collect::<Vec<_>>());
        }
    }
}

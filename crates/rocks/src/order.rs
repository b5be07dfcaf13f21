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
//! comparing them whole is slow. To sort, the places are found first at which they differ ([`Differences`]); the bytes at
//! the first sixteen of them are taken as a number, and whole keys are compared only where these are equal:
//!
//! ```text
//!   region  slot   database  key               window
//!   0 0 0 7  3 1 4  0         cart:000091  ─►  3 1 4 9 1
//!   0 0 0 7  2 7 1  0         cart:000082  ─►  2 7 1 8 2
//! ```

use std::cell::RefCell;
use std::cmp::Ordering;

use keyspace::rows::{Change, Changes, Family};

/// Fewer rows are sorted with all others, whether they are in order or not: merging is for few parts.
const MANY: usize = 1024;

/// Room for more rows is not kept.
const ROWS_KEPT: usize = 256 << 10;

/// Where a change is, and of its key what differs from others.
struct Row {
    window: u128,
    place: usize,
    part: u32,
    family: u8,
    /// Bytes of the key that are in the window; [`LONG`] if some that may differ are not.
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

/// Gives back the room of this thread.
pub(crate) fn give_back_room() {
    ROWS.with_borrow_mut(|rows| *rows = Vec::new());
}

fn is_in_order(changes: &Changes) -> bool {
    let rows = changes.iter().map(|change| change.row());
    rows.is_sorted_by(|a, b| a < b)
}

/// Sorts the rows of these parts; those that are equal by their age.
fn sort(rows: &mut Vec<Row>, parts: &[&Changes]) {
    rows.clear();
    let mut differences: [Differences<'_>; Family::ALL.len()] = Default::default();
    for (part, changes) in parts.iter().enumerate() {
        for place in changes.places() {
            let Some(change) = changes.at(place) else {
                continue;
            };
            let (family, key) = change.row();
            if let Some(differences) = differences.get_mut(family as usize) {
                differences.add(key);
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
    let windows = differences.map(|differences| differences.window());
    let key = |row: &Row| {
        let change = parts.get(row.part as usize)?.at(row.place)?;
        Some(change.key)
    };
    for row in rows.iter_mut() {
        if let (Some(window), Some(key)) = (windows.get(usize::from(row.family)), key(row)) {
            (row.window, row.seen) = window.on(key);
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

/// How far into keys it is looked for differences.
const DEPTH: usize = 64;

/// Where keys differ from each other.
struct Differences<'a> {
    /// One of them.
    like: Option<&'a [u8]>,
    /// By place: not zero if some have another byte there.
    bits: [u8; DEPTH],
    /// The length of the shortest: behind it not all have a byte.
    least: usize,
}

impl Default for Differences<'_> {
    fn default() -> Self {
        Differences {
            like: None,
            bits: [0; DEPTH],
            least: usize::MAX,
        }
    }
}

impl<'a> Differences<'a> {
    fn add(&mut self, key: &'a [u8]) {
        let like = *self.like.get_or_insert(key);
        self.least = self.least.min(key.len());
        for ((bits, a), b) in self.bits.iter_mut().zip(like).zip(key) {
            *bits |= a ^ b;
        }
    }

    fn window(&self) -> Window {
        let differs = |&place: &usize| {
            let bits = self.bits.get(place);
            place >= self.least || bits.is_some_and(|&bits| bits != 0)
        };
        let mut window = Window {
            places: [0; 16],
            len: 0,
            all_to: DEPTH,
        };
        for place in (0..DEPTH).filter(differs) {
            let Some(next) = window.places.get_mut(window.len) else {
                window.all_to = place;
                break;
            };
            *next = place;
            window.len += 1;
        }
        window
    }
}

/// The first places at which keys differ.
struct Window {
    places: [usize; 16],
    len: usize,
    /// Before this place there are no others.
    all_to: usize,
}

impl Window {
    /// The bytes there as a number that orders as they do, and how many they are; [`LONG`] if the key may differ elsewhere, too.
    fn on(&self, key: &[u8]) -> (u128, u8) {
        let places = self.places.iter().take(self.len);
        let (mut window, mut seen) = (0_u128, 0);
        for &byte in places.map_while(|&place| key.get(place)) {
            window = window << 8 | u128::from(byte);
            seen += 1;
        }
        // A shorter key is not above a longer one.
        let window = window.checked_shl(8 * (16 - seen)).unwrap_or(0);
        match key.len() > self.all_to {
            true => (window, LONG),
            false => (window, seen as u8),
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

    /// Keys with something in common before, between and behind what differs, of one length or not, some longer than it is looked into.
    #[test]
    fn keys_that_differ_in_several_places_are_in_order() {
        let mut dice = fastrand::Rng::with_seed(11);
        for _ in 0..500 {
            let common = [0; 3].map(|_| vec![dice.u8(..); dice.usize(0..40)]);
            let is_even = dice.bool();
            let mut keys = Vec::new();
            let mut part = Changes::new();
            for _ in 0..dice.usize(1..80) {
                let mut key = Vec::new();
                for common in &common {
                    key.extend_from_slice(common);
                    let len = if is_even { 3 } else { dice.usize(0..9) };
                    key.extend((0..len).map(|_| [0, 1, 255][dice.usize(0..3)]));
                }
                if !is_even && dice.u8(..8) == 0 {
                    key.truncate(dice.usize(0..key.len() + 1));
                }
                part.put(Family::ALL[0], &key, b"");
                keys.push(key);
            }
            keys.sort();
            keys.dedup();
            let mut rows = Vec::new();
            for_each_in_order(&[&part], |change| rows.push(change.key.to_vec()));
            assert_eq!(rows, keys);
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

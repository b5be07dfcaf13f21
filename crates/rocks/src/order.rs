//! Rows of a write in the order of their keys: the memtable finds the place of each beside that of
//! the one before, instead of searching it from the top.
//!
//! Keys of one write have much in common (region, database, often a prefix of the application), so
//! comparing them whole is slow. What all have in common is found first; behind it sixteen bytes
//! are taken as a number, and whole keys are compared only where these are equal.

use keyspace::rows::{Change, Changes, Family};

/// A change, and the part of its key behind what all keys have in common.
struct Row<'a> {
    window: u128,
    change: Change<'a>,
}

impl Row<'_> {
    /// Whole keys are far apart in memory: they are looked at only where they may be equal.
    fn is_of_the_row(&self, other: &Row<'_>) -> bool {
        self.window == other.window && self.change.1 == other.change.1
    }
}

/// Calls `each` with the changes, family by family, ascending; of equal rows only with the last.
pub(crate) fn for_each_in_order<'a>(changes: &[&'a Changes], mut each: impl FnMut(Change<'a>)) {
    let mut families: [Vec<Row<'a>>; Family::ALL.len()] = Default::default();
    for change in changes.iter().flat_map(|changes| changes.iter()) {
        let row = Row { window: 0, change };
        if let Some(rows) = families.get_mut(change.0 as usize) {
            rows.push(row);
        }
    }
    for rows in &mut families {
        sort(rows);
        for pair in rows.windows(2) {
            if !pair[0].is_of_the_row(&pair[1]) {
                each(pair[0].change);
            }
        }
        if let Some(last) = rows.last() {
            each(last.change);
        }
    }
}

/// Stable, so that the last of equal rows stays the last.
fn sort(rows: &mut [Row<'_>]) {
    let Some(first) = rows.first().map(|row| row.change.1) else {
        return;
    };
    let common = rows.iter().fold(first.len(), |common, row| {
        common_len(&first[..common], row.change.1)
    });
    for row in rows.iter_mut() {
        row.window = window(row.change.1.get(common..).unwrap_or_default());
    }
    rows.sort_by(|a, b| {
        let near = a.window.cmp(&b.window);
        near.then_with(|| a.change.1.cmp(b.change.1))
    });
}

/// Bytes that both begin with.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    if b.starts_with(a) {
        return a.len();
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
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
}

//! The table against a plain map, and its promise to scans.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A boxed key, the simplest element.
#[allow(clippy::box_collection, reason = "a thin pointer is wanted")]
struct Key(Box<Vec<u8>>);

// SAFETY: a Box of an 8-aligned type, given and taken back whole; the key never changes.
unsafe impl Thin for Key {
    type Ref<'a> = &'a Vec<u8>;

    fn into_raw(self) -> NonNull<u8> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: from `into_raw`.
        Key(unsafe { Box::from_raw(raw.cast::<Vec<u8>>().as_ptr()) })
    }

    unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a Vec<u8> {
        // SAFETY: alive during 'a.
        unsafe { raw.cast::<Vec<u8>>().as_ref() }
    }

    fn key<'a>(element: Self::Ref<'a>) -> &'a [u8] {
        element
    }

    fn weight(element: Self::Ref<'_>) -> usize {
        element.len()
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key:{n}").into_bytes()
}

fn add(table: &mut Table<Key>, key: &[u8]) -> bool {
    let hash = table.hash(key);
    if table.find(hash, key).is_some() {
        return false;
    }
    let position = table.insert(hash, Key(Box::new(key.to_vec())));
    assert_eq!(table.at(position).unwrap(), key);
    true
}

fn drop_key(table: &mut Table<Key>, key: &[u8]) -> bool {
    let hash = table.hash(key);
    table
        .find(hash, key)
        .and_then(|position| table.remove(position))
        .is_some()
}

#[test]
fn grows_and_shrinks() {
    let n = if cfg!(miri) { 700 } else { 60_000 };
    let mut table = Table::new(7);
    assert!(table.random(&mut fastrand::Rng::with_seed(1)).is_none());
    for i in 0..n {
        assert!(add(&mut table, &key(i)));
        assert!(!add(&mut table, &key(i / 2)));
    }
    assert_eq!((table.len(), table.iter().count()), (n, n));
    for i in 0..n {
        assert!(table.get(table.hash(&key(i)), &key(i)).is_some());
        assert!(table.get(table.hash(&key(i + n)), &key(i + n)).is_none());
    }
    let bytes_per_key = table.memory_usage() / n;
    assert!(bytes_per_key < 20, "{bytes_per_key}");
    for i in 0..n {
        assert!(drop_key(&mut table, &key(i)));
        assert!(!drop_key(&mut table, &key(i)));
        if i % 64 == 0 && i + 1 < n {
            let rest = table.random(&mut fastrand::Rng::with_seed(i as u64));
            assert!(rest.is_some());
        }
    }
    assert_eq!((table.len(), table.memory_usage()), (0, 0));
}

#[test]
fn the_weight_is_that_of_what_is_there() {
    for count in [1, 10, 100, 1000, 5000] {
        let mut table = Table::new(7);
        for _ in 0..2 {
            let mut weight = 0;
            for n in 0..count {
                add(&mut table, &key(n));
                weight += key(n).len();
                assert_eq!(table.weight(), weight);
            }
            for n in 0..count {
                drop_key(&mut table, &key(n));
                weight -= key(n).len();
                assert_eq!(table.weight(), weight);
            }
        }
    }
}

#[test]
fn load_is_high_before_a_split() {
    let mut table = Table::new(3);
    let mut i = 0;
    while table.depth == 0 {
        add(&mut table, &key(i));
        i += 1;
    }
    assert!(i > 380, "{i}");
}

#[test]
fn replaces_in_place() {
    let mut table = Table::new(1);
    for i in 0..100 {
        add(&mut table, &key(i));
    }
    let hash = table.hash(&key(50));
    let position = table.find(hash, &key(50)).unwrap();
    let former = table.replace(position, Key(Box::new(key(50)))).unwrap();
    assert_eq!(*former.0, key(50));
    assert_eq!(table.find(hash, &key(50)), Some(position));
}

#[test]
fn random_is_fair() {
    let mut table = Table::new(5);
    for i in 0..1000 {
        add(&mut table, &key(i));
    }
    let mut rng = fastrand::Rng::with_seed(9);
    let mut seen = BTreeMap::new();
    for _ in 0..100_000 {
        *seen
            .entry(table.random(&mut rng).unwrap().clone())
            .or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 1000);
    assert!(seen.values().all(|&n| (50..=160).contains(&n)));
}

#[test]
fn scans_miss_nothing_while_the_table_changes() {
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let stay = rng.usize(1..3000);
        let mut table = Table::new(seed);
        for i in 0..stay {
            add(&mut table, &key(i));
        }
        let mut others = BTreeSet::new();
        if seed % 2 == 0 {
            for i in 100_000..100_000 + rng.usize(0..20_000) {
                add(&mut table, &key(i));
                others.insert(i);
            }
        }
        let (mut cursor, mut seen, mut calls) = (0, BTreeSet::new(), 0);
        loop {
            let count = rng.usize(1..50);
            cursor = table.scan(cursor, count, |element| {
                seen.insert(element.clone());
            });
            calls += 1;
            assert!(calls < 100_000);
            assert!(cursor < 1 << CURSOR_BITS);
            if cursor == 0 {
                break;
            }
            for _ in 0..rng.usize(0..200) {
                if rng.usize(0..5) < if seed % 2 == 0 { 4 } else { 1 } {
                    if let Some(i) = others.pop_last() {
                        drop_key(&mut table, &key(i));
                    }
                } else if others.len() < 20_000 {
                    let i = rng.usize(100_000..200_000);
                    add(&mut table, &key(i));
                    others.insert(i);
                }
            }
        }
        for i in 0..stay {
            assert!(seen.contains(&key(i)), "seed {seed}: {i} of {stay} missed");
        }
    }
}

#[test]
fn a_still_table_is_scanned_once_each() {
    for n in [1, 5, 20, 60, 150, 300, 5000] {
        let mut table = Table::new(2);
        for i in 0..n {
            add(&mut table, &key(i));
        }
        let (mut cursor, mut seen) = (0, 0);
        loop {
            cursor = table.scan(cursor, 10, |_| seen += 1);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen, n);
    }
}

#[test]
fn a_scan_that_meets_a_bigger_shape_misses_nothing() {
    for seed in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut table = Table::new(seed);
        let (mut cursor, mut seen, mut n) = (0, BTreeSet::new(), 8);
        let stay = n;
        for i in 0..n {
            add(&mut table, &key(i));
        }
        loop {
            cursor = table.scan(cursor, 1, |element| {
                seen.insert(element.clone());
            });
            if cursor == 0 {
                break;
            }
            let more = n + n / 2;
            for i in n..more.min(2000) {
                add(&mut table, &key(i));
            }
            n = more.min(2000);
        }
        assert!((0..stay).all(|i| seen.contains(&key(i))), "seed {seed}");
    }
}

#[test]
fn any_number_is_a_safe_cursor() {
    let mut rng = fastrand::Rng::with_seed(1);
    for n in [0, 3, 100, 5000] {
        let mut table = Table::new(2);
        for i in 0..n {
            add(&mut table, &key(i));
        }
        for _ in 0..2000 {
            table.scan(rng.u64(..), 3, |_| ());
        }
    }
}

#[test]
fn removal_in_scan_order_gives_memory_back() {
    let mut table = Table::new(2);
    let n = 100_000;
    for i in 0..n {
        add(&mut table, &key(i));
    }
    let mut keys = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = table.scan(cursor, 100, |element| keys.push(element.clone()));
        if cursor == 0 {
            break;
        }
    }
    let full = table.memory_usage();
    for key in &keys[..n - 1000] {
        assert!(drop_key(&mut table, key));
    }
    assert!(table.memory_usage() < full / 20, "{}", table.memory_usage());
    assert_eq!(table.iter().count(), 1000);
    for key in &keys[n - 1000..] {
        assert!(table.get(table.hash(key), key).is_some());
    }
    for i in 0..n {
        add(&mut table, &key(i));
    }
    assert_eq!((table.len(), table.iter().count()), (n, n));
}

//! Every collection against a plain model, with small limits so that histories cross them.

mod contract;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Atom;
use proptest::prelude::*;

use super::InMemory;
use crate::{Hash, LexBound, List, ScoreBound, Set, Tuning, Zset};

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..60i64).prop_map(|n| n.to_string().into_bytes()),
        4 => (0..60i64).prop_map(|n| format!("m{n}").into_bytes()),
        1 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        1 => any::<i32>().prop_map(|n| n.to_string().into_bytes()),
        2 => prop::collection::vec(any::<u8>(), 0..3),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn tuning(limit: usize) -> Tuning {
    Tuning {
        hash_max_packed_entries: limit,
        hash_max_packed_value: 100,
        set_max_intset_entries: limit,
        zset_max_packed_entries: limit,
        zset_max_packed_value: 100,
        list_max_packed_size: if limit > 30 { -1 } else { limit as i64 },
        ..Tuning::default()
    }
}

fn pairs<'a>(iter: impl Iterator<Item = (Atom<'a>, Atom<'a>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<_> = iter.map(|(a, b)| (a.to_vec(), b.to_vec())).collect();
    all.sort();
    all
}

fn vectors<'a>(iter: impl Iterator<Item = Atom<'a>>) -> Vec<Vec<u8>> {
    iter.map(|atom| atom.to_vec()).collect()
}

fn is_send<T: Send>(_: &T) {}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn hash(limit in 0..70usize, steps in prop::collection::vec((0..4u8, element(), element()), 0..300)) {
        let tuning = tuning(limit);
        let mut hash = Hash::new();
        let mut model = BTreeMap::new();
        for (step, field, value) in steps {
            if step == 0 {
                prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some());
            } else {
                prop_assert_eq!(hash.insert(&field, &value, &tuning), model.insert(field.clone(), value).is_none());
            }
            prop_assert_eq!(hash.get(&field).map(|atom| atom.to_vec()), model.get(&field).cloned());
            prop_assert_eq!(hash.len(), model.len());
        }
        is_send(&hash);
        let all: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(&pairs(hash.iter()), &all);
        prop_assert_eq!(&pairs(hash.clone().iter()), &all);
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = hash.scan(cursor, 5, &mut |a, b| { seen.insert((a.to_vec(), b.to_vec())); });
            if cursor == 0 { break }
        }
        prop_assert_eq!(seen.into_iter().collect::<Vec<_>>(), all.clone());
        let found = hash.random(&mut fastrand::Rng::with_seed(1)).map(|(a, b)| (a.to_vec(), b.to_vec()));
        prop_assert!(found.map_or(all.is_empty(), |pair| all.contains(&pair)));
        prop_assert!(hash.memory_usage() >= all.iter().filter(|(a, _)| a.len() > 20).map(|(a, _)| a.len()).sum());
    }

    #[test]
    fn set(limit in 0..70usize, only_ints in any::<bool>(), steps in prop::collection::vec((0..4u8, element()), 0..300)) {
        let tuning = tuning(limit);
        let mut set = Set::new();
        let mut model = BTreeSet::new();
        for (step, member) in steps {
            if only_ints && base::number::parse_i64(&member).is_none() { continue }
            if step == 0 {
                prop_assert_eq!(set.remove(&member), model.remove(&member));
            } else {
                prop_assert_eq!(set.insert(&member, &tuning), model.insert(member.clone()));
            }
            prop_assert_eq!(set.contains(&member), model.contains(&member));
            prop_assert_eq!(set.len(), model.len());
        }
        is_send(&set);
        prop_assert_eq!(vectors(set.iter()).into_iter().collect::<BTreeSet<_>>(), model.clone());
        prop_assert_eq!(vectors(set.clone().iter()).into_iter().collect::<BTreeSet<_>>(), model.clone());
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = set.scan(cursor, 5, &mut |a| { seen.insert(a.to_vec()); });
            if cursor == 0 { break }
        }
        prop_assert_eq!(&seen, &model);
        let found = set.random(&mut fastrand::Rng::with_seed(1)).map(|a| a.to_vec());
        prop_assert!(found.map_or(model.is_empty(), |member| model.contains(&member)));
    }

    #[test]
    fn list(limit in 1..40usize, steps in prop::collection::vec((0..14u8, element(), any::<u16>(), any::<u16>()), 0..400)) {
        let tuning = tuning(limit);
        let mut list = List::new();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (step, element, a, b) in steps {
            let at = a as usize % (model.len() + 1);
            match step {
                0..3 => { list.push_front(&element, &tuning); model.push_front(element); }
                3..6 => { list.push_back(&element, &tuning); model.push_back(element); }
                6 => prop_assert_eq!(list.pop_front(), model.pop_front()),
                7 => prop_assert_eq!(list.pop_back(), model.pop_back()),
                8 | 9 => { list.insert(at, &element, &tuning); model.insert(at, element); }
                10 | 11 if at < model.len() => {
                    let big = element.repeat(1 + b as usize % 100);
                    list.set(at, &big, &tuning);
                    model[at] = big;
                }
                12 => {
                    let count = b as usize % 9;
                    list.remove_range(at, count);
                    model.drain(at..(at + count).min(model.len()));
                }
                _ => {
                    let (most, from_tail) = (b as usize % 4, a % 2 == 0);
                    let mut gone = 0;
                    let mut kept: Vec<_> = model.drain(..).collect();
                    if from_tail { kept.reverse(); }
                    kept.retain(|other| { let goes = *other == element && gone < most; gone += usize::from(goes); !goes });
                    if from_tail { kept.reverse(); }
                    model = kept.into();
                    prop_assert_eq!(list.remove_equal(&element, most, from_tail), gone);
                }
            }
            prop_assert_eq!(list.len(), model.len());
            prop_assert_eq!(list.weight(), list.chunks_used());
            prop_assert_eq!(list.get(at).map(|atom| atom.to_vec()), model.get(at).cloned());
            prop_assert_eq!(list.back().map(|atom| atom.to_vec()), model.back().cloned());
        }
        is_send(&list);
        let all: Vec<_> = model.into_iter().collect();
        for start in 0..=all.len() {
            prop_assert_eq!(&vectors(list.iter_from(start)), &all[start..]);
            let back: Vec<_> = if start < all.len() { all[..=start].iter().rev().cloned().collect() } else { vec![] };
            prop_assert_eq!(vectors(list.iter_rev_from(start)), back);
        }
        prop_assert_eq!(vectors(list.clone().iter()), all);
    }

    #[test]
    fn zset(limit in 0..70usize, steps in prop::collection::vec((0..9u8, element(), -20..20i32, any::<u16>()), 0..400)) {
        let tuning = tuning(limit);
        let score_of = |n: i32| match n { 19 => f64::INFINITY, -20 => f64::NEG_INFINITY, n => f64::from(n) / 2.0 };
        let mut zset = Zset::new();
        let mut model: Vec<(f64, Vec<u8>)> = Vec::new();
        for (step, member, n, at) in steps {
            let score = score_of(n);
            let old = model.iter().position(|entry| entry.1 == member);
            prop_assert_eq!(zset.rank(&member), old);
            prop_assert_eq!(zset.score(&member), old.map(|old| model[old].0));
            match step {
                0 => prop_assert_eq!(zset.remove(&member), old.map(|old| model.remove(old).0)),
                1 if !model.is_empty() => {
                    let start = at as usize % model.len();
                    let end = (start + n.unsigned_abs() as usize / 4).min(model.len());
                    zset.remove_range(start..end);
                    model.drain(start..end);
                }
                _ => {
                    prop_assert_eq!(zset.insert(&member, score, &tuning), old.map(|old| model.remove(old).0));
                    model.push((score, member));
                    model.sort_by(|a, b| a.partial_cmp(b).unwrap());
                }
            }
            prop_assert_eq!(zset.len(), model.len());
            for exclusive in [false, true] {
                let bound = |n| ScoreBound { score: score_of(n), exclusive };
                let range = zset.score_range(bound(n), bound(n.saturating_add(5).min(19)));
                let inside = |s: f64| if exclusive { s > score && s < score_of((n + 5).min(19)) } else { s >= score && s <= score_of((n + 5).min(19)) };
                prop_assert_eq!(range.len(), model.iter().filter(|entry| inside(entry.0)).count());
                prop_assert!(model[range].iter().all(|entry| inside(entry.0)));
            }
        }
        is_send(&zset);
        for zset in [&zset, &zset.clone()] {
            for start in 0..=model.len() {
                let up: Vec<_> = zset.iter_from(start).map(|(m, s)| (s, m.to_vec())).collect();
                prop_assert_eq!(&up, &model[start..]);
                let down: Vec<_> = zset.iter_rev_from(start).map(|(m, s)| (s, m.to_vec())).collect();
                let back: Vec<_> = if start < model.len() { model[..=start].iter().rev().cloned().collect() } else { vec![] };
                prop_assert_eq!(down, back);
            }
        }
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = zset.scan(cursor, 5, &mut |m, _| { seen.insert(m.to_vec()); });
            if cursor == 0 { break }
        }
        prop_assert_eq!(seen, model.iter().map(|entry| entry.1.clone()).collect::<BTreeSet<_>>());
    }

    #[test]
    fn zset_by_member(limit in 0..40usize, members in prop::collection::btree_set(element(), 0..80), a in element(), b in element()) {
        let mut zset = Zset::new();
        for member in &members {
            zset.insert(member, 0.0, &tuning(limit));
        }
        let model: Vec<_> = members.into_iter().collect();
        let count = |min, max| zset.lex_range(min, max).len();
        prop_assert_eq!(count(LexBound::Min, LexBound::Max), model.len());
        prop_assert_eq!(count(LexBound::Max, LexBound::Min), 0);
        prop_assert_eq!(count(LexBound::Included(&a), LexBound::Excluded(&b)), model.iter().filter(|m| **m >= a && **m < b).count());
        prop_assert_eq!(count(LexBound::Excluded(&a), LexBound::Included(&b)), model.iter().filter(|m| **m > a && **m <= b).count());
    }
}

#[test]
fn encodings_change_where_redis_changes_them() {
    let tuning = Tuning::default();
    let (mut hash, mut set, mut zset) = (Hash::new(), Set::new(), Zset::new());
    for n in 0..128 {
        let name = n.to_string().into_bytes();
        hash.insert(&name, b"v", &tuning);
        zset.insert(&name, 1.0, &tuning);
    }
    for n in 0..512 {
        set.insert(n.to_string().as_bytes(), &tuning);
    }
    assert_eq!(
        (hash.encoding(), zset.encoding(), set.encoding()),
        ("listpack", "listpack", "intset")
    );
    hash.insert(b"x", b"", &tuning);
    zset.insert(b"x", 1.0, &tuning);
    set.insert(b"512", &tuning);
    assert_eq!(
        (hash.encoding(), zset.encoding(), set.encoding()),
        ("hashtable", "skiplist", "hashtable")
    );
    hash.remove(b"x");
    assert_eq!(hash.encoding(), "hashtable");
    let mut set = Set::new();
    set.insert(b"a", &tuning);
    assert_eq!(set.encoding(), "hashtable");
    let mut hash = Hash::new();
    hash.insert(b"a", &[b'x'; 65], &tuning);
    assert_eq!(hash.encoding(), "hashtable");
}

#[test]
fn minus_zero_is_kept_and_equal() {
    for limit in [0, 10] {
        let mut zset = Zset::new();
        zset.insert(b"b", -0.0, &tuning(limit));
        zset.insert(b"a", 0.0, &tuning(limit));
        assert!(zset.score(b"b").unwrap().is_sign_negative());
        assert_eq!(zset.rank(b"b"), Some(1));
    }
}

#[test]
fn ten_fields_are_small() {
    let mut hash = Hash::new();
    for n in 0..10 {
        hash.insert(
            format!("field{n}").as_bytes(),
            format!("value{n}").as_bytes(),
            &Tuning::default(),
        );
    }
    // Redis: 16 (object) + 160 (listpack of 147 bytes in its size class).
    assert!(
        hash.memory_usage() <= 24 + 160 + 8,
        "{}",
        hash.memory_usage()
    );
}

/// Not a test: how long a million of each takes. `cargo test --release -p keyspace -- --ignored speed --nocapture`
#[test]
#[ignore]
fn speed() {
    let tuning = Tuning::default();
    let mut rng = fastrand::Rng::with_seed(1);
    let n = 1_000_000u32;
    let members: Vec<Vec<u8>> = (0..n)
        .map(|i| format!("element:{i:07}").into_bytes())
        .collect();
    let timed = |name: &str, work: &mut dyn FnMut()| {
        #[allow(clippy::disallowed_methods, clippy::disallowed_types)]
        let start = std::time::Instant::now();
        work();
        println!(
            "{name}: {:.0} ns",
            start.elapsed().as_nanos() as f64 / f64::from(n)
        );
    };
    let mut zset = Zset::new();
    timed("zset insert", &mut || {
        members.iter().for_each(|m| {
            zset.insert(m, rng.f64(), &tuning);
        })
    });
    println!(
        "zset memory {} per member",
        zset.memory_usage() / n as usize
    );
    timed("zset move", &mut || {
        for _ in 0..n {
            zset.insert(&members[rng.usize(..n as usize)], rng.f64(), &tuning);
        }
    });
    timed("zset rank", &mut || {
        for _ in 0..n {
            zset.rank(&members[rng.usize(..n as usize)]);
        }
    });
    timed("zset range 10", &mut || {
        for _ in 0..n {
            assert!(zset.iter_from(rng.usize(..n as usize)).take(10).count() > 0);
        }
    });
    timed("zset drop range", &mut || zset.remove_range(0..n as usize));
    let mut list = List::new();
    timed("list push front", &mut || {
        members.iter().for_each(|m| list.push_front(m, &tuning))
    });
    timed("list index", &mut || {
        for _ in 0..n {
            list.get(rng.usize(..n as usize));
        }
    });
    timed("list iter", &mut || {
        assert_eq!(list.iter_from(0).count(), n as usize)
    });
    timed("list pop back", &mut || {
        for _ in 0..n {
            list.drop_back();
        }
    });
    let mut set = Set::new();
    timed("set insert", &mut || {
        members.iter().for_each(|m| {
            set.insert(m, &tuning);
        })
    });
    println!("set memory {} per member", set.memory_usage() / n as usize);
    timed("set again", &mut || {
        members.iter().for_each(|m| {
            set.insert(m, &tuning);
        })
    });
    let mut hash = Hash::new();
    for m in &members[..20] {
        hash.insert(m, m, &tuning);
    }
    timed("hash get of 20", &mut || {
        for _ in 0..n {
            hash.get(&members[rng.usize(..20)]);
        }
    });
    timed("hash all 20", &mut || {
        for _ in 0..n {
            assert_eq!(
                hash.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>(),
                600
            );
        }
    });
}

#[test]
fn one_big_element_of_a_long_list_weighs_what_it_is() {
    let tuning = Tuning::default();
    let mut list = List::new();
    for i in 0..100_000 {
        list.push_back(format!("small {i}").as_bytes(), &tuning);
    }
    let (before, big) = (list.weight(), vec![b'x'; 1 << 20]);
    list.push_front(&big, &tuning);
    let difference = list.weight() - before;
    assert!(
        (1 << 20..(1 << 20) + 64).contains(&difference),
        "{difference}"
    );
    list.pop_front();
    assert_eq!(list.weight(), before);
}

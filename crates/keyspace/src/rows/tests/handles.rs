//! Collections that stay in their rows: every way to read them agrees with every other, and what
//! needs few rows reads few.

use std::collections::BTreeSet;

use super::*;
use crate::{Expire, LexBound, Router, ScoreBound};

/// Reads a value in every way there is.
pub(super) fn check_sound(value: &ValueRef<'_>) {
    match value {
        ValueRef::String(_) => {}
        ValueRef::Hash(hash) => {
            let all: BTreeMap<_, _> = hash
                .iter()
                .map(|(field, value)| (field.to_vec(), value.to_vec()))
                .collect();
            assert_eq!(hash.len(), all.len());
            for (field, value) in &all {
                assert_eq!(hash.get(field).unwrap().to_vec(), *value);
                assert!(hash.contains(field));
            }
            assert!(hash.get(b"absent").is_none() && !hash.contains(b"absent"));
            let scanned = scanned(|cursor, seen: &mut BTreeMap<_, _>| {
                hash.scan(cursor, 3, &mut |field, value| {
                    seen.insert(field.to_vec(), value.to_vec());
                })
            });
            assert_eq!(scanned, all);
            for seed in 0..3 {
                let drawn = hash.random(&mut fastrand::Rng::with_seed(seed));
                let (field, value) = drawn.unwrap();
                assert_eq!(all[&field.to_vec()], value.to_vec());
            }
        }
        ValueRef::Set(set) => {
            let all: BTreeSet<_> = set.iter().map(|member| member.to_vec()).collect();
            assert_eq!(set.len(), all.len());
            assert!(all.iter().all(|member| set.contains(member)));
            let scanned = scanned(|cursor, seen: &mut BTreeSet<_>| {
                set.scan(cursor, 3, &mut |member| {
                    seen.insert(member.to_vec());
                })
            });
            assert_eq!(scanned, all);
            let drawn = set.random(&mut fastrand::Rng::with_seed(5)).unwrap();
            assert!(all.contains(&drawn.to_vec()));
        }
        ValueRef::List(list) => {
            let all: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
            assert_eq!(list.len(), all.len());
            for index in 0..all.len() {
                assert_eq!(list.get(index).unwrap().to_vec(), all[index]);
                let rest: Vec<_> = list.iter_from(index).map(|it| it.to_vec()).collect();
                assert_eq!(rest, all[index..]);
                let mut back: Vec<_> = list.iter_rev_from(index).map(|it| it.to_vec()).collect();
                back.reverse();
                assert_eq!(back, all[..=index]);
            }
            assert!(list.get(all.len()).is_none());
            assert_eq!(list.iter_from(all.len()).count(), 0);
            assert_eq!(list.iter_rev_from(all.len()).count(), 0);
            assert_eq!(list.front().map(|it| it.to_vec()), all.first().cloned());
            assert_eq!(list.back().map(|it| it.to_vec()), all.last().cloned());
        }
        ValueRef::Zset(zset) => check_zset(zset),
        #[allow(unreachable_patterns, reason = "for a kind to come")]
        _ => {}
    }
}

fn check_zset(zset: &crate::Zset) {
    let entry = |(member, score): (base::Atom<'_>, f64)| (member.to_vec(), score.to_bits());
    let all: Vec<_> = zset.iter().map(entry).collect();
    assert_eq!(zset.len(), all.len());
    for (rank, (member, bits)) in all.iter().enumerate() {
        assert_eq!(zset.score(member).unwrap().to_bits(), *bits);
        assert_eq!(zset.rank(member), Some(rank));
        let rest: Vec<_> = zset.iter_from(rank).map(entry).collect();
        assert_eq!(rest, all[rank..]);
        let mut back: Vec<_> = zset.iter_rev_from(rank).map(entry).collect();
        back.reverse();
        assert_eq!(back, all[..=rank]);
        let bound = |exclusive| ScoreBound {
            score: f64::from_bits(*bits),
            exclusive,
        };
        let scores = || all.iter().map(|(_, bits)| f64::from_bits(*bits));
        let below = scores().filter(|s| *s < f64::from_bits(*bits)).count();
        let with = scores().filter(|s| *s <= f64::from_bits(*bits)).count();
        assert_eq!(zset.score_range(bound(false), bound(false)), below..with);
        assert_eq!(zset.score_range(bound(true), bound(true)), with..with);
        let first = |is: &dyn Fn(&[u8]) -> bool| all.iter().take_while(|it| is(&it.0)).count();
        let before = first(&|other| other < &member[..]);
        let up_to = first(&|other| other <= &member[..]);
        let (min, max) = (LexBound::Excluded(member), LexBound::Included(member));
        assert_eq!(zset.lex_range(LexBound::Min, max), 0..up_to);
        assert_eq!(zset.lex_range(min, LexBound::Max), up_to..all.len());
        assert_eq!(zset.lex_range(max, max), before..up_to.max(before));
        assert_eq!(zset.lex_range(min, min), up_to..up_to);
    }
    assert_eq!(zset.iter_from(all.len()).count(), 0);
    assert_eq!(zset.rank(b"absent"), None);
    let seen = scanned(|cursor, seen: &mut BTreeMap<_, _>| {
        zset.scan(cursor, 3, &mut |member, score| {
            seen.insert(member.to_vec(), score.to_bits());
        })
    });
    assert_eq!(seen, all.iter().cloned().collect());
    let drawn = zset.random(&mut fastrand::Rng::with_seed(5)).unwrap();
    assert!(all.contains(&entry(drawn)));
}

/// All that the steps of a scan have seen.
fn scanned<T: Default>(mut step: impl FnMut(u64, &mut T) -> u64) -> T {
    let (mut seen, mut cursor) = (T::default(), 0);
    for _ in 0..10_000 {
        cursor = step(cursor, &mut seen);
        assert!(cursor < 1 << 53);
        if cursor == 0 {
            return seen;
        }
    }
    panic!("a scan without end")
}

pub(super) const KEY: &[u8] = b"big";
const GENERATION: u64 = 5 << 20;

/// A store with one collection, its rows written as they are.
pub(super) fn stored(kind: crate::Kind, n: usize) -> Arc<MapStore> {
    let store = Arc::new(MapStore::new());
    let mut rows = Changes::new();
    let mut base = layout::metadata_key(HOME, 1, KEY);
    let mut value = Vec::new();
    let body = layout::Body::Collection {
        generation: GENERATION,
        size: n as u64,
        extra: b"",
    };
    layout::Metadata {
        kind,
        expire_at_ms: None,
        body,
    }
    .push(&mut value);
    rows.put(Family::Metadata, &base, &value);
    let mut state = State {
        applied_index: 5,
        generation: GENERATION,
        ..State::default()
    };
    state.dbs[0].keys = 1;
    value.clear();
    state.push(&mut value);
    rows.put(Family::Info, &layout::state_key(HOME), &value);
    base.extend_from_slice(&GENERATION.to_be_bytes());
    let start = base.len();
    for i in 0..n {
        let name = name(i);
        base.truncate(start);
        base.extend_from_slice(name.as_bytes());
        let score = (i % 1000) as f64;
        match kind {
            crate::Kind::Zset => {
                rows.put(Family::Data, &base, &score.to_bits().to_be_bytes());
                base.truncate(start);
                base.extend_from_slice(&layout::score8(score));
                base.extend_from_slice(name.as_bytes());
                rows.put(Family::Score, &base, b"");
            }
            _ => rows.put(Family::Data, &base, b"value"),
        }
    }
    store.write(&[&rows]).unwrap();
    store
}

pub(super) fn name(i: usize) -> String {
    format!("m{i:07}")
}

/// Rows read by an entry of one step.
fn reads(durable: &mut Durable, index: u64, run: impl FnOnce(&mut Txn<'_>)) -> u64 {
    let before = durable.store.reads();
    durable.entry(index, 1, run);
    assert_eq!(durable.space.take_failure(), None);
    durable.store.reads() - before
}

#[test]
fn a_million_fields_are_changed_one_by_one() {
    let n = 1_000_000;
    let mut durable = Durable::open(stored(crate::Kind::Hash, n));
    let before = durable.store.reads();
    durable.load(0, KEY);
    assert_eq!(durable.store.reads() - before, 1);
    let field = name(4711).into_bytes();
    let few = reads(&mut durable, 10, |txn| {
        assert_eq!(txn.kind(KEY).unwrap().name(), "hash");
        assert_eq!(txn.encoding(KEY), Some("hashtable"));
        assert!(txn.memory_usage(KEY).unwrap() < 2000);
        assert_eq!(txn.hash(KEY).unwrap().unwrap().len(), n);
        assert!(txn.set_expire(KEY, Some(1000)));
        let mut hash = txn.hash_mut(KEY).unwrap().unwrap();
        assert!(!hash.insert(&field, b"new"));
        assert!(hash.insert(b"new field", b"x"));
        assert!(hash.remove(name(7).as_bytes()) && !hash.remove(name(7).as_bytes()));
    });
    assert!(few <= 4, "{few} reads");
    let few = reads(&mut durable, 11, |txn| {
        let hash = txn.hash(KEY).unwrap().unwrap();
        assert_eq!(hash.get(&field).unwrap().to_vec(), b"new");
        assert_eq!(hash.iter().take(10).count(), 10);
        assert_eq!(hash.len(), n);
    });
    assert!(few <= 20, "{few} reads");
    let few = reads(&mut durable, 12, |txn| assert!(txn.remove(KEY)));
    assert_eq!(few, 0);
    assert!(durable.store.all(Family::Metadata).is_empty());
    assert!(durable.store.all(Family::Expiry).is_empty());
}

#[test]
fn expiry_of_a_big_collection_reads_its_metadata_only() {
    let mut durable = Durable::open(stored(crate::Kind::Set, 5000));
    durable.load(0, KEY);
    durable.entry(10, 1, |txn| {
        txn.set_expire(KEY, Some(50));
    });
    let mut durable = Durable::open(durable.store);
    let before = durable.store.reads();
    let due = durable.space.due(60, 10, Tier::All).unwrap();
    assert_eq!(due.len(), 1);
    durable.load(0, KEY);
    durable.space.begin_entry(11);
    assert!(durable.space.expire_key(0, KEY, 50));
    durable.end(60);
    assert!(durable.store.reads() - before < 10);
    assert!(durable.store.all(Family::Metadata).is_empty());
}

#[test]
fn ranks_of_a_big_sorted_set_read_one_chunk() {
    let n = 200_000;
    let mut durable = Durable::open(stored(crate::Kind::Zset, n));
    durable.load(0, KEY);
    let rank = |i: usize| i % 1000 * (n / 1000) + i / 1000;
    let all = reads(&mut durable, 10, |txn| {
        let zset = txn.zset(KEY).unwrap().unwrap();
        assert_eq!(zset.rank(name(777).as_bytes()), Some(rank(777)));
    });
    assert!(all > n as u64 && all < n as u64 + 1000, "{all} reads");
    for (index, i) in (11..).zip([0, 5, 123_456, n - 1]) {
        let few = reads(&mut durable, index, |txn| {
            let zset = txn.zset(KEY).unwrap().unwrap();
            assert_eq!(zset.rank(name(i).as_bytes()), Some(rank(i)));
        });
        assert!(few <= 600, "{few} reads");
    }
    let few = reads(&mut durable, 20, |txn| {
        let zset = txn.zset(KEY).unwrap().unwrap();
        let bound = |score| ScoreBound {
            score,
            exclusive: false,
        };
        assert_eq!(zset.score_range(bound(10.0), bound(19.0)), 2000..4000);
        let middle = zset.iter_from(100_000).next().unwrap();
        assert_eq!((middle.0.to_vec(), middle.1), (name(500).into(), 500.0));
        zset.random(&mut txn.rng()).unwrap();
    });
    assert!(few <= 3000, "{few} reads");
    // Added and removed where they crowd: chunks split and go.
    let few = reads(&mut durable, 21, |txn| {
        let mut zset = txn.zset_mut(KEY).unwrap().unwrap();
        for i in 0..3000 {
            zset.insert(format!("x{i:04}").as_bytes(), 10.5);
        }
        assert_eq!(zset.rank(b"x2999"), Some(11 * 200 + 2999));
        zset.remove_range(0..2000);
        assert_eq!(zset.rank(b"x2999"), Some(200 + 2999));
        for i in 0..3000 {
            zset.remove(format!("x{i:04}").as_bytes());
        }
        let last = zset.len() - 1;
        assert_eq!(zset.iter_rev_from(last).next().unwrap().1, 999.0);
        assert_eq!(zset.rank(name(n - 1).as_bytes()), Some(last));
    });
    assert!(few <= 30_000, "{few} reads");
    let usage = durable.txn(0, 1).memory_usage(KEY).unwrap();
    assert!(usage < 2_000_000, "{usage}");
    durable.entry(22, 1, |_| {});
    durable.txn(0, 1).zset(KEY).unwrap().unwrap().score(b"x");
    let usage = durable.txn(0, 1).memory_usage(KEY).unwrap();
    assert!(usage < 60_000, "{usage}");
}

#[test]
fn scans_outlive_changes_and_uncaching() {
    let mut durable = Durable::open(stored(crate::Kind::Set, 5000));
    let (mut cursor, mut seen, mut steps) = (0, BTreeSet::new(), 0);
    loop {
        durable.load(0, KEY);
        let txn = durable.txn(0, 1);
        let set = txn.set(KEY).unwrap().unwrap();
        let mut given = 0;
        cursor = set.scan(cursor, 100, &mut |member| {
            given += 1;
            seen.insert(member.to_vec());
        });
        assert!(given <= 100);
        if cursor == 0 {
            break;
        }
        steps += 1;
        durable.entry(10 + steps, 1, |txn| {
            let mut set = txn.set_mut(KEY).unwrap().unwrap();
            set.insert(format!("n{steps}").as_bytes());
            set.remove(format!("n{}", steps - 1).as_bytes());
        });
        if steps == 20 {
            durable.space.uncache(0, KEY);
        }
    }
    assert!((60..=75).contains(&steps), "{steps} steps");
    assert!((0..5000).all(|i| seen.contains(name(i).as_bytes())));
}

#[test]
fn members_are_popped_at_random_until_none_is_left() {
    let mut durable = Durable::open_with(stored(crate::Kind::Set, 200), 4);
    durable.load(0, KEY);
    let mut popped = Vec::new();
    for index in 10..30 {
        durable.entry(index, 1, |txn| {
            let mut rng = txn.rng();
            let mut set = txn.set_mut(KEY).unwrap().unwrap();
            for _ in 0..10 {
                popped.push(set.pop_random(&mut rng).unwrap());
            }
        });
    }
    assert!(popped.windows(2).filter(|pair| pair[0] < pair[1]).count() < 150);
    popped.sort();
    popped.dedup();
    assert_eq!(popped.len(), 200);
    assert_eq!(durable.space.take_failure(), None);
    assert!(durable.store.all(Family::Metadata).is_empty());
    assert!(durable.store.all(Family::Data).is_empty());
}

struct ByFirst;

impl Router for ByFirst {
    fn position(&self, key: &[u8]) -> usize {
        usize::from(key.starts_with(b"other"))
    }
}

#[test]
fn a_collection_on_rows_moves_between_regions() {
    let mut durable = Durable::open(stored(crate::Kind::Hash, 5000));
    durable.load(0, KEY);
    let source = durable.store.clone();
    let mut other = Keyspace::durable(12, HOME + 1, None, source).unwrap();
    durable.space.begin_entry(10);
    other.begin_entry(3);
    let tuning = Tuning::default();
    {
        let mut spaces = [&mut durable.space, &mut other];
        let view = View::many(&mut spaces, &ByFirst, 0, 1, 1, &tuning);
        let mut txn = Txn::new(view);
        txn.hash_mut(KEY).unwrap().unwrap().insert(b"a", b"1");
        let copy = txn.clone_value(KEY).unwrap();
        let moved = txn.take(KEY).unwrap();
        txn.put(b"other copy", copy);
        txn.put(b"other", moved);
        for key in [&b"other copy"[..], b"other"] {
            let mut hash = txn.hash_mut(key).unwrap().unwrap();
            assert_eq!(hash.len(), 5001);
            hash.insert(b"b", key);
            hash.remove(name(1).as_bytes());
            assert_eq!(hash.get(b"b").unwrap().to_vec(), key);
            check_sound(&ValueRef::Hash(&hash));
        }
    }
    let (mut changes, mut others) = (Changes::new(), Changes::new());
    durable.space.end_entry(1, &mut changes);
    other.end_entry(1, &mut others);
    let look = |other: &mut Keyspace| {
        let view = View::one(other, 0, 1, 1, &tuning);
        let value = view.peek(b"other").unwrap();
        check_sound(&value);
        plain(value)
    };
    // The same before the rows are written, then while both know them, then from the rows alone.
    let before = look(&mut other);
    durable.store.write(&[&changes, &others]).unwrap();
    assert_eq!(look(&mut other), before);
    other.begin_entry(4);
    assert_eq!(look(&mut other), before);
    other.end_entry(1, &mut Changes::new());
    assert_eq!(other.take_failure(), None);
    assert_eq!(other.db_stats(0).0, 2);
    assert_eq!(durable.space.db_stats(0).0, 0);
}

#[test]
fn rows_that_are_missing_are_reported() {
    let store = stored(crate::Kind::Zset, 5000);
    let mut damage = Changes::new();
    let (row, _) = store.all(Family::Score)[4000].clone();
    damage.delete(Family::Score, &row);
    store.write(&[&damage]).unwrap();
    let mut durable = Durable::open(store);
    durable.load(0, KEY);
    durable
        .txn(0, 1)
        .zset(KEY)
        .unwrap()
        .unwrap()
        .rank(b"m0000001");
    let failure = durable.space.take_failure().unwrap();
    assert!(failure.contains("'big'"), "{failure}");
}

#[test]
fn what_is_lent_is_taken_back() {
    let mut durable = Durable::open(stored(crate::Kind::Hash, 20_000));
    durable.load(0, KEY);
    let txn = durable.txn(0, 1);
    assert_eq!(txn.hash(KEY).unwrap().unwrap().iter().count(), 20_000);
    assert!(txn.memory_usage(KEY).unwrap() > 100_000);
    let txn = durable.txn(0, 1);
    assert!(txn.memory_usage(KEY).unwrap() < 2000);
    // What was lent by a handle that is gone is no harm.
    txn.hash(KEY).unwrap().unwrap().get(name(1).as_bytes());
    durable.space.uncache(0, KEY);
    durable.txn(0, 1);
    durable.entry(10, 1, |txn| txn.put_string(b"k", b"v", Expire::Clear));
}

#[test]
fn changes_that_cannot_be_written_are_not_forgotten() {
    let mut durable = Durable::open(stored(crate::Kind::Hash, 5000));
    durable.load(0, KEY);
    durable.space.begin_entry(10);
    let mut txn = durable.txn(0, 1);
    txn.hash_mut(KEY).unwrap().unwrap().insert(b"new", b"1");
    durable.space.forget_changes();
    durable.space.begin_entry(10);
    let txn = durable.txn(0, 1);
    let hash = txn.hash(KEY).unwrap().unwrap();
    assert_eq!(hash.get(b"new").unwrap().to_vec(), b"1");
    assert_eq!(hash.len(), 5001);
    check_sound(&ValueRef::Hash(hash));
}

#[test]
fn sorted_sets_in_memory_read_the_same() {
    let mut rng = fastrand::Rng::with_seed(3);
    for limit in [0, 1000] {
        let tuning = Tuning {
            zset_max_packed_entries: limit,
            ..Tuning::default()
        };
        for scores in 1..5 {
            let mut zset = crate::Zset::new();
            for _ in 0..150 {
                let score = f64::from(rng.i32(0..scores));
                zset.insert(&[rng.u8(b'a'..b'f'), rng.u8(b'a'..=b'z')], score, &tuning);
            }
            check_zset(&zset);
        }
    }
}

#[test]
fn a_copy_does_not_follow_its_original() {
    let mut durable = Durable::open(stored(crate::Kind::Hash, 5000));
    durable.load(0, KEY);
    durable.space.begin_entry(10);
    let mut txn = durable.txn(0, 1);
    let copy = txn.clone_value(KEY).unwrap();
    txn.put(b"copy", copy);
    txn.hash_mut(KEY).unwrap().unwrap().insert(b"later", b"1");
    for is_written in [false, true] {
        if is_written {
            durable.end(1);
        }
        let txn = durable.txn(0, 1);
        assert!(!txn.hash(b"copy").unwrap().unwrap().contains(b"later"));
        assert!(txn.hash(KEY).unwrap().unwrap().contains(b"later"));
    }
}

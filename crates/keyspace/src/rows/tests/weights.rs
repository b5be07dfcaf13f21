//! What a data set weighs, and which keys are given up when that is too much.

use super::*;
use crate::rows::{VOID, Wanted};
use crate::{EvictionPolicy, Expire, Owned, Value};

/// The sum over all that is in memory.
fn resident(space: &Keyspace) -> u64 {
    let dbs = space.dbs.iter().take(VOID);
    let entries = dbs.flat_map(|db| db.table.iter());
    entries.map(|entry| entry.weight() as u64).sum()
}

fn change(txn: &mut Txn<'_>, rng: &mut fastrand::Rng, now_ms: u64) {
    let key = format!("k{}", rng.u32(..20));
    let key = key.as_bytes();
    let text = "x".repeat(rng.usize(..200));
    let element = format!("{}{}", rng.u32(..400), "y".repeat(rng.usize(..80)));
    let (text, element) = (text.as_bytes(), element.as_bytes());
    match rng.u32(..20) {
        0 => txn.put_string(key, text, Expire::Clear),
        1 => txn.put_string(key, text, Expire::At(now_ms + rng.u64(..50))),
        2 => txn.put_int(key, 7, Expire::Keep),
        3 | 4 => _ = txn.string_or_new(key).map(|mut it| it.append(text)),
        5 => _ = txn.string_or_new(key).map(|mut it| it.replace(text)),
        6 | 7 => _ = txn.hash_or_new(key).map(|mut it| it.insert(element, text)),
        8 => {
            _ = txn
                .hash_mut(key)
                .map(|it| it.map(|mut it| it.remove(element)))
        }
        9 | 10 => _ = txn.set_or_new(key).map(|mut it| it.insert(element)),
        11 => {
            _ = txn
                .set_mut(key)
                .map(|it| it.map(|mut it| it.pop_random(rng)))
        }
        12 | 13 => {
            _ = txn
                .zset_or_new(key)
                .map(|mut it| it.insert(element, rng.f64()))
        }
        14 => {
            _ = txn
                .zset_mut(key)
                .map(|it| it.map(|mut it| it.remove_range(0..1)))
        }
        15 | 16 => _ = txn.list_or_new(key).map(|mut it| it.push_back(text)),
        17 => _ = txn.list_mut(key).map(|it| it.map(|mut it| it.drop_front())),
        18 => {
            if let Some(owned) = txn.take(key) {
                txn.put(b"k7", owned);
            }
        }
        _ if rng.u32(..10) == 0 => txn.flush_db(),
        _ => _ = txn.remove(key),
    }
}

#[test]
fn weights_follow_every_change() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut durable = Durable::new();
    for index in 1..3000 {
        let now_ms = index;
        durable.space.begin_entry(index);
        for _ in 0..rng.usize(1..4) {
            let db = rng.u8(..2);
            change(&mut durable.txn(db, now_ms), &mut rng, now_ms);
        }
        if rng.u32(..50) == 0 {
            durable.txn(0, now_ms).swap_db(0, 1);
        }
        durable.end(now_ms);
        assert_eq!(
            durable.space.data_bytes(),
            resident(&durable.space),
            "{index}"
        );
    }
    assert_eq!(durable.space.doubtful_bytes(), Some(0));
    // What leaves memory and comes back stays part of the data set.
    let bytes = durable.space.data_bytes();
    assert!(bytes > 1000);
    durable.space.uncache_all();
    assert_eq!(
        (durable.space.data_bytes(), resident(&durable.space)),
        (bytes, 0)
    );
    durable.contents();
    assert_eq!(durable.space.data_bytes(), bytes);
}

#[test]
fn a_keyspace_that_is_opened_is_weighed_by_its_rows() {
    let mut durable = Durable::new();
    durable.entry(1, 1, |txn| {
        for i in 0..500 {
            txn.put_string(format!("s{i}").as_bytes(), &[b'v'; 100], Expire::Clear);
        }
        let mut set = txn.set_or_new(b"set").unwrap();
        (0..1000).for_each(|i| _ = set.insert(format!("member {i}").as_bytes()));
    });
    let bytes = durable.space.data_bytes();
    let mut opened = Durable::open(durable.store.clone());
    assert_eq!(opened.space.doubtful_bytes(), None);
    // What happens while the rows are read counts, too.
    opened.load(0, b"s1");
    opened.entry(2, 2, |txn| assert!(txn.remove(b"s1")));
    let weighing = opened.space.begin_weighing();
    let moment = opened.store.snapshot();
    opened.load(0, b"s2");
    opened.load(0, b"new");
    opened.entry(3, 3, |txn| {
        assert!(txn.remove(b"s2"));
        txn.put_string(b"new", &[b'v'; 100], Expire::Clear);
    });
    assert!(opened.space.is_weighing());
    weighing.run(&*moment, &mut |_| true);
    assert_eq!(opened.space.take_weighed(), Some(true));
    assert_eq!(opened.space.doubtful_bytes(), Some(0));
    assert!(!opened.space.is_weighing());
    let difference = opened.space.data_bytes() as i64 + 150 - bytes as i64;
    assert!(difference.abs() < 10, "{difference} of {bytes}");
    // One that is given up is tried again.
    drop(opened.space.begin_weighing());
    assert_eq!(opened.space.take_weighed(), Some(false));
    assert!(!opened.space.is_weighing());
}

fn wanted(bytes: u64, keys: usize) -> Wanted {
    Wanted {
        bytes,
        keys,
        cold_keys: usize::MAX,
        cold_bytes: u64::MAX,
    }
}

fn tuned(policy: EvictionPolicy) -> Tuning {
    Tuning {
        policy,
        ..Tuning::default()
    }
}

/// 100 keys in each of two databases, every fourth with a deadline.
fn filled() -> Durable {
    let mut durable = Durable::new();
    durable.space.begin_entry(1);
    for i in 0..200 {
        let expire = match i % 4 {
            0 => Expire::At(100_000 + i),
            _ => Expire::Clear,
        };
        let mut txn = durable.txn((i % 2) as u8, 1);
        txn.put_string(format!("key{i}").as_bytes(), b"value", expire);
    }
    durable.end(1);
    durable
}

#[test]
fn victims_are_what_the_policy_allows_in_memory_or_not() {
    use EvictionPolicy::*;
    let policies = [
        (AllKeysLru, 200),
        (AllKeysLfu, 200),
        (AllKeysRandom, 200),
        (VolatileLru, 50),
        (VolatileLfu, 50),
        (VolatileRandom, 50),
        (VolatileTtl, 50),
        (NoEviction, 0),
    ];
    for (policy, expected) in policies {
        for cached in [0, 60, 200] {
            let mut durable = filled();
            durable.space.uncache_all();
            for i in 0..cached {
                durable.load((i % 2) as u8, format!("key{i}").as_bytes());
            }
            let wanted = wanted(300, 1000);
            let (mut given, mut seed) = (0, 0);
            for index in 2..1000 {
                seed += 1;
                let victims = durable.space.victims(wanted, 2, seed, &tuned(policy));
                if victims.is_empty() {
                    break;
                }
                durable.space.begin_entry(index);
                for victim in victims {
                    durable.load(victim.db, &victim.key);
                    let deadline_ms = victim.deadline_ms;
                    assert_eq!(deadline_ms.is_some(), policy.is_volatile());
                    let gone = durable
                        .space
                        .evict_key(victim.db, &victim.key, deadline_ms, 2);
                    assert!(gone, "{policy:?}");
                    given += 1;
                }
                durable.end(2);
            }
            assert_eq!(given, expected, "{policy:?}, {cached} in memory");
            let left: usize = (0..2).map(|db| durable.space.db_stats(db).0).sum();
            assert_eq!(left, 200 - expected, "{policy:?}");
            if left == 0 {
                assert_eq!(durable.space.data_bytes(), 0);
            }
        }
    }
}

#[test]
fn the_earliest_deadline_goes_first_wherever_it_is() {
    let mut durable = filled();
    durable.space.uncache_all();
    for i in (0..200).step_by(8) {
        durable.load(0, format!("key{i}").as_bytes());
    }
    let wanted = wanted(u64::MAX, 10);
    let victims = durable
        .space
        .victims(wanted, 2, 1, &tuned(EvictionPolicy::VolatileTtl));
    let keys: Vec<_> = victims.iter().map(|it| it.key.to_vec()).collect();
    let expected: Vec<_> = (0..10)
        .map(|n| format!("key{}", n * 4).into_bytes())
        .collect();
    assert_eq!(keys, expected);
}

#[test]
fn rows_that_are_not_in_memory_are_asked_for_and_nothing_else_goes() {
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::VolatileTtl] {
        let mut durable = filled();
        durable.space.uncache_all();
        durable.load(0, b"key0");
        durable.store.chill();
        let wanted = wanted(1, 10);
        let mut found = Vec::new();
        for tries in 0..16 {
            durable.space.read_cached(true);
            found = durable.space.victims(wanted, 2, 9, &tuned(policy));
            durable.space.read_cached(false);
            let cold = durable.space.take_cold();
            if !found.is_empty() {
                break;
            }
            assert!(!cold.is_empty(), "{policy:?}");
            for rows in cold {
                crate::rows::warm(&*durable.store, &rows, tries).unwrap();
            }
        }
        assert!(!found.is_empty(), "{policy:?}");
    }
}

#[test]
fn a_key_that_was_given_another_deadline_stays() {
    let mut durable = filled();
    durable.space.begin_entry(2);
    assert!(!durable.space.evict_key(0, b"key0", Some(99), 2));
    assert!(durable.space.evict_key(0, b"key0", Some(100_000), 2));
    assert!(!durable.space.evict_key(0, b"key0", None, 2));
    let value = Value::String((*b"v").into());
    let owned = Owned {
        value,
        expire_at_ms: Some(3),
    };
    durable.txn(0, 2).put(b"due", owned);
    let before = durable.space.expired();
    assert!(
        !durable.space.evict_key(0, b"due", None, 5),
        "its time has come"
    );
    assert_eq!(durable.space.expired(), before + 1);
    durable.end(5);
}

/// The same on the leader, on followers and on replay: an entry that names a deadline never removes a key
/// that has another, whether that has come or not.
#[test]
fn a_deadline_that_has_come_is_compared_as_expiry_compares_it() {
    for (given, gone) in [(99, false), (100_001, false), (100_000, true)] {
        for now_ms in [2, 200_000] {
            let mut durable = filled();
            durable.space.begin_entry(2);
            let evicted = durable.space.evict_key(0, b"key0", Some(given), now_ms);
            assert_eq!(evicted, gone && now_ms == 2, "{given} at {now_ms}");
            let expired = durable.space.expired();
            assert_eq!(
                expired,
                u64::from(gone && now_ms > 2),
                "{given} at {now_ms}"
            );
            assert_eq!(durable.space.db_stats(0).0, 100 - usize::from(gone));
            durable.end(2);
        }
    }
}

/// 100 elements of about 1 KB: far more than what is guessed of elements in rows.
fn fill(txn: &mut Txn<'_>, key: &[u8]) {
    let mut hash = txn.hash_or_new(key).unwrap();
    for i in 0..100 {
        hash.insert(format!("field {i}").as_bytes(), &[b'v'; 1000]);
    }
}

/// A database with a string, a big hash and one that is changed.
fn with_big(threshold: usize) -> Durable {
    let mut durable = Durable::open_with(Arc::default(), threshold);
    durable.entry(1, 1, |txn| {
        txn.put_string(b"string", b"value", Expire::Clear);
        fill(txn, b"hash");
        fill(txn, b"other");
    });
    durable
}

fn weigh(durable: &mut Durable) -> impl FnOnce(&mut Durable) + use<> {
    let (weighing, moment) = (durable.space.begin_weighing(), durable.store.snapshot());
    weighing.run(&*moment, &mut |_| true);
    |durable| assert_eq!(durable.space.take_weighed(), Some(true))
}

fn make_whole(durable: &mut Durable, key: &[u8]) {
    durable.space.whole_job_of(0, key).unwrap().run();
    durable.space.take_wholes();
    assert!(!durable.space.is_on_rows(0, key));
}

#[test]
fn what_was_counted_for_a_collection_goes_with_it_wherever_it_is() {
    for changed in [false, true] {
        for whole in [false, true] {
            let mut durable = with_big(10);
            let bytes = durable.space.data_bytes();
            assert!(bytes > 200_000);
            for round in 0..3 {
                durable.space.uncache_all();
                assert_eq!(durable.space.data_bytes(), bytes);
                durable.load(0, b"hash");
                durable.load(0, b"string");
                assert!(durable.space.is_on_rows(0, b"hash"));
                if whole {
                    make_whole(&mut durable, b"hash");
                    assert_eq!(durable.space.data_bytes(), bytes, "{round}");
                }
            }
            durable.load(0, b"name");
            durable.entry(2, 2, |txn| {
                if changed {
                    let mut hash = txn.hash_or_new(b"hash").unwrap();
                    hash.insert(b"new", &[b'v'; 1000]);
                    hash.remove(b"field 1");
                    hash.remove(b"field 2");
                }
                let owned = txn.take(b"hash").unwrap();
                txn.put(b"name", owned);
            });
            durable.load(0, b"other");
            durable.entry(3, 3, |txn| {
                assert!(txn.remove(b"name"));
                assert!(txn.remove(b"other"));
                assert!(txn.remove(b"string"));
            });
            assert_eq!(durable.space.dbs[0].bytes, 0, "{changed} {whole}");
            assert!(durable.space.doubtful_bytes().is_some());
        }
    }
}

#[test]
fn a_collection_that_goes_while_rows_are_read_is_not_counted_again() {
    for opened in [false, true] {
        for action in 0..8 {
            let mut durable = with_big(10);
            let mut bytes = durable.space.data_bytes() as i64;
            durable.space.uncache_all();
            if opened {
                durable = Durable::open_with(durable.store.clone(), 10);
            }
            durable.load(0, b"string");
            if action >= 4 {
                durable.load(0, b"hash");
            }
            let take = weigh(&mut durable);
            durable.load(0, b"hash");
            match action % 4 {
                0 => _ = durable.entry(2, 2, |txn| assert!(txn.remove(b"hash"))),
                1 => make_whole(&mut durable, b"hash"),
                2 => {
                    make_whole(&mut durable, b"hash");
                    durable.entry(2, 2, |txn| assert!(txn.remove(b"hash")));
                }
                _ => {
                    assert!(durable.space.uncache(0, b"hash"));
                }
            }
            if action % 2 == 0 {
                bytes = bytes / 2 + 50;
            }
            take(&mut durable);
            assert!(durable.space.doubtful_bytes().is_some());
            let found = durable.space.dbs[0].bytes;
            // What was not known before it was read is known of one that stays as it was.
            if !(opened && action % 4 == 3) {
                assert!(
                    (found - bytes).abs() < 4000,
                    "{opened} {action}: {found} {bytes}"
                );
            }
            for key in [&b"hash"[..], b"other", b"string"] {
                durable.load(0, key);
                durable.entry(9, 9, |txn| _ = txn.remove(key));
            }
            let left = durable.space.dbs[0].bytes;
            assert!(left.abs() < 4000, "{opened} {action}: {left}");
        }
    }
}

#[test]
fn what_a_follower_hears_of_keys_it_has_in_rows_only_is_in_doubt() {
    let mut leader = with_big(10);
    let mut follower = Durable::open_with(leader.store.clone(), 10);
    let take = weigh(&mut follower);
    take(&mut follower);
    let before = follower.space.data_bytes();
    leader.load(0, b"string");
    let changes = leader.entry(2, 2, |txn| {
        assert!(txn.remove(b"string"));
        assert!(txn.remove(b"hash"));
    });
    follower.space.apply_rows(&changes);
    let after = follower.space.data_bytes();
    assert!(after < before / 2 + 1000, "{after} of {before}");
    assert!(follower.space.doubtful_bytes().unwrap() > 0);
}

#[test]
fn keys_in_rows_only_are_given_up_few_at_a_time() {
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::VolatileTtl] {
        let mut durable = filled();
        durable.space.uncache_all();
        let few = Wanted {
            cold_keys: 7,
            ..wanted(u64::MAX, 1000)
        };
        let found = durable.space.victims(few, 2, 1, &tuned(policy));
        assert_eq!(found.len(), 7);
        let small = Wanted {
            cold_bytes: 100,
            ..wanted(u64::MAX, 1000)
        };
        let found = durable.space.victims(small, 2, 1, &tuned(policy));
        assert_eq!(found.len(), 2, "{found:?}");
        // However little is known of it, a key counts something.
        let mut opened = Durable::open(durable.store.clone());
        let found = opened
            .space
            .victims(wanted(300, 1000), 2, 1, &tuned(policy));
        assert!(found.len() < 8, "{}", found.len());
    }
}

//! Eviction, access clocks, counters, snapshots that are given up, sizes.

use crate::{EvictionPolicy, Expire, Keyspace, Tuning, Txn, View};

fn tuned(policy: EvictionPolicy) -> Tuning {
    Tuning {
        policy,
        ..Tuning::default()
    }
}

fn at<'a>(space: &'a mut Keyspace, db: u8, now_ms: u64, tuning: &'a Tuning) -> Txn<'a> {
    Txn::new(View::one(space, db, now_ms, 7, tuning))
}

fn fill(space: &mut Keyspace, tuning: &Tuning, n: usize) {
    for i in 0..n {
        let expire = if i % 4 == 0 {
            Expire::At(1_000_000 + i as u64)
        } else {
            Expire::Clear
        };
        let key = format!("key{i}");
        at(space, (i % 2) as u8, 1000, tuning).put_string(key.as_bytes(), b"v", expire);
    }
}

#[test]
fn every_policy_gives_up_what_it_may_and_no_more() {
    use EvictionPolicy::*;
    for policy in [
        NoEviction,
        AllKeysLru,
        AllKeysLfu,
        AllKeysRandom,
        VolatileLru,
        VolatileLfu,
        VolatileRandom,
        VolatileTtl,
    ] {
        let tuning = tuned(policy);
        let mut space = Keyspace::new(1);
        fill(&mut space, &tuning, 1000);
        let mut seed = 0;
        while space.evict_one(2000, seed, &tuning) {
            seed += 1;
        }
        let expected = match policy {
            NoEviction => 0,
            AllKeysLru | AllKeysLfu | AllKeysRandom => 1000,
            VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl => 250,
        };
        assert_eq!(space.evicted(), expected, "{policy:?}");
        let left: usize = (0..2).map(|db| space.db_stats(db).0).sum();
        assert_eq!(left, 1000 - expected as usize);
    }
}

#[test]
fn recently_used_keys_stay() {
    let tuning = tuned(EvictionPolicy::AllKeysLru);
    let mut space = Keyspace::new(1);
    fill(&mut space, &tuning, 1000);
    for i in 0..200 {
        let key = format!("key{i}");
        let txn = at(&mut space, (i % 2) as u8, 500_000, &tuning);
        assert!(txn.value(key.as_bytes()).is_some());
    }
    for seed in 0..500 {
        assert!(space.evict_one(600_000, seed, &tuning));
    }
    let stayed = (0..200)
        .filter(|i| {
            let key = format!("key{i}");
            at(&mut space, (i % 2) as u8, 600_000, &tuning).exists(key.as_bytes())
        })
        .count();
    assert!(stayed > 190, "{stayed}");
}

#[test]
fn ttl_policy_takes_the_earliest() {
    let tuning = tuned(EvictionPolicy::VolatileTtl);
    let mut space = Keyspace::new(1);
    fill(&mut space, &tuning, 100);
    assert!(space.evict_one(2000, 1, &tuning));
    assert!(!at(&mut space, 0, 2000, &tuning).exists(b"key0"));
    assert!(at(&mut space, 0, 2000, &tuning).exists(b"key4"));
}

#[test]
fn reads_are_counted_and_dated() {
    let tuning = Tuning::default();
    let mut space = Keyspace::new(1);
    at(&mut space, 0, 5000, &tuning).put_string(b"k", b"v", Expire::Clear);
    {
        let view = View::one(&mut space, 0, 15_000, 1, &tuning);
        assert_eq!(view.idle_ms(b"k"), Some(10_000));
        assert!(view.peek(b"k").is_some());
        assert_eq!(view.idle_ms(b"k"), Some(10_000));
        assert!(view.string(b"k").unwrap().is_some());
        assert_eq!(view.idle_ms(b"k"), Some(0));
        assert!(view.string(b"none").unwrap().is_none());
    }
    assert_eq!((space.hits(), space.misses()), (1, 1));
    space.reset_counters();
    assert_eq!((space.hits(), space.misses()), (0, 0));
    let lfu = tuned(EvictionPolicy::AllKeysLfu);
    at(&mut space, 0, 5000, &lfu).put_string(b"f", b"v", Expire::Clear);
    let view = View::one(&mut space, 0, 5000, 1, &lfu);
    for _ in 0..50 {
        assert!(view.value(b"f").is_some());
    }
    let frequency = view.frequency(b"f").unwrap();
    assert!((6..40).contains(&frequency), "{frequency}");
}

#[test]
fn a_snapshot_given_up_leaves_no_trace() {
    let tuning = Tuning::default();
    let mut space = Keyspace::new(1);
    fill(&mut space, &tuning, 500);
    space.begin_snapshot();
    assert!(!space.snapshot_step(100, &mut |_, _, _, _| {}));
    at(&mut space, 0, 1000, &tuning).remove(b"key0");
    space.cancel_snapshot();
    at(&mut space, 0, 1000, &tuning).remove(b"key2");
    at(&mut space, 1, 1000, &tuning).flush_db();
    let mut n = 0;
    space.begin_snapshot();
    at(&mut space, 0, 1000, &tuning).flush_all();
    while !space.snapshot_step(10, &mut |_, _, _, _| n += 1) {}
    assert_eq!(n, 248);
    assert!(!space.is_saving());
}

#[test]
fn small_pairs_are_small() {
    let tuning = Tuning::default();
    let mut space = Keyspace::new(1);
    let mut entries = 0;
    for i in 0..20_000 {
        let key = format!("{i:05}");
        let mut txn = at(&mut space, 0, 1000, &tuning);
        txn.put_string(key.as_bytes(), b"vwxyz", Expire::Clear);
        entries += txn.memory_usage(key.as_bytes()).unwrap() - 16;
    }
    assert_eq!(entries / 20_000, 24);
    assert!(space.table_bytes(0) / 20_000 < 20);
}

#[test]
fn long_keys_and_values() {
    let tuning = Tuning::default();
    let mut space = Keyspace::new(1);
    for len in [65_534, 65_535, 65_536, 200_000] {
        let key = vec![b'k'; len];
        let mut txn = at(&mut space, 0, 1000, &tuning);
        txn.put_string(&key, b"inline", Expire::At(5000));
        assert!(txn.set_expire(&key, None));
        assert_eq!(txn.string(&key).unwrap().unwrap().to_vec(), b"inline");
        txn.string_mut(&key).unwrap().unwrap().append(b" more");
        assert!(txn.set_expire(&key, Some(7000)));
        assert_eq!(txn.string(&key).unwrap().unwrap().to_vec(), b"inline more");
        assert_eq!(txn.expire_at(&key), Some(Some(7000)));
        txn.put_int(&key, 5, Expire::Keep);
        assert_eq!(txn.expire_at(&key), Some(Some(7000)));
        assert_eq!(txn.encoding(&key), Some("int"));
    }
    assert_eq!(space.expire_due(7000, 10), 4);
}

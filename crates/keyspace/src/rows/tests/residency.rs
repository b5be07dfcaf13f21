//! What is cached, what is missing, what is void; walks over keys that are in rows only.

use super::*;
use crate::rows::{Loaded, RowSource};
use crate::{CURSOR_BITS, Expire};

/// `n` strings `k0` … in one entry, none of them cached any more.
fn cold(n: usize) -> Durable {
    let mut durable = Durable::new();
    durable.entry(1, 1, |txn| {
        for i in 0..n {
            txn.put_string(format!("k{i}").as_bytes(), b"v", Expire::Clear);
        }
    });
    Durable::open(durable.store)
}

#[test]
fn a_fresh_database_knows_what_is_absent_and_a_reopened_one_asks() {
    let mut durable = Durable::new();
    assert!(durable.space.is_resident(0, b"none"));
    let mut durable_cold = cold(1);
    let space = &mut durable_cold.space;
    assert!(!space.is_resident(0, b"k0") && !space.is_resident(0, b"none"));
    assert!(space.is_resident(1, b"none"));
    assert!(durable_cold.txn(0, 1).string(b"none").unwrap().is_none());
    let missing = durable_cold.space.take_missing();
    assert_eq!(missing, [(0, b"none"[..].into())]);
    durable_cold.load(0, b"none");
    assert!(durable_cold.txn(0, 1).string(b"none").unwrap().is_none());
    assert!(!durable_cold.space.has_missing());
    // Once all is loaded, everything else is absent.
    durable_cold.load(0, b"k0");
    assert!(durable_cold.space.is_resident(0, b"other"));
    assert!(durable.txn(0, 1).string(b"none").unwrap().is_none());
    assert!(!durable.space.has_missing());
}

#[test]
fn a_void_command_changes_nothing() {
    let mut durable = cold(3);
    durable.load(0, b"k1");
    durable.space.begin_entry(2);
    let mut txn = durable.txn(0, 1);
    assert!(txn.string(b"k0").unwrap().is_none());
    txn.put_string(b"k1", b"new", Expire::Clear);
    txn.list_or_new(b"k2").unwrap().push_back(b"x");
    txn.set_or_new(b"made").unwrap().insert(b"x");
    assert!(!txn.remove(b"k0") && txn.take(b"none").is_none());
    txn.flush_all();
    txn.swap_db(0, 1);
    assert!(txn.is_void());
    assert_eq!(durable.space.take_missing(), [(0, b"k0"[..].into())]);
    let changes = durable.end(1);
    let rows: Vec<_> = changes.iter().map(|change| change.family).collect();
    assert_eq!(rows, [Family::Info]);
    assert_eq!(durable.contents().len(), 3);
    assert_eq!(durable.space.changes(), 0);
}

#[test]
fn late_answers_are_dropped() {
    let mut durable = cold(2);
    let first = durable.space.load_request(0, b"k0");
    let second = durable.space.load_request(0, b"k0");
    let old = |durable: &Durable| load(&*durable.store, &first, Tier::All).unwrap();
    let stale = old(&durable);
    let stale_too = old(&durable);
    let loaded = load(&*durable.store, &second, Tier::All).unwrap();
    durable.space.insert_loaded(second, loaded);
    durable.entry(2, 1, |txn| txn.put_string(b"k0", b"new", Expire::Clear));
    assert!(durable.space.uncache(0, b"k0"));
    durable.space.insert_loaded(first.clone(), stale);
    assert!(!durable.space.is_resident(0, b"k0"));
    durable.entry(3, 1, |txn| txn.flush_db());
    durable.space.insert_loaded(first, stale_too);
    assert_eq!(durable.space.db_stats(0), (0, 0, 0));
    assert!(durable.contents().is_empty());
}

#[test]
fn damage_is_reported_not_served() {
    let mut durable = Durable::new();
    durable.entry(1, 1, |txn| {
        let mut list = txn.list_or_new(b"list").unwrap();
        list.push_back(b"a");
        list.push_back(b"b");
    });
    let (row, _) = durable.store.all(Family::Data)[0].clone();
    let mut damage = Changes::new();
    damage.delete(Family::Data, &row);
    durable.store.write(&[&damage]).unwrap();
    let mut durable = Durable::open(durable.store);
    let request = durable.space.load_request(0, b"list");
    let loaded = load(&*durable.store, &request, Tier::All).unwrap();
    assert!(matches!(loaded, Loaded::Unreadable(_)));
    durable.space.insert_loaded(request, loaded);
    assert!(!durable.space.is_resident(0, b"list"));
    assert!(!durable.space.needs_load(0, b"list"));
    let refusal = durable.space.unreadable(0, b"list").unwrap().to_string();
    assert!(refusal.contains("'list'"), "{refusal}");
    durable.space.forget_unreadable();
    assert!(durable.space.needs_load(0, b"list"), "it is tried again");
    let source = durable.store.clone();
    assert!(Keyspace::durable(1, HOME, Some(b"?"), source).is_err());
}

#[test]
fn loaded_keys_go_first_until_used_again() {
    let mut durable = cold(2000);
    let tuning = Tuning::default();
    let now_ms = 10_000_000_000;
    for i in 0..1000 {
        let key = format!("k{i}");
        durable.load(0, key.as_bytes());
        // The command that waited for it, and for half of them another one later.
        durable.txn(0, now_ms).string(key.as_bytes()).unwrap();
        if i % 2 == 0 {
            durable.txn(0, now_ms).string(key.as_bytes()).unwrap();
        }
    }
    for seed in 0..400 {
        assert!(durable.space.uncache_one(now_ms, seed, &tuning));
    }
    let resident = |space: &Keyspace, odd: usize| {
        let keys = (0..500).map(|i| format!("k{}", 2 * i + odd));
        keys.filter(|key| space.is_resident(0, key.as_bytes()))
            .count()
    };
    assert!(resident(&durable.space, 0) >= 495);
    assert!(resident(&durable.space, 1) <= 105);
    assert_eq!(durable.space.db_stats(0).0, 2000);
}

#[test]
fn reads_propose_what_they_find_due() {
    let mut durable = Durable::new();
    durable.entry(1, 1, |txn| txn.put_string(b"k", b"v", Expire::At(5)));
    assert!(durable.txn(0, 6).string(b"k").unwrap().is_none());
    assert!(durable.txn(0, 6).string(b"k").unwrap().is_none());
    assert!(durable.space.has_met_due());
    durable.space.expire_met(6);
    assert_eq!(durable.space.expire_due(6, 10), 0);
    assert_eq!(durable.space.db_stats(0).0, 1);
    let met = durable.space.take_met();
    assert_eq!(met, [(0, b"k"[..].into(), 5)]);
    assert_eq!(durable.space.due(6, 10, Tier::All).unwrap(), met);
    assert!(durable.space.due(4, 10, Tier::All).unwrap().is_empty());
    durable.space.begin_entry(2);
    assert!(!durable.space.expire_key(0, b"k", 4));
    assert!(durable.space.expire_key(0, b"k", 5));
    durable.end(6);
    assert!(durable.store.all(Family::Metadata).is_empty());
    assert!(durable.store.all(Family::Expiry).is_empty());
    assert_eq!(durable.space.expired(), 1);
}

#[test]
fn scans_visit_every_key_that_stays() {
    let mut durable = cold(3000);
    for i in 0..500 {
        durable.load(0, format!("{{t}}{i}").as_bytes());
    }
    durable.entry(2, 1, |txn| {
        // One crowded slot.
        for i in 0..500 {
            txn.put_string(format!("{{t}}{i}").as_bytes(), b"v", Expire::Clear);
        }
    });
    let (mut cursor, mut seen, mut step) = (0, std::collections::BTreeSet::new(), 0);
    loop {
        cursor = durable
            .txn(0, 1)
            .scan(cursor, 10, &mut |key, _| seen.extend([key.to_vec()]));
        assert!(cursor < 1 << CURSOR_BITS);
        step += 1;
        if cursor == 0 {
            break;
        }
        // Keys come and go, are cached and uncached.
        let name = format!("x{step}");
        durable.load(0, name.as_bytes());
        durable.entry(10 + step, 1, |txn| {
            txn.put_string(name.as_bytes(), b"v", Expire::Clear);
        });
        if step % 3 == 0 {
            durable.entry(100_000 + step, 1, |txn| {
                txn.remove(name.as_bytes());
            });
        }
        durable.load(0, format!("k{step}").as_bytes());
        durable.space.uncache_one(1, step, &Tuning::default());
    }
    for i in 0..3000 {
        assert!(seen.contains(format!("k{i}").as_bytes()), "k{i}");
    }
    for i in 0..500 {
        assert!(seen.contains(format!("{{t}}{i}").as_bytes()), "{{t}}{i}");
    }
}

#[test]
fn walks_inside_an_entry_see_its_changes() {
    let mut durable = cold(20);
    for key in ["k3", "k4", "new"] {
        durable.load(0, key.as_bytes());
    }
    durable.space.begin_entry(2);
    let mut txn = durable.txn(0, 1);
    txn.remove(b"k3");
    txn.put_string(b"new", b"v", Expire::Clear);
    let mut keys = Vec::new();
    txn.for_each_key(&mut |key| keys.push(key.to_vec()));
    keys.sort();
    let (mut scanned, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = txn.scan(cursor, 3, &mut |key, _| scanned.push(key.to_vec()));
        if cursor == 0 {
            break;
        }
    }
    scanned.sort();
    assert_eq!(keys, scanned);
    assert!(keys.contains(&b"new".to_vec()) && !keys.contains(&b"k3".to_vec()));
    assert_eq!((keys.len(), txn.len()), (20, 20));
    assert!(!txn.is_void());
    drop(durable.end(1));
}

#[test]
fn random_keys_come_from_rows_too() {
    let mut durable = cold(200);
    durable.load(0, b"k7");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..2000 {
        let view = View::one(&mut durable.space, 0, 1, seed, &durable.tuning);
        seen.insert(view.random_key().unwrap().to_vec());
    }
    assert!(seen.len() > 150, "{} of 200", seen.len());
}

#[test]
fn an_entry_without_changes_writes_its_index() {
    let mut durable = Durable::new();
    durable.entry(5, 77, |_| {});
    assert_eq!(durable.space.applied_index(), 5);
    let reopened = Durable::open(durable.store.clone());
    assert_eq!(reopened.space.applied_index(), 5);
    assert_eq!(reopened.space.last_stamp_ms(), 77);
    assert_eq!(reopened.space.state(), durable.space.state());
    let mut rows = 0;
    let (from, to) = layout::state_keys();
    let each = &mut |key: &[u8], _: &[u8]| {
        assert_eq!(layout::home_of_state_key(key), Some(HOME));
        rows += 1;
        true
    };
    durable
        .store
        .scan(Family::Info, &from, &to, false, Tier::All, each)
        .unwrap();
    assert_eq!(rows, 1);
}

//! Big collections that come into memory: when, and what happens to them meanwhile.

use std::collections::BTreeSet;

use super::handles::{KEY, name, stored};
use super::*;
use crate::Kind;

const NOW_MS: u64 = 1_000_000;

fn opened(kind: Kind, n: usize) -> Durable {
    let mut durable = Durable::open(stored(kind, n));
    // The time is known before the first use.
    assert!(durable.space.whole_job(NOW_MS, usize::MAX).is_none());
    durable.load(0, KEY);
    durable
}

fn read_fields(durable: &mut Durable, n: usize) {
    for i in 0..n {
        let txn = durable.txn(0, 1);
        txn.hash(KEY).unwrap().unwrap().get(name(i).as_bytes());
    }
}

#[test]
fn what_is_used_a_lot_comes_into_memory() {
    let mut durable = opened(Kind::Hash, 16_000);
    read_fields(&mut durable, 1999);
    assert!(durable.space.whole_job(NOW_MS + 9_000, 1 << 30).is_none());
    read_fields(&mut durable, 1);
    let job = durable.space.whole_job(NOW_MS + 10_000, 1 << 30).unwrap();
    assert!(durable.space.is_on_rows(0, KEY));
    // One at a time, and not the same again.
    read_fields(&mut durable, 4000);
    assert!(durable.space.whole_job(NOW_MS + 11_000, 1 << 30).is_none());
    job.run();
    assert!(durable.space.has_whole());
    durable.space.take_wholes();
    assert!(!durable.space.is_on_rows(0, KEY));
    assert!(!durable.space.may_be_on_rows());
    let before = durable.store.reads();
    read_fields(&mut durable, 4000);
    assert_eq!(durable.store.reads(), before);
    assert!(durable.space.uncache(0, KEY));
    durable.load(0, KEY);
    assert!(durable.space.is_on_rows(0, KEY));
}

#[test]
fn what_is_used_now_and_then_stays_on_rows() {
    let mut durable = opened(Kind::Hash, 16_000);
    for minutes in 1..20 {
        read_fields(&mut durable, 900);
        let now_ms = NOW_MS + minutes * 60_000;
        assert!(durable.space.whole_job(now_ms, 1 << 30).is_none());
    }
}

#[test]
fn what_is_too_big_stays_on_rows() {
    for most_bytes in [1000, 900_000] {
        let mut durable = opened(Kind::Hash, 16_000);
        read_fields(&mut durable, 2000);
        if let Some(job) = durable.space.whole_job(NOW_MS, most_bytes) {
            job.run();
            durable.space.take_wholes();
        }
        assert!(durable.space.is_on_rows(0, KEY));
        // It is not tried again soon.
        read_fields(&mut durable, 16_000);
        assert!(durable.space.whole_job(NOW_MS, 1 << 30).is_none());
        assert_eq!(durable.space.take_failure(), None);
    }
}

#[test]
fn changes_meanwhile_are_counted_in() {
    let mut durable = opened(Kind::Zset, 5000);
    durable.space.begin_entry(10);
    let change = |durable: &mut Durable, from: usize| {
        for i in from..from + 200 {
            let mut txn = durable.txn(0, 1);
            let mut zset = txn.zset_mut(KEY).unwrap().unwrap();
            zset.insert(name(i).as_bytes(), -1.0);
            zset.remove(name(i + 1000).as_bytes());
            zset.insert(format!("new{i}").as_bytes(), 7.5);
        }
    };
    // In the entry before it is asked for, while it is made, and before it is taken.
    change(&mut durable, 0);
    let job = durable.space.whole_job_of(0, KEY).unwrap();
    change(&mut durable, 200);
    durable.end(1);
    durable.space.begin_entry(11);
    change(&mut durable, 400);
    job.run();
    change(&mut durable, 600);
    durable.space.take_wholes();
    assert!(!durable.space.is_on_rows(0, KEY));
    change(&mut durable, 800);
    durable.end(1);
    let txn = durable.txn(0, 1);
    let zset = txn.zset(KEY).unwrap().unwrap();
    assert_eq!(zset.len(), 5000);
    assert_eq!(zset.score(name(999).as_bytes()), Some(-1.0));
    assert_eq!(zset.score(name(1000).as_bytes()), None);
    assert_eq!(zset.score(b"new999"), Some(7.5));
    let found = plain(txn.peek(KEY).unwrap());
    let mut restarted = Durable::open(durable.store.clone());
    restarted.load(0, KEY);
    assert_eq!(plain(restarted.txn(0, 1).peek(KEY).unwrap()), found);
}

#[test]
fn one_that_is_gone_meanwhile_is_not_put_back() {
    for renamed in [false, true] {
        let mut durable = opened(Kind::Set, 5000);
        let job = durable.space.whole_job_of(0, KEY).unwrap();
        durable.entry(10, 1, |txn| match renamed {
            true => {
                let owned = txn.take(KEY).unwrap();
                txn.put(b"other", owned);
            }
            false => {
                txn.remove(KEY);
            }
        });
        job.run();
        durable.space.take_wholes();
        assert!(durable.txn(0, 1).peek(KEY).is_none());
        assert_eq!(durable.space.is_on_rows(0, b"other"), renamed);
        // It could be asked for again.
        assert!(durable.space.whole_job(NOW_MS, 1 << 30).is_none());
        assert_eq!(durable.space.whole_job_of(0, b"other").is_some(), renamed);
    }
}

#[test]
fn scans_go_on_in_memory() {
    let mut durable = opened(Kind::Set, 5000);
    let (mut cursor, mut seen, mut steps) = (0, BTreeSet::new(), 0);
    loop {
        let txn = durable.txn(0, 1);
        let set = txn.set(KEY).unwrap().unwrap();
        cursor = set.scan(cursor, 100, &mut |member| {
            seen.insert(member.to_vec());
        });
        steps += 1;
        if cursor == 0 {
            break;
        }
        if steps == 20 {
            durable.space.whole_job_of(0, KEY).unwrap().run();
            durable.space.take_wholes();
        }
    }
    assert!(steps > 20, "{steps}");
    assert!((0..5000).all(|i| seen.contains(name(i).as_bytes())));
}

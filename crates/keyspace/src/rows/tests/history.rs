//! Random histories: rows always say what memory says, whatever is cached, after a restart and
//! after a replay from any earlier moment.

use std::collections::BTreeSet;

use base::cluster::Segment;
use proptest::prelude::*;

use super::handles::check_sound;
use super::*;
use crate::rows::layout::{Body, Metadata};
use crate::rows::{RowSource, digest, for_each_value, reach, state_of, warm};
use crate::{Expire, Kind, Value};

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8, Vec<u8>, Expire),
    Append(u8, u8, Vec<u8>),
    Incr(u8, u8, i64),
    HashSet(u8, u8, u8, Vec<u8>),
    HashRemove(u8, u8, u8),
    SetAdd(u8, u8, u8),
    SetRemove(u8, u8, u8),
    ZsetAdd(u8, u8, u8, f64),
    ZsetRemove(u8, u8, u8),
    ZsetRemoveRange(u8, u8, usize, usize),
    Push(u8, u8, bool, Vec<u8>),
    Pop(u8, u8, bool),
    ListSet(u8, u8, usize, Vec<u8>),
    ListInsert(u8, u8, usize, Vec<u8>),
    ListRemove(u8, u8, usize, usize),
    ListRemoveEqual(u8, u8, Vec<u8>, usize, bool),
    Remove(u8, u8),
    Expire(u8, u8, Option<u64>),
    Rename(u8, u8, u8, u8),
    Copy(u8, u8, u8, u8),
    Store(u8, u8, Vec<u8>),
    /// Reads one key, which nobody has made resident, and stores in another.
    Sort(u8, u8, u8),
    Flush(u8),
    Swap(u8, u8),
}

#[derive(Debug, Clone)]
enum Act {
    Entry(Vec<Step>),
    Pass(u64),
    ExpireDue(usize),
    Uncache(u8),
    Read(u8, u8),
    Restart,
    /// Later, the log is replayed from here.
    Checkpoint,
}

fn key(n: u8) -> Vec<u8> {
    format!("key{n}").into_bytes()
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        (0u8..6).prop_map(|n| n.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..12),
        Just(vec![b'x'; 70]),
        Just(vec![b'y'; 1100]),
    ];
    let expire = prop_oneof![
        3 => Just(Expire::Clear),
        1 => Just(Expire::Keep),
        2 => (1u64..300).prop_map(Expire::At),
    ];
    let score = prop_oneof![Just(0.0), Just(-0.0), -3.0..3.0f64, Just(f64::INFINITY)];
    // Few keys, each mostly of one type, and few members: changes have to meet.
    let db = prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let (k, e) = (0u8..9, 0u8..8);
    let (hash, set, zset, list) = (0u8..2, 2u8..4, 4u8..6, 6u8..9);
    let b = bytes;
    let (d2, k2, index) = (db.clone(), k.clone(), 0usize..12);
    prop_oneof![
        2 => (db.clone(), k.clone(), b.clone(), expire).prop_map(|(d, k, b, e)| Step::Put(d, k, b, e)),
        1 => (db.clone(), k.clone(), b.clone()).prop_map(|(d, k, b)| Step::Append(d, k, b)),
        1 => (db.clone(), k.clone(), any::<i64>()).prop_map(|(d, k, v)| Step::Incr(d, k, v)),
        6 => (db.clone(), hash.clone(), e.clone(), b.clone()).prop_map(|(d, k, f, b)| Step::HashSet(d, k, f, b)),
        3 => (db.clone(), hash.clone(), e.clone()).prop_map(|(d, k, f)| Step::HashRemove(d, k, f)),
        5 => (db.clone(), set.clone(), e.clone()).prop_map(|(d, k, f)| Step::SetAdd(d, k, f)),
        3 => (db.clone(), set.clone(), e.clone()).prop_map(|(d, k, f)| Step::SetRemove(d, k, f)),
        8 => (db.clone(), zset.clone(), e.clone(), score).prop_map(|(d, k, f, s)| Step::ZsetAdd(d, k, f, s)),
        3 => (db.clone(), zset.clone(), e).prop_map(|(d, k, f)| Step::ZsetRemove(d, k, f)),
        1 => (db.clone(), zset.clone(), index.clone(), 0usize..4).prop_map(|(d, k, a, n)| Step::ZsetRemoveRange(d, k, a, n)),
        8 => (db.clone(), list.clone(), any::<bool>(), b.clone()).prop_map(|(d, k, f, b)| Step::Push(d, k, f, b)),
        4 => (db.clone(), list.clone(), any::<bool>()).prop_map(|(d, k, f)| Step::Pop(d, k, f)),
        2 => (db.clone(), list.clone(), index.clone(), b.clone()).prop_map(|(d, k, i, b)| Step::ListSet(d, k, i, b)),
        4 => (db.clone(), list.clone(), index.clone(), b.clone()).prop_map(|(d, k, i, b)| Step::ListInsert(d, k, i, b)),
        2 => (db.clone(), list.clone(), index, 0usize..4).prop_map(|(d, k, i, n)| Step::ListRemove(d, k, i, n)),
        3 => (db.clone(), list.clone(), b.clone(), 1usize..4, any::<bool>()).prop_map(|(d, k, b, n, t)| Step::ListRemoveEqual(d, k, b, n, t)),
        2 => (db.clone(), k.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        3 => (db.clone(), k.clone(), prop::option::of(0u64..300)).prop_map(|(d, k, at)| Step::Expire(d, k, at)),
        2 => (db.clone(), k.clone(), d2.clone(), k2.clone()).prop_map(|(d, a, e, b)| Step::Rename(d, a, e, b)),
        2 => (db.clone(), k.clone(), d2.clone(), k2.clone()).prop_map(|(d, a, e, b)| Step::Copy(d, a, e, b)),
        1 => (db.clone(), k.clone(), b).prop_map(|(d, k, b)| Step::Store(d, k, b)),
        2 => (db.clone(), k, k2).prop_map(|(d, a, b)| Step::Sort(d, a, b)),
        1 => db.clone().prop_map(Step::Flush),
        1 => (db, d2).prop_map(|(a, b)| Step::Swap(a, b)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => prop::collection::vec(step(), 0..6).prop_map(Act::Entry),
        2 => (0u64..40).prop_map(Act::Pass),
        1 => (1usize..5).prop_map(Act::ExpireDue),
        6 => any::<u8>().prop_map(Act::Uncache),
        3 => (0u8..3, 0u8..9).prop_map(|(d, k)| Act::Read(d, k)),
        1 => Just(Act::Restart),
        1 => Just(Act::Checkpoint),
    ]
}

/// The keys the server makes resident before it runs a step.
fn keys_of(step: &Step) -> Vec<(u8, u8)> {
    match *step {
        Step::Put(d, k, ..) | Step::Append(d, k, _) | Step::Incr(d, k, _) => vec![(d, k)],
        Step::HashSet(d, k, ..) | Step::HashRemove(d, k, _) => vec![(d, k)],
        Step::SetAdd(d, k, _) | Step::SetRemove(d, k, _) => vec![(d, k)],
        Step::ZsetAdd(d, k, ..) | Step::ZsetRemove(d, k, _) => vec![(d, k)],
        Step::ZsetRemoveRange(d, k, ..) | Step::Push(d, k, ..) | Step::Pop(d, k, _) => {
            vec![(d, k)]
        }
        Step::ListSet(d, k, ..) | Step::ListInsert(d, k, ..) => vec![(d, k)],
        Step::ListRemove(d, k, ..) | Step::ListRemoveEqual(d, k, ..) => vec![(d, k)],
        Step::Remove(d, k) | Step::Expire(d, k, _) | Step::Store(d, k, _) => vec![(d, k)],
        Step::Rename(d, a, e, b) | Step::Copy(d, a, e, b) => vec![(d, a), (e, b)],
        Step::Sort(d, _, to) => vec![(d, to)],
        Step::Flush(_) | Step::Swap(..) => vec![],
    }
}

fn run(step: &Step, txn: &mut Txn<'_>) {
    match step {
        Step::Put(_, k, bytes, expire) => txn.put_string(&key(*k), bytes, *expire),
        Step::Append(_, k, bytes) => {
            if let Ok(mut edit) = txn.string_or_new(&key(*k)) {
                edit.append(bytes);
            }
        }
        Step::Incr(_, k, value) => {
            if let Ok(mut edit) = txn.string_or_new(&key(*k)) {
                edit.replace_int(*value);
            }
        }
        Step::HashSet(_, k, field, bytes) => {
            if let Ok(mut edit) = txn.hash_or_new(&key(*k)) {
                edit.insert(&[*field], bytes);
            }
        }
        Step::HashRemove(_, k, field) => {
            if let Ok(Some(mut edit)) = txn.hash_mut(&key(*k)) {
                edit.remove(&[*field]);
            }
        }
        Step::SetAdd(_, k, member) => {
            if let Ok(mut edit) = txn.set_or_new(&key(*k)) {
                edit.insert(member.to_string().as_bytes());
            }
        }
        Step::SetRemove(_, k, member) => {
            if let Ok(Some(mut edit)) = txn.set_mut(&key(*k)) {
                edit.remove(member.to_string().as_bytes());
            }
        }
        Step::ZsetAdd(_, k, member, score) => {
            if let Ok(mut edit) = txn.zset_or_new(&key(*k)) {
                edit.update(&[*member], |former| match former {
                    Some(former) if former > *score => None,
                    _ => Some(*score),
                });
                edit.insert(&[*member, 1], -*score);
            }
        }
        Step::ZsetRemove(_, k, member) => {
            if let Ok(Some(mut edit)) = txn.zset_mut(&key(*k)) {
                edit.remove(&[*member]);
            }
        }
        Step::ZsetRemoveRange(_, k, start, n) => {
            if let Ok(Some(mut edit)) = txn.zset_mut(&key(*k)) {
                let start = (*start).min(edit.len());
                let end = (start + n).min(edit.len());
                edit.remove_range(start..end);
            }
        }
        Step::Push(_, k, front, bytes) => {
            if let Ok(mut edit) = txn.list_or_new(&key(*k)) {
                match front {
                    true => edit.push_front(bytes),
                    false => edit.push_back(bytes),
                }
            }
        }
        Step::Pop(_, k, front) => {
            if let Ok(Some(mut edit)) = txn.list_mut(&key(*k)) {
                match front {
                    true => edit.pop_front(),
                    false => edit.pop_back(),
                };
            }
        }
        Step::ListSet(_, k, index, bytes) => {
            if let Ok(Some(mut edit)) = txn.list_mut(&key(*k)) {
                edit.set(index % edit.len(), bytes);
            }
        }
        Step::ListInsert(_, k, index, bytes) => {
            if let Ok(mut edit) = txn.list_or_new(&key(*k)) {
                edit.insert((*index).min(edit.len()), bytes);
            }
        }
        Step::ListRemove(_, k, start, n) => {
            if let Ok(Some(mut edit)) = txn.list_mut(&key(*k)) {
                edit.remove_range(*start, *n);
            }
        }
        Step::ListRemoveEqual(_, k, bytes, limit, from_tail) => {
            if let Ok(Some(mut edit)) = txn.list_mut(&key(*k)) {
                edit.remove_equal(bytes, *limit, *from_tail);
            }
        }
        Step::Remove(_, k) => {
            txn.remove(&key(*k));
        }
        Step::Expire(_, k, at_ms) => {
            txn.set_expire(&key(*k), *at_ms);
        }
        Step::Rename(_, a, db, b) => {
            if let Some(owned) = txn.take(&key(*a)) {
                txn.select(*db);
                txn.put(&key(*b), owned);
            }
        }
        Step::Copy(_, a, db, b) => {
            if let Some(owned) = txn.clone_value(&key(*a)) {
                txn.select(*db);
                txn.put(&key(*b), owned);
            }
        }
        Step::Store(_, k, bytes) => {
            let mut set = crate::Set::new();
            let tuning = Tuning::default();
            bytes.iter().for_each(|byte| {
                set.insert(&[*byte], &tuning);
            });
            txn.put_value(&key(*k), Value::Set(Box::new(set)));
        }
        Step::Sort(_, from, to) => {
            let read = txn.kind(&key(*from)).map_or("none", Kind::name);
            txn.hash_or_new(b"sorted").unwrap().insert(b"of", b"it");
            txn.put_string(&key(*to), read.as_bytes(), Expire::Clear);
        }
        Step::Flush(_) => txn.flush_db(),
        Step::Swap(a, b) => txn.swap_db(*a, *b),
    }
}

fn db_of(step: &Step) -> u8 {
    match step {
        Step::Flush(db) => *db,
        Step::Sort(db, ..) => *db,
        step => keys_of(step).first().map_or(0, |at| at.0),
    }
}

/// One log entry, as it is replayed.
enum Logged {
    /// Each with the values of its keys behind it.
    Steps(Vec<(Step, Vec<Option<Plain>>)>),
    Expire(Vec<(u8, Box<[u8]>, u64)>),
}

/// A command finds out which rows it needs before it runs, and changes nothing by that.
fn dry_run(durable: &mut Durable, step: &Step, now_ms: u64) {
    let keys = keys_of(step);
    if !keys
        .iter()
        .any(|&(db, k)| durable.space.is_on_rows(db, &key(k)))
    {
        return;
    }
    durable.store.chill();
    let before = (durable.space.state(), durable.space.unsettled_bytes());
    for tries in 0..50 {
        durable.space.read_cached(true);
        let Durable { space, tuning, .. } = durable;
        let view = View::one(space, db_of(step), now_ms, 1, tuning).dry_run();
        run(step, &mut Txn::new(view));
        durable.space.read_cached(false);
        let cold = durable.space.take_cold();
        durable.space.take_missing();
        let after = (durable.space.state(), durable.space.unsettled_bytes());
        assert_eq!(before, after, "{step:?}");
        if cold.is_empty() {
            return;
        }
        for rows in cold {
            warm(&*durable.store, &rows, tries).unwrap();
        }
    }
    panic!("rows of {step:?} never get warm");
}

/// Big collections come into memory in the midst of all this: asked for, made, taken over at any time.
fn move_wholes(durable: &mut Durable, step: &Step, n: u64) {
    let Some(wholes) = &mut durable.wholes else {
        return;
    };
    match n % 5 {
        0 | 1 => {
            for (db, k) in keys_of(step) {
                wholes.extend(durable.space.whole_job_of(db, &key(k)));
            }
        }
        2 => wholes.drain(..).for_each(|job| job.run()),
        3 => durable.space.take_wholes(),
        _ => {}
    }
}

/// A value whose rows are cold is read in several attempts, and never in part.
fn read_from_cold(
    durable: &mut Durable,
    (db, key): (u8, &[u8]),
    now_ms: u64,
    wanted: &Option<Plain>,
) {
    durable.store.chill();
    for tries in 0..200 {
        durable.space.read_cached(true);
        let txn = durable.txn(db, now_ms);
        let found = txn.peek(key);
        let ranks = match &found {
            Some(ValueRef::Zset(zset)) => zset
                .iter()
                .enumerate()
                .all(|(n, (member, _))| zset.rank(&member.to_vec()) == Some(n)),
            _ => true,
        };
        let found = found.map(plain);
        durable.space.read_cached(false);
        let cold = durable.space.take_cold();
        if cold.is_empty() {
            assert_eq!(found, *wanted);
            assert!(ranks);
            return;
        }
        for rows in cold {
            warm(&*durable.store, &rows, tries).unwrap();
        }
    }
    panic!("a value never gets warm");
}

/// Applies an entry the way the server does.
fn apply(durable: &mut Durable, index: u64, now_ms: u64, logged: &Logged) -> Changes {
    match logged {
        Logged::Steps(steps) => {
            durable.space.begin_entry(index);
            for (nth, (step, values)) in (0..).zip(steps) {
                for (db, k) in keys_of(step) {
                    durable.load(db, &key(k));
                }
                // SORT makes a key of its own too.
                durable.load(db_of(step), b"sorted");
                move_wholes(durable, step, index * 3 + nth);
                dry_run(durable, step, now_ms);
                run(step, &mut durable.txn(db_of(step), now_ms));
                if durable.space.has_missing() {
                    for (db, key) in durable.space.take_missing() {
                        durable.load(db, &key);
                    }
                    run(step, &mut durable.txn(db_of(step), now_ms));
                    assert!(!durable.space.has_missing());
                }
                for ((db, k), wanted) in keys_of(step).into_iter().zip(values) {
                    let txn = durable.txn(db, now_ms);
                    let found = txn.peek(&key(k));
                    found.iter().for_each(check_sound);
                    assert_eq!(found.map(plain), *wanted, "{step:?}");
                    read_from_cold(durable, (db, &key(k)), now_ms, wanted);
                }
                assert_eq!(durable.space.take_failure(), None);
            }
        }
        Logged::Expire(keys) => {
            keys.iter().for_each(|(db, key, _)| durable.load(*db, key));
            durable.space.begin_entry(index);
            for (db, key, deadline_ms) in keys {
                durable.space.expire_key(*db, key, *deadline_ms);
            }
        }
    }
    durable.end(now_ms)
}

/// Rows agree among themselves: those of live keys are exactly what their metadata says.
fn check_rows(store: &MapStore) {
    let state = store.all(Family::Info);
    let state = State::parse(&state[0].1).unwrap();
    let mut deadlines = BTreeSet::new();
    let mut scores = BTreeSet::new();
    let mut generations = BTreeSet::new();
    let mut counts = vec![(0, 0); state.dbs.len()];
    let number = |id| state.dbs.iter().position(|db| db.index_id == id);
    let is_alive = |row: &[u8]| number(layout::split_prefix(row).unwrap().1).is_some();
    for (row, value) in store.all(Family::Metadata) {
        let at = layout::parse_metadata_key(&row).unwrap();
        let head = Metadata::parse(&value).unwrap();
        let Some(db) = number(at.index_id) else {
            continue;
        };
        counts[db].0 += 1;
        if let Some(deadline_ms) = head.expire_at_ms {
            counts[db].1 += 1;
            let mut expiry = Vec::new();
            layout::push_expiry_key(&mut expiry, HOME, at.index_id, deadline_ms, at.key);
            deadlines.insert(expiry);
        }
        let Body::Collection {
            generation, size, ..
        } = head.body
        else {
            continue;
        };
        assert!(size > 0);
        let mut base = row.clone();
        base.extend_from_slice(&generation.to_be_bytes());
        generations.insert(base.clone());
        let mut rows = 0;
        let each = &mut |row: &[u8], value: &[u8]| {
            rows += 1;
            if head.kind == Kind::Zset {
                let score = f64::from_bits(u64::from_be_bytes(value.try_into().unwrap()));
                let member = &row[base.len()..];
                scores.insert([&base[..], &layout::score8(score), member].concat());
            }
            true
        };
        let to = layout::behind(&base);
        store
            .scan(Family::Data, &base, &to, false, Tier::All, each)
            .unwrap();
        assert_eq!(rows, size);
    }
    let stored = store.all(Family::Expiry).into_iter().map(|(row, _)| row);
    assert_eq!(
        stored.filter(|r| is_alive(r)).collect::<BTreeSet<_>>(),
        deadlines
    );
    let is_current = |row: &Vec<u8>| {
        let (metadata, generation, _) = layout::split_sub_key(row).unwrap();
        generations.contains(&[metadata, &generation.to_be_bytes()].concat())
    };
    let stored = store.all(Family::Score).into_iter().map(|(row, _)| row);
    assert_eq!(stored.filter(is_current).collect::<BTreeSet<_>>(), scores);
    for (db, count) in state.dbs.iter().zip(counts) {
        assert_eq!((db.keys, db.with_deadline), count);
    }
}

/// What can be reached is all there is, and nothing that is gone; only that has a part in the digest.
fn check_reach(store: &MapStore, expected: &Contents) {
    let segments = [Segment::new(HOME, 0..=16383)];
    let sum = |store: &MapStore| digest(store, HOME, &segments, &mut |_| true).unwrap();
    let state = state_of(store, HOME).unwrap().unwrap_or_default();
    let sifted = MapStore::new();
    let mut changes = Changes::new();
    let mut value = Vec::new();
    state.push(&mut value);
    changes.put(Family::Info, &layout::state_key(HOME), &value);
    let mut rows = Vec::new();
    let mut last = std::collections::BTreeMap::new();
    let whole = reach(store, &segments, &state, &mut |row| {
        let before = last.insert(row.family, row.key.to_vec());
        assert!(before.is_none_or(|before| *before < *row.key), "ascending");
        changes.put(row.family, row.key, row.value);
        rows.push((row.family, row.key.to_vec(), row.value.to_vec()));
        true
    });
    assert_eq!(whole, Ok(true));
    sifted.write(&[&changes]).unwrap();
    assert_eq!(
        Durable::open(Arc::new(sifted.clone())).contents(),
        *expected
    );
    if !sifted.all(Family::Metadata).is_empty() {
        check_rows(&sifted);
    }
    assert_eq!(sum(&sifted), sum(store));
    for (family, row, value) in rows.iter().step_by(1 + rows.len() / 4) {
        let other = sifted.clone();
        let mut changes = Changes::new();
        match *family {
            // Any byte behind the head of it matters.
            Family::Metadata if value.len() == 9 => continue,
            Family::Metadata => {
                let mut value = value.clone();
                *value.last_mut().unwrap() ^= 1;
                changes.put(*family, row, &value);
            }
            _ => changes.delete(*family, row),
        }
        other.write(&[&changes]).unwrap();
        assert_ne!(sum(&other), sum(store), "{family:?}");
    }
    let slots = |at: usize| if at == 0 { 0..=7000 } else { 7001..=16383 };
    let mut halves: Vec<(Family, Vec<u8>)> = Vec::new();
    for half in 0..2 {
        let half = [Segment::new(HOME, slots(half))];
        let whole = reach(store, &half, &state, &mut |row| {
            halves.push((row.family, row.key.to_vec()));
            true
        });
        assert_eq!(whole, Ok(true));
    }
    halves.sort();
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(family, row, _)| (family, row))
        .collect();
    rows.sort();
    assert_eq!(halves, rows);
}

fn history(acts: Vec<Act>, threshold: usize, with_wholes: bool) {
    let open = |store, threshold| Durable {
        wholes: with_wholes.then(Vec::new),
        ..Durable::open_with(store, threshold)
    };
    let mut durable = open(Arc::default(), threshold);
    let mut memory = Keyspace::new(11);
    let tuning = Tuning::default();
    let (mut index, mut now_ms) = (0, 1);
    let mut older = durable.store.as_ref().clone();
    let mut log: Vec<(u64, u64, Logged, Changes)> = Vec::new();
    for act in acts {
        let logged = match act {
            Act::Entry(steps) => {
                let run_and_look = |step: Step| {
                    let view = View::one(&mut memory, db_of(&step), now_ms, 1, &tuning);
                    run(&step, &mut Txn::new(view));
                    let look = |(db, k)| {
                        let view = View::one(&mut memory, db, now_ms, 1, &tuning);
                        view.peek(&key(k)).map(plain)
                    };
                    let values = keys_of(&step).into_iter().map(look).collect();
                    (step, values)
                };
                Logged::Steps(steps.into_iter().map(run_and_look).collect())
            }
            Act::ExpireDue(limit) => {
                let due = durable.space.due(now_ms, limit, Tier::All).unwrap();
                for (db, key, _) in &due {
                    let view = View::one(&mut memory, *db, now_ms, 1, &tuning);
                    Txn::new(view).remove(key);
                }
                Logged::Expire(due)
            }
            Act::Pass(ms) => {
                now_ms += ms;
                continue;
            }
            Act::Uncache(n) => {
                for seed in 0..n % 16 {
                    durable.space.uncache_one(now_ms, seed.into(), &tuning);
                }
                continue;
            }
            Act::Read(db, k) => {
                let wanted = View::one(&mut memory, db, now_ms, 1, &tuning);
                let wanted = wanted.value(&key(k)).map(plain);
                let look = |value: ValueRef<'_>| {
                    check_sound(&value);
                    plain(value)
                };
                let mut found = durable.txn(db, now_ms).value(&key(k)).map(look);
                if durable.space.has_missing() {
                    assert_eq!(durable.space.take_missing(), [(db, key(k).into())]);
                    durable.load(db, &key(k));
                    found = durable.txn(db, now_ms).value(&key(k)).map(look);
                }
                assert_eq!(found, wanted);
                continue;
            }
            Act::Restart => {
                durable = open(durable.store.clone(), threshold);
                continue;
            }
            Act::Checkpoint => {
                older = durable.store.as_ref().clone();
                log.clear();
                continue;
            }
        };
        index += 1;
        let changes = apply(&mut durable, index, now_ms, &logged);
        log.push((index, now_ms, logged, changes));
        if !durable.store.all(Family::Info).is_empty() {
            check_rows(&durable.store);
        }
        for db in 0..3 {
            let (keys, with_deadline, _) = memory.db_stats(db);
            let (ours, theirs, _) = durable.space.db_stats(db);
            assert_eq!((ours, theirs), (keys, with_deadline));
        }
    }
    let expected = memory_contents(&mut memory);
    assert_eq!(durable.contents(), expected);
    assert_eq!(durable.space.take_failure(), None);
    // A start from the rows alone.
    let mut restarted = Durable::open_with(durable.store.clone(), threshold);
    assert_eq!(
        restarted.space.applied_index(),
        durable.space.applied_index()
    );
    assert_eq!(restarted.contents(), expected);
    if let Some((_, state)) = durable.store.all(Family::Info).first() {
        let mut saved = Contents::new();
        let snapshot = durable.store.snapshot();
        for_each_value(&*snapshot, HOME, state, &mut |db, key, value, deadline| {
            saved.insert((db, key.to_vec()), (plain(value), deadline));
        })
        .unwrap();
        assert_eq!(saved, expected);
    }
    check_reach(&durable.store, &expected);
    // The log again, from an older moment: run, or as the rows it made. What was in memory then is
    // in rows now and the other way round, which nobody can tell from the rows that makes.
    let other = if threshold > 8 { 1 } else { 4096 };
    let mut replayed = open(Arc::new(older), other);
    for (index, now_ms, logged, changes) in &log {
        if index % 3 == 0 {
            replayed.store.write(&[changes]).unwrap();
            replayed.space.apply_rows(changes);
        } else {
            apply(&mut replayed, *index, *now_ms, logged);
        }
    }
    for family in Family::ALL {
        assert_eq!(replayed.store.all(family), durable.store.all(family));
    }
    assert_eq!(replayed.contents(), expected);
}

/// Steps on one list that grows.
fn list_step() -> impl Strategy<Value = Step> {
    let element = (0u8..4).prop_map(|n| vec![b'a' + n]);
    let index = 0usize..40;
    prop_oneof![
        6 => (any::<bool>(), element.clone()).prop_map(|(f, b)| Step::Push(0, 6, f, b)),
        1 => any::<bool>().prop_map(|f| Step::Pop(0, 6, f)),
        1 => (index.clone(), element.clone()).prop_map(|(i, b)| Step::ListSet(0, 6, i, b)),
        4 => (index.clone(), element.clone()).prop_map(|(i, b)| Step::ListInsert(0, 6, i, b)),
        1 => (index, 0usize..4).prop_map(|(i, n)| Step::ListRemove(0, 6, i, n)),
        1 => (element, 1usize..4, any::<bool>()).prop_map(|(b, n, t)| Step::ListRemoveEqual(0, 6, b, n, t)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_say_what_memory_says(acts in prop::collection::vec(act(), 0..80)) {
        history(acts, 4096, true);
    }
    #[test]
    fn collections_that_stay_in_rows_are_the_same(
        acts in prop::collection::vec(act(), 0..80),
        threshold in 1usize..5,
    ) {
        history(acts, threshold, false);
    }
    #[test]
    fn collections_that_come_into_memory_are_the_same(
        acts in prop::collection::vec(act(), 0..80),
        threshold in 1usize..5,
    ) {
        history(acts, threshold, true);
    }
    #[test]
    fn rows_of_long_lists_have_no_gaps(steps in prop::collection::vec(list_step(), 0..80)) {
        let uncache_and_check = |step| [Act::Entry(vec![step]), Act::Uncache(1), Act::Read(0, 6)];
        let acts: Vec<_> = steps.into_iter().flat_map(uncache_and_check).collect();
        history(acts.clone(), 4096, false);
        history(acts, 3, false);
    }
}

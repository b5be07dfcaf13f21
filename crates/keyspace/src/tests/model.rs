//! Random histories against a plain map: every reply, every deadline, and the snapshot that is
//! taken while the history goes on.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::{Expire, KeyChange, Keyspace, Tuning, Txn, ValueRef, View};

/// What the model knows of a value: enough to tell two states apart.
#[derive(Debug, Clone, PartialEq)]
enum Plain {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

type State = BTreeMap<(u8, Vec<u8>), (Plain, Option<u64>)>;

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u16, Vec<u8>, Expire),
    Append(u8, u16, Vec<u8>),
    Incr(u8, u16),
    HashSet(u8, u16, u8, Vec<u8>),
    HashRemove(u8, u16, u8),
    Push(u8, u16, u8),
    Pop(u8, u16),
    Remove(u8, u16),
    Expire(u8, u16, Option<u64>),
    Rename(u8, u16, u16),
    Flush(u8),
    Swap(u8, u8),
    Pass(u64),
    ExpireDue(usize),
    Begin,
    Save(usize),
}

fn key(n: u16) -> Vec<u8> {
    format!("key{n}").into_bytes()
}

fn step(keys: u16) -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        Just(b"12".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(any::<u8>(), 30..80),
        (900usize..1200).prop_map(|n| vec![b'x'; n]),
    ];
    let expire = prop_oneof![
        3 => Just(Expire::Clear),
        1 => Just(Expire::Keep),
        2 => (1u64..300).prop_map(Expire::At),
    ];
    let (db, k) = (0u8..3, 0..keys);
    prop_oneof![
        8 => (db.clone(), k.clone(), bytes.clone(), expire).prop_map(|(d, k, b, e)| Step::Put(d, k, b, e)),
        3 => (db.clone(), k.clone(), bytes.clone()).prop_map(|(d, k, b)| Step::Append(d, k, b)),
        3 => (db.clone(), k.clone()).prop_map(|(d, k)| Step::Incr(d, k)),
        4 => (db.clone(), k.clone(), 0u8..200, bytes).prop_map(|(d, k, f, b)| Step::HashSet(d, k, f, b)),
        2 => (db.clone(), k.clone(), 0u8..200).prop_map(|(d, k, f)| Step::HashRemove(d, k, f)),
        3 => (db.clone(), k.clone(), any::<u8>()).prop_map(|(d, k, b)| Step::Push(d, k, b)),
        3 => (db.clone(), k.clone()).prop_map(|(d, k)| Step::Pop(d, k)),
        3 => (db.clone(), k.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        3 => (db.clone(), k.clone(), prop::option::of(0u64..300)).prop_map(|(d, k, at)| Step::Expire(d, k, at)),
        2 => (db.clone(), k.clone(), k).prop_map(|(d, a, b)| Step::Rename(d, a, b)),
        1 => db.clone().prop_map(Step::Flush),
        1 => (db.clone(), db).prop_map(|(a, b)| Step::Swap(a, b)),
        3 => (0u64..40).prop_map(Step::Pass),
        2 => (0usize..20).prop_map(Step::ExpireDue),
        1 => Just(Step::Begin),
        4 => (1usize..8).prop_map(Step::Save),
    ]
}

/// The model's answer to a step, made next to the engine's.
struct Both {
    space: Keyspace,
    state: State,
    now_ms: u64,
    tuning: Tuning,
    /// State at the last beginning of a snapshot, and what it handed out since.
    begun: Option<(State, State)>,
}

fn plain(value: ValueRef<'_>) -> Plain {
    match value {
        ValueRef::String(atom) => Plain::String(atom.to_vec()),
        ValueRef::List(it) => Plain::List(it.iter_from(0).map(|e| e.to_vec()).collect()),
        ValueRef::Hash(it) => {
            Plain::Hash(it.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect())
        }
        _ => panic!("a type the history never makes"),
    }
}

impl Both {
    fn txn(&mut self, db: u8) -> Txn<'_> {
        Txn::new(View::one(&mut self.space, db, self.now_ms, 1, &self.tuning))
    }

    /// The model's value, unless its time has come.
    fn live(&mut self, db: u8, key: &[u8]) -> Option<(Plain, Option<u64>)> {
        let at = (db, key.to_vec());
        let due = self.state.get(&at)?.1.is_some_and(|ms| ms <= self.now_ms);
        if due {
            self.state.remove(&at);
        }
        self.state.get(&at).cloned()
    }

    fn put(&mut self, db: u8, key: &[u8], value: Plain, deadline_ms: Option<u64>) {
        let empty = match &value {
            Plain::String(_) => false,
            Plain::List(it) => it.is_empty(),
            Plain::Hash(it) => it.is_empty(),
        };
        if empty || deadline_ms.is_some_and(|ms| ms <= self.now_ms) {
            self.state.remove(&(db, key.to_vec()));
        } else {
            self.state.insert((db, key.to_vec()), (value, deadline_ms));
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Put(db, k, bytes, expire) => {
                let before = self.live(db, &key(k));
                self.txn(db).put_string(&key(k), &bytes, expire);
                let deadline = match expire {
                    Expire::Clear => None,
                    Expire::Keep => before.and_then(|b| b.1),
                    Expire::At(ms) => Some(ms),
                };
                self.put(db, &key(k), Plain::String(bytes), deadline);
            }
            Step::Append(db, k, bytes) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                let edit = txn.string_or_new(&key(k));
                let (mut text, deadline) = match before {
                    None => (Vec::new(), None),
                    Some((Plain::String(text), deadline)) => (text, deadline),
                    Some(_) => return assert!(edit.is_err()),
                };
                edit.unwrap().append(&bytes);
                text.extend(bytes);
                self.put(db, &key(k), Plain::String(text), deadline);
            }
            Step::Incr(db, k) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                let Ok(Some(mut edit)) = txn.string_mut(&key(k)) else {
                    return assert!(!matches!(before, Some((Plain::String(_), _))));
                };
                edit.replace_int(i64::from(k));
                drop(edit);
                let text = k.to_string().into_bytes();
                self.put(db, &key(k), Plain::String(text), before.unwrap().1);
            }
            Step::HashSet(db, k, field, bytes) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                let edit = txn.hash_or_new(&key(k));
                let (mut hash, deadline) = match before {
                    None => (BTreeMap::new(), None),
                    Some((Plain::Hash(hash), deadline)) => (hash, deadline),
                    Some(_) => return assert!(edit.is_err()),
                };
                let new = edit.unwrap().insert(&[field], &bytes);
                assert_eq!(new, hash.insert(vec![field], bytes).is_none());
                self.put(db, &key(k), Plain::Hash(hash), deadline);
            }
            Step::HashRemove(db, k, field) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                if let Some((Plain::Hash(mut hash), deadline)) = before {
                    let removed = txn.hash_mut(&key(k)).unwrap().unwrap().remove(&[field]);
                    assert_eq!(removed, hash.remove(&vec![field]).is_some());
                    self.put(db, &key(k), Plain::Hash(hash), deadline);
                }
            }
            Step::Push(db, k, byte) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                let edit = txn.list_or_new(&key(k));
                let (mut list, deadline) = match before {
                    None => (Vec::new(), None),
                    Some((Plain::List(list), deadline)) => (list, deadline),
                    Some(_) => return assert!(edit.is_err()),
                };
                edit.unwrap().push_back(&[byte]);
                list.push(vec![byte]);
                self.put(db, &key(k), Plain::List(list), deadline);
            }
            Step::Pop(db, k) => {
                let before = self.live(db, &key(k));
                let mut txn = self.txn(db);
                if let Some((Plain::List(mut list), deadline)) = before {
                    let popped = txn.list_mut(&key(k)).unwrap().unwrap().pop_back();
                    assert_eq!(popped.map(|e| e.to_vec()), list.pop());
                    self.put(db, &key(k), Plain::List(list), deadline);
                }
            }
            Step::Remove(db, k) => {
                let before = self.live(db, &key(k));
                assert_eq!(self.txn(db).remove(&key(k)), before.is_some());
                self.state.remove(&(db, key(k)));
            }
            Step::Expire(db, k, at_ms) => {
                let before = self.live(db, &key(k));
                assert_eq!(self.txn(db).set_expire(&key(k), at_ms), before.is_some());
                if let Some((value, _)) = before {
                    self.put(db, &key(k), value, at_ms);
                }
            }
            Step::Rename(db, a, b) => {
                let before = self.live(db, &key(a));
                let taken = self.txn(db).take(&key(a));
                assert_eq!(taken.is_some(), before.is_some());
                if let (Some(owned), Some((value, deadline))) = (taken, before) {
                    self.state.remove(&(db, key(a)));
                    assert_eq!(owned.expire_at_ms, deadline);
                    self.txn(db).put(&key(b), owned);
                    self.put(db, &key(b), value, deadline);
                }
            }
            Step::Flush(db) => {
                self.txn(db).flush_db();
                self.state.retain(|at, _| at.0 != db);
            }
            Step::Swap(a, b) => {
                self.txn(0).swap_db(a, b);
                let old = std::mem::take(&mut self.state);
                let other = |db| match db {
                    db if db == a => b,
                    db if db == b => a,
                    db => db,
                };
                self.state = old
                    .into_iter()
                    .map(|((db, key), v)| ((other(db), key), v))
                    .collect();
            }
            Step::Pass(ms) => self.now_ms += ms,
            Step::ExpireDue(limit) => {
                let removed = self.space.expire_due(self.now_ms, limit);
                assert!(removed <= limit);
                if removed < limit {
                    assert!(
                        self.space
                            .next_deadline_ms()
                            .is_none_or(|ms| ms > self.now_ms)
                    );
                }
            }
            Step::Begin => {
                self.space.begin_snapshot();
                self.begun = Some((self.stored(), State::new()));
            }
            Step::Save(budget) => self.save(budget),
        }
    }

    /// What is in the engine, due keys included.
    fn stored(&mut self) -> State {
        let now_ms = std::mem::replace(&mut self.now_ms, 0);
        let mut stored = State::new();
        for db in 0..3 {
            let txn = self.txn(db);
            txn.for_each_key(&mut |key| {
                let value = plain(txn.peek(key).unwrap());
                let deadline = txn.expire_at(key).unwrap();
                assert!(
                    stored
                        .insert((db, key.to_vec()), (value, deadline))
                        .is_none()
                );
            });
            assert_eq!(txn.len(), stored.keys().filter(|at| at.0 == db).count());
            let with = stored.iter().filter(|(at, v)| at.0 == db && v.1.is_some());
            assert_eq!(txn.len_with_expiry(), with.count());
        }
        self.now_ms = now_ms;
        stored
    }

    fn save(&mut self, budget: usize) {
        let Some((expected, mut saved)) = self.begun.take() else {
            return;
        };
        let done = self
            .space
            .snapshot_step(budget, &mut |db, key, value, deadline| {
                let twice = saved.insert((db, key.to_vec()), (plain(value), deadline));
                assert!(twice.is_none(), "handed out twice");
            });
        assert_eq!(done, !self.space.is_saving());
        if done {
            assert_eq!(saved, expected);
        } else {
            self.begun = Some((expected, saved));
        }
    }

    /// Engine and model agree on everything that is not due.
    fn check(&mut self) {
        let now_ms = self.now_ms;
        let is_live = |v: &(Plain, Option<u64>)| v.1.is_none_or(|ms| ms > now_ms);
        let stored = self.stored();
        let ours: Vec<_> = stored.iter().filter(|(_, v)| is_live(v)).collect();
        let theirs: Vec<_> = self.state.iter().filter(|(_, v)| is_live(v)).collect();
        assert_eq!(ours, theirs);
    }
}

fn run(steps: Vec<Step>) {
    let mut both = Both {
        space: Keyspace::new(11),
        state: State::new(),
        now_ms: 1,
        tuning: Tuning::default(),
        begun: None,
    };
    for step in steps {
        both.run(step);
    }
    both.check();
    while both.begun.is_some() {
        both.save(50);
    }
    both.check();
    drop(both.space.take_garbage());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn histories_on_few_keys(steps in prop::collection::vec(step(8), 0..200)) {
        run(steps);
    }

    #[test]
    fn histories_on_many_keys(steps in prop::collection::vec(step(2000), 0..1500)) {
        run(steps);
    }

    /// A watched key is reported whenever, and mostly only when, its state changes. That its time
    /// has come is not reported: who watches it sees that it is not there.
    #[test]
    fn changes_of_watched_keys_are_reported(steps in prop::collection::vec(step(6), 0..60)) {
        let mut both = Both {
            space: Keyspace::new(11),
            state: State::new(),
            now_ms: 1,
            tuning: Tuning::default(),
            begun: None,
        };
        for db in 0..3 {
            for k in 0..6 {
                both.space.watch(db, &key(k));
            }
        }
        for step in steps {
            let before = both.stored();
            both.run(step);
            let after = both.stored();
            let now_ms = both.now_ms;
            let live = |state: &State, at: &(u8, Vec<u8>)| {
                let due = |ms: u64| ms <= now_ms;
                state.get(at).filter(|value| !value.1.is_some_and(due)).cloned()
            };
            let told: BTreeSet<(u8, Vec<u8>)> = both
                .space
                .take_key_changes()
                .into_iter()
                .map(|KeyChange { db, key }| (db, key.to_vec()))
                .collect();
            for db in 0..3 {
                for k in 0..6 {
                    let at = (db, key(k));
                    if live(&before, &at) != live(&after, &at) {
                        prop_assert!(told.contains(&at), "{at:?} changed silently");
                    }
                }
            }
        }
    }
}

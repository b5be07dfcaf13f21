//! Durable keyspaces over a map, beside a keyspace in memory that sees the same commands.

mod handles;
mod history;
mod page;
mod residency;
mod tables;
mod undo;
mod weights;
mod wholes;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Changes, Family, MapStore, RowStore, State, Tier, WholeJob, layout, load};
use crate::{Keyspace, Tuning, Txn, ValueRef, View};

const HOME: u64 = 7;

/// A value, to be compared.
#[derive(Debug, Clone, PartialEq)]
enum Plain {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    /// Scores as bits: 0 and −0 are not the same here.
    Zset(Vec<(Vec<u8>, u64)>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

type Contents = BTreeMap<(u8, Vec<u8>), (Plain, Option<u64>)>;

fn plain(value: ValueRef<'_>) -> Plain {
    match value {
        ValueRef::String(atom) => Plain::String(atom.to_vec()),
        ValueRef::List(it) => Plain::List(it.iter().map(|e| e.to_vec()).collect()),
        ValueRef::Set(it) => {
            let mut members: Vec<_> = it.iter().map(|m| m.to_vec()).collect();
            members.sort();
            Plain::Set(members)
        }
        ValueRef::Zset(it) => Plain::Zset(
            it.iter()
                .map(|(member, score)| (member.to_vec(), score.to_bits()))
                .collect(),
        ),
        ValueRef::Hash(it) => {
            Plain::Hash(it.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect())
        }
        #[allow(unreachable_patterns, reason = "for a kind to come")]
        other => panic!("{:?} has no plain form", other.kind()),
    }
}

/// A durable keyspace and its store.
struct Durable {
    space: Keyspace,
    store: Arc<MapStore>,
    tuning: Tuning,
    /// Collections on their way into memory; `None` if none are to come.
    wholes: Option<Vec<Arc<WholeJob>>>,
}

impl Durable {
    /// What a start finds in the store.
    fn open(store: Arc<MapStore>) -> Self {
        Durable::open_with(store, Tuning::default().rows_from_elements)
    }

    /// As [`Durable::open`], with collections of more elements than `threshold` staying in rows.
    fn open_with(store: Arc<MapStore>, threshold: usize) -> Self {
        let mut state = None;
        use super::RowSource;
        let key = layout::state_key(HOME);
        let found = &mut |value: &[u8]| state = Some(value.to_vec());
        store.get(Family::Info, &key, Tier::All, found).unwrap();
        let source = store.clone();
        let mut space = Keyspace::durable(11, HOME, state.as_deref(), source).unwrap();
        let tuning = Tuning {
            rows_from_elements: threshold,
            ..Tuning::default()
        };
        space.set_load_tuning(Arc::new(tuning.clone()));
        Durable {
            space,
            store,
            tuning,
            wholes: None,
        }
    }

    fn new() -> Self {
        Durable::open(Arc::default())
    }

    fn txn(&mut self, db: u8, now_ms: u64) -> Txn<'_> {
        Txn::new(View::one(&mut self.space, db, now_ms, 1, &self.tuning))
    }

    fn load(&mut self, db: u8, key: &[u8]) {
        if !self.space.is_resident(db, key) {
            let request = self.space.load_request(db, key);
            let loaded = load(&*self.store, &request, Tier::All).unwrap();
            self.space.insert_loaded(request, loaded);
            assert!(self.space.is_resident(db, key));
            assert_eq!(self.space.take_failure(), None);
        }
    }

    fn end(&mut self, stamp_ms: u64) -> Changes {
        let mut changes = Changes::new();
        self.space.end_entry(stamp_ms, &mut changes);
        self.store.write(&[&changes]).unwrap();
        self.space.rows_written();
        changes
    }

    /// One entry of one step.
    fn entry(&mut self, index: u64, now_ms: u64, run: impl FnOnce(&mut Txn<'_>)) -> Changes {
        self.space.begin_entry(index);
        run(&mut self.txn(0, now_ms));
        self.end(now_ms)
    }

    fn keys(&mut self, db: u8) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        self.txn(db, 0)
            .for_each_key(&mut |key| keys.push(key.to_vec()));
        keys.sort();
        keys
    }

    /// Everything, loaded if need be.
    fn contents(&mut self) -> Contents {
        let mut contents = Contents::new();
        for db in 0..3 {
            let keys = self.keys(db);
            assert_eq!(keys.len(), self.txn(db, 0).len());
            for key in keys {
                self.load(db, &key);
                let txn = self.txn(db, 0);
                let value = plain(txn.peek(&key).unwrap());
                let deadline_ms = txn.expire_at(&key).unwrap();
                assert!(!txn.is_void());
                contents.insert((db, key), (value, deadline_ms));
            }
        }
        contents
    }
}

fn memory_contents(space: &mut Keyspace) -> Contents {
    let tuning = Tuning::default();
    let mut contents = Contents::new();
    for db in 0..3 {
        let view = View::one(space, db, 0, 1, &tuning);
        view.for_each_key(&mut |key| {
            let value = plain(view.peek(key).unwrap());
            let deadline_ms = view.expire_at(key).unwrap();
            contents.insert((db, key.to_vec()), (value, deadline_ms));
        });
    }
    contents
}

/// A region's keyspace is thrown away and opened again (its leader lost what it had not kept, or a snapshot was
/// installed) while a reader is at rows for it.
#[test]
fn what_was_read_for_an_earlier_keyspace_is_not_taken_in() {
    let mut durable = Durable::new();
    let put = |value: &'static [u8]| {
        move |txn: &mut Txn<'_>| txn.put_string(b"k", value, crate::Expire::Clear)
    };
    durable.entry(1, 1, put(b"old"));
    let open = |store: &Arc<MapStore>, seed| {
        use super::RowSource;
        let mut state = None;
        let key = layout::state_key(HOME);
        let found = &mut |value: &[u8]| state = Some(value.to_vec());
        store.get(Family::Info, &key, Tier::All, found).unwrap();
        Keyspace::durable(seed, HOME, state.as_deref(), store.clone()).unwrap()
    };
    let mut before = open(&durable.store, 5);
    let request = before.load_request(0, b"k");
    let loaded = load(&*durable.store, &request, Tier::All).unwrap();
    durable.entry(2, 2, put(b"new"));
    let mut after = open(&durable.store, 6);
    let asked = after.load_request(0, b"k");
    after.insert_loaded(request, loaded);
    assert!(!after.is_resident(0, b"k"), "rows of then");
    let loaded = load(&*durable.store, &asked, Tier::All).unwrap();
    after.insert_loaded(asked, loaded);
    assert!(after.is_resident(0, b"k"));
}

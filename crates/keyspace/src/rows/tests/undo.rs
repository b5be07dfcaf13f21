//! An entry that is taken back: all is as before it, whatever it did.

use super::*;
use crate::{Expire, KeyChange};

fn state_row(store: &MapStore) -> Option<Vec<u8>> {
    use super::super::RowSource;
    let mut state = None;
    let key = layout::state_key(HOME);
    let found = &mut |value: &[u8]| state = Some(value.to_vec());
    store.get(Family::Info, &key, Tier::All, found).unwrap();
    state
}

fn undo(durable: &mut Durable, seed: u64) {
    let state = state_row(&durable.store);
    drop(durable.space.undo_entry(seed, state.as_deref()).unwrap());
}

/// Strings, collections, deadlines, in two databases.
fn filled() -> Durable {
    let mut durable = Durable::new();
    durable.entry(1, 1, |txn| {
        for n in 0..50 {
            txn.put_string(format!("k{n}").as_bytes(), b"v", Expire::Clear);
        }
        txn.put_string(b"mortal", b"v", Expire::At(5_000));
        let mut list = txn.list_or_new(b"list").unwrap();
        (0..50).for_each(|n| list.push_back(format!("e{n}").as_bytes()));
    });
    durable.space.begin_entry(2);
    durable.txn(1, 1).put_string(b"k0", b"other", Expire::Clear);
    durable.end(2);
    durable
}

/// Much of everything.
fn upset(durable: &mut Durable) {
    let mut txn = durable.txn(0, 10);
    txn.put_string(b"k1", b"changed", Expire::At(9_000));
    txn.remove(b"k2");
    txn.remove(b"mortal");
    txn.put_string(b"made", &[b'x'; 1000], Expire::Clear);
    txn.list_or_new(b"list").unwrap().push_back(b"more");
    txn.set_or_new(b"set").unwrap().insert(b"member");
    txn.swap_db(0, 1);
    txn.flush_db();
}

#[test]
fn what_an_entry_did_is_taken_back() {
    let mut durable = filled();
    let (before, state) = (durable.contents(), durable.space.state());
    for round in 0..3 {
        durable.space.begin_entry(3);
        upset(&mut durable);
        assert!(durable.space.has_changes());
        if round > 0 {
            // Also when its rows were made, all or some of them.
            let (mut rows, most_bytes) = (Changes::new(), [500, usize::MAX][round - 1]);
            let all = durable.space.end_entry_within(10, most_bytes, &mut rows);
            assert_eq!(all, round == 2);
        }
        undo(&mut durable, 100 + round as u64);
        assert!(!durable.space.has_changes());
        assert_eq!(durable.space.state(), state);
        assert_eq!(durable.contents(), before);
    }
    // It goes on with the same entry, and a start finds that.
    durable.entry(3, 10, |txn| {
        assert!(txn.remove(b"k3"));
        txn.put_string(b"made", b"now", Expire::Clear);
    });
    let after = durable.contents();
    assert_eq!(after.len(), before.len());
    assert_eq!(Durable::open(durable.store).contents(), after);
}

#[test]
fn who_watches_hears_of_what_was_kept_only() {
    let effect = |key: &[u8]| KeyChange {
        db: 0,
        key: key.into(),
    };
    let mut durable = filled();
    for key in [&b"k1"[..], b"k2", b"k3"] {
        durable.space.watch(0, key);
    }
    durable.entry(3, 10, |txn| assert!(txn.remove(b"k3")));
    let changes = durable.space.changes();
    durable.space.begin_entry(4);
    durable.txn(0, 10).remove(b"k1");
    undo(&mut durable, 100);
    assert_eq!(durable.space.take_key_changes(), [effect(b"k3")]);
    assert!(durable.space.changes() >= changes);
    durable.load(0, b"k2");
    durable.entry(4, 10, |txn| assert!(txn.remove(b"k2")));
    assert_eq!(durable.space.take_key_changes(), [effect(b"k2")]);
}

#[test]
fn rows_are_counted_while_they_are_made() {
    let mut durable = filled();
    durable.space.begin_entry(3);
    let mut txn = durable.txn(0, 10);
    for n in 0..50 {
        txn.put_string(format!("k{n}").as_bytes(), &[b'x'; 1000], Expire::Clear);
    }
    let mut rows = Changes::new();
    assert!(!durable.space.end_entry_within(10, 5_000, &mut rows));
    assert!(
        rows.size_bytes() < 7_000,
        "{} bytes, one value beyond",
        rows.size_bytes()
    );
}

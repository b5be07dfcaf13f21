//! Rows of SQL tables are stored with the rest of a region, and come back with it.

use table::entry::{Ask, Expect, Fields, Found, Op, Write};
use table::{Cause, Entry, Image, Outcome, RowId, Table, Value, parse_fields};

use super::*;

pub fn schema() -> Table {
    let fields = parse_fields("age:int64=18,name:string", 1).unwrap();
    Table {
        id: 5,
        name: "users".into(),
        epoch: 1,
        backend: "main".into(),
        sql_name: "users".into(),
        next_field: 3,
        closed: false,
        fields,
    }
}

pub fn users() -> Entry {
    Entry::Schema(schema())
}

pub fn loaded(key: &str) -> Entry {
    let name = Value::text("name", key).unwrap();
    let image = Image::of_values(&schema(), 4, vec![Value::Int(36), name]);
    Entry::Loaded {
        term: 1,
        rows: vec![(RowId::new(5, key), Found::Row(image))],
    }
}

fn set(key: &str, fields: Fields) -> Write {
    Write {
        id: RowId::new(5, key),
        op: Op::Set(fields),
        expect: Expect::Any,
        ask: Ask::All,
        request: None,
        epoch: 0,
        row_max: 1000,
    }
}

fn age(durable: &mut Durable, key: &[u8]) -> Outcome {
    let txn = durable.txn(0, 0);
    let row = txn.row_of(key).unwrap().unwrap();
    txn.read_row(key, &row, &Ask::Fields(vec![1]), None)
}

fn filled() -> Durable {
    let mut durable = Durable::new();
    durable.entry(1, 10, |txn| {
        assert!(txn.row_of(b"users:ada").is_none(), "not declared yet");
        txn.apply_table_entry(users());
        txn.apply_table_entry(loaded("ada"));
        txn.apply_table_entry(loaded("bob"));
    });
    durable.entry(2, 20, |txn| {
        let done = txn.write_row(b"users:ada", set("ada", vec![(1, Value::Int(37))]));
        assert!(done.is_ok(), "{done:?}");
    });
    durable
}

#[test]
fn a_start_finds_what_was_stored() {
    let mut durable = filled();
    let expected = Outcome::Ok {
        version: 5,
        values: vec![(1, Value::Int(37))],
    };
    assert_eq!(age(&mut durable, b"users:ada"), expected);
    let mut again = Durable::open(durable.store.clone());
    assert_eq!(again.space.table_rows(), durable.space.table_rows());
    assert_eq!(age(&mut again, b"users:ada"), expected);
    let missing = age(&mut again, b"users:eve");
    assert_eq!(missing, Outcome::Retry(Cause::NotCached));
    assert_eq!(again.space.take_missing_rows(), [RowId::new(5, "eve")]);
    assert!(!again.space.has_missing_rows());
    assert!(again.space.names_row(0, b"users:") && !again.space.names_row(1, b"users:ada"));
    assert!(again.txn(0, 0).row_of(b"users:").unwrap().is_err());
}

#[test]
fn a_row_that_is_kicked_or_dropped_leaves_nothing() {
    let mut durable = filled();
    durable.entry(3, 30, |txn| {
        let row = |key: &[u8], txn: &Txn<'_>| txn.row_of(key).unwrap().unwrap();
        let (ada, bob, eve) = (
            row(b"users:ada", txn),
            row(b"users:bob", txn),
            row(b"users:eve", txn),
        );
        assert_eq!(txn.kick_row(b"users:ada", &ada), crate::Kicked::Dirty);
        assert_eq!(txn.kick_row(b"users:bob", &bob), crate::Kicked::Gone);
        assert_eq!(txn.kick_row(b"users:eve", &eve), crate::Kicked::NotCached);
    });
    assert_eq!(durable.store.all(Family::Tables).len(), 2, "schema and ada");
    durable.entry(4, 40, |txn| {
        txn.apply_table_entry(Entry::Drop { table: 5 });
        assert!(txn.row_of(b"users:ada").is_none());
    });
    let left = durable.store.all(Family::Tables);
    assert_eq!(left.len(), 1, "that it was dropped");
    let again = Durable::open(durable.store.clone());
    assert_eq!(again.space.table_rows(), durable.space.table_rows());
}

#[test]
fn an_entry_stores_each_row_once_as_it_is_in_the_end() {
    let mut durable = filled();
    let changes = durable.entry(3, 30, |txn| {
        for age in 40..50 {
            txn.write_row(b"users:ada", set("ada", vec![(1, Value::Int(age))]));
        }
        let bob = txn.row_of(b"users:bob").unwrap().unwrap();
        txn.kick_row(b"users:bob", &bob);
        txn.apply_table_entry(loaded("bob"));
        txn.apply_table_entry(loaded("eve"));
        let eve = txn.row_of(b"users:eve").unwrap().unwrap();
        txn.kick_row(b"users:eve", &eve);
    });
    let rows = changes.iter().filter(|it| it.family == Family::Tables);
    assert_eq!(
        rows.filter(|it| it.value.is_some()).count(),
        2,
        "ada and bob"
    );
    let again = Durable::open(durable.store.clone());
    assert_eq!(again.space.table_rows(), durable.space.table_rows());
    durable.entry(4, 40, |txn| {
        txn.write_row(b"users:ada", set("ada", vec![(1, Value::Int(1))]));
        let bob = txn.row_of(b"users:bob").unwrap().unwrap();
        txn.kick_row(b"users:bob", &bob);
        txn.apply_table_entry(Entry::Drop { table: 5 });
    });
    let left = durable.store.all(Family::Tables);
    assert_eq!(left.len(), 1, "that it was dropped");
}

#[test]
fn memory_follows_rows_that_another_node_has_made() {
    let mut leader = filled();
    let mut follower = Durable::open(leader.store.clone());
    let changes = leader.entry(3, 30, |txn| {
        txn.apply_table_entry(loaded("eve"));
        txn.write_row(b"users:eve", set("eve", vec![(1, Value::Int(1))]));
        let bob = txn.row_of(b"users:bob").unwrap().unwrap();
        txn.kick_row(b"users:bob", &bob);
    });
    follower.space.apply_rows(&changes);
    assert_eq!(follower.space.table_rows(), leader.space.table_rows());
    assert_eq!(follower.space.take_failure(), None);
}

#[test]
fn the_leader_hears_what_was_done() {
    let mut durable = filled();
    durable.space.note_applied(true);
    durable.entry(3, 30, |txn| {
        for key in ["ada", "bob", "bob"] {
            let name = format!("users:{key}");
            txn.write_row(name.as_bytes(), set(key, vec![(1, Value::Int(1))]));
        }
    });
    let applied = durable.space.take_applied();
    assert_eq!(applied.len(), 1, "ada was dirty before, and bob is then");
    assert_eq!(applied[0].rows, [RowId::new(5, "bob")]);
    assert!(durable.space.take_applied().is_empty());
    durable.space.note_applied(false);
    durable.entry(4, 40, |txn| txn.apply_table_entry(loaded("eve")));
    assert!(durable.space.take_applied().is_empty());
}

#[test]
fn what_cannot_be_read_is_put_in_quarantine_and_stays_there() {
    let mut durable = filled();
    durable.entry(3, 30, |txn| {
        txn.quarantine_tables("damaged");
        txn.put_string(b"plain", b"1", crate::Expire::Clear);
        let told = txn.row_of(b"users:ada").unwrap().unwrap_err();
        assert!(told.text().starts_with("QUARANTINED"), "{}", told.text());
    });
    let mut again = Durable::open(durable.store.clone());
    assert_eq!(again.space.tables_in_quarantine(), Some("damaged"));
    assert!(again.txn(0, 0).row_of(b"users:ada").unwrap().is_err());
    assert!(again.txn(0, 0).exists(b"plain") || !again.space.is_complete());
    // Stored rows that are damaged come to the same.
    let durable = filled();
    let rows = durable.store.all(Family::Tables);
    let (key, _) = rows.last().unwrap();
    let mut changes = Changes::new();
    changes.put(Family::Tables, key, b"?");
    durable.store.write(&[&changes]).unwrap();
    let again = Durable::open(durable.store.clone());
    assert!(
        again
            .space
            .tables_in_quarantine()
            .unwrap()
            .contains("damaged")
    );
}

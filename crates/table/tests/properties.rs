//! What must hold for any value, row and bytes.

use proptest::prelude::*;
use table::entry::*;
use table::{
    Amount, Corrupt, Delta, Entry, Field, Image, Kind, Outcome, Rows, Table, Value, parse_fields,
    show_fields,
};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::Uint),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| Value::float("f", number).unwrap()),
        "[^\0]{0,20}".prop_map(|text| Value::Text(text.into())),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Blob(bytes.into())),
    ]
}

fn table() -> impl Strategy<Value = Table> {
    prop::collection::btree_map(1u16..40, value(), 1..10).prop_map(|fields| Table {
        id: 7,
        name: "t".into(),
        epoch: 1,
        backend: "main".into(),
        sql_name: "t".into(),
        next_field: 40,
        closed: false,
        fields: fields
            .into_iter()
            .map(|(id, default)| Field {
                id,
                name: format!("f{id}"),
                kind: default.kind(),
                default,
            })
            .collect(),
    })
}

proptest! {
    #[test]
    fn text_reads_back(value in value()) {
        let text = value.shown();
        prop_assert_eq!(Value::parse(value.kind(), "f", &text), Ok(value));
    }

    #[test]
    fn any_text_is_a_value_or_refused(text in prop::collection::vec(any::<u8>(), 0..30)) {
        for kind in Kind::ALL {
            if let Ok(value) = Value::parse(kind, "f", &text) {
                prop_assert_eq!(value.kind(), kind);
                prop_assert_eq!(value.clone().check(kind, "f"), Ok(value));
            }
        }
    }

    #[test]
    fn declarations_read_back(table in table()) {
        let text = show_fields(&table.fields);
        let mut read = parse_fields(&text, 1).unwrap();
        for (field, old) in read.iter_mut().zip(&table.fields) {
            field.id = old.id;
        }
        prop_assert_eq!(&read, &table.fields, "{}", text);
        prop_assert_eq!(Table::decode(&table.encode()), Ok(table));
    }

    #[test]
    fn declarations_never_panic(text in ".{0,40}") {
        let _ = parse_fields(&text, u16::MAX - 1);
    }

    #[test]
    fn images_read_back(table in table(), version in 0..i64::MAX, values in prop::collection::vec(value(), 10)) {
        let typed: Vec<Value> = table.fields.iter().zip(values)
            .map(|(field, value)| if value.kind() == field.kind { value } else { field.default.clone() })
            .collect();
        let image = Image::of_values(&table, version, typed.clone());
        let bytes = image.encode();
        prop_assert!(bytes.len() <= image.size());
        let read = Image::decode(&bytes).unwrap();
        prop_assert_eq!(read.values(&table), typed);
        prop_assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn decoding_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = (Image::decode(&bytes), Delta::decode(&bytes), Table::decode(&bytes));
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        let _ = Table::decode(&bytes);
        if let Ok(image) = Image::decode(&bytes) {
            prop_assert_eq!(Image::decode(&image.encode()), Ok(image));
        }
    }

    #[test]
    fn entries_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..80), tag in 1u8..12) {
        bytes[0] = 1;
        bytes[1] = tag;
        if let Ok(entry) = Entry::decode(&bytes) {
            prop_assert_eq!(Entry::decode(&entry.encode()), Ok(entry.clone()));
            Rows::new().apply(1, 1, entry);
        }
        if let Ok(outcome) = Outcome::decode(&bytes) {
            prop_assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
        }
    }

    /// One byte of an entry or of what is stored is wrong: another one, or corrupt; never a panic.
    #[test]
    fn a_wrong_byte_never_panics(table in table(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut rows = Rows::new();
        let id = RowId::new(table.id, "k");
        let field = &table.fields[0];
        let entries = [
            Entry::Schema(table.clone()),
            Entry::Loaded { term: 1, rows: vec![(id.clone(), Found::Missing)] },
            Entry::Write(Write {
                id: id.clone(),
                op: Op::CasNx { when: vec![], set: vec![(field.id, field.default.clone())] },
                expect: Expect::Version(0),
                ask: Ask::All,
                request: Some(Request { client: 5, number: 6 }),
                epoch: 1,
                row_max: 9999,
            }),
            Entry::Dead(Dead { id, version: 1, kind: DeadKind::Conflict { sql_version: 4 }, why: "x".into() }),
            Entry::Lease { lease: Lease { holder: 1, term: 1, until: 9 }, waited: false },
        ];
        for (index, entry) in (1..).zip(entries) {
            let mut bytes = entry.encode();
            prop_assert_eq!(Entry::decode(&bytes), Ok(entry.clone()));
            rows.apply(index, 7, entry);
            *at.get_mut(&mut bytes) = byte;
            if let Ok(other) = Entry::decode(&bytes) {
                rows.clone().apply(index + 1, 8, other);
            }
        }
        let mut stored: Vec<(Vec<u8>, Vec<u8>)> = rows.dump().into_iter()
            .map(|(place, bytes)| (place.encode(), bytes)).collect();
        let restore = |stored: &[(Vec<u8>, Vec<u8>)]| {
            Rows::restore(stored.iter().map(|(key, bytes)| (&key[..], &bytes[..])), 5)
        };
        prop_assert_eq!(restore(&stored), Ok(rows));
        let (key, bytes) = at.get_mut(&mut stored);
        let part = if byte % 2 == 0 { key } else { bytes };
        *at.get_mut(part) = byte;
        if let Ok(mut rows) = restore(&stored) {
            rows.apply(6, 9, Entry::Drop { table: 7 });
        }
    }

    #[test]
    fn a_cut_image_is_corrupt(table in table(), version in any::<i64>()) {
        let values = table.fields.iter().map(|field| field.default.clone()).collect();
        let bytes = Image::of_values(&table, version, values).encode();
        for end in 0..bytes.len() {
            prop_assert!(Image::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn adding_is_exact_or_refused(old in any::<i64>(), unsigned in any::<u64>(), by in any::<i64>()) {
        let amount = Amount::parse_integer(by.to_string().as_bytes()).unwrap();
        prop_assert_eq!(Value::Int(old).incr("f", amount).ok(), old.checked_add(by).map(Value::Int));
        prop_assert_eq!(Value::Int(old).incr("f", amount.negated()).ok(), old.checked_sub(by).map(Value::Int));
        prop_assert_eq!(Value::Uint(unsigned).incr("f", amount).ok(), unsigned.checked_add_signed(by).map(Value::Uint));
    }
}

/// A field added is read as its default from old rows; one dropped is skipped, also under its old name with a new id.
#[test]
fn schemas_change_rows_do_not() {
    let fields = parse_fields("age:int64,name:string", 1).unwrap();
    let first = Table {
        id: 1,
        name: "users".into(),
        epoch: 1,
        backend: "main".into(),
        sql_name: "users".into(),
        next_field: 3,
        closed: false,
        fields,
    };
    let row = vec![Value::Int(9), Value::Text("ann".into())];
    let bytes = Image::of_values(&first, 5, row).encode();
    let score = parse_fields("name:float64=1.5", 0).unwrap().remove(0);
    let second = first
        .without_field("name")
        .unwrap()
        .with_field(score)
        .unwrap();
    let mut image = Image::decode(&bytes).unwrap();
    assert_eq!(image.values(&second), [Value::Int(9), Value::Float(1.5)]);
    assert!(image.forget_dropped(&second) && !image.forget_dropped(&second));

    let mut delta = Delta::new(6);
    delta.set(3, Value::Float(2.5));
    image.apply(Delta::decode(&delta.encode()).unwrap());
    assert_eq!(image.values(&second), [Value::Int(9), Value::Float(2.5)]);
    image.apply(Delta::new(-7));
    assert!(image.is_deleted());
    let mut again = Delta::new(8);
    again.set(1, Value::Int(1));
    image.apply(again);
    assert_eq!(image.values(&second), [Value::Int(1), Value::Float(1.5)]);
}

#[test]
fn other_formats_are_refused() {
    assert_eq!(Image::decode(&[]), Err(Corrupt("empty")));
    assert_eq!(
        Image::decode(&[2, 0, 0]),
        Err(Corrupt("written by another version"))
    );
}

//! Values between protobuf and the text that `ROW.*` speaks, by the table's schema.

use base::Refusal;
use bytes::Bytes;
use rowapi::Value;
use rowapi::value::Kind as Given;
use table::{Kind, Table};

use super::answer::Answer;

/// The text of a value for a field. What would lose something, or is of another kind, is refused.
pub fn text_of(table: &Table, field: &str, value: &Value) -> Result<Vec<u8>, Refusal> {
    let field = table.field_or_refuse(field.as_bytes())?;
    let name = &field.name;
    let Some(given) = &value.kind else {
        return Err(unfit(name, field.kind, "nothing"));
    };
    let checked = match (field.kind, given) {
        (kind, Given::StringValue(text)) => table::Value::parse(kind, name, text.as_bytes())?,
        (kind @ (Kind::String | Kind::Blob), Given::BlobValue(bytes)) => {
            table::Value::parse(kind, name, bytes)?
        }
        (Kind::Float64, Given::Float64Value(number)) => table::Value::float(name, *number)?,
        (Kind::Int64 | Kind::Uint64, Given::Int64Value(number)) => {
            table::Value::parse(field.kind, name, number.to_string().as_bytes())?
        }
        (Kind::Int64 | Kind::Uint64, Given::Uint64Value(number)) => {
            table::Value::parse(field.kind, name, number.to_string().as_bytes())?
        }
        // Those that a double holds exactly.
        (Kind::Float64, Given::Int64Value(number)) if number.unsigned_abs() <= 1 << 53 => {
            table::Value::float(name, *number as f64)?
        }
        (Kind::Float64, Given::Uint64Value(number)) if *number <= 1 << 53 => {
            table::Value::float(name, *number as f64)?
        }
        (kind, given) => return Err(unfit(name, kind, name_of(given))),
    };
    Ok(checked.shown())
}

/// The text of what is added to a field.
pub fn amount_of(table: &Table, field: &str, amount: Option<&Value>) -> Result<Vec<u8>, Refusal> {
    let field = table.field_or_refuse(field.as_bytes())?;
    match (field.kind, amount.and_then(|it| it.kind.as_ref())) {
        (_, Some(Given::Int64Value(number))) => Ok(number.to_string().into_bytes()),
        (_, Some(Given::Uint64Value(number))) => Ok(number.to_string().into_bytes()),
        (Kind::Float64, Some(Given::Float64Value(number))) => {
            Ok(table::Value::float(&field.name, *number)?.shown())
        }
        (kind, given) => Err(unfit(&field.name, kind, given.map_or("nothing", name_of))),
    }
}

fn name_of(given: &Given) -> &'static str {
    match given {
        Given::Int64Value(_) => "an int64",
        Given::Uint64Value(_) => "a uint64",
        Given::Float64Value(_) => "a float64",
        Given::StringValue(_) => "a string",
        Given::BlobValue(_) => "a blob",
    }
}

fn unfit(field: &str, kind: Kind, given: &str) -> Refusal {
    Refusal::text_of(format!("ERR field '{field}' is {kind}: got {given}"))
}

/// A value as the field has it. A field that this node's schema does not have (yet) is given as it is.
pub fn typed(table: &Table, field: &str, text: &Bytes) -> Value {
    let kind = table.field(field.as_bytes()).map(|field| field.kind);
    let read = kind.and_then(|kind| table::Value::parse(kind, field, text).ok());
    match read {
        Some(table::Value::Int(number)) => number.into(),
        Some(table::Value::Uint(number)) => number.into(),
        Some(table::Value::Float(number)) => number.into(),
        Some(table::Value::Text(text)) => String::from(text).into(),
        Some(table::Value::Blob(bytes)) => Vec::from(bytes).into(),
        None => match std::str::from_utf8(text) {
            Ok(text) => text.into(),
            Err(_) => text.to_vec().into(),
        },
    }
}

/// `[field, value, field, value …]`.
pub fn fields_of(table: &Table, list: &[Answer]) -> std::collections::BTreeMap<String, Value> {
    let pairs = list.chunks_exact(2).filter_map(|pair| match pair {
        [name, Answer::Bulk(text)] => {
            let name = text_in(name)?;
            let value = typed(table, &name, text);
            Some((name, value))
        }
        _ => None,
    });
    pairs.collect()
}

/// A name, however it was sent.
pub fn text_in(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Text(text) => Some(text.clone()),
        Answer::Bulk(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn table() -> Table {
        let kinds = [
            ("age", Kind::Int64),
            ("gold", Kind::Uint64),
            ("x", Kind::Float64),
            ("name", Kind::String),
            ("raw", Kind::Blob),
        ];
        let fields = kinds
            .iter()
            .zip(1..)
            .map(|((name, kind), id)| table::Field {
                id,
                name: (*name).into(),
                kind: *kind,
                default: kind.zero(),
            });
        Table {
            id: 1,
            name: "users".into(),
            epoch: 3,
            backend: "main".into(),
            sql_name: "users".into(),
            fields: fields.collect(),
            next_field: 6,
            closed: false,
        }
    }

    #[test]
    fn values_that_fit() {
        let table = table();
        let text = |field: &str, value: Value| {
            String::from_utf8_lossy(&text_of(&table, field, &value).unwrap()).into_owned()
        };
        assert_eq!(text("age", i64::MIN.into()), "-9223372036854775808");
        assert_eq!(text("age", 7u64.into()), "7");
        assert_eq!(text("gold", u64::MAX.into()), "18446744073709551615");
        assert_eq!(text("gold", 7i64.into()), "7");
        assert_eq!(text("x", 0.1.into()), "0.1");
        assert_eq!(text("x", 3i64.into()), "3");
        assert_eq!(text("age", "42".into()), "42");
        assert_eq!(text("name", "' OR 1=1 --".into()), "' OR 1=1 --");
        assert_eq!(text("name", "🎲".as_bytes().into()), "🎲");
        let raw = text_of(&table, "raw", &vec![0u8, 255, 13].into());
        assert_eq!(raw.unwrap(), [0, 255, 13]);
    }

    #[test]
    fn values_that_do_not() {
        let table = table();
        for (field, value, part) in [
            ("age", Value::from(1.5), "is int64: got a float64"),
            ("age", u64::MAX.into(), "not a 64-bit integer"),
            ("age", vec![1u8].into(), "got a blob"),
            ("gold", (-1i64).into(), "not an unsigned"),
            ("x", f64::NAN.into(), "must be finite"),
            ("x", ((1i64 << 53) + 1).into(), "got an int64"),
            ("name", "a\0b".into(), "NUL"),
            ("name", vec![0xffu8].into(), "utf-8"),
            ("name", 4i64.into(), "is string: got an int64"),
            ("nope", 4i64.into(), "has no field 'nope'"),
            ("age", Value { kind: None }, "got nothing"),
        ] {
            let refusal = text_of(&table, field, &value).unwrap_err();
            assert!(refusal.text().contains(part), "{}", refusal.text());
        }
    }

    #[test]
    fn what_is_shown_is_typed() {
        let table = table();
        let value = |field, text: &'static [u8]| typed(&table, field, &Bytes::from_static(text));
        assert_eq!(value("age", b"-3"), (-3i64).into());
        assert_eq!(value("gold", b"18446744073709551615"), u64::MAX.into());
        assert_eq!(value("x", b"0.1"), 0.1.into());
        assert_eq!(value("name", b"a"), "a".into());
        assert_eq!(value("raw", b"a"), vec![b'a'].into());
        assert_eq!(value("later", b"a"), "a".into());
        assert_eq!(value("later", b"\xff"), vec![0xffu8].into());
    }
}

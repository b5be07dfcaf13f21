//! Declarations of fields: `age:int64=0,name:string='it''s, here',photo:blob=0xff00`.
//!
//! ```text
//!   fields  = field { ',' field }
//!   field   = name ':' kind [ '=' default ]
//!   default = text up to the next comma | "'" text with '' for ' "'" ; of a blob: 0x and hex digits
//! ```
//!
//! Blanks around fields are ignored. What [`show_fields`] writes reads back as the same fields.

use base::Refusal;

use crate::name;
use crate::schema::Field;
use crate::value::{Kind, Value, refuse};

/// The fields of a declaration, numbered from `next_id`.
pub fn parse_fields(text: &str, next_id: u16) -> Result<Vec<Field>, Refusal> {
    let mut fields = Vec::new();
    for part in split(text)? {
        let id = u16::try_from(fields.len())
            .ok()
            .and_then(|count| next_id.checked_add(count))
            .ok_or(Refusal::new("ERR too many fields"))?;
        fields.push(parse_field(part.trim(), id)?);
    }
    Ok(fields)
}

fn parse_field(text: &str, id: u16) -> Result<Field, Refusal> {
    let Some((name, rest)) = text.split_once(':') else {
        return Err(Refusal::text_of(format!(
            "ERR field '{}' has no kind: write name:kind, or name:kind=default",
            text.escape_default()
        )));
    };
    let name = name.trim();
    name::check("field", name)?;
    let (kind, default) = match rest.split_once('=') {
        Some((kind, default)) => (kind.trim(), Some(default)),
        None => (rest.trim(), None),
    };
    let kind = Kind::named(kind).ok_or_else(|| {
        let known = "int64, uint64, float64, string, blob";
        refuse(
            name,
            &format!("has no known kind '{}': {known}", kind.escape_default()),
        )
    })?;
    let default = match default {
        Some(text) => parse_default(name, kind, text)?,
        None => kind.zero(),
    };
    Ok(Field {
        id,
        name: name.to_owned(),
        kind,
        default,
    })
}

fn parse_default(name: &str, kind: Kind, text: &str) -> Result<Value, Refusal> {
    let text = match text.strip_prefix('\'') {
        Some(quoted) => quoted
            .strip_suffix('\'')
            .ok_or_else(|| refuse(name, "has a default with text after its quotes"))?
            .replace("''", "'"),
        None => text.to_owned(),
    };
    if kind != Kind::Blob {
        return Value::parse(kind, name, text.as_bytes());
    }
    let digits: Option<Vec<u8>> = text.strip_prefix("0x").and_then(|hex| {
        let digit = |c: char| c.to_digit(16).map(|digit| digit as u8);
        hex.chars().map(digit).collect()
    });
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            let (pairs, _) = digits.as_chunks::<2>();
            let byte = |[high, low]: &[u8; 2]| high << 4 | low;
            Ok(Value::Blob(pairs.iter().map(byte).collect()))
        }
        _ => Err(refuse(
            name,
            "is blob: its default is 0x and pairs of hex digits",
        )),
    }
}

/// The parts between commas that are not in quotes.
fn split(text: &str) -> Result<Vec<&str>, Refusal> {
    let mut parts = Vec::new();
    let mut quoted = false;
    let mut from = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted, // '' is twice, and so changes nothing
            ',' if !quoted => {
                parts.push(text.get(from..at).unwrap_or_default());
                from = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err(Refusal::new("ERR a default has no closing quote"));
    }
    parts.push(text.get(from..).unwrap_or_default());
    if parts.iter().any(|part| part.trim().is_empty()) {
        return Err(Refusal::new(
            "ERR a field is empty: write name:kind,name:kind=default",
        ));
    }
    Ok(parts)
}

/// The declaration that [`parse_fields`] reads.
pub fn show_fields(fields: &[Field]) -> String {
    let show = |field: &Field| {
        let start = format!("{}:{}", field.name, field.kind);
        if field.default == field.kind.zero() {
            return start;
        }
        match &field.default {
            Value::Text(text) => format!("{start}='{}'", text.replace('\'', "''")),
            Value::Blob(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{start}=0x{hex}")
            }
            number => format!("{start}={}", String::from_utf8_lossy(&number.shown())),
        }
    };
    fields.iter().map(show).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared() {
        let text =
            "age:int64=-3,name:string='it''s, here',photo:blob=0xff00,score:float64=1.5,id:uint64";
        let fields = parse_fields(text, 4).unwrap();
        let ids: Vec<u16> = fields.iter().map(|field| field.id).collect();
        assert_eq!(ids, [4, 5, 6, 7, 8]);
        assert_eq!(fields[1].default, Value::Text("it's, here".into()));
        assert_eq!(fields[2].default, Value::Blob([0xff, 0].into()));
        assert_eq!(show_fields(&fields), text);
        let spaced = parse_fields(" a : int64 , b:string=x y ", 1).unwrap();
        assert_eq!(spaced[1].default, Value::Text("x y".into()));
    }

    #[test]
    fn refused() {
        for bad in [
            "",
            ",",
            "a",
            "a:",
            "a:int32",
            "a:int64=x",
            "a:int64=",
            "a:uint64=-1",
            "a:blob=ff",
            "a:blob=0xf",
            "a:blob=0xé0",
            "a:string='x",
            "a:string='x'y",
            "__a:int64",
            "1:int64",
            "a:int64,,b:int64",
            "a:float64=nan",
        ] {
            assert!(parse_fields(bad, 1).is_err(), "{bad}");
        }
        let refusal = parse_fields("a:int32", 1).unwrap_err();
        assert_eq!(
            refusal.text(),
            "ERR field 'a' has no known kind 'int32': int64, uint64, float64, string, blob"
        );
    }
}

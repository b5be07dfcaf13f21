//! One field's value: its five kinds, and its text as Redis clients see it.
//!
//! Integers are decimal, floats are the shortest decimal that reads back as the same number and have no exponent
//! (what `HINCRBYFLOAT` answers), strings and blobs are themselves. Text and value are one to one, except that a
//! float may be written in several ways.

use base::Refusal;
use base::number::{format_plain, parse_f64, parse_i64, parse_u64};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Int64,
    Uint64,
    Float64,
    String,
    Blob,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Uint(u64),
    /// Finite, never `-0.0`.
    Float(f64),
    /// Without NUL: SQL texts cannot hold it.
    Text(Box<str>),
    Blob(Box<[u8]>),
}

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Int64,
        Kind::Uint64,
        Kind::Float64,
        Kind::String,
        Kind::Blob,
    ];

    /// As declarations write it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int64 => "int64",
            Kind::Uint64 => "uint64",
            Kind::Float64 => "float64",
            Kind::String => "string",
            Kind::Blob => "blob",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What a field without a declared default holds.
    pub fn zero(self) -> Value {
        match self {
            Kind::Int64 => Value::Int(0),
            Kind::Uint64 => Value::Uint(0),
            Kind::Float64 => Value::Float(0.0),
            Kind::String => Value::Text("".into()),
            Kind::Blob => Value::Blob([].into()),
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    pub fn kind(&self) -> Kind {
        match self {
            Value::Int(_) => Kind::Int64,
            Value::Uint(_) => Kind::Uint64,
            Value::Float(_) => Kind::Float64,
            Value::Text(_) => Kind::String,
            Value::Blob(_) => Kind::Blob,
        }
    }

    /// What `HSET table:key field text` sets. `field` is said in the refusal.
    pub fn parse(kind: Kind, field: &str, text: &[u8]) -> Result<Value, Refusal> {
        match kind {
            Kind::Int64 => parse_i64(text)
                .map(Value::Int)
                .ok_or_else(|| refuse(field, "is int64: not a 64-bit integer")),
            Kind::Uint64 => parse_u64(text)
                .map(Value::Uint)
                .ok_or_else(|| refuse(field, "is uint64: not an unsigned 64-bit integer")),
            Kind::Float64 => match parse_f64(text) {
                Some(number) => Value::float(field, number),
                None => Err(refuse(field, "is float64: not a valid float")),
            },
            Kind::String => match std::str::from_utf8(text) {
                Ok(text) => Value::text(field, text),
                Err(_) => Err(refuse(field, "is string: not valid utf-8")),
            },
            Kind::Blob => Ok(Value::Blob(text.into())),
        }
    }

    /// A float that every database keeps as it is.
    pub fn float(field: &str, number: f64) -> Result<Value, Refusal> {
        if !number.is_finite() {
            return Err(refuse(field, "is float64: must be finite"));
        }
        Ok(Value::Float(number + 0.0)) // -0.0 + 0.0 is 0.0
    }

    /// A string that every database keeps as it is.
    pub fn text(field: &str, text: &str) -> Result<Value, Refusal> {
        if text.contains('\0') {
            return Err(refuse(field, "is string: contains a NUL byte"));
        }
        Ok(Value::Text(text.into()))
    }

    /// A value that came as such (gRPC): of the field's kind, and clean.
    pub fn check(self, kind: Kind, field: &str) -> Result<Value, Refusal> {
        if self.kind() != kind {
            let given = self.kind();
            return Err(refuse(field, &format!("is {kind}: got a {given}")));
        }
        match self {
            Value::Float(number) => Value::float(field, number),
            Value::Text(text) if text.contains('\0') => {
                Err(refuse(field, "is string: contains a NUL byte"))
            }
            clean => Ok(clean),
        }
    }

    /// Appends what `HGET` answers.
    pub fn show(&self, into: &mut Vec<u8>) {
        use std::io::Write;
        // Writing to a Vec does not fail.
        let _ = match self {
            Value::Int(number) => write!(into, "{number}"),
            Value::Uint(number) => write!(into, "{number}"),
            Value::Float(number) => into.write_all(format_plain(*number).as_bytes()),
            Value::Text(text) => into.write_all(text.as_bytes()),
            Value::Blob(bytes) => into.write_all(bytes),
        };
    }

    /// What `HGET` answers.
    pub fn shown(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.show(&mut bytes);
        bytes
    }

    /// Bytes of content: what limits of rows and batches count.
    pub fn size(&self) -> usize {
        match self {
            Value::Int(_) | Value::Uint(_) | Value::Float(_) => 8,
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
        }
    }
}

pub(crate) fn refuse(field: &str, why: &str) -> Refusal {
    Refusal::text_of(format!("ERR field '{}' {why}", field.escape_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: Kind, text: &str) -> Option<Value> {
        Value::parse(kind, "f", text.as_bytes()).ok()
    }

    #[test]
    fn extremes() {
        assert_eq!(
            parse(Kind::Int64, "-9223372036854775808"),
            Some(Value::Int(i64::MIN))
        );
        assert_eq!(
            parse(Kind::Uint64, "18446744073709551615"),
            Some(Value::Uint(u64::MAX))
        );
        assert_eq!(parse(Kind::Float64, "-0.0"), Some(Value::Float(0.0)));
        assert_eq!(parse(Kind::Float64, "-0").unwrap().shown(), b"0");
        assert_eq!(parse(Kind::Float64, "1e3").unwrap().shown(), b"1000");
    }

    #[test]
    fn refused() {
        for (kind, text) in [
            (Kind::Int64, "9223372036854775808"),
            (Kind::Int64, "1.0"),
            (Kind::Int64, ""),
            (Kind::Uint64, "-1"),
            (Kind::Uint64, "18446744073709551616"),
            (Kind::Float64, "inf"),
            (Kind::Float64, "nan"),
            (Kind::Float64, "1e999"),
            (Kind::String, "a\0b"),
        ] {
            assert_eq!(parse(kind, text), None, "{kind} {text}");
        }
        assert!(Value::parse(Kind::String, "f", b"\xff").is_err());
        assert_eq!(
            Value::parse(Kind::Int64, "age", b"x").unwrap_err().text(),
            "ERR field 'age' is int64: not a 64-bit integer"
        );
        assert!(Value::Int(1).check(Kind::Uint64, "f").is_err());
        assert!(Value::Float(f64::NAN).check(Kind::Float64, "f").is_err());
    }
}

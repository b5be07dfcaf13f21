//! Values from and to what Rust has.

use crate::v1::Value;
use crate::v1::value::Kind;

macro_rules! from {
    ($($from:ty => $kind:ident $(, $convert:ident)?;)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value { kind: Some(Kind::$kind(value$(.$convert())?)) }
            }
        })*
    };
}

from! {
    i64 => Int64Value;
    i32 => Int64Value, into;
    u64 => Uint64Value;
    f64 => Float64Value;
    String => StringValue;
    &str => StringValue, into;
    Vec<u8> => BlobValue;
    &[u8] => BlobValue, into;
}

impl Value {
    pub fn as_i64(&self) -> Option<i64> {
        match self.kind.as_ref()? {
            Kind::Int64Value(value) => Some(*value),
            Kind::Uint64Value(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<u64> {
        match self.kind.as_ref()? {
            Kind::Uint64Value(value) => Some(*value),
            Kind::Int64Value(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self.kind.as_ref()? {
            Kind::Float64Value(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self.kind.as_ref()? {
            Kind::StringValue(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self.kind.as_ref()? {
            Kind::BlobValue(value) => Some(value),
            Kind::StringValue(value) => Some(value.as_bytes()),
            _ => None,
        }
    }
}

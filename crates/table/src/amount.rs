//! Adding to a field: `HINCRBY`, `HINCRBYFLOAT`, `IncrBy`, `DecrBy`.
//!
//! An amount is wider than any value, so that taking away is adding the negation and overflow is judged once, on the result.

use base::Refusal;
use base::number::{parse_f64, parse_i64, parse_u64};

use crate::value::{Value, refuse};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// From `-u64::MAX` to `u64::MAX`.
    Integer(i128),
    Float(f64),
}

impl Amount {
    /// An integer as `HINCRBY` takes it; up to `u64::MAX` for the sake of uint64 fields.
    pub fn parse_integer(text: &[u8]) -> Result<Amount, Refusal> {
        parse_i64(text)
            .map(i128::from)
            .or_else(|| parse_u64(text).map(i128::from))
            .map(Amount::Integer)
            .ok_or(Refusal::NotInteger)
    }

    /// A float as `HINCRBYFLOAT` takes it.
    pub fn parse_float(text: &[u8]) -> Result<Amount, Refusal> {
        parse_f64(text)
            .filter(|number| number.is_finite())
            .map(Amount::Float)
            .ok_or(Refusal::NotFloat)
    }

    pub fn negated(self) -> Amount {
        match self {
            Amount::Integer(number) => Amount::Integer(-number),
            Amount::Float(number) => Amount::Float(-number),
        }
    }
}

impl Value {
    /// The value after adding; refused if it leaves the range of its kind. `field` is said in the refusal.
    pub fn incr(&self, field: &str, by: Amount) -> Result<Value, Refusal> {
        match (self, by) {
            (Value::Int(old), Amount::Integer(by)) => {
                let sum = i128::from(*old) + by;
                i64::try_from(sum)
                    .map(Value::Int)
                    .map_err(|_| Refusal::Overflow)
            }
            (Value::Uint(old), Amount::Integer(by)) => {
                let sum = i128::from(*old) + by;
                u64::try_from(sum)
                    .map(Value::Uint)
                    .map_err(|_| Refusal::Overflow)
            }
            (Value::Float(old), Amount::Integer(by)) => finite(old + by as f64),
            (Value::Float(old), Amount::Float(by)) => finite(old + by),
            (Value::Int(_) | Value::Uint(_), Amount::Float(_)) => Err(refuse(
                field,
                &format!("is {}: takes integers only", self.kind()),
            )),
            (Value::Text(_) | Value::Blob(_), _) => {
                Err(refuse(field, &format!("is {}: not a number", self.kind())))
            }
        }
    }
}

fn finite(sum: f64) -> Result<Value, Refusal> {
    if sum.is_finite() {
        Ok(Value::Float(sum + 0.0)) // never -0.0
    } else {
        Err(Refusal::new("ERR increment would produce NaN or Infinity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(value: Value, by: i128) -> Option<Value> {
        value.incr("f", Amount::Integer(by)).ok()
    }

    #[test]
    fn at_the_edges() {
        assert_eq!(add(Value::Int(i64::MAX), 1), None);
        assert_eq!(add(Value::Int(i64::MIN), -1), None);
        let whole = i128::from(u64::MAX);
        assert_eq!(add(Value::Int(i64::MIN), whole), Some(Value::Int(i64::MAX)));
        assert_eq!(add(Value::Uint(0), -1), None);
        assert_eq!(add(Value::Uint(u64::MAX), 1), None);
        assert_eq!(add(Value::Uint(0), whole), Some(Value::Uint(u64::MAX)));
        assert_eq!(add(Value::Uint(u64::MAX), -whole), Some(Value::Uint(0)));
        let huge = Value::Float(f64::MAX);
        assert!(huge.incr("f", Amount::Float(f64::MAX)).is_err());
        // taking i64::MIN away is adding 2^63
        let lowest = Amount::parse_integer(b"-9223372036854775808").unwrap();
        assert_eq!(
            Value::Int(-1).incr("f", lowest.negated()),
            Ok(Value::Int(i64::MAX))
        );
    }

    #[test]
    fn kinds() {
        let half = Amount::Float(0.5);
        assert!(Value::Int(1).incr("f", half).is_err());
        assert!(Value::Text("1".into()).incr("f", half).is_err());
        assert_eq!(Value::Float(1.0).incr("f", half), Ok(Value::Float(1.5)));
        assert_eq!(add(Value::Float(1.5), 2), Some(Value::Float(3.5)));
        assert!(Amount::parse_float(b"inf").is_err());
        assert!(Amount::parse_integer(b"1.5").is_err());
    }
}

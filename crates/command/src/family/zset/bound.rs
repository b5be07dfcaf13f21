//! The ends of ranges by score (`5`, `(5`, `-inf`) and by member (`[a`, `(a`, `-`, `+`).

use base::{Refusal, number};
use keyspace::{LexBound, ScoreBound};

pub fn score(text: &[u8]) -> Result<ScoreBound, Refusal> {
    let (exclusive, number) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match lenient_float(number) {
        Some(score) => Ok(ScoreBound { score, exclusive }),
        None => Err(Refusal::new("ERR min or max is not a float")),
    }
}

/// As `strtod` alone reads it, which is how Redis reads score bounds: leading blanks are skipped,
/// nothing at all is 0, and a number beyond the range is infinite.
fn lenient_float(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !blank(byte))?;
    let text = text.get(start..)?;
    number::parse_f64(text).or_else(|| {
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (!value.is_nan()).then_some(value)
    })
}

pub fn member(text: &[u8]) -> Result<LexBound<'_>, Refusal> {
    match text {
        b"-" => Ok(LexBound::Min),
        b"+" => Ok(LexBound::Max),
        [b'(', member @ ..] => Ok(LexBound::Excluded(member)),
        [b'[', member @ ..] => Ok(LexBound::Included(member)),
        _ => Err(Refusal::new("ERR min or max not valid string range item")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_bounds_are_read_as_by_strtod() {
        let read = |text: &str| score(text.as_bytes()).map(|b| (b.score, b.exclusive));
        assert_eq!(read("(1.5"), Ok((1.5, true)));
        assert_eq!(read("( 1"), Ok((1.0, true)));
        assert_eq!(read("("), Ok((0.0, true)));
        assert_eq!(read(""), Ok((0.0, false)));
        assert_eq!(read("+inf"), Ok((f64::INFINITY, false)));
        assert_eq!(read("1e400"), Ok((f64::INFINITY, false)));
        for bad in ["nan", "1 ", " ", "a", "((1"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}

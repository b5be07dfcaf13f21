//! Answers of a Redis server, RESP2 and RESP3, as values.
//!
//! *Invariant*: nothing is allocated because a length was announced, only because bytes arrived; answers nested deeper
//! than [`DEPTH_MAX`] are refused, so that reading, showing and dropping them fit on the stack.

use std::io::{BufRead, Read};

/// No answer is longer.
const LENGTH_MAX: u64 = 1 << 32;
const DEPTH_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Null,
    Status(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bool(bool),
    /// As it was written.
    Double(Vec<u8>),
    BigNumber(Vec<u8>),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Array(Vec<Answer>),
    Set(Vec<Answer>),
    /// A message that is the answer to nothing, as from CLIENT TRACKING.
    Push(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Unread {
    Closed,
    Failed(std::io::Error),
    Garbled(&'static str),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Closed => f.write_str("the node closed the connection"),
            Unread::Failed(error) => error.fmt(f),
            Unread::Garbled(what) => write!(f, "this is no Redis server: {what}"),
        }
    }
}

impl From<std::io::Error> for Unread {
    fn from(error: std::io::Error) -> Unread {
        Unread::Failed(error)
    }
}

/// The next answer.
pub fn read(from: &mut impl BufRead) -> Result<Answer, Unread> {
    nested(from, 0)
}

fn nested(from: &mut impl BufRead, depth: usize) -> Result<Answer, Unread> {
    let line = line(from)?;
    let (kind, rest) = line.split_first().ok_or(Unread::Garbled("an empty line"))?;
    let count = || match number(rest) {
        Some(count @ 0..) if depth < DEPTH_MAX => Ok(count as u64),
        Some(0..) => Err(Unread::Garbled("an answer that is nested too deep")),
        _ => Err(Unread::Garbled("a length that is none")),
    };
    let list = |from: &mut _| -> Result<Vec<Answer>, Unread> {
        // Collecting results reserves nothing ahead: each may be the last.
        (0..count()?).map(|_| nested(from, depth + 1)).collect()
    };
    Ok(match kind {
        b'+' => Answer::Status(rest.to_vec()),
        b'-' => Answer::Error(rest.to_vec()),
        b':' => Answer::Int(number(rest).ok_or(Unread::Garbled("a number that is none"))?),
        b',' => Answer::Double(rest.to_vec()),
        b'(' => Answer::BigNumber(rest.to_vec()),
        b'#' => Answer::Bool(rest == b"t"),
        b'_' => Answer::Null,
        b'$' | b'*' if rest == b"-1" => Answer::Null,
        b'$' => Answer::Bulk(bytes(from, count()?)?),
        b'!' => Answer::Error(bytes(from, count()?)?),
        b'=' => {
            let text = bytes(from, count()?)?;
            // The format and a colon stand before the text.
            Answer::Verbatim(text.get(4..).unwrap_or_default().to_vec())
        }
        b'*' => Answer::Array(list(from)?),
        b'~' => Answer::Set(list(from)?),
        b'>' => Answer::Push(list(from)?),
        b'%' => {
            let pairs = (0..count()?).map(|_| {
                let name = nested(from, depth + 1)?;
                Ok((name, nested(from, depth + 1)?))
            });
            Answer::Map(pairs.collect::<Result<_, Unread>>()?)
        }
        // Attributes say something about the answer that follows; nobody here wants to know.
        b'|' => {
            for _ in 0..count()? {
                nested(from, depth + 1)?;
                nested(from, depth + 1)?;
            }
            nested(from, depth + 1)?
        }
        _ => return Err(Unread::Garbled("an answer of no known kind")),
    })
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> Result<Vec<u8>, Unread> {
    let mut line = Vec::new();
    from.take(LENGTH_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(Unread::Closed);
    }
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(text.to_vec()),
        None if line.ends_with(b"\n") => Err(Unread::Garbled("a line that ends without \\r")),
        None => Err(Unread::Closed),
    }
}

/// So many bytes and the end of a line.
fn bytes(from: &mut impl BufRead, count: u64) -> Result<Vec<u8>, Unread> {
    if count > LENGTH_MAX {
        return Err(Unread::Garbled("a length that is none"));
    }
    let mut bytes = Vec::new();
    let wanted = count + 2;
    if from.take(wanted).read_to_end(&mut bytes)? as u64 != wanted {
        return Err(Unread::Closed);
    }
    if !bytes.ends_with(b"\r\n") {
        return Err(Unread::Garbled("a text that is longer than announced"));
    }
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Answer, String> {
        read(&mut text.as_bytes()).map_err(|why| why.to_string())
    }

    fn bulk(text: &str) -> Answer {
        Answer::Bulk(text.into())
    }

    #[test]
    fn answers_of_every_kind() {
        let text = "%2\r\n$1\r\na\r\n*2\r\n:-1\r\n_\r\n+b\r\n=5\r\ntxt:x\r\n";
        let pairs = vec![
            (
                bulk("a"),
                Answer::Array(vec![Answer::Int(-1), Answer::Null]),
            ),
            (Answer::Status(b"b".into()), Answer::Verbatim(b"x".into())),
        ];
        assert_eq!(parsed(text), Ok(Answer::Map(pairs)));
        let error = Answer::Error(b"ERR no".into());
        assert_eq!(parsed("-ERR no\r\n"), Ok(error.clone()));
        assert_eq!(parsed("!6\r\nERR no\r\n"), Ok(error.clone()));
        let list = Answer::Array(vec![error, Answer::Null]);
        assert_eq!(parsed("*2\r\n-ERR no\r\n$-1\r\n"), Ok(list));
        assert_eq!(parsed("*-1\r\n"), Ok(Answer::Null));
        assert_eq!(parsed("|1\r\n+ttl\r\n:3\r\n#t\r\n"), Ok(Answer::Bool(true)));
        assert_eq!(parsed("~0\r\n"), Ok(Answer::Set(Vec::new())));
        assert_eq!(parsed(",1.5\r\n"), Ok(Answer::Double(b"1.5".into())));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bad in [
            "",
            "x",
            "\r\n",
            "+OK\n",
            "$5\r\nab",
            "$1\r\nabc\r\n",
            "$-2\r\n",
            "$99999999999999\r\nx",
            "$9223372036854775807\r\nx",
            "$18446744073709551615\r\nx",
            "*9223372036854775807\r\n:1\r\n",
            "*99999999999999\r\n",
            "%9223372036854775807\r\n",
            "$?\r\n",
            ":x\r\n",
            "?\r\n",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        for nest in ["*1\r\n", "%1\r\n+a\r\n", "|0\r\n"] {
            assert!(parsed(&nest.repeat(100_000)).is_err());
        }
    }
}

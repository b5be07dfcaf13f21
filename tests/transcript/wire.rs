//! The client's side of RESP2 and RESP3: replies out of bytes.
//!
//! Written apart from the `resp` crate on purpose: what encodes a reply must not be what checks it.

use std::io::{self, BufRead};

/// A reply as it came. `Nil` is `$-1` or `_`, `NilArray` is `*-1`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Double(String),
    BigNumber(String),
    Bool(bool),
    Nil,
    NilArray,
    Array(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// The server closed the connection instead of answering.
    Closed,
}

/// A command as an array of bulk strings.
pub fn encode(argv: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", argv.len()).into_bytes();
    for arg in argv {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Reads one reply.
pub fn decode(from: &mut impl BufRead) -> io::Result<Value> {
    let Some(line) = line(from)? else {
        return Ok(Value::Closed);
    };
    let (marker, rest) = line.split_first().ok_or_else(|| bad("empty line"))?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    Ok(match marker {
        b'+' => Value::Simple(rest.to_vec()),
        b'-' => Value::Error(rest.to_vec()),
        b':' => Value::Int(number(rest)?),
        b',' => Value::Double(text()),
        b'(' => Value::BigNumber(text()),
        b'#' => Value::Bool(rest == b"t"),
        b'_' => Value::Nil,
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(number(rest)?) else {
                return Ok(Value::Nil);
            };
            let mut bytes = vec![0; len + 2];
            from.read_exact(&mut bytes)?;
            if !bytes.ends_with(b"\r\n") {
                return Err(bad("bulk string longer than announced"));
            }
            bytes.truncate(len);
            match marker {
                b'$' => Value::Bulk(bytes),
                _ => Value::Verbatim(bytes),
            }
        }
        b'*' | b'~' | b'>' => {
            let Ok(len) = usize::try_from(number(rest)?) else {
                return Ok(Value::NilArray);
            };
            let items = (0..len).map(|_| decode(from)).collect::<Result<_, _>>()?;
            match marker {
                b'*' => Value::Array(items),
                b'~' => Value::Set(items),
                _ => Value::Push(items),
            }
        }
        b'%' => {
            let pairs = 0..number(rest)?;
            Value::Map(
                pairs
                    .map(|_| Ok((decode(from)?, decode(from)?)))
                    .collect::<io::Result<_>>()?,
            )
        }
        _ => return Err(bad(&format!("not a reply: {}", line.escape_ascii()))),
    })
}

fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    match from.read_until(b'\n', &mut line) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(err) if err.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(err) => return Err(err),
    }
    if !line.ends_with(b"\r\n") {
        return Err(bad("line without end"));
    }
    line.truncate(line.len() - 2);
    Ok(Some(line))
}

fn number(digits: &[u8]) -> io::Result<i64> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| bad("not a number"))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

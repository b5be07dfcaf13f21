//! Inline commands: a line of words as a person types it into telnet.
//!
//! Words are separated by blanks. Within `"…"`, `\n \r \t \b \a`, `\xHH` and `\` before any other
//! byte are escapes; within `'…'` only `\'` is. A closing quote ends its word, so a blank or the
//! end of the line must follow it: `"a"b` is refused, while `a"b"` is the word `ab`.
//!
//! [`quote`] is the way back: what it writes between quotes is read as the same bytes.

use crate::args::{Args, Span};

/// A quote that is not closed, or is closed in the middle of a word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unbalanced;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// Appends the words of `line` to `text` and their places in it to `spans`.
pub(crate) fn split(
    line: &[u8],
    text: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_blank(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = take_word(rest, text)?;
        spans.push(Span {
            start: start as u32, // a line is far shorter than 4 GiB
            len: (text.len() - start) as u32,
        });
    }
}

/// The words of a line that a person typed; `None` if its quotes are unbalanced.
pub fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut text, mut spans) = (Vec::new(), Vec::new());
    split(line, &mut text, &mut spans).ok()?;
    let args = Args::new(&text, &spans);
    Some(args.iter_from(0).map(<[u8]>::to_vec).collect())
}

/// Appends one byte as Redis writes it between quotes.
pub fn quote(byte: u8, text: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => text.extend_from_slice(&[b'\\', byte]),
        b'\n' => text.extend_from_slice(b"\\n"),
        b'\r' => text.extend_from_slice(b"\\r"),
        b'\t' => text.extend_from_slice(b"\\t"),
        0x07 => text.extend_from_slice(b"\\a"),
        0x08 => text.extend_from_slice(b"\\b"),
        0x20..=0x7e => text.push(byte),
        _ => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
    }
}

/// Appends one word to `text`; what is left of the line.
fn take_word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    let mut quote = Quote::None;
    loop {
        rest = match (quote, rest) {
            (Quote::None, []) => return Ok(rest),
            (_, []) => return Err(Unbalanced),
            (Quote::None, [b' ' | b'\n' | b'\r' | b'\t', tail @ ..]) => return Ok(tail),
            (Quote::None, [b'"', tail @ ..]) => {
                quote = Quote::Double;
                tail
            }
            (Quote::None, [b'\'', tail @ ..]) => {
                quote = Quote::Single;
                tail
            }
            (Quote::Double, [b'\\', b'x', high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                tail
            }
            (Quote::Double, [b'\\', escaped, tail @ ..]) => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            (Quote::Single, [b'\\', b'\'', tail @ ..]) => {
                text.push(b'\'');
                tail
            }
            (Quote::Double, [b'"', tail @ ..]) | (Quote::Single, [b'\'', tail @ ..]) => {
                return match tail.first() {
                    Some(&next) if !is_blank(next) => Err(Unbalanced),
                    _ => Ok(tail),
                };
            }
            (_, [byte, tail @ ..]) => {
                text.push(*byte);
                tail
            }
        };
    }
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each answer here was seen from redis-server 7.0.15 (`ECHO` of the line).
    #[test]
    fn words_as_redis_splits_them() {
        type Words = &'static [&'static [u8]];
        let known: &[(&[u8], Option<Words>)] = &[
            (b"", Some(&[])),
            (b" \t ", Some(&[])),
            (b"ping", Some(&[b"ping"])),
            (b"  set  a\tb ", Some(&[b"set", b"a", b"b"])),
            (b"echo foo\"bar\"", Some(&[b"echo", b"foobar"])),
            (b"echo 'a\\'b\\n'", Some(&[b"echo", b"a'b\\n"])),
            (b"echo \"\\x41\\n\\q\"", Some(&[b"echo", b"A\nq"])),
            (
                b"echo \"\\r\\t\\b\\a\\\\\"",
                Some(&[b"echo", b"\r\t\x08\x07\\"]),
            ),
            (b"echo \"a\\xZZ\"", Some(&[b"echo", b"axZZ"])),
            (b"echo \"\" ''", Some(&[b"echo", b"", b""])),
            (b"echo a\x0bb", Some(&[b"echo", b"a\x0bb"])),
            (b"set \"a", None),
            (b"set 'a", None),
            (b"set \"a\"b c", None),
            (b"set 'a'b c", None),
            (b"echo \"abc\\\"", None),
        ];
        for (line, expected) in known {
            let expected = expected.map(|list| list.iter().map(|w| w.to_vec()).collect());
            assert_eq!(words(line), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quoted_bytes_are_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let mut line = b"\"".to_vec();
        all.iter().for_each(|&byte| quote(byte, &mut line));
        line.push(b'"');
        assert!(line.is_ascii());
        assert_eq!(words(&line), Some(vec![all]));
    }
}

//! Counts replies in what a connection receives, however it is cut, and keeps nothing of them.
//!
//! ```text
//! Begin ── + - : , # _ ( ──▶ Line ── \n ──▶ one element
//!   │ ──── $ = * ~ > % ────▶ Size ── \n ──▶ bulk: Body of that length, and its \r\n, one element
//!   ▼                                       array: so many more elements, less itself
//! ```
//!
//! A reply is whole when no element of it is owed any more. An error is a reply, counted apart; the text of the first one is kept.

/// The longest text of an error that is kept.
const TEXT_MAX: usize = 200;

/// Where in a reply the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Begin,
    /// In a line of which only the end counts, or the text if it is an error.
    Line {
        error: bool,
    },
    /// In the line that says how long a string is, or how many elements follow.
    Size {
        marker: u8,
        value: u64,
        nil: bool,
    },
    /// So many bytes to skip.
    Body {
        left: u64,
    },
}

/// The replies of one connection.
pub struct Replies {
    at: At,
    /// Elements until the reply is whole; none: between replies.
    owed: u64,
    text: Vec<u8>,
}

/// What was in some received bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counted {
    pub replies: u64,
    pub errors: u64,
}

impl Replies {
    pub fn new() -> Self {
        Self {
            at: At::Begin,
            owed: 0,
            text: Vec::new(),
        }
    }

    /// The text of the first error, if there was any.
    pub fn first_error(&self) -> Option<String> {
        let text = || String::from_utf8_lossy(&self.text).trim_end().to_string();
        (!self.text.is_empty()).then(text)
    }

    /// What these bytes complete.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<Counted, String> {
        let mut counted = Counted::default();
        while let Some(first) = bytes.first() {
            match self.at {
                At::Begin => {
                    self.begin(*first)?;
                    bytes = bytes.get(1..).unwrap_or_default();
                }
                At::Line { error } => {
                    let (line, rest, ended) = to_line_end(bytes);
                    if error {
                        self.keep(line);
                    }
                    bytes = rest;
                    if ended {
                        counted.errors += u64::from(error);
                        self.element(&mut counted);
                    }
                }
                At::Size { marker, value, nil } => {
                    let (line, rest, ended) = to_line_end(bytes);
                    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
                    let value = digits.fold(value, |value, digit| {
                        value
                            .saturating_mul(10)
                            .saturating_add(u64::from(digit - b'0'))
                    });
                    let nil = nil || line.contains(&b'-');
                    bytes = rest;
                    self.at = At::Size { marker, value, nil };
                    if ended {
                        self.sized(marker, if nil { None } else { Some(value) }, &mut counted);
                    }
                }
                At::Body { left } => {
                    let skipped = left.min(bytes.len() as u64);
                    bytes = bytes.get(skipped as usize..).unwrap_or_default();
                    self.at = At::Body {
                        left: left - skipped,
                    };
                    if left == skipped {
                        self.element(&mut counted);
                    }
                }
            }
        }
        Ok(counted)
    }

    fn begin(&mut self, marker: u8) -> Result<(), String> {
        if self.owed == 0 {
            self.owed = 1;
        }
        self.at = match marker {
            b'-' => At::Line { error: true },
            b'+' | b':' | b',' | b'#' | b'_' | b'(' => At::Line { error: false },
            b'$' | b'=' | b'*' | b'~' | b'>' | b'%' => At::Size {
                marker,
                value: 0,
                nil: false,
            },
            other => {
                let other = char::from(other).escape_default();
                return Err(format!("not a reply: it begins with '{other}'"));
            }
        };
        Ok(())
    }

    /// The line with a size has ended.
    fn sized(&mut self, marker: u8, size: Option<u64>, counted: &mut Counted) {
        match (marker, size) {
            (b'$' | b'=', Some(bytes)) => {
                self.at = At::Body {
                    left: bytes.saturating_add(2),
                };
            }
            (b'$' | b'=', None) => self.element(counted),
            (_, size) => {
                let per_entry = if marker == b'%' { 2 } else { 1 };
                let more = size.unwrap_or(0).saturating_mul(per_entry);
                self.owed = self.owed.saturating_add(more);
                self.element(counted);
            }
        }
    }

    /// An element is whole.
    fn element(&mut self, counted: &mut Counted) {
        self.at = At::Begin;
        self.owed -= 1;
        counted.replies += u64::from(self.owed == 0);
    }

    fn keep(&mut self, line: &[u8]) {
        if self.text.last() != Some(&b'\n') {
            let room = TEXT_MAX.saturating_sub(self.text.len());
            self.text.extend(line.iter().take(room));
        }
    }
}

/// The line with its end, what is behind it, and whether it ends in these bytes.
fn to_line_end(bytes: &[u8]) -> (&[u8], &[u8], bool) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let (line, rest) = bytes.split_at(end + 1);
            (line, rest, true)
        }
        None => (bytes, &[], false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"+OK\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n-ERR no\r\n*2\r\n$1\r\nx\r\n*1\r\n:1\r\n*0\r\n*-1\r\n-LATER\r\n%1\r\n+a\r\n_\r\n";
    const REPLIES: u64 = 11;

    /// In two pieces at every place, in three, and byte by byte.
    #[test]
    fn replies_over_any_split() {
        let whole = Counted {
            replies: REPLIES,
            errors: 2,
        };
        let check = |pieces: &[&[u8]]| {
            let mut replies = Replies::new();
            let mut sum = Counted::default();
            for piece in pieces {
                let counted = replies.take(piece).unwrap();
                sum.replies += counted.replies;
                sum.errors += counted.errors;
            }
            assert_eq!(sum, whole, "{pieces:?}");
            assert_eq!(replies.first_error().as_deref(), Some("ERR no"));
            assert_eq!((replies.at, replies.owed), (At::Begin, 0));
        };
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                check(&[&STREAM[..first], &STREAM[first..second], &STREAM[second..]]);
            }
        }
        check(&STREAM.chunks(1).collect::<Vec<_>>());
    }

    #[test]
    fn a_reply_counts_when_its_last_byte_is_there() {
        for reply in [
            &b"+OK\r\n"[..],
            b"$3\r\nabc\r\n",
            b"*2\r\n:1\r\n$1\r\nx\r\n",
        ] {
            let mut replies = Replies::new();
            let (last, before) = reply.split_last().unwrap();
            assert_eq!(replies.take(before).unwrap().replies, 0);
            assert_eq!(replies.take(&[*last]).unwrap().replies, 1);
        }
    }

    #[test]
    fn what_is_no_reply_is_told() {
        let refused = Replies::new().take(b"+OK\r\n?").unwrap_err();
        assert_eq!(refused, "not a reply: it begins with '?'");
    }

    #[test]
    fn long_errors_are_cut() {
        let mut replies = Replies::new();
        let line = format!("-{}\r\n", "e".repeat(10_000));
        assert_eq!(replies.take(line.as_bytes()).unwrap().errors, 1);
        assert_eq!(replies.first_error().map(|text| text.len()), Some(TEXT_MAX));
    }
}

//! Commands out of bytes, incrementally and without copying.
//!
//! ```text
//!   *2\r\n $3\r\n GET\r\n $3\r\n key\r\n          multibulk: arguments are spans of the buffer
//!   GET "a \x6bey"\r\n                            inline: a line for people, see `inline`
//! ```
//!
//! The parser remembers how far it came. When a command is not complete, the next call goes on
//! where the last one stopped: every byte is looked at once, a bulk string is never looked at, and
//! a 512 MB value that arrives in small pieces costs no more than one that arrives whole.
//!
//! What is accepted, what is refused, and the texts of refusals are those of Redis 7.0: the byte
//! after a length's `\r` and the two after a bulk string are skipped unseen, as there.

use base::number;

use crate::args::{Args, Span};
use crate::inline;

/// Most arguments before `AUTH`.
const UNAUTHENTICATED_ARGS: usize = 10;
/// Longest bulk string before `AUTH`.
const UNAUTHENTICATED_BULK_BYTES: usize = 16 * 1024;
/// Spans and unquoted bytes kept for the next command; beyond it the memory is given back.
const KEPT_SPANS: usize = 4096;
const KEPT_BYTES: usize = 64 * 1024;

/// What a client may send before it is cut off.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub bulk_bytes: usize,
    pub args: usize,
    pub inline_bytes: usize,
    /// The client must authenticate first: only small commands are read until it has.
    pub unauthenticated: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            bulk_bytes: base::limits::MAX_BULK_BYTES,
            args: base::limits::MAX_ARGS,
            inline_bytes: base::limits::MAX_INLINE_BYTES,
            unauthenticated: false,
        }
    }
}

impl RequestLimits {
    /// The defaults for a client that has yet to authenticate.
    pub fn unauthenticated() -> Self {
        RequestLimits {
            unauthenticated: true,
            ..Self::default()
        }
    }
}

/// Bad bytes: the text after `-ERR Protocol error: `. The connection is closed after it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(pub String);

/// What [`RequestParser::parse`] found at the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A whole command; [`RequestParser::args`] has its arguments, and it took `consumed` bytes.
    Command { consumed: usize },
    /// Nothing to run (empty line, `*0`): drop `consumed` bytes and go on.
    Nothing { consumed: usize },
    /// The command is not complete; at least `needed` more bytes must come. More than one only
    /// within a bulk string, whose length is known: room for it may be made at once.
    Incomplete { needed: usize },
}

/// Where the parser stands in the command at the start of the buffer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it is known.
    #[default]
    Start,
    /// Its argument count has been read and this many arguments are still to come.
    Arguments { left: usize },
    /// As above; the first of them is `len` bytes at `position`.
    Bulk { left: usize, len: usize },
}

/// Remembers how far an incomplete command has been read, so that bytes are looked at once.
#[derive(Debug, Default)]
pub struct RequestParser {
    spans: Vec<Span>,
    /// Arguments of an inline command, quotes and escapes resolved, one behind the other.
    unquoted: Vec<u8>,
    inline: bool,
    state: State,
    /// First byte that has not been understood.
    position: usize,
    /// Bytes before this one are known to hold no end of line (from `position` on).
    searched: usize,
}

impl RequestParser {
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for a command at the start of `buffer`. After `Incomplete`, the next call must pass
    /// the same bytes with more behind them.
    #[inline]
    pub fn parse(
        &mut self,
        buffer: &[u8],
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        if self.state == State::Start {
            let Some(&first) = buffer.first() else {
                return Ok(Parsed::Incomplete { needed: 1 });
            };
            if first != b'*' {
                return self.parse_inline(buffer, limits);
            }
            if self.searched == 0 {
                self.forget_last();
            }
            match self.length_line(buffer, limits, "too big mbulk count string")? {
                None => return Ok(Parsed::Incomplete { needed: 1 }),
                Some(None) => return Err(invalid("invalid multibulk length")),
                Some(Some(n)) => {
                    if n <= 0 {
                        let consumed = self.position;
                        self.restart();
                        return Ok(Parsed::Nothing { consumed });
                    }
                    let left = argument_count(n, limits)?;
                    self.state = State::Arguments { left };
                }
            }
        }
        self.parse_arguments(buffer, limits)
    }

    /// Drops what is known of an incomplete command: the next call begins with a new buffer.
    pub fn reset(&mut self) {
        self.restart();
        self.spans.clear();
    }

    /// The arguments of the command last parsed, as places in [`RequestParser::source`].
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// What the spans of the command last parsed point into: `buffer`, which was given to
    /// [`RequestParser::parse`], unless it was an inline command.
    #[inline]
    pub fn source<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        if self.inline { &self.unquoted } else { buffer }
    }

    /// The command last parsed, from the `buffer` that was given to [`RequestParser::parse`].
    #[inline]
    pub fn args<'a>(&'a self, buffer: &'a [u8]) -> Args<'a> {
        Args::new(self.source(buffer), &self.spans)
    }

    fn parse_arguments(
        &mut self,
        buffer: &[u8],
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        loop {
            let (left, len) = match self.state {
                State::Start | State::Arguments { left: 0 } => break,
                State::Bulk { left, len } => (left, len),
                State::Arguments { left } => {
                    let start = self.position;
                    let Some(n) = self.length_line(buffer, limits, "too big bulk count string")?
                    else {
                        return Ok(Parsed::Incomplete { needed: 1 });
                    };
                    let marker = buffer.get(start).copied().unwrap_or_default();
                    if marker != b'$' {
                        let got = char::from(marker);
                        return Err(ProtocolError(format!("expected '$', got '{got}'")));
                    }
                    (left, bulk_length(n, limits)?)
                }
            };
            let end = self.position + len + 2;
            if buffer.len() < end {
                self.state = State::Bulk { left, len };
                let needed = end - buffer.len();
                return Ok(Parsed::Incomplete { needed });
            }
            let Ok(start) = u32::try_from(self.position) else {
                return Err(invalid("too big request"));
            };
            self.spans.push(Span {
                start,
                len: len as u32, // at most the limit on bulk strings, or `end` would not fit
            });
            self.position = end;
            self.searched = end;
            self.state = State::Arguments { left: left - 1 };
        }
        let consumed = self.position;
        self.restart();
        Ok(Parsed::Command { consumed })
    }

    /// Reads the line at `position`, a marker and a number, and steps behind it.
    ///
    /// `None`: the line is not complete. `Some(None)`: it is, and holds no number.
    #[inline]
    fn length_line(
        &mut self,
        buffer: &[u8],
        limits: &RequestLimits,
        too_long: &str,
    ) -> Result<Option<Option<i64>>, ProtocolError> {
        let line = buffer.get(self.position..).unwrap_or_default();
        // Nearly every length has one or two digits.
        match *line {
            [_, a @ b'0'..=b'9', b'\r', _, ..] => {
                self.step_to(self.position + 4);
                return Ok(Some(Some(i64::from(a - b'0'))));
            }
            [_, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] => {
                self.step_to(self.position + 5);
                return Ok(Some(Some(i64::from(a - b'0') * 10 + i64::from(b - b'0'))));
            }
            _ => {}
        }
        let known = self.searched.saturating_sub(self.position).min(line.len());
        let Some(found) = line.iter().skip(known).position(|&byte| byte == b'\r') else {
            self.searched = buffer.len();
            if line.len() > limits.inline_bytes {
                return Err(invalid(too_long));
            }
            return Ok(None);
        };
        let end = known + found;
        if line.len() < end + 2 {
            self.searched = self.position + end; // found again at once when the next byte is here
            return Ok(None);
        }
        let digits = line.get(1..end).unwrap_or_default();
        self.step_to(self.position + end + 2);
        if end == 0 {
            // The marker itself is the line's end; the caller says what it makes of that.
            return Ok(Some(None));
        }
        Ok(Some(number::parse_i64(digits)))
    }

    fn parse_inline(
        &mut self,
        buffer: &[u8],
        limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        if self.searched == 0 {
            self.forget_last();
        }
        let known = self.searched.min(buffer.len());
        let Some(found) = buffer.iter().skip(known).position(|&byte| byte == b'\n') else {
            self.searched = buffer.len();
            if buffer.len() > limits.inline_bytes {
                return Err(invalid("too big inline request"));
            }
            return Ok(Parsed::Incomplete { needed: 1 });
        };
        let end = known + found;
        let line = buffer.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.restart();
        let split = inline::split(line, &mut self.unquoted, &mut self.spans);
        if split.is_err() {
            return Err(invalid("unbalanced quotes in request"));
        }
        self.inline = true;
        let consumed = end + 1;
        if self.spans.is_empty() {
            return Ok(Parsed::Nothing { consumed });
        }
        Ok(Parsed::Command { consumed })
    }

    #[inline]
    fn step_to(&mut self, position: usize) {
        self.position = position;
        self.searched = position;
    }

    /// The command is over; its spans stay until the next call.
    #[inline]
    fn restart(&mut self) {
        self.state = State::Start;
        self.step_to(0);
    }

    #[inline]
    fn forget_last(&mut self) {
        if self.spans.capacity() > KEPT_SPANS {
            self.spans = Vec::new();
        }
        self.spans.clear();
        if self.inline {
            if self.unquoted.capacity() > KEPT_BYTES {
                self.unquoted = Vec::new();
            }
            self.unquoted.clear();
            self.inline = false;
        }
    }
}

fn argument_count(n: i64, limits: &RequestLimits) -> Result<usize, ProtocolError> {
    match usize::try_from(n) {
        Ok(n) if n > limits.args => Err(invalid("invalid multibulk length")),
        Ok(n) if limits.unauthenticated && n > UNAUTHENTICATED_ARGS => {
            Err(invalid("unauthenticated multibulk length"))
        }
        Ok(n) => Ok(n),
        Err(_) => Err(invalid("invalid multibulk length")),
    }
}

fn bulk_length(n: Option<i64>, limits: &RequestLimits) -> Result<usize, ProtocolError> {
    match n.and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > limits.bulk_bytes || n > u32::MAX as usize => {
            Err(invalid("invalid bulk length"))
        }
        Some(n) if limits.unauthenticated && n > UNAUTHENTICATED_BULK_BYTES => {
            Err(invalid("unauthenticated bulk length"))
        }
        Some(n) => Ok(n),
        None => Err(invalid("invalid bulk length")),
    }
}

#[cold]
fn invalid(text: &str) -> ProtocolError {
    ProtocolError(text.to_owned())
}

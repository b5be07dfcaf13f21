//! Results as bytes, in RESP2 or RESP3.
//!
//! A command writes its result straight into the buffer that goes to the socket (or back to the
//! session's core): no tree of values is built and thrown away. The encoder knows the protocol
//! version and nothing of connections, so commands stay pure (docs/decisions/0001).
//!
//! A caller that must take back what a failed command wrote notes [`Reply::len`] before and calls
//! [`Reply::truncate`] after.

use base::{Atom, IntText, Refusal, number};

/// Protocol version of a session, chosen by `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Where an aggregate's length will be written once it is known; see [`Reply::array_later`].
#[must_use]
pub struct Later {
    at: usize,
    marker: u8,
}

/// An encoder over a growing buffer.
pub struct Reply {
    buffer: Vec<u8>,
    protocol: Protocol,
}

impl Reply {
    pub fn new(protocol: Protocol) -> Self {
        Reply {
            buffer: Vec::new(),
            protocol,
        }
    }

    /// Encodes behind what `buffer` already holds.
    pub fn over(buffer: Vec<u8>, protocol: Protocol) -> Self {
        Reply { buffer, protocol }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.buffer
    }

    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Forgets everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    #[inline]
    pub fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// `+text`; the text must hold no line break.
    pub fn simple(&mut self, text: &str) {
        self.buffer.push(b'+');
        self.buffer.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// `-text`; line breaks in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.buffer.push(b'-');
        self.buffer.extend(
            text.bytes()
                .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }),
        );
        self.line_end();
    }

    pub fn refusal(&mut self, refusal: &Refusal) {
        self.error(refusal.text());
    }

    #[inline]
    pub fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// 1 or 0, as Redis answers yes/no questions in both protocols.
    #[inline]
    pub fn int_bool(&mut self, value: bool) {
        self.buffer
            .extend_from_slice(if value { b":1\r\n" } else { b":0\r\n" });
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.buffer.reserve(bytes.len() + 24);
        self.header(b'$', bytes.len() as i64);
        self.buffer.extend_from_slice(bytes);
        self.line_end();
    }

    #[inline]
    pub fn atom(&mut self, atom: Atom<'_>) {
        self.bulk(atom.bytes(&mut IntText::default()));
    }

    /// An integer as a bulk string.
    pub fn bulk_int(&mut self, value: i64) {
        self.atom(Atom::Int(value));
    }

    /// A bulk string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn atom_or_null(&mut self, atom: Option<Atom<'_>>) {
        match atom {
            Some(atom) => self.atom(atom),
            None => self.null(),
        }
    }

    /// "No such value": `$-1` or `_`.
    #[inline]
    pub fn null(&mut self) {
        self.buffer.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// "No such array": `*-1` or `_`.
    pub fn null_array(&mut self) {
        self.buffer.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// `n` elements follow.
    #[inline]
    pub fn array(&mut self, n: usize) {
        self.header(b'*', n as i64);
    }

    /// `n` pairs follow: key, value, key, value.
    pub fn map(&mut self, n: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * n as i64),
            Protocol::Resp3 => self.header(b'%', n as i64),
        }
    }

    /// `n` distinct elements follow.
    pub fn set(&mut self, n: usize) {
        self.header(self.marker_of(b'~'), n as i64);
    }

    /// An out-of-band message of `n` elements follows.
    pub fn push(&mut self, n: usize) {
        self.header(self.marker_of(b'>'), n as i64);
    }

    /// A floating-point result: `,1.5`, or the same text as a bulk string.
    pub fn double(&mut self, value: f64) {
        let text = number::format_score(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.buffer.push(b',');
                self.buffer.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.int_bool(value),
            Protocol::Resp3 => {
                self.buffer
                    .extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" })
            }
        }
    }

    /// Text for people (`INFO`, `CLIENT LIST`): `=15:txt:…`, or a bulk string.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.buffer.extend_from_slice(b"txt:");
                self.buffer.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// An array whose length is known only after its elements: write them, then [`Reply::fill`].
    pub fn array_later(&mut self) -> Later {
        Later {
            at: self.buffer.len(),
            marker: b'*',
        }
    }

    /// As [`Reply::array_later`], a RESP3 set.
    pub fn set_later(&mut self) -> Later {
        Later {
            at: self.buffer.len(),
            marker: self.marker_of(b'~'),
        }
    }

    /// Puts the length in front of the elements written since `later` was made.
    pub fn fill(&mut self, later: Later, n: usize) {
        let mut head = [0u8; 24];
        let mut text = itoa::Buffer::new();
        let digits = text.format(n).as_bytes();
        head[0] = later.marker;
        head[1..1 + digits.len()].copy_from_slice(digits);
        head[1 + digits.len()..3 + digits.len()].copy_from_slice(b"\r\n");
        self.buffer
            .splice(later.at..later.at, head[..3 + digits.len()].iter().copied());
    }

    /// Bytes that are already encoded (replies from another core).
    pub fn raw(&mut self, encoded: &[u8]) {
        self.buffer.extend_from_slice(encoded);
    }

    fn marker_of(&self, resp3: u8) -> u8 {
        match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => resp3,
        }
    }

    #[inline]
    fn header(&mut self, marker: u8, n: i64) {
        self.buffer.push(marker);
        self.buffer
            .extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
        self.line_end();
    }

    #[inline]
    fn line_end(&mut self) {
        self.buffer.extend_from_slice(b"\r\n");
    }
}

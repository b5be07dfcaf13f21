//! Results as bytes, in RESP2 or RESP3.
//!
//! A command writes its result straight into the buffer that goes to the socket (or back to the
//! session's core): no tree of values is built and thrown away. The encoder knows the protocol
//! version and nothing of connections, so commands stay pure (docs/decisions/0001).
//!
//! A caller that must take back what a failed command wrote notes [`Reply::len`] before and calls
//! [`Reply::truncate`] after.
//!
//! A reply may have a limit. What would make it longer is not written, and the reply says so from then on: its owner sends
//! nothing of it, and a command with much left to write may stop.

use base::{Atom, IntText, Moved, NotRun, Refusal, number};

/// Marker, longest length, `txt:` and both line ends of a bulk or verbatim string.
const FRAME_BYTES: usize = 32;
/// `%.17g` writes whole numbers below this as plain digits.
const WHOLE_SCORES: u64 = 100_000_000_000_000_000;

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
    /// Commands that have not run here, by where their replies begin, ascending: whoever looks for a better place for them need not
    /// read the bytes.
    not_run: Vec<(usize, NotRun)>,
    /// Bytes beyond which it does not grow.
    limit: usize,
    has_overflowed: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Reply::new(Protocol::Resp2)
    }
}

impl Reply {
    pub fn new(protocol: Protocol) -> Self {
        Reply::over(Vec::new(), protocol)
    }

    /// Encodes behind what `buffer` already holds.
    pub fn over(buffer: Vec<u8>, protocol: Protocol) -> Self {
        Reply {
            buffer,
            protocol,
            not_run: Vec::new(),
            limit: usize::MAX,
            has_overflowed: false,
        }
    }

    /// From here on the buffer does not grow beyond so many bytes.
    #[inline]
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Whether something was not written because of the limit: what is here is not a reply.
    #[inline]
    pub fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }

    /// Bytes that are already encoded, whatever the limit is: they are in memory anyway.
    pub fn put(&mut self, encoded: &[u8]) {
        self.buffer.extend_from_slice(encoded);
    }

    /// The bytes, to be exchanged for others; what is noted of commands that have not run stays.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Something of `other` was not written: so it is here.
    pub fn note_overflow(&mut self, other: &Reply) {
        self.has_overflowed |= other.has_overflowed;
    }

    /// Room for so many bytes more, unless that is beyond the limit.
    #[inline]
    fn make_room(&mut self, bytes: usize) -> bool {
        self.buffer.capacity() - self.buffer.len() >= bytes || self.grow(bytes)
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> bool {
        let is_too_much = self.buffer.len().saturating_add(bytes) > self.limit;
        match is_too_much {
            true => self.has_overflowed = true,
            false => self.buffer.reserve(bytes),
        }
        !is_too_much
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

    /// The bytes, to be changed as the caller likes: what was known of them is forgotten.
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        self.not_run.clear();
        &mut self.buffer
    }

    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Forgets everything after the first `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
        if !self.not_run.is_empty() {
            self.not_run.retain(|(at, _)| *at < len);
        }
    }

    /// Why the command whose reply begins at `at` has not run here, if it has not.
    #[inline]
    pub fn not_run_at(&self, at: usize) -> Option<&NotRun> {
        let found = self.not_run.binary_search_by_key(&at, |(of, _)| *of).ok()?;
        self.not_run.get(found).map(|(_, not_run)| not_run)
    }

    /// The reply that begins at `at`, behind all that were noted before, says that its command has not run.
    pub fn note_not_run(&mut self, at: usize, not_run: NotRun) {
        self.not_run.push((at, not_run));
    }

    /// What says that a command has not run, among the replies that begin in this part.
    pub fn not_run_in(
        &self,
        part: std::ops::Range<usize>,
    ) -> impl Iterator<Item = &(usize, NotRun)> {
        self.not_run.iter().filter(move |(at, _)| part.contains(at))
    }

    /// What is here, with what is known of it; nothing stays.
    pub fn take(&mut self) -> Reply {
        let mut taken = Reply::over(std::mem::take(&mut self.buffer), self.protocol);
        taken.not_run = std::mem::take(&mut self.not_run);
        taken
    }

    /// Gives the address in every MOVED another form, if `form` has one.
    pub fn rename_moved(&mut self, form: impl Fn(&Moved) -> Option<NotRun>) {
        // From behind, so that those before stay where they are.
        for place in (0..self.not_run.len()).rev() {
            let Some((at, NotRun::Moved(moved))) = self.not_run.get(place) else {
                continue;
            };
            let (at, Some(other)) = (*at, form(moved)) else {
                continue;
            };
            let is_there = |end: usize, line: &str| {
                let bytes = self.buffer.get(at + 1..end);
                self.buffer.get(at) == Some(&b'-') && bytes == Some(line.as_bytes())
            };
            let end = at + 1 + moved.text().len();
            if is_there(end, moved.text()) {
                self.buffer.splice(at + 1..end, other.text().bytes());
            }
        }
        self.not_run.clear();
    }

    /// Replies of another core.
    pub fn append(&mut self, other: &Reply) {
        let from = self.len();
        self.has_overflowed |= other.has_overflowed;
        self.raw(&other.buffer);
        let noted = other.not_run.iter();
        self.not_run
            .extend(noted.map(|(at, not_run)| (from + at, not_run.clone())));
    }

    #[inline]
    pub fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// `+text`; the text must hold no line break.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `-text`; line breaks in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.buffer.push(b'-');
        let start = self.buffer.len();
        self.buffer.extend_from_slice(text.as_bytes());
        for byte in self.buffer.iter_mut().skip(start) {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.line_end();
    }

    pub fn refusal(&mut self, refusal: &Refusal) {
        if let Refusal::NotRun(not_run) = refusal {
            self.note_not_run(self.len(), NotRun::clone(not_run));
        }
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
        if !self.make_room(bytes.len() + FRAME_BYTES) {
            return;
        }
        self.header(b'$', bytes.len() as i64);
        self.buffer.extend_from_slice(bytes);
        self.line_end();
    }

    #[inline]
    pub fn atom(&mut self, atom: Atom<'_>) {
        match atom {
            Atom::Bytes(bytes) => self.bulk(bytes),
            Atom::Int(_) => self.bulk(atom.bytes(&mut IntText::default())),
        }
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
        // Most scores are whole numbers; those need no float formatting.
        let whole = value as i64;
        if whole as f64 == value && whole.unsigned_abs() < WHOLE_SCORES && whole != 0 {
            return self.number_text(itoa::Buffer::new().format(whole).as_bytes());
        }
        if value.is_nan() {
            return self.number_text(b"nan");
        }
        self.number_text(number::format_score(value).as_bytes());
    }

    fn number_text(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.line(b',', text),
        }
    }

    /// An integer of any size, as its digits: `(123…`, or a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
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
                self.buffer.reserve(text.len() + FRAME_BYTES);
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
        let end = self.buffer.len();
        self.header(later.marker, n as i64);
        // The header was written last and belongs first.
        let head_bytes = self.buffer.len() - end;
        if let Some(written) = self.buffer.get_mut(later.at..) {
            written.rotate_right(head_bytes);
        }
    }

    /// Bytes that are already encoded (replies from another core).
    pub fn raw(&mut self, encoded: &[u8]) {
        if self.make_room(encoded.len()) {
            self.buffer.extend_from_slice(encoded);
        }
    }

    fn marker_of(&self, resp3: u8) -> u8 {
        match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => resp3,
        }
    }

    /// `marker`, number, line end. Short numbers, which nearly all are, are written as one array
    /// of a size known to the compiler: one capacity check and one store.
    #[inline]
    fn header(&mut self, marker: u8, n: i64) {
        match n {
            0..=9 => {
                let head = [marker, digit(n), b'\r', b'\n'];
                self.buffer.extend_from_slice(&head);
            }
            10..=99 => {
                let head = [marker, digit(n / 10), digit(n % 10), b'\r', b'\n'];
                self.buffer.extend_from_slice(&head);
            }
            100..=999 => {
                let (a, b, c) = (digit(n / 100), digit(n / 10 % 10), digit(n % 10));
                self.buffer
                    .extend_from_slice(&[marker, a, b, c, b'\r', b'\n']);
            }
            _ => self.line(marker, itoa::Buffer::new().format(n).as_bytes()),
        }
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        self.buffer.reserve(text.len() + 3);
        self.buffer.push(marker);
        self.buffer.extend_from_slice(text);
        self.line_end();
    }

    #[inline]
    fn line_end(&mut self) {
        self.buffer.extend_from_slice(b"\r\n");
    }
}

/// The last decimal digit of a number below ten.
#[inline]
fn digit(n: i64) -> u8 {
    b'0' + n as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_has_not_run_is_known_as_long_as_its_reply_is_there() {
        let moved = NotRun::moved(7, "a:1");
        let mut part = Reply::new(Protocol::Resp2);
        part.ok();
        part.refusal(&moved.clone().into());
        part.refusal(&Refusal::Syntax);
        let mut whole = Reply::new(Protocol::Resp2);
        whole.int(1);
        let from = whole.len();
        whole.append(&part);
        let at = from + b"+OK\r\n".len();
        assert_eq!(whole.not_run_at(at), Some(&moved));
        let others = (0..whole.len()).filter(|&other| other != at);
        assert!(others.into_iter().all(|it| whole.not_run_at(it).is_none()));

        whole.truncate(at);
        whole.ok();
        assert_eq!(whole.not_run_at(at), None, "another reply is there now");
        part.buffer_mut().clear();
        part.ok();
        part.ok();
        assert_eq!(part.not_run_at(b"+OK\r\n".len()), None);
    }

    #[test]
    fn a_reply_does_not_grow_beyond_its_limit() {
        let mut reply = Reply::new(Protocol::Resp2);
        reply.set_limit(1000);
        (0..10).for_each(|_| reply.bulk(b"12345"));
        assert!(!reply.has_overflowed());
        reply.bulk(&[b'x'; 5000]);
        assert!(reply.has_overflowed());
        let before = reply.len();
        (0..10_000).for_each(|_| reply.bulk(b"12345"));
        assert!(reply.len() < 2000);
        reply.truncate(before);
        let mut whole = Reply::new(Protocol::Resp2);
        whole.append(&reply);
        assert!(whole.has_overflowed(), "whoever joins replies is told");
    }

    fn both(write: impl Fn(&mut Reply)) -> (String, String) {
        let text = |protocol| {
            let mut reply = Reply::new(protocol);
            write(&mut reply);
            String::from_utf8(reply.into_bytes()).unwrap()
        };
        (text(Protocol::Resp2), text(Protocol::Resp3))
    }

    fn expect(write: impl Fn(&mut Reply), resp2: &str, resp3: &str) {
        assert_eq!(both(write), (resp2.to_owned(), resp3.to_owned()));
    }

    #[test]
    fn scalars() {
        for n in [0, 9, 10, 99, 100, 999, 1000, -1, i64::MIN, i64::MAX] {
            let text = format!(":{n}\r\n");
            expect(|r| r.int(n), &text, &text);
        }
        expect(|r| r.null(), "$-1\r\n", "_\r\n");
        expect(|r| r.null_array(), "*-1\r\n", "_\r\n");
        expect(|r| r.boolean(true), ":1\r\n", "#t\r\n");
        expect(|r| r.big_number("-123"), "$4\r\n-123\r\n", "(-123\r\n");
        expect(|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        expect(|r| r.verbatim("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n");
        expect(|r| r.bulk_int(-12), "$3\r\n-12\r\n", "$3\r\n-12\r\n");
    }

    #[test]
    fn doubles() {
        for (value, text) in [
            (1.5, "1.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (3.3, "3.2999999999999998"),
            (-17.0, "-17"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let resp2 = format!("${}\r\n{text}\r\n", text.len());
            expect(|r| r.double(value), &resp2, &format!(",{text}\r\n"));
        }
    }

    #[test]
    fn aggregates() {
        expect(|r| r.map(2), "*4\r\n", "%2\r\n");
        expect(|r| r.set(12), "*12\r\n", "~12\r\n");
        expect(|r| r.push(3), "*3\r\n", ">3\r\n");
        let later = |r: &mut Reply| {
            r.ok();
            let later = r.set_later();
            r.int(1);
            r.int(2);
            r.fill(later, 2);
        };
        expect(
            later,
            "+OK\r\n*2\r\n:1\r\n:2\r\n",
            "+OK\r\n~2\r\n:1\r\n:2\r\n",
        );
    }
}

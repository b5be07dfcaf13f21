//! One command as it stands in a buffer: the buffer and where each argument lies in it.
//!
//! The same shape serves a command in a session's read buffer and one that travelled to another
//! core inside a batch, so neither needs a copy per argument.

use std::ops::Index;

use base::{Refusal, number};

/// Where one argument lies in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

/// The arguments of one command; argument 0 is its name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// `spans` must lie within `buffer`; an argument that does not reads as empty.
    pub fn new(buffer: &'a [u8], spans: &'a [Span]) -> Self {
        Args { buffer, spans }
    }

    /// Number of arguments, name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `i`, borrowed from the buffer (not from `self`).
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(i)?;
        self.buffer
            .get(span.start as usize..span.start as usize + span.len as usize)
    }

    /// Argument `i`; empty when there is none (arity is checked before a command runs).
    #[inline]
    pub fn at(&self, i: usize) -> &'a [u8] {
        self.get(i).unwrap_or_default()
    }

    /// All arguments from `first` on.
    pub fn iter_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buffer = self.buffer;
        self.spans
            .get(first..)
            .unwrap_or_default()
            .iter()
            .map(move |span| {
                buffer
                    .get(span.start as usize..span.start as usize + span.len as usize)
                    .unwrap_or_default()
            })
    }

    /// The same command without its first `n` arguments.
    pub fn skip(&self, n: usize) -> Args<'a> {
        Args {
            buffer: self.buffer,
            spans: self.spans.get(n..).unwrap_or_default(),
        }
    }

    /// Whether argument `i` is `word`, letters compared without case.
    #[inline]
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.get(i)
            .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Argument `i` as an integer, or Redis' "not an integer" refusal.
    #[inline]
    pub fn int(&self, i: usize) -> Result<i64, Refusal> {
        number::parse_i64(self.at(i)).ok_or(Refusal::NotInteger)
    }

    /// Argument `i` as a float, or Redis' "not a valid float" refusal.
    pub fn float(&self, i: usize) -> Result<f64, Refusal> {
        number::parse_f64(self.at(i)).ok_or(Refusal::NotFloat)
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, i: usize) -> &[u8] {
        self.at(i)
    }
}

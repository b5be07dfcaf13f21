//! Commands out of bytes, incrementally. (Skeleton: the `resp` owner completes it.)

use crate::args::Span;

/// What a client may send before it is cut off.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub bulk_bytes: usize,
    pub args: usize,
    pub inline_bytes: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            bulk_bytes: base::limits::MAX_BULK_BYTES,
            args: base::limits::MAX_ARGS,
            inline_bytes: base::limits::MAX_INLINE_BYTES,
        }
    }
}

/// Bad bytes: the text after `-ERR Protocol error: `. The connection is closed after it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError(pub String);

/// What [`RequestParser::parse`] found at the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A whole command; its arguments are in [`RequestParser::spans`], relative to the buffer's
    /// start, and it took `consumed` bytes.
    Command { consumed: usize },
    /// Nothing to run (empty line, `*0`): drop `consumed` bytes and go on.
    Nothing { consumed: usize },
    /// The command is not complete; at least `needed` more bytes must come.
    Incomplete { needed: usize },
}

/// Remembers how far an incomplete command has been read, so that bytes are looked at once.
#[derive(Debug, Default)]
pub struct RequestParser {
    spans: Vec<Span>,
}

impl RequestParser {
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for a command at the start of `buffer`. After `Incomplete`, the next call must pass
    /// the same bytes with more behind them.
    pub fn parse(
        &mut self,
        _buffer: &[u8],
        _limits: &RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        todo!("resp owner")
    }

    /// The arguments of the command last parsed.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}

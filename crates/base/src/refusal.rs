//! The answer "no": what a command tells a client instead of a result.
//!
//! One mapping to RESP ([`Refusal::text`], the line after `-`); gRPC gets another with the tables.
//! A refusal never carries an effect: whoever returns one has changed nothing.

use std::borrow::Cow;

use crate::Slot;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The key holds another type than the command works on.
    WrongType,
    Syntax,
    NotInteger,
    NotFloat,
    NoSuchKey,
    /// Index or offset outside the value or the type's limits.
    IndexOutOfRange,
    /// INCR and friends left the range of a 64-bit integer.
    Overflow,
    /// Memory limit reached and nothing may be evicted.
    OutOfMemory,
    /// The command has not run here: it may run elsewhere, or a moment later. In a box: every command returns a refusal
    /// or none, and a larger type costs each of them.
    NotRun(Box<NotRun>),
    /// Any other complete error line, code first: `"ERR value is not an integer or out of range"`.
    Text(Cow<'static, str>),
}

/// Why a command has not run on this node of a cluster. Sessions take it to where it runs, or wait; the client reads the
/// line only if they cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRun {
    /// Nobody leads the slot at this moment.
    LeaderChanging(&'static str),
    /// What it needs is on its way to this node.
    Unready(&'static str),
    /// Another node leads the slot.
    Moved(Moved),
}

/// Where a slot is led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    line: String,
    pub address: String,
}

impl From<NotRun> for Refusal {
    fn from(not_run: NotRun) -> Self {
        Refusal::NotRun(Box::new(not_run))
    }
}

impl Moved {
    /// The line a client reads, code first.
    pub fn text(&self) -> &str {
        &self.line
    }

    /// The same slot at another address.
    pub fn at(&self, address: &str) -> NotRun {
        let slot = self.line.split(' ').nth(1).unwrap_or_default();
        NotRun::Moved(Moved {
            line: format!("MOVED {slot} {address}"),
            address: address.to_owned(),
        })
    }
}

impl NotRun {
    pub fn moved(slot: Slot, address: &str) -> NotRun {
        NotRun::Moved(Moved {
            line: format!("MOVED {slot} {address}"),
            address: address.to_owned(),
        })
    }

    pub fn text(&self) -> &str {
        match self {
            NotRun::LeaderChanging(line) | NotRun::Unready(line) => line,
            NotRun::Moved(moved) => &moved.line,
        }
    }
}

impl Refusal {
    /// A refusal with a fixed line, code included (`"ERR …"`).
    pub const fn new(line: &'static str) -> Self {
        Refusal::Text(Cow::Borrowed(line))
    }

    /// A refusal whose line is made at run time, code included.
    pub fn text_of(line: String) -> Self {
        Refusal::Text(Cow::Owned(line))
    }

    /// The line a RESP client reads after `-`: code, space, message.
    pub fn text(&self) -> &str {
        match self {
            Refusal::WrongType => {
                "WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            Refusal::Syntax => "ERR syntax error",
            Refusal::NotInteger => "ERR value is not an integer or out of range",
            Refusal::NotFloat => "ERR value is not a valid float",
            Refusal::NoSuchKey => "ERR no such key",
            Refusal::IndexOutOfRange => "ERR index out of range",
            Refusal::Overflow => "ERR increment or decrement would overflow",
            Refusal::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Refusal::NotRun(not_run) => not_run.text(),
            Refusal::Text(line) => line,
        }
    }

    /// The first word of [`Refusal::text`], as `INFO errorstats` counts it.
    pub fn code(&self) -> &str {
        let text = self.text();
        text.split(' ').next().unwrap_or(text)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

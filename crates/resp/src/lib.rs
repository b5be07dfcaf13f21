//! The Redis protocol, RESP2, RESP3 and inline: bytes in, commands out; results in, bytes out.
//!
//! Pure: it knows neither sockets nor sessions. [`RequestParser`] reads commands out of a buffer
//! without copying them, [`Args`] is one such command, [`Reply`] writes results into a buffer in
//! the session's protocol version.

mod args;
mod inline;
mod reply;
mod request;

pub use args::{Args, Span};
pub use inline::{quote, words};
pub use reply::{Later, Protocol, Reply};
pub use request::{Parsed, ProtocolError, RequestLimits, RequestParser};

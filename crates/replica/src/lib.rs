//! One Raft member around raft-rs, generic over what is replicated: bytes in, committed bytes out.
//!
//! Pure: it reads no clock, starts no thread, touches no disk. Time comes as ticks, what must be
//! on disk leaves as a [`LogWrite`], and the word that it is there comes back as a number.

mod log;

pub use log::{LogError, LogStore, LogWrite};

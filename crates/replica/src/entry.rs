//! What the server proposes: the format of a log entry's payload.
//!
//! ```text
//!  0        1      2            10        18            n-4      n
//!  ├─────────┼──────┼────────────┼─────────┼─────────────┼────────┤
//!  │ version │ kind │ stamp_ms   │ seed    │ body        │ crc32c │
//!  └─────────┴──────┴────────────┴─────────┴─────────────┴────────┘
//!    1         1..4   u64          u64       by kind       of all before it
//!
//!  Commands  count:u32, then per command  db:u8 argc:var (len:var bytes)*
//!  Rows      the row changes of a keyspace, opaque here
//!  Expire    count:u32, then per key      db:u8 deadline_ms:u64 len:var bytes
//!  Digest    id:u64                       take a digest of the state as of this entry
//! ```
//!
//! Fixed numbers are little endian; `var` is a u32, seven bits a byte, low ones first, in as few
//! bytes as it takes. Stamp and seed are all that applying may know of time and chance
//! (DESIGN §7).
//!
//! [`decode`] looks at everything once, checksum and structure, so that iterating cannot fail.
//! Wrong bytes are an error, never a panic: [`EntryError`] says which kind.
//!
//! An entry of a newer version stops the replica that cannot read it; versions are raised only
//! when every member understands them.

mod read;
mod write;

use std::fmt;

pub use read::{
    Body, Command, Commands, Decoded, Expirations, Expired, decode, decode_lazily, is_rows,
};
pub use write::{EntryWriter, ExpireWriter, digest_payload, rows_payload};

/// The version this code writes, and the newest it reads.
pub const VERSION: u8 = 1;

const HEADER_BYTES: usize = 18;
const CHECKSUM_BYTES: usize = 4;

const KIND_COMMANDS: u8 = 1;
const KIND_ROWS: u8 = 2;
const KIND_EXPIRE: u8 = 3;
const KIND_DIGEST: u8 = 4;

/// A payload that cannot be applied. It is in the log, so the region must stop here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryError {
    /// Not the bytes that were proposed.
    Corrupt(&'static str),
    /// Written by a newer program.
    NewerVersion(u8),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::Corrupt(what) => write!(f, "log entry is corrupt: {what}"),
            EntryError::NewerVersion(version) => write!(
                f,
                "log entry has format version {version}, this program reads up to {VERSION}: \
                 it was written by a newer one"
            ),
        }
    }
}

impl std::error::Error for EntryError {}

#[cfg(test)]
mod tests;

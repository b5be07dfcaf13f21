//! The Redis dump format (RDB) as bytes: lengths, strings, packed elements, checksum. What a value is, `keyspace` knows; what a
//! whole dump is, `dump`.
//!
//! ```text
//!   REDIS0010  aux…  ( SELECTDB n  ( [EXPIRETIME_MS t] type key value )… )…  EOF  crc64
//!   source     bytes that are read      strings   lengths and strings, written and read     checksum   CRC-64
//!   packing    elements in one string: listpack, ziplist, zipmap, intset                    lzf        compression
//!   skip       what has no place here
//! ```
//!
//! A file is never trusted: lengths cost memory only as far as bytes really follow, and damage is an [`Error`], not a panic.
//!
//! No files, no clock: both come from above.

mod checksum;
mod cursor;
mod intset;
mod listpack;
mod lzf;
mod packing;
pub mod skip;
mod source;
mod strings;
mod ziplist;
mod zipmap;

pub use checksum::Checksum;
pub use packing::{Elements, Packing, pair};
pub use source::Source;
pub use strings::{Packer, Writer, push_bytes, push_length};

/// The version written; Redis 7.0's.
pub const VERSION: u32 = 10;
/// The newest version read: 11 adds one set encoding and one stream encoding to 10.
pub const NEWEST_VERSION: u32 = 11;

/// What may stand where a type is expected.
pub mod opcode {
    pub const FUNCTION2: u8 = 245;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQ: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZE_DB: u8 = 251;
    pub const EXPIRE_TIME_MS: u8 = 252;
    pub const EXPIRE_TIME: u8 = 253;
    pub const SELECT_DB: u8 = 254;
    pub const EOF: u8 = 255;
}

/// Layouts of values that are stepped over; those of each kind are in `keyspace/src/kind/*/rdb.rs`.
mod layout {
    pub const MODULE_2: u8 = 7;
    pub const STREAM: u8 = 15;
    pub const STREAM_2: u8 = 19;
    pub const STREAM_3: u8 = 21;
}

/// Why a dump could not be read.
#[derive(Debug)]
pub enum Error {
    Io(std::io::Error),
    /// The bytes end before the dump does.
    Truncated,
    NotADump,
    Version(u32),
    /// A database beyond the sixteen there are.
    Database(u64),
    /// Bytes that no Redis writes; what was being read.
    Corrupt(&'static str),
    /// A string of so many bytes, more than there is room for.
    TooLong(u64),
    /// A value of a type that is not known, and its key.
    UnknownType {
        layout: u8,
        key: Vec<u8>,
    },
    Checksum {
        expected: u64,
        found: u64,
    },
    /// Whoever takes the parts in cannot go on: why.
    Stopped(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => write!(f, "cannot read the dump: {error}"),
            Error::Truncated => f.write_str("the dump ends too early"),
            Error::NotADump => f.write_str("this is not a Redis dump"),
            Error::Version(version) => write!(f, "dumps of version {version} are not supported"),
            Error::Database(db) => write!(f, "the dump has a database {db}, beyond the last"),
            Error::Corrupt(what) => write!(f, "the dump is damaged: bad {what}"),
            Error::TooLong(len) => {
                let most = base::limits::MOST_BULK_BYTES;
                write!(
                    f,
                    "the dump has a string of {len} bytes; {most} are the most"
                )
            }
            Error::UnknownType { layout, key } => {
                let key = key.escape_ascii();
                write!(f, "value type {layout} of key '{key}' is not supported")
            }
            Error::Stopped(why) => f.write_str(why),
            Error::Checksum { expected, found } => {
                write!(
                    f,
                    "wrong checksum: {expected:016x} in the dump, {found:016x} found"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

//! Values to bytes: the plain layouts, which every Redis since 4 loads and repacks as it likes.
//!
//! Each core encodes its own entries into chunks; a chunk names its database first, so chunks may follow each other in any
//! order. Whoever joins them runs one [`Checksum`] over all bytes. Collections are written element by element from where
//! they lie.

use base::DbIndex;
use keyspace::{ValueRef, dumped};
use rdb::{Checksum, Packer, VERSION, Writer, opcode, push_bytes, push_length};

/// What the start of a dump tells about its making.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header {
    pub created_s: u64,
    pub used_memory_bytes: u64,
}

/// Appends magic, version and aux fields.
pub fn append_header(header: &Header, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("REDIS{VERSION:04}").as_bytes());
    let mut aux = |name: &str, value: &str| {
        out.push(opcode::AUX);
        push_bytes(name.as_bytes(), None, out);
        push_bytes(value.as_bytes(), None, out);
    };
    aux("redis-ver", "7.0.15");
    aux("redis-bits", "64");
    aux("ctime", &header.created_s.to_string());
    aux("used-mem", &header.used_memory_bytes.to_string());
    aux("aof-base", "0");
}

/// Appends how many keys, and keys with a deadline, the loader should make room for. Selects `db`.
pub fn append_db_size(db: DbIndex, keys: usize, with_deadline: usize, out: &mut Vec<u8>) {
    out.push(opcode::SELECT_DB);
    push_length(usize::from(db), out);
    out.push(opcode::RESIZE_DB);
    push_length(keys, out);
    push_length(with_deadline, out);
}

/// The end of a dump. `checksum` has seen all bytes before it.
pub fn trailer(mut checksum: Checksum) -> [u8; 9] {
    checksum.update(&[opcode::EOF]);
    let mut out = [opcode::EOF; 9];
    if let Some(crc) = out.last_chunk_mut() {
        *crc = checksum.value().to_le_bytes();
    }
    out
}

/// Appends entries. One per core; chunks made by several may follow each other in any order.
pub struct Encoder {
    /// `Some` if long strings are to be compressed (`rdbcompression`).
    packer: Option<Packer>,
    db: Option<DbIndex>,
}

impl Encoder {
    pub fn new(compress: bool) -> Self {
        Encoder {
            packer: compress.then(Packer::default),
            db: None,
        }
    }

    /// A chunk begins: the next entry names its database again.
    pub fn begin_chunk(&mut self) {
        self.db = None;
    }

    pub fn append(
        &mut self,
        db: DbIndex,
        key: &[u8],
        value: ValueRef<'_>,
        expire_at_ms: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if self.db != Some(db) {
            self.db = Some(db);
            out.push(opcode::SELECT_DB);
            push_length(usize::from(db), out);
        }
        if let Some(at_ms) = expire_at_ms {
            out.push(opcode::EXPIRE_TIME_MS);
            out.extend_from_slice(&at_ms.to_le_bytes());
        }
        out.push(dumped::layout_of(value.kind()));
        push_bytes(key, self.packer.as_mut(), out);
        let packer = self.packer.as_mut();
        dumped::write(&value, &mut Writer { packer, out });
    }
}

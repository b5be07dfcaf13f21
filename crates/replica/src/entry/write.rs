//! Building payloads, each in one buffer. The checksum goes last, when stamp and seed are known.

use super::{
    CHECKSUM_BYTES, HEADER_BYTES, KIND_COMMANDS, KIND_DIGEST, KIND_EXPIRE, KIND_ROWS, VERSION,
};

/// Header and count: where the first command, or key, begins.
const FIRST_BYTES: usize = HEADER_BYTES + 4;

/// The commands of a core's turn, one behind the other. No allocation per command.
#[derive(Debug, Default)]
pub struct EntryWriter {
    list: List,
}

/// Keys whose time is over.
#[derive(Debug, Default)]
pub struct ExpireWriter {
    list: List,
}

impl EntryWriter {
    pub fn new() -> EntryWriter {
        EntryWriter::default()
    }

    /// For about so many bytes of commands.
    pub fn with_capacity(bytes: usize) -> EntryWriter {
        let out = Vec::with_capacity(FIRST_BYTES + bytes + CHECKSUM_BYTES);
        EntryWriter {
            list: List {
                out,
                ..List::default()
            },
        }
    }

    /// `args` begins with the command's name.
    pub fn push<'a>(&mut self, db: u8, args: impl ExactSizeIterator<Item = &'a [u8]>) {
        let out = self.list.next();
        out.push(db);
        put_var(out, args.len() as u32);
        for arg in args {
            put_bytes(out, arg);
        }
    }

    /// Commands so far.
    pub fn count(&self) -> u32 {
        self.list.count
    }

    pub fn is_empty(&self) -> bool {
        self.list.count == 0
    }

    /// Bytes the entry would have.
    pub fn size_bytes(&self) -> usize {
        self.list.size_bytes()
    }

    /// The payload. The writer is empty again.
    pub fn finish(&mut self, stamp_ms: u64, seed: u64) -> Vec<u8> {
        self.list.finish(KIND_COMMANDS, stamp_ms, seed)
    }
}

impl ExpireWriter {
    pub fn new() -> ExpireWriter {
        ExpireWriter::default()
    }

    /// `key` is to go if it still has this deadline.
    pub fn push(&mut self, db: u8, deadline_ms: u64, key: &[u8]) {
        let out = self.list.next();
        out.push(db);
        out.extend_from_slice(&deadline_ms.to_le_bytes());
        put_bytes(out, key);
    }

    pub fn count(&self) -> u32 {
        self.list.count
    }

    pub fn is_empty(&self) -> bool {
        self.list.count == 0
    }

    pub fn finish(&mut self, stamp_ms: u64, seed: u64) -> Vec<u8> {
        self.list.finish(KIND_EXPIRE, stamp_ms, seed)
    }
}

/// A physical entry: row changes as the keyspace encodes them.
pub fn rows_payload(stamp_ms: u64, seed: u64, rows: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + rows.len() + CHECKSUM_BYTES);
    out.resize(HEADER_BYTES, 0);
    out.extend_from_slice(rows);
    seal(&mut out, KIND_ROWS, stamp_ms, seed);
    out
}

/// An entry that asks every replica for a digest of its state.
pub fn digest_payload(stamp_ms: u64, id: u64) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES];
    out.extend_from_slice(&id.to_le_bytes());
    seal(&mut out, KIND_DIGEST, stamp_ms, 0);
    out
}

#[derive(Debug, Default)]
struct List {
    /// Empty, or header and count (not filled in yet) and `count` elements.
    out: Vec<u8>,
    count: u32,
    /// Of the last payload: the next one is likely to be about as large.
    last_bytes: usize,
}

impl List {
    #[inline]
    fn next(&mut self) -> &mut Vec<u8> {
        if self.out.is_empty() {
            self.out.reserve(self.last_bytes.clamp(128, 64 << 10));
            self.out.resize(FIRST_BYTES, 0);
        }
        self.count += 1;
        &mut self.out
    }

    fn size_bytes(&self) -> usize {
        self.out.len().max(FIRST_BYTES) + CHECKSUM_BYTES
    }

    fn finish(&mut self, kind: u8, stamp_ms: u64, seed: u64) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.out);
        let count = std::mem::take(&mut self.count);
        if out.is_empty() {
            out.resize(FIRST_BYTES, 0);
        }
        put_at(&mut out, HEADER_BYTES, &count.to_le_bytes());
        seal(&mut out, kind, stamp_ms, seed);
        self.last_bytes = out.len();
        out
    }
}

/// Fills in the header, whose room is there, and adds the checksum.
fn seal(out: &mut Vec<u8>, kind: u8, stamp_ms: u64, seed: u64) {
    put_at(out, 0, &[VERSION, kind]);
    put_at(out, 2, &stamp_ms.to_le_bytes());
    put_at(out, 10, &seed.to_le_bytes());
    let checksum = crc32c::crc32c(out);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn put_at(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(room) = out.get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

#[inline]
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_var(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

#[inline]
fn put_var(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

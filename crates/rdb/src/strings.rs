//! Lengths and strings as a dump writes them.
//!
//! ```text
//!   00nnnnnn                 length n            11000000 i8     the text of a small integer
//!   01nnnnnn nnnnnnnn        length n            11000001 i16
//!   10000000 u32 (BE)        length              11000010 i32
//!   10000001 u64 (BE)        length              11000011 packed-length length LZF
//! ```

use base::{Atom, IntText, number};

use super::lzf::Compressor;

/// Shorter strings are not worth compressing, nor is a gain of fewer bytes (as in Redis).
const COMPRESS_FROM_BYTES: usize = 21;
const WORTHWHILE_BYTES: usize = 4;

pub(super) const INT8: u8 = 0;
pub(super) const INT16: u8 = 1;
pub(super) const INT32: u8 = 2;
pub(super) const LZF: u8 = 3;
/// First byte of a string that is not plain.
pub(super) const SPECIAL: u8 = 0xc0;
pub(super) const LEN32: u8 = 0x80;
pub(super) const LEN64: u8 = 0x81;

pub fn push_length(n: usize, out: &mut Vec<u8>) {
    let n = n as u64;
    if n < 1 << 6 {
        out.push(n as u8);
    } else if n < 1 << 14 {
        out.extend_from_slice(&[0x40 | (n >> 8) as u8, n as u8]);
    } else if let Ok(n) = u32::try_from(n) {
        out.push(LEN32);
        out.extend_from_slice(&n.to_be_bytes());
    } else {
        out.push(LEN64);
        out.extend_from_slice(&n.to_be_bytes());
    }
}

/// Appends one string; `packer` compresses long ones, none does not.
pub fn push_atom(atom: Atom<'_>, packer: Option<&mut Packer>, out: &mut Vec<u8>) {
    match atom {
        Atom::Int(value) => push_int(value, out),
        Atom::Bytes(bytes) => push_bytes(bytes, packer, out),
    }
}

pub fn push_bytes(bytes: &[u8], packer: Option<&mut Packer>, out: &mut Vec<u8>) {
    // "-2147483648" is the longest text that has a shorter form.
    if bytes.len() <= 11
        && let Some(value) = number::parse_i64(bytes)
    {
        return push_int(value, out);
    }
    if bytes.len() >= COMPRESS_FROM_BYTES
        && let Some(packer) = packer
        && packer.push(bytes, out)
    {
        return;
    }
    push_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn push_int(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&[SPECIAL | INT8, value as u8]);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(SPECIAL | INT16);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(SPECIAL | INT32);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        let mut room = IntText::default();
        let text = Atom::Int(value).bytes(&mut room);
        push_length(text.len(), out);
        out.extend_from_slice(text);
    }
}

/// Compresses strings, with memory kept from one to the next.
#[derive(Default)]
pub struct Packer {
    compressor: Compressor,
    packed: Vec<u8>,
}

impl Packer {
    /// Appends `bytes` compressed if that is worthwhile.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        self.packed.clear();
        let fits = u32::try_from(bytes.len()).is_ok();
        if !fits
            || !self
                .compressor
                .compress(bytes, WORTHWHILE_BYTES, &mut self.packed)
        {
            return false;
        }
        out.push(SPECIAL | LZF);
        push_length(self.packed.len(), out);
        push_length(bytes.len(), out);
        out.extend_from_slice(&self.packed);
        true
    }
}

/// Where a value is written.
pub struct Writer<'a> {
    /// `Some` if long strings are to be compressed.
    pub packer: Option<&'a mut Packer>,
    pub out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    #[inline]
    pub fn length(&mut self, n: usize) {
        push_length(n, self.out);
    }

    #[inline]
    pub fn atom(&mut self, atom: Atom<'_>) {
        push_atom(atom, self.packer.as_deref_mut(), self.out);
    }

    /// Bytes as they are.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

//! One element inside a packed run of bytes: how it is written, read, skipped and compared.
//!
//! ```text
//!   00..7f            text of that many bytes, which follow
//!   80..e3            the integer 0..99
//!   f0 f1 f2 f3 f4    an integer in the next 2, 3, 4, 6, 8 bytes (little endian)
//!   f5                a float in the next 8 bytes (scores only)
//!   f8 f9             text; its length in the next 2, 4 bytes, then the bytes
//! ```
//!
//! Every text that reads as a strict 64-bit integer is kept as an integer in its shortest form, so an
//! element has exactly one code: two elements are equal iff their codes are. A search therefore
//! encodes what it looks for once ([`Form`]) and compares codes.
//!
//! Where a run is also walked backwards, each record ends in its own size, written so that it can be
//! read from its end ([`back_size`], [`write_back`], [`read_back`]).
//!
//! Invariant: runs are only ever written by this module, so reading trusts them.

use base::Atom;
use base::number::parse_i64;

const SMALL_INT: u8 = 0x80;
const SMALL_INT_END: u8 = SMALL_INT + 100;
const INT16: u8 = 0xf0;
const INT24: u8 = 0xf1;
const INT32: u8 = 0xf2;
const INT48: u8 = 0xf3;
const INT64: u8 = 0xf4;
const FLOAT: u8 = 0xf5;
const TEXT16: u8 = 0xf8;
const TEXT32: u8 = 0xf9;

/// Longest text with a one-byte head.
const SHORT_TEXT: usize = 0x7f;

/// An element about to be written or looked for.
#[derive(Clone, Copy)]
pub(crate) enum Form<'a> {
    Text(&'a [u8]),
    Int { code: [u8; 9], size: u8 },
}

impl<'a> Form<'a> {
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        match bytes {
            // Most texts are told apart from integers by their first byte.
            [b'0'..=b'9' | b'-', ..] if bytes.len() <= 20 => match parse_i64(bytes) {
                Some(value) => Form::int(value),
                None => Form::Text(bytes),
            },
            _ => Form::Text(bytes),
        }
    }

    #[inline]
    pub(crate) fn of_atom(atom: Atom<'a>) -> Self {
        match atom {
            Atom::Bytes(bytes) => Form::of(bytes),
            Atom::Int(value) => Form::int(value),
        }
    }

    #[inline]
    pub(crate) fn int(value: i64) -> Self {
        let mut code = [0; 9];
        code[1..].copy_from_slice(&value.to_le_bytes());
        let (tag, size) = match value {
            0..=99 => (SMALL_INT + value as u8, 1),
            -0x8000..=0x7fff => (INT16, 3),
            -0x80_0000..=0x7f_ffff => (INT24, 4),
            -0x8000_0000..=0x7fff_ffff => (INT32, 5),
            -0x8000_0000_0000..=0x7fff_ffff_ffff => (INT48, 7),
            _ => (INT64, 9),
        };
        code[0] = tag;
        Form::Int { code, size }
    }

    /// A score: an integer where that is exact (and not −0), else the float's own bytes.
    #[inline]
    pub(crate) fn score(score: f64) -> Self {
        let whole = score as i64;
        if whole as f64 == score && whole != i64::MAX && (whole != 0 || score.is_sign_positive()) {
            return Form::int(whole);
        }
        let mut code = [0; 9];
        code[0] = FLOAT;
        code[1..].copy_from_slice(&score.to_le_bytes());
        Form::Int { code, size: 9 }
    }

    /// Bytes the code takes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        match self {
            Form::Int { size, .. } => usize::from(*size),
            Form::Text(text) if text.len() <= SHORT_TEXT => 1 + text.len(),
            Form::Text(text) if text.len() <= 0xffff => 3 + text.len(),
            Form::Text(text) => 5 + text.len(),
        }
    }

    /// Writes the code to the head of `out`, which has room for it; its size.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        let text = match self {
            Form::Int { code, size } => {
                let size = usize::from(*size);
                out[..size].copy_from_slice(&code[..size]);
                return size;
            }
            Form::Text(text) => *text,
        };
        let head = if text.len() <= SHORT_TEXT {
            out[0] = text.len() as u8;
            1
        } else if text.len() <= 0xffff {
            out[0] = TEXT16;
            out[1..3].copy_from_slice(&(text.len() as u16).to_le_bytes());
            3
        } else {
            assert!(text.len() <= u32::MAX as usize, "element beyond 4 GiB");
            out[0] = TEXT32;
            out[1..5].copy_from_slice(&(text.len() as u32).to_le_bytes());
            5
        };
        out[head..head + text.len()].copy_from_slice(text);
        head + text.len()
    }

    /// Whether the element at the head of `run` is this one.
    #[inline]
    pub(crate) fn is_at(&self, run: &[u8]) -> bool {
        match self {
            Form::Int { code, size } => run.starts_with(&code[..usize::from(*size)]),
            Form::Text(text) if text.len() <= SHORT_TEXT => {
                usize::from(run[0]) == text.len() && is_equal(&run[1..1 + text.len()], text)
            }
            Form::Text(text) => matches!(read(run).0, Atom::Bytes(bytes) if bytes == *text),
        }
    }
}

/// Whether two texts of one length are equal. Names that lie together often share their beginnings,
/// so the ends are compared first, as one word; that mostly saves the call that compares the rest.
#[inline]
fn is_equal(text: &[u8], other: &[u8]) -> bool {
    match (text.split_last_chunk::<8>(), other.split_last_chunk::<8>()) {
        (Some((rest, end)), Some((other, other_end))) => {
            u64::from_le_bytes(*end) == u64::from_le_bytes(*other_end) && rest == other
        }
        _ => text.iter().rev().eq(other.iter().rev()),
    }
}

#[inline]
fn word<const N: usize>(run: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&run[1..1 + N]);
    bytes
}

/// The element at the head of `run` and the size of its code.
#[inline]
pub(crate) fn read(run: &[u8]) -> (Atom<'_>, usize) {
    let tag = run[0];
    if tag <= SHORT_TEXT as u8 {
        let size = 1 + usize::from(tag);
        return (Atom::Bytes(&run[1..size]), size);
    }
    if tag < SMALL_INT_END {
        return (Atom::Int(i64::from(tag - SMALL_INT)), 1);
    }
    read_wide(run)
}

fn read_wide(run: &[u8]) -> (Atom<'_>, usize) {
    match run[0] {
        INT16 => (Atom::Int(i16::from_le_bytes(word(run)).into()), 3),
        INT24 => {
            let [a, b, c] = word(run);
            let value = i32::from_le_bytes([0, a, b, c]) >> 8;
            (Atom::Int(value.into()), 4)
        }
        INT32 => (Atom::Int(i32::from_le_bytes(word(run)).into()), 5),
        INT48 => {
            let [a, b, c, d, e, f] = word(run);
            (
                Atom::Int(i64::from_le_bytes([0, 0, a, b, c, d, e, f]) >> 16),
                7,
            )
        }
        INT64 => (Atom::Int(i64::from_le_bytes(word(run))), 9),
        TEXT16 => {
            let end = 3 + usize::from(u16::from_le_bytes(word(run)));
            (Atom::Bytes(&run[3..end]), end)
        }
        _ => {
            debug_assert_eq!(run[0], TEXT32);
            let end = 5 + u32::from_le_bytes(word(run)) as usize;
            (Atom::Bytes(&run[5..end]), end)
        }
    }
}

/// Sizes of the codes from 0x80 on; 0 where the size is in the bytes that follow.
const SIZES: [u8; 128] = {
    let mut sizes = [1; 128];
    sizes[INT16 as usize - 128] = 3;
    sizes[INT24 as usize - 128] = 4;
    sizes[INT32 as usize - 128] = 5;
    sizes[INT48 as usize - 128] = 7;
    sizes[INT64 as usize - 128] = 9;
    sizes[FLOAT as usize - 128] = 9;
    sizes[TEXT16 as usize - 128] = 0;
    sizes[TEXT32 as usize - 128] = 0;
    sizes
};

/// Size of the code at the head of `run`.
#[inline]
pub(crate) fn skip(run: &[u8]) -> usize {
    let tag = run[0];
    if tag <= SHORT_TEXT as u8 {
        return 1 + usize::from(tag);
    }
    match SIZES[usize::from(tag & 0x7f)] {
        0 => read_wide(run).1,
        size => usize::from(size),
    }
}

/// The score at the head of `run` and the size of its code.
#[inline]
pub(crate) fn read_score(run: &[u8]) -> (f64, usize) {
    if run[0] == FLOAT {
        return (f64::from_le_bytes(word(run)), 9);
    }
    match read(run) {
        (Atom::Int(value), size) => (value as f64, size),
        (Atom::Bytes(_), size) => {
            debug_assert!(false, "a score is a number");
            (0.0, size)
        }
    }
}

/// Bytes that the backward size of a record of `size` bytes takes.
#[inline]
pub(crate) fn back_size(size: usize) -> usize {
    let mut rest = size >> 7;
    let mut bytes = 1;
    while rest > 0 {
        rest >>= 7;
        bytes += 1;
    }
    bytes
}

/// Writes the backward size `size`: seven bits a byte, the lowest last; all bytes but the first say
/// that another one stands before them.
#[inline]
pub(crate) fn write_back(out: &mut [u8], size: usize) {
    let mut rest = size;
    for (i, byte) in out.iter_mut().enumerate().rev() {
        *byte = (rest & 0x7f) as u8 | if i > 0 { 0x80 } else { 0 };
        rest >>= 7;
    }
}

/// The size of the record that ends where `run` ends, and the bytes its backward size takes.
#[inline]
pub(crate) fn read_back(run: &[u8]) -> (usize, usize) {
    let mut size = 0;
    let mut bytes = 0;
    for &byte in run.iter().rev() {
        size |= usize::from(byte & 0x7f) << (7 * bytes);
        bytes += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (size, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_comes_back() {
        let mut texts: Vec<Vec<u8>> = [
            "", "a", "0", "-0", "00", "7", "99", "100", "-1", "abc", "-", "1e3",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
        for shift in 0..64 {
            for delta in -2..=2i64 {
                let value = (1i64 << shift).wrapping_add(delta);
                texts.push(value.to_string().into_bytes());
                texts.push(value.wrapping_neg().to_string().into_bytes());
            }
        }
        for len in [126, 127, 128, 129, 0xffff, 0x1_0000] {
            texts.push(vec![0xf5; len]);
        }
        for text in &texts {
            let form = Form::of(text);
            let mut run = vec![0; form.size() + 3];
            assert_eq!(form.write(&mut run), form.size());
            let (atom, size) = read(&run);
            assert_eq!((atom.to_vec(), size), (text.clone(), form.size()));
            assert_eq!(skip(&run), size);
            for other in &texts {
                assert_eq!(Form::of(other).is_at(&run), other == text);
            }
        }
    }

    #[test]
    fn scores_come_back() {
        for score in [
            0.0,
            -0.0,
            1.0,
            -7.0,
            1.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e300,
            9.3e18,
            i64::MIN as f64,
            i64::MAX as f64,
            f64::MIN_POSITIVE,
        ] {
            let form = Form::score(score);
            let mut run = [0; 9];
            form.write(&mut run);
            let (back, size) = read_score(&run);
            assert_eq!((back.to_bits(), size), (score.to_bits(), form.size()));
            assert_eq!(skip(&run), size);
        }
    }

    #[test]
    fn backward_sizes_come_back() {
        for size in [0, 1, 127, 128, 16383, 16384, 70_000, 1 << 30] {
            let mut run = vec![0xff; 3 + back_size(size)];
            write_back(&mut run[3..], size);
            assert_eq!(read_back(&run), (size, back_size(size)));
        }
    }
}

//! Listpacks: elements one behind the other, each followed by its own length for walking back.
//!
//! ```text
//!   total:u32  count:u16  ( encoding [bytes] backlen )…  0xff
//! ```

use base::Atom;

use super::Error;
use super::cursor::Cursor;

/// The elements of a listpack, front to back.
pub(super) struct Elements<'a>(Cursor<'a>);

impl<'a> Elements<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes, "listpack");
        let total = cursor.u32()?;
        let _count = cursor.u16()?; // not exact beyond 65534; the end mark is
        if total as usize != bytes.len() {
            return Err(cursor.bad());
        }
        Ok(Elements(cursor))
    }

    fn element(&mut self) -> Result<Option<Atom<'a>>, Error> {
        let cursor = &mut self.0;
        let first = cursor.byte()?;
        let (atom, size) = match first {
            0x00..=0x7f => (Atom::Int(i64::from(first)), 1),
            0x80..=0xbf => {
                let len = usize::from(first & 0x3f);
                (Atom::Bytes(cursor.take(len)?), 1 + len)
            }
            0xc0..=0xdf => {
                let raw = i64::from(first & 0x1f) << 8 | i64::from(cursor.byte()?);
                (
                    Atom::Int(if raw >= 1 << 12 { raw - (1 << 13) } else { raw }),
                    2,
                )
            }
            0xe0..=0xef => {
                let len = usize::from(first & 0x0f) << 8 | usize::from(cursor.byte()?);
                (Atom::Bytes(cursor.take(len)?), 2 + len)
            }
            0xf0 => {
                let len = cursor.u32()? as usize;
                (Atom::Bytes(cursor.take(len)?), 5 + len)
            }
            0xf1 => (Atom::Int(cursor.int(2)?), 3),
            0xf2 => (Atom::Int(cursor.int(3)?), 4),
            0xf3 => (Atom::Int(cursor.int(4)?), 5),
            0xf4 => (Atom::Int(cursor.int(8)?), 9),
            0xff if cursor.is_empty() => return Ok(None),
            _ => return Err(cursor.bad()),
        };
        cursor.take(backlen_bytes(size))?;
        Ok(Some(atom))
    }
}

/// Bytes that the length of an element of `size` bytes takes behind it: seven bits each.
fn backlen_bytes(size: usize) -> usize {
    match size {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Atom<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.element().transpose()
    }
}

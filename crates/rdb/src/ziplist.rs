//! Ziplists: what listpacks were before Redis 7. Each element says how long the one before it is.
//!
//! ```text
//!   bytes:u32  tail:u32  count:u16  ( previous:1|5  encoding [bytes] )…  0xff
//! ```

use base::Atom;

use super::Error;
use super::cursor::Cursor;

/// The elements of a ziplist, front to back.
pub(super) struct Elements<'a>(Cursor<'a>);

impl<'a> Elements<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes, "ziplist");
        let total = cursor.u32()?;
        let (_tail, _count) = (cursor.u32()?, cursor.u16()?);
        if total as usize != bytes.len() {
            return Err(cursor.bad());
        }
        Ok(Elements(cursor))
    }

    fn element(&mut self) -> Result<Option<Atom<'a>>, Error> {
        let cursor = &mut self.0;
        match cursor.byte()? {
            0xff if cursor.is_empty() => return Ok(None),
            0xff => return Err(cursor.bad()),
            0xfe => drop(cursor.take(4)?),
            _ => {}
        }
        let first = cursor.byte()?;
        let len = match first >> 6 {
            0 => usize::from(first),
            1 => usize::from(first & 0x3f) << 8 | usize::from(cursor.byte()?),
            2 => u32::from_be_bytes(cursor.array()?) as usize,
            _ => return self.integer(first).map(Some),
        };
        Ok(Some(Atom::Bytes(cursor.take(len)?)))
    }

    fn integer(&mut self, encoding: u8) -> Result<Atom<'a>, Error> {
        let bytes = match encoding {
            0xc0 => 2,
            0xd0 => 4,
            0xe0 => 8,
            0xf0 => 3,
            0xfe => 1,
            0xf1..=0xfd => return Ok(Atom::Int(i64::from(encoding) - 0xf1)),
            _ => return Err(self.0.bad()),
        };
        self.0.int(bytes).map(Atom::Int)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Atom<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.element().transpose()
    }
}

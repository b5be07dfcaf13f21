//! Zipmaps: small hashes of dumps made before Redis 2.6.
//!
//! ```text
//!   count:u8  ( len field  len free:u8 value free-bytes )…  0xff      len: u8, or 254 and u32
//! ```

use base::Atom;

use super::Error;
use super::cursor::Cursor;

/// Fields and values in turn.
pub(super) struct Elements<'a> {
    cursor: Cursor<'a>,
    is_value: bool,
}

impl<'a> Elements<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes, "zipmap");
        cursor.byte()?;
        Ok(Elements {
            cursor,
            is_value: false,
        })
    }

    fn element(&mut self) -> Result<Option<Atom<'a>>, Error> {
        let cursor = &mut self.cursor;
        let len = match cursor.byte()? {
            0xff if !self.is_value => return Ok(None),
            0xff => return Err(cursor.bad()),
            0xfe => cursor.u32()? as usize,
            len => usize::from(len),
        };
        let free = if self.is_value { cursor.byte()? } else { 0 };
        let element = cursor.take(len)?;
        cursor.take(usize::from(free))?;
        self.is_value = !self.is_value;
        Ok(Some(Atom::Bytes(element)))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Atom<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.element().transpose()
    }
}

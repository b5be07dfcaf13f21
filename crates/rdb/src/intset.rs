//! Intsets: sorted integers of one width, `width:u32 count:u32 ( integer )…`.

use base::Atom;

use super::Error;
use super::cursor::Cursor;

/// The members of an intset, lowest first.
pub(super) struct Elements<'a> {
    cursor: Cursor<'a>,
    width: usize,
}

impl<'a> Elements<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(bytes, "intset");
        let (width, count) = (cursor.u32()? as usize, cursor.u32()? as usize);
        if !matches!(width, 2 | 4 | 8) || count.checked_mul(width) != bytes.len().checked_sub(8) {
            return Err(cursor.bad());
        }
        Ok(Elements { cursor, width })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Atom<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        Some(self.cursor.int(self.width).map(Atom::Int))
    }
}

//! Steps through bytes that may be damaged: every read says whether there was enough.

use super::Error;

/// What is left of a packed value.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// What is being read, for the error.
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Cursor { rest: bytes, what }
    }

    pub fn bad(&self) -> Error {
        Error::Corrupt(self.what)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.bad())?;
        self.rest = rest;
        Ok(head)
    }

    pub fn byte(&mut self) -> Result<u8, Error> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.bad())?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A signed integer of 1, 2, 3, 4 or 8 bytes, low byte first.
    pub fn int(&mut self, bytes: usize) -> Result<i64, Error> {
        let taken = self.take(bytes)?;
        let unsigned = taken.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let unused = 64 - 8 * bytes as u32;
        Ok((unsigned << unused) as i64 >> unused)
    }
}

//! Bytes of a dump as they are pulled in: lengths, strings, and the checksum over all of them.

use std::io::Read;

use base::limits::MOST_BULK_BYTES;

use super::{Checksum, Error, lzf, strings};

/// Read ahead, and the most memory given on the word of a length alone.
const PIECE_BYTES: usize = 64 * 1024;

pub struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    position: usize,
    checksum: Checksum,
    packed: Vec<u8>,
}

/// The length of a string, if there may be one of it.
fn checked(len: u64) -> Result<usize, Error> {
    let fits = usize::try_from(len).ok();
    fits.filter(|len| *len <= MOST_BULK_BYTES)
        .ok_or(Error::TooLong(len))
}

/// A length, or how a string that is not plain is written.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: Read> Source<R> {
    pub fn new(reader: R) -> Self {
        Source {
            reader,
            buffer: Vec::with_capacity(PIECE_BYTES),
            position: 0,
            checksum: Checksum::new(),
            packed: Vec::new(),
        }
    }

    /// Checksum of all bytes handed out so far.
    pub fn checksum(&self) -> u64 {
        let mut checksum = self.checksum.clone();
        checksum.update(self.buffer.get(..self.position).unwrap_or_default());
        checksum.value()
    }

    /// Replaces the used-up buffer by the next piece.
    fn refill(&mut self) -> Result<(), Error> {
        self.checksum.update(&self.buffer);
        self.buffer.clear();
        self.position = 0;
        let piece = self.reader.by_ref().take(PIECE_BYTES as u64);
        { piece }.read_to_end(&mut self.buffer).map_err(Error::Io)?;
        if self.buffer.is_empty() {
            return Err(Error::Truncated);
        }
        Ok(())
    }

    fn available(&mut self, limit: usize) -> Result<&[u8], Error> {
        if self.position >= self.buffer.len() {
            self.refill()?;
        }
        let end = self.buffer.len().min(self.position.saturating_add(limit));
        let piece = self.buffer.get(self.position..end).unwrap_or_default();
        self.position = end;
        Ok(piece)
    }

    pub fn byte(&mut self) -> Result<u8, Error> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        let mut rest = out.as_mut_slice();
        while !rest.is_empty() {
            let piece = self.available(rest.len())?;
            let (head, tail) = rest.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            rest = tail;
        }
        Ok(out)
    }

    /// Appends the next `n` bytes; memory grows only as bytes really come.
    pub fn bytes(&mut self, mut n: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        out.reserve(n.min(PIECE_BYTES as u64) as usize);
        while n > 0 {
            let piece = self.available(usize::try_from(n).unwrap_or(usize::MAX))?;
            out.extend_from_slice(piece);
            n -= piece.len() as u64;
        }
        Ok(())
    }

    pub fn skip(&mut self, mut n: u64) -> Result<(), Error> {
        while n > 0 {
            let piece = self.available(usize::try_from(n).unwrap_or(usize::MAX))?;
            n -= piece.len() as u64;
        }
        Ok(())
    }

    pub fn length(&mut self) -> Result<u64, Error> {
        match self.any_length()? {
            Length::Plain(n) => Ok(n),
            Length::Special(_) => Err(Error::Corrupt("length")),
        }
    }

    fn any_length(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Plain(u64::from(first)),
            1 => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            3 => Length::Special(first & 0x3f),
            _ => match first {
                strings::LEN32 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
                strings::LEN64 => Length::Plain(u64::from_be_bytes(self.array()?)),
                _ => return Err(Error::Corrupt("length")),
            },
        })
    }

    /// Reads a string into `out`, in place of what it holds.
    pub fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.clear();
        let int = match self.any_length()? {
            Length::Plain(n) => return self.bytes(checked(n)? as u64, out),
            Length::Special(strings::LZF) => return self.compressed(out),
            Length::Special(strings::INT8) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Special(strings::INT16) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Special(strings::INT32) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Special(_) => return Err(Error::Corrupt("string encoding")),
        };
        out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes());
        Ok(())
    }

    fn compressed(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let (packed_len, len) = (self.length()?, self.length()?);
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        self.bytes(packed_len, &mut packed)?;
        let len = checked(len)?;
        let done = lzf::decompress(&packed, len, out);
        self.packed = packed;
        done.ok_or(Error::Corrupt("compressed string"))
    }

    pub fn skip_string(&mut self) -> Result<(), Error> {
        match self.any_length()? {
            Length::Plain(n) => self.skip(n),
            Length::Special(strings::INT8) => self.skip(1),
            Length::Special(strings::INT16) => self.skip(2),
            Length::Special(strings::INT32) => self.skip(4),
            Length::Special(strings::LZF) => {
                let packed_len = self.length()?;
                self.length()?;
                self.skip(packed_len)
            }
            Length::Special(_) => Err(Error::Corrupt("string encoding")),
        }
    }
}

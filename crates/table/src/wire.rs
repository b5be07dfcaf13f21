//! The bytes of tables and images: a format number, then varints, lengths and tagged values.
//!
//! Written by hand rather than with protobuf because images are most of what the log and the memory of a table
//! hold, and are read field by field. Readers check every length against what is left.

use crate::value::{Kind, Value};

/// Bytes that no version of this program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "corrupt row: {}", self.0)
    }
}

impl std::error::Error for Corrupt {}

/// The tags on disk: never renumbered.
fn tag(kind: Kind) -> u8 {
    match kind {
        Kind::Int64 => 1,
        Kind::Uint64 => 2,
        Kind::Float64 => 3,
        Kind::String => 4,
        Kind::Blob => 5,
    }
}

pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(format: u8) -> Writer {
        Writer(vec![format])
    }

    /// In the room of a former one.
    pub(crate) fn over(mut room: Vec<u8>, format: u8) -> Writer {
        room.clear();
        room.push(format);
        Writer(room)
    }

    pub(crate) fn uint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Zigzag: small numbers of either sign are short.
    pub(crate) fn int(&mut self, number: i64) {
        self.uint(((number << 1) ^ (number >> 63)) as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn value(&mut self, value: &Value) {
        self.0.push(tag(value.kind()));
        match value {
            Value::Int(number) => self.int(*number),
            Value::Uint(number) => self.uint(*number),
            Value::Float(number) => self.0.extend_from_slice(&number.to_bits().to_le_bytes()),
            Value::Text(text) => self.bytes(text.as_bytes()),
            Value::Blob(bytes) => self.bytes(bytes),
        }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Client ids: random, so a varint would only be longer.
    pub(crate) fn wide(&mut self, number: u128) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn fields(&mut self, fields: &[(u16, Value)]) {
        self.uint(fields.len() as u64);
        for (id, value) in fields {
            self.uint(u64::from(*id));
            self.value(value);
        }
    }

    /// What `inner` writes, with its length before it.
    pub(crate) fn sized(&mut self, inner: impl FnOnce(&mut Writer)) {
        let at = self.0.len();
        self.0.push(0);
        inner(self);
        let len = self.0.len() - at - 1;
        match self.0.get_mut(at) {
            Some(byte) if len < 0x80 => *byte = len as u8,
            _ => {
                let mut head = Writer(Vec::new());
                head.uint(len as u64);
                self.0.splice(at..=at, head.done());
            }
        }
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], format: u8) -> Result<Reader<'a>, Corrupt> {
        match bytes.split_first() {
            Some((found, rest)) if *found == format => Ok(Reader(rest)),
            Some(_) => Err(Corrupt("written by another version")),
            None => Err(Corrupt("empty")),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Corrupt("cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Corrupt> {
        let (first, rest) = self.0.split_first().ok_or(Corrupt("cut off"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn uint(&mut self) -> Result<u64, Corrupt> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // the tenth byte has one bit left
            if shift == 63 && bits > 1 {
                return Err(Corrupt("a number too large"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Corrupt("a number too long"))
    }

    pub(crate) fn int(&mut self) -> Result<i64, Corrupt> {
        let number = self.uint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A number of a narrower type: ids.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Corrupt> {
        T::try_from(self.uint()?).map_err(|_| Corrupt("an id too large"))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let count = usize::try_from(self.uint()?).map_err(|_| Corrupt("cut off"))?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Corrupt> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Corrupt("a text that is not utf-8"))
    }

    pub(crate) fn value(&mut self) -> Result<Value, Corrupt> {
        let found = self.byte()?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| tag(*kind) == found)
            .ok_or(Corrupt("a value of no known kind"))?;
        let value = match kind {
            Kind::Int64 => Value::Int(self.int()?),
            Kind::Uint64 => Value::Uint(self.uint()?),
            Kind::Float64 => {
                let bits = self.take(8)?.try_into().map_err(|_| Corrupt("cut off"))?;
                Value::Float(f64::from_bits(u64::from_le_bytes(bits)))
            }
            Kind::String => Value::Text(self.text()?.into()),
            Kind::Blob => Value::Blob(self.bytes()?.into()),
        };
        value
            .check(kind, "")
            .map_err(|_| Corrupt("a value no table holds"))
    }

    pub(crate) fn wide(&mut self) -> Result<u128, Corrupt> {
        let bytes = self.take(16)?.try_into().map_err(|_| Corrupt("cut off"))?;
        Ok(u128::from_be_bytes(bytes))
    }

    pub(crate) fn fields(&mut self) -> Result<Vec<(u16, Value)>, Corrupt> {
        self.list(|from| Ok((from.small()?, from.value()?)))
    }

    /// A count and so many things. Nothing is reserved for a count that was only claimed.
    pub(crate) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Corrupt>,
    ) -> Result<Vec<T>, Corrupt> {
        let mut list = Vec::new();
        for _ in 0..self.uint()? {
            list.push(each(self)?);
        }
        Ok(list)
    }

    pub(crate) fn end(&self) -> Result<(), Corrupt> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Corrupt("bytes after the end"))
        }
    }
}

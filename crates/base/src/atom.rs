//! One element as a keyspace hands it out: bytes in place, or a small integer kept as a number.
//!
//! Integers are stored as eight bytes rather than as text; most readers (the reply encoder, a
//! comparison) can use them without making text first, so the type keeps the difference visible.

use std::fmt;

/// A borrowed element: a string value, a hash field, a set member, a list element.
#[derive(Clone, Copy)]
pub enum Atom<'a> {
    Bytes(&'a [u8]),
    Int(i64),
}

/// Room for the text of any `i64`; see [`Atom::bytes`].
#[derive(Default)]
pub struct IntText(itoa::Buffer);

impl<'a> Atom<'a> {
    /// The element's bytes; an integer is written into `room`.
    #[inline]
    pub fn bytes<'b>(&self, room: &'b mut IntText) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Atom::Bytes(bytes) => bytes,
            Atom::Int(value) => room.0.format(value).as_bytes(),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut IntText::default()).to_vec()
    }

    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes(&mut IntText::default()));
    }

    /// Length in bytes of the text form.
    pub fn len(&self) -> usize {
        match *self {
            Atom::Bytes(bytes) => bytes.len(),
            Atom::Int(value) => itoa::Buffer::new().format(value).len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn eq_bytes(&self, other: &[u8]) -> bool {
        self.bytes(&mut IntText::default()) == other
    }
}

impl PartialEq for Atom<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Atom::Bytes(a), Atom::Bytes(b)) => a == b,
            (Atom::Int(a), Atom::Int(b)) => a == b,
            _ => self.bytes(&mut IntText::default()) == other.bytes(&mut IntText::default()),
        }
    }
}

impl Eq for Atom<'_> {}

impl<'a> From<&'a [u8]> for Atom<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Atom::Bytes(bytes)
    }
}

impl fmt::Debug for Atom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .bytes(&mut IntText::default())
                .escape_ascii()
                .to_string(),
        )
    }
}

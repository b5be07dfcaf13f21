//! Elements that are packed into one string, in one of four ways.

use base::Atom;

use super::{Error, intset, listpack, ziplist, zipmap};

/// How elements are packed into one string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

/// The elements of a value, or of a part of it, that is one string.
pub type Elements<'a> = Box<dyn Iterator<Item = Result<Atom<'a>, Error>> + 'a>;

impl Packing {
    pub fn elements(self, bytes: &[u8]) -> Result<Elements<'_>, Error> {
        Ok(match self {
            Packing::Listpack => Box::new(listpack::Elements::new(bytes)?),
            Packing::Ziplist => Box::new(ziplist::Elements::new(bytes)?),
            Packing::Zipmap => Box::new(zipmap::Elements::new(bytes)?),
            Packing::Intset => Box::new(intset::Elements::new(bytes)?),
        })
    }
}

/// The second of two elements that belong together.
pub fn pair<'a>(second: Option<Result<Atom<'a>, Error>>) -> Result<Atom<'a>, Error> {
    second.unwrap_or(Err(Error::Corrupt("pair of elements")))
}

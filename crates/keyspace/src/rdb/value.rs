//! One value out of a dump, whatever its layout: as parts, or put together.

use std::io::Read;

use base::{Atom, IntText, number};

use super::source::Source;
use super::{Error, intset, layout, listpack, skip, ziplist, zipmap};
use crate::{Kind, Tuning, Value};

/// How a node of a quicklist is kept.
const PLAIN_NODE: u64 = 1;
const PACKED_NODE: u64 = 2;

/// A piece of a value, in the order of the dump.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part<'a> {
    String(&'a [u8]),
    /// Of a list, from its head on.
    Element(&'a [u8]),
    /// Of a set.
    Member(&'a [u8]),
    /// A member of a sorted set; its score is a number.
    Scored(&'a [u8], f64),
    /// Of a hash: field and value.
    Field(&'a [u8], &'a [u8]),
}

type Each<'a> = dyn FnMut(Part<'_>) -> Result<(), Error> + 'a;

/// The type of the values with this layout; `None` if they have no place here.
pub(super) fn kind_of(layout: u8) -> Option<Kind> {
    Some(match layout {
        layout::STRING => Kind::String,
        layout::LIST | layout::LIST_ZIPLIST | layout::LIST_QUICKLIST | layout::LIST_QUICKLIST_2 => {
            Kind::List
        }
        layout::SET | layout::SET_INTSET | layout::SET_LISTPACK => Kind::Set,
        layout::ZSET | layout::ZSET_2 | layout::ZSET_ZIPLIST | layout::ZSET_LISTPACK => Kind::Zset,
        layout::HASH | layout::HASH_ZIPMAP | layout::HASH_ZIPLIST | layout::HASH_LISTPACK => {
            Kind::Hash
        }
        _ => return None,
    })
}

/// Steps over a value that [`kind_of`] has no type for.
pub(super) fn skip_value<R: Read>(
    source: &mut Source<R>,
    layout: u8,
    key: &[u8],
) -> Result<(), Error> {
    match layout {
        layout::STREAM | layout::STREAM_2 | layout::STREAM_3 => skip::stream(source, layout),
        layout::MODULE_2 => {
            source.length()?;
            skip::module_items(source)
        }
        _ => {
            let key = key.to_vec();
            Err(Error::UnknownType { layout, key })
        }
    }
}

/// Puts the parts of a value together.
pub(super) struct Building<'a> {
    value: Value,
    tuning: &'a Tuning,
}

impl<'a> Building<'a> {
    pub fn new(kind: Kind, tuning: &'a Tuning) -> Self {
        let value = match kind {
            Kind::String => Value::String(Box::default()),
            Kind::List => Value::List(Box::default()),
            Kind::Set => Value::Set(Box::default()),
            Kind::Zset => Value::Zset(Box::default()),
            Kind::Hash => Value::Hash(Box::default()),
        };
        Building { value, tuning }
    }

    pub fn add(&mut self, part: Part<'_>) {
        match (&mut self.value, part) {
            (Value::String(value), Part::String(bytes)) => *value = bytes.into(),
            (Value::List(it), Part::Element(element)) => it.push_back(element, self.tuning),
            (Value::Set(it), Part::Member(member)) => {
                it.insert(member, self.tuning);
            }
            (Value::Zset(it), Part::Scored(member, score)) => {
                it.insert(member, score, self.tuning);
            }
            (Value::Hash(it), Part::Field(field, value)) => {
                it.insert(field, value, self.tuning);
            }
            _ => debug_assert!(false, "a part of another type"),
        }
    }

    /// `None` for an empty collection, which Redis skips as well.
    pub fn finish(self) -> Option<Value> {
        let is_empty = match &self.value {
            Value::String(_) => false,
            Value::List(it) => it.is_empty(),
            Value::Set(it) => it.is_empty(),
            Value::Zset(it) => it.is_empty(),
            Value::Hash(it) => it.is_empty(),
        };
        (!is_empty).then_some(self.value)
    }
}

/// Reads values part by part, with buffers kept from one to the next.
#[derive(Default)]
pub(super) struct Parts {
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Parts {
    /// Hands the parts of the value that follows to `each`; memory is needed for one of them, or
    /// for as many as the dump has packed into one string.
    pub fn read<R: Read>(
        &mut self,
        source: &mut Source<R>,
        kind: Kind,
        layout: u8,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        match kind {
            Kind::String => {
                source.string(&mut self.first)?;
                each(Part::String(&self.first))
            }
            Kind::List => self.list(source, layout, each),
            Kind::Set => self.set(source, layout, each),
            Kind::Zset => self.zset(source, layout, each),
            Kind::Hash => self.hash(source, layout, each),
        }
    }

    fn list<R: Read>(
        &mut self,
        source: &mut Source<R>,
        layout: u8,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let nodes = match layout {
            layout::LIST_ZIPLIST => 1,
            _ => source.length()?,
        };
        for _ in 0..nodes {
            let container = match layout {
                layout::LIST_QUICKLIST_2 => source.length()?,
                layout::LIST => PLAIN_NODE,
                _ => PACKED_NODE,
            };
            source.string(&mut self.first)?;
            match container {
                PLAIN_NODE => each(Part::Element(&self.first))?,
                PACKED_NODE => {
                    for element in packed(&self.first, layout)? {
                        let mut room = IntText::default();
                        each(Part::Element(element?.bytes(&mut room)))?;
                    }
                }
                _ => return Err(Error::Corrupt("list node")),
            }
        }
        Ok(())
    }

    fn set<R: Read>(
        &mut self,
        source: &mut Source<R>,
        layout: u8,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if layout == layout::SET {
            for _ in 0..source.length()? {
                source.string(&mut self.first)?;
                each(Part::Member(&self.first))?;
            }
            return Ok(());
        }
        source.string(&mut self.first)?;
        for member in packed(&self.first, layout)? {
            each(Part::Member(member?.bytes(&mut IntText::default())))?;
        }
        Ok(())
    }

    fn zset<R: Read>(
        &mut self,
        source: &mut Source<R>,
        layout: u8,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if matches!(layout, layout::ZSET | layout::ZSET_2) {
            for _ in 0..source.length()? {
                source.string(&mut self.first)?;
                let score = match layout {
                    layout::ZSET => text_score(source, &mut self.second)?,
                    _ => f64::from_le_bytes(source.array()?),
                };
                if score.is_nan() {
                    return Err(Error::Corrupt("score"));
                }
                each(Part::Scored(&self.first, score))?;
            }
            return Ok(());
        }
        source.string(&mut self.first)?;
        let mut elements = packed(&self.first, layout)?;
        while let Some(member) = elements.next() {
            let score = match pair(elements.next())? {
                Atom::Int(score) => score as f64,
                Atom::Bytes(text) => number::parse_f64(text).ok_or(Error::Corrupt("score"))?,
            };
            each(Part::Scored(member?.bytes(&mut IntText::default()), score))?;
        }
        Ok(())
    }

    fn hash<R: Read>(
        &mut self,
        source: &mut Source<R>,
        layout: u8,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if layout == layout::HASH {
            for _ in 0..source.length()? {
                source.string(&mut self.first)?;
                source.string(&mut self.second)?;
                each(Part::Field(&self.first, &self.second))?;
            }
            return Ok(());
        }
        source.string(&mut self.first)?;
        let mut elements = packed(&self.first, layout)?;
        while let Some(field) = elements.next() {
            let value = pair(elements.next())?;
            let (mut field_room, mut value_room) = (IntText::default(), IntText::default());
            let field = field?;
            let value = value.bytes(&mut value_room);
            each(Part::Field(field.bytes(&mut field_room), value))?;
        }
        Ok(())
    }
}

type Elements<'a> = Box<dyn Iterator<Item = Result<Atom<'a>, Error>> + 'a>;

/// The elements of a value that is one string.
fn packed(bytes: &[u8], layout: u8) -> Result<Elements<'_>, Error> {
    Ok(match layout {
        layout::SET_INTSET => Box::new(intset::Elements::new(bytes)?),
        layout::HASH_ZIPMAP => Box::new(zipmap::Elements::new(bytes)?),
        layout::LIST_ZIPLIST
        | layout::LIST_QUICKLIST
        | layout::ZSET_ZIPLIST
        | layout::HASH_ZIPLIST => Box::new(ziplist::Elements::new(bytes)?),
        _ => Box::new(listpack::Elements::new(bytes)?),
    })
}

/// The second of two elements that belong together.
fn pair<'a>(second: Option<Result<Atom<'a>, Error>>) -> Result<Atom<'a>, Error> {
    second.unwrap_or(Err(Error::Corrupt("pair of elements")))
}

/// A score as text behind its length, or one of three marks in place of the length.
fn text_score<R: Read>(source: &mut Source<R>, text: &mut Vec<u8>) -> Result<f64, Error> {
    match source.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            text.clear();
            source.bytes(u64::from(len), text)?;
            number::parse_f64(text).ok_or(Error::Corrupt("score"))
        }
    }
}

//! One value out of a dump, whatever its layout.

use std::io::Read;

use base::{Atom, IntText, number};

use super::source::Source;
use super::{Error, intset, layout, listpack, skip, ziplist, zipmap};
use crate::{Hash, List, Set, Tuning, Value, Zset};

/// How a node of a quicklist is kept.
const PLAIN_NODE: u64 = 1;
const PACKED_NODE: u64 = 2;

/// Reads values, with buffers kept from one to the next.
pub(super) struct Values<'a> {
    tuning: &'a Tuning,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl<'a> Values<'a> {
    pub fn new(tuning: &'a Tuning) -> Self {
        Values {
            tuning,
            first: Vec::new(),
            second: Vec::new(),
        }
    }

    /// The value that follows; `None` if it is of a type that is not kept here, or empty (which
    /// Redis skips as well).
    pub fn read<R: Read>(
        &mut self,
        source: &mut Source<R>,
        layout: u8,
        key: &[u8],
    ) -> Result<Option<Value>, Error> {
        let value = match layout {
            layout::STRING => {
                let mut bytes = Vec::new();
                source.string(&mut bytes)?;
                return Ok(Some(Value::String(bytes.into_boxed_slice())));
            }
            layout::LIST
            | layout::LIST_ZIPLIST
            | layout::LIST_QUICKLIST
            | layout::LIST_QUICKLIST_2 => {
                let list = self.list(source, layout)?;
                (!list.is_empty()).then(|| Value::List(Box::new(list)))
            }
            layout::SET | layout::SET_INTSET | layout::SET_LISTPACK => {
                let set = self.set(source, layout)?;
                (!set.is_empty()).then(|| Value::Set(Box::new(set)))
            }
            layout::ZSET | layout::ZSET_2 | layout::ZSET_ZIPLIST | layout::ZSET_LISTPACK => {
                let zset = self.zset(source, layout)?;
                (!zset.is_empty()).then(|| Value::Zset(Box::new(zset)))
            }
            layout::HASH | layout::HASH_ZIPMAP | layout::HASH_ZIPLIST | layout::HASH_LISTPACK => {
                let hash = self.hash(source, layout)?;
                (!hash.is_empty()).then(|| Value::Hash(Box::new(hash)))
            }
            layout::STREAM | layout::STREAM_2 | layout::STREAM_3 => {
                skip::stream(source, layout)?;
                None
            }
            layout::MODULE_2 => {
                source.length()?;
                skip::module_items(source)?;
                None
            }
            _ => {
                let key = key.to_vec();
                return Err(Error::UnknownType { layout, key });
            }
        };
        Ok(value)
    }

    fn list<R: Read>(&mut self, source: &mut Source<R>, layout: u8) -> Result<List, Error> {
        let mut list = List::new();
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
                PLAIN_NODE => list.push_back(&self.first, self.tuning),
                PACKED_NODE => {
                    for element in packed(&self.first, layout)? {
                        let mut room = IntText::default();
                        list.push_back(element?.bytes(&mut room), self.tuning);
                    }
                }
                _ => return Err(Error::Corrupt("list node")),
            }
        }
        Ok(list)
    }

    fn set<R: Read>(&mut self, source: &mut Source<R>, layout: u8) -> Result<Set, Error> {
        let mut set = Set::new();
        if layout == layout::SET {
            for _ in 0..source.length()? {
                source.string(&mut self.first)?;
                set.insert(&self.first, self.tuning);
            }
            return Ok(set);
        }
        source.string(&mut self.first)?;
        for member in packed(&self.first, layout)? {
            set.insert(member?.bytes(&mut IntText::default()), self.tuning);
        }
        Ok(set)
    }

    fn zset<R: Read>(&mut self, source: &mut Source<R>, layout: u8) -> Result<Zset, Error> {
        let mut zset = Zset::new();
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
                zset.insert(&self.first, score, self.tuning);
            }
            return Ok(zset);
        }
        source.string(&mut self.first)?;
        let mut elements = packed(&self.first, layout)?;
        while let Some(member) = elements.next() {
            let score = match pair(elements.next())? {
                Atom::Int(score) => score as f64,
                Atom::Bytes(text) => number::parse_f64(text).ok_or(Error::Corrupt("score"))?,
            };
            zset.insert(member?.bytes(&mut IntText::default()), score, self.tuning);
        }
        Ok(zset)
    }

    fn hash<R: Read>(&mut self, source: &mut Source<R>, layout: u8) -> Result<Hash, Error> {
        let mut hash = Hash::new();
        if layout == layout::HASH {
            for _ in 0..source.length()? {
                source.string(&mut self.first)?;
                source.string(&mut self.second)?;
                hash.insert(&self.first, &self.second, self.tuning);
            }
            return Ok(hash);
        }
        source.string(&mut self.first)?;
        let mut elements = packed(&self.first, layout)?;
        while let Some(field) = elements.next() {
            let value = pair(elements.next())?;
            let (mut field_room, mut value_room) = (IntText::default(), IntText::default());
            let field = field?;
            let value = value.bytes(&mut value_room);
            hash.insert(field.bytes(&mut field_room), value, self.tuning);
        }
        Ok(hash)
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

//! Hashes in dumps. The name of a part is a field, its value the field's value.

use std::io::Read;

use base::IntText;
use rdb::{Error, Packing, Source, Writer, pair};

use super::Hash;
use crate::dumped::{Dumped, Each, Room};
use crate::{Part, Tuning};

const HASH: u8 = 4;
const ZIPMAP: u8 = 9;
const ZIPLIST: u8 = 13;
const LISTPACK: u8 = 16;

impl Dumped for Hash {
    const LAYOUT: u8 = HASH;

    fn has_layout(layout: u8) -> bool {
        matches!(layout, HASH | ZIPMAP | ZIPLIST | LISTPACK)
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.length(self.len());
        for (field, value) in self.iter() {
            out.atom(field);
            out.atom(value);
        }
    }

    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if layout == HASH {
            for _ in 0..source.length()? {
                source.string(&mut room.first)?;
                source.string(&mut room.second)?;
                each(Part {
                    name: &room.first,
                    value: &room.second,
                })?;
            }
            return Ok(());
        }
        let packing = match layout {
            ZIPMAP => Packing::Zipmap,
            ZIPLIST => Packing::Ziplist,
            _ => Packing::Listpack,
        };
        source.string(&mut room.first)?;
        let mut elements = packing.elements(&room.first)?;
        while let Some(field) = elements.next() {
            let value = pair(elements.next())?;
            let (mut field_room, mut value_room) = (IntText::default(), IntText::default());
            each(Part {
                name: field?.bytes(&mut field_room),
                value: value.bytes(&mut value_room),
            })?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part<'_>, tuning: &Tuning) {
        self.insert(part.name, part.value, tuning);
    }
}

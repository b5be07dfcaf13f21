//! Sets in dumps. The name of a part is a member.

use std::io::Read;

use base::IntText;
use rdb::{Error, Packing, Source, Writer};

use super::Set;
use crate::dumped::{Dumped, Each, Room};
use crate::{Part, Tuning};

const SET: u8 = 2;
const INTSET: u8 = 11;
const LISTPACK: u8 = 20;

fn member(name: &[u8]) -> Part<'_> {
    Part { name, value: b"" }
}

impl Dumped for Set {
    const LAYOUT: u8 = SET;

    fn has_layout(layout: u8) -> bool {
        matches!(layout, SET | INTSET | LISTPACK)
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.length(self.len());
        self.iter().for_each(|member| out.atom(member));
    }

    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if layout == SET {
            for _ in 0..source.length()? {
                source.string(&mut room.first)?;
                each(member(&room.first))?;
            }
            return Ok(());
        }
        let packing = match layout {
            INTSET => Packing::Intset,
            _ => Packing::Listpack,
        };
        source.string(&mut room.first)?;
        for atom in packing.elements(&room.first)? {
            each(member(atom?.bytes(&mut IntText::default())))?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part<'_>, tuning: &Tuning) {
        self.insert(part.name, tuning);
    }
}

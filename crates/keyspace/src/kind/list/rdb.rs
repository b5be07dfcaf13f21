//! Lists in dumps. The value of a part is an element, from the head on.

use std::io::Read;

use base::IntText;
use rdb::{Error, Packing, Source, Writer};

use super::List;
use crate::dumped::{Dumped, Each, Room};
use crate::{Part, Tuning};

const LIST: u8 = 1;
const ZIPLIST: u8 = 10;
const QUICKLIST: u8 = 14;
const QUICKLIST_2: u8 = 18;

/// How a node of a quicklist is kept.
const PLAIN_NODE: u64 = 1;
const PACKED_NODE: u64 = 2;

fn element(value: &[u8]) -> Part<'_> {
    Part { name: b"", value }
}

impl Dumped for List {
    const LAYOUT: u8 = LIST;

    fn has_layout(layout: u8) -> bool {
        matches!(layout, LIST | ZIPLIST | QUICKLIST | QUICKLIST_2)
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.length(self.len());
        self.iter().for_each(|element| out.atom(element));
    }

    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let nodes = match layout {
            ZIPLIST => 1,
            _ => source.length()?,
        };
        let packing = match layout {
            QUICKLIST_2 => Packing::Listpack,
            _ => Packing::Ziplist,
        };
        for _ in 0..nodes {
            let container = match layout {
                QUICKLIST_2 => source.length()?,
                LIST => PLAIN_NODE,
                _ => PACKED_NODE,
            };
            source.string(&mut room.first)?;
            match container {
                PLAIN_NODE => each(element(&room.first))?,
                PACKED_NODE => {
                    for atom in packing.elements(&room.first)? {
                        each(element(atom?.bytes(&mut IntText::default())))?;
                    }
                }
                _ => return Err(Error::Corrupt("list node")),
            }
        }
        Ok(())
    }

    fn add(&mut self, part: Part<'_>, tuning: &Tuning) {
        self.push_back(part.value, tuning);
    }
}

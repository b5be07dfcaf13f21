//! Sorted sets in dumps. The name of a part is a member, its value the score: IEEE 754 bits, big-endian.

use std::io::Read;

use base::{Atom, IntText, number};
use rdb::{Error, Packing, Source, Writer, pair};

use super::Zset;
use crate::dumped::{Dumped, Each, Room};
use crate::{Part, Tuning};

const ZSET: u8 = 3;
const ZSET_2: u8 = 5;
const ZIPLIST: u8 = 12;
const LISTPACK: u8 = 17;

/// Hands out a member and its score, which must be a number.
fn hand_out(each: &mut Each<'_>, name: &[u8], score: f64) -> Result<(), Error> {
    let value = &score.to_bits().to_be_bytes();
    each(Part { name, value })
}

impl Dumped for Zset {
    const LAYOUT: u8 = ZSET_2;

    fn has_layout(layout: u8) -> bool {
        matches!(layout, ZSET | ZSET_2 | ZIPLIST | LISTPACK)
    }

    fn write(&self, out: &mut Writer<'_>) {
        out.length(self.len());
        for (member, score) in self.iter() {
            out.atom(member);
            out.bytes(&score.to_le_bytes());
        }
    }

    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        if matches!(layout, ZSET | ZSET_2) {
            for _ in 0..source.length()? {
                source.string(&mut room.first)?;
                let score = match layout {
                    ZSET => text_score(source, &mut room.second)?,
                    _ => f64::from_le_bytes(source.array()?),
                };
                if score.is_nan() {
                    return Err(Error::Corrupt("score"));
                }
                hand_out(each, &room.first, score)?;
            }
            return Ok(());
        }
        let packing = match layout {
            ZIPLIST => Packing::Ziplist,
            _ => Packing::Listpack,
        };
        source.string(&mut room.first)?;
        let mut elements = packing.elements(&room.first)?;
        while let Some(member) = elements.next() {
            let score = match pair(elements.next())? {
                Atom::Int(score) => score as f64,
                Atom::Bytes(text) => number::parse_f64(text).ok_or(Error::Corrupt("score"))?,
            };
            hand_out(each, member?.bytes(&mut IntText::default()), score)?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part<'_>, tuning: &Tuning) {
        if let Ok(bits) = part.value.try_into() {
            let score = f64::from_bits(u64::from_be_bytes(bits));
            self.insert(part.name, score, tuning);
        }
    }
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

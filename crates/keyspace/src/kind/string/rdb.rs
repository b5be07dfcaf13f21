//! Strings in dumps.

use std::io::Read;

use base::Atom;
use rdb::{Error, Source, Writer};

use crate::Part;
use crate::dumped::{Each, Room};

pub(crate) const LAYOUT: u8 = 0;

pub(crate) fn write(atom: Atom<'_>, out: &mut Writer<'_>) {
    out.atom(atom);
}

/// The value of the only part is the string.
pub(crate) fn read<R: Read>(
    source: &mut Source<R>,
    room: &mut Room,
    each: &mut Each<'_>,
) -> Result<(), Error> {
    source.string(&mut room.first)?;
    each(Part {
        name: b"",
        value: &room.first,
    })
}

//! One value in a dump, whatever its kind: what the reader and the writer ask of a kind, and the `match`
//! that finds the kind. The layouts of a kind are in `kind/*/rdb.rs`.

use std::io::Read;

use base::Atom;

use super::source::Source;
use super::strings::{Packer, push_atom, push_length};
use super::{Error, intset, layout, listpack, skip, ziplist, zipmap};
use crate::kind::{each_kind, each_value, string};
use crate::{Kind, Part, Tuning, Value, ValueRef};

/// A kind that dumps can hold. All but strings, which have an arm of their own wherever this is used.
///
/// Uses nothing of the kind that is not public: dumps are no part of what a value is.
pub(crate) trait Dumped: Sized {
    /// The layout it is written in: one that every Redis since 4 loads.
    const LAYOUT: u8;

    /// Whether values with this layout are of this kind.
    fn has_layout(layout: u8) -> bool;

    /// Appends the value.
    fn write(&self, out: &mut Writer<'_>);

    /// Hands the parts of the value that follows to `each`; memory is needed for one of them, or
    /// for as many as the dump has packed into one string.
    fn read<R: Read>(
        source: &mut Source<R>,
        layout: u8,
        room: &mut Room,
        each: &mut Each<'_>,
    ) -> Result<(), Error>;

    /// Adds a part that [`Dumped::read`] has handed out.
    fn add(&mut self, part: Part<'_>, tuning: &Tuning);
}

/// Takes parts in.
pub(crate) type Each<'a> = dyn FnMut(Part<'_>) -> Result<(), Error> + 'a;

/// Buffers for strings, kept from one value to the next.
#[derive(Default)]
pub(crate) struct Room {
    pub first: Vec<u8>,
    pub second: Vec<u8>,
}

/// Where a value is written.
pub(crate) struct Writer<'a> {
    /// `Some` if long strings are to be compressed.
    pub(super) packer: Option<&'a mut Packer>,
    pub(super) out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    pub fn length(&mut self, n: usize) {
        push_length(n, self.out);
    }

    pub fn atom(&mut self, atom: Atom<'_>) {
        push_atom(atom, self.packer.as_deref_mut(), self.out);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

/// The layout a value is written in.
pub(super) fn layout_of(kind: Kind) -> u8 {
    each_kind!(kind, Kind: Kind::String => string::rdb::LAYOUT, T => T::LAYOUT)
}

pub(super) fn write(value: &ValueRef<'_>, out: &mut Writer<'_>) {
    each_value!(value, ValueRef: String(atom) => string::rdb::write(*atom, out), it => it.write(out));
}

/// The type of the values with this layout; `None` if they have no place here.
pub(super) fn kind_of(layout: u8) -> Option<Kind> {
    let has_layout = |kind: &Kind| {
        each_kind!(
            kind,
            Kind: Kind::String => layout == string::rdb::LAYOUT,
            T => T::has_layout(layout),
        )
    };
    Kind::ALL.iter().copied().find(has_layout)
}

/// Hands the parts of the value that follows to `each`; see [`Dumped::read`].
pub(super) fn read<R: Read>(
    source: &mut Source<R>,
    kind: Kind,
    layout: u8,
    room: &mut Room,
    each: &mut Each<'_>,
) -> Result<(), Error> {
    each_kind!(
        kind,
        Kind: Kind::String => string::rdb::read(source, room, each),
        T => T::read(source, layout, room, each),
    )
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
        let value = Value::empty(kind);
        Building { value, tuning }
    }

    pub fn add(&mut self, part: Part<'_>) {
        each_value!(
            &mut self.value,
            Value: String(bytes) => *bytes = part.value.into(),
            it => it.add(part, self.tuning),
        );
    }

    /// `None` for an empty collection, which Redis skips as well.
    pub fn finish(self) -> Option<Value> {
        (!self.value.is_empty_collection()).then_some(self.value)
    }
}

/// How elements are packed into one string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

/// The elements of a value, or of a part of it, that is one string.
pub(crate) type Elements<'a> = Box<dyn Iterator<Item = Result<Atom<'a>, Error>> + 'a>;

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
pub(crate) fn pair<'a>(second: Option<Result<Atom<'a>, Error>>) -> Result<Atom<'a>, Error> {
    second.unwrap_or(Err(Error::Corrupt("pair of elements")))
}
